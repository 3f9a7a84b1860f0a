//! Putting, removing and listing definitions.

use super::calls::{LimitError, LimitPage, LimitState};
use super::definitions::defined;
use crate::cursor::ListError;
use crate::engine::Engine;
use crate::failure::Failure;
use baton_core::Name;
use baton_core::limit::{self, DEFINITION, Defined, Definition, Put};
use std::sync::Arc;

impl Engine {
    /// Puts a definition. Whether anything changed; one that says the same is left as it is.
    pub async fn put_limit(
        &self,
        name: &Name,
        definition: Definition,
    ) -> Result<(Put, LimitState), LimitError> {
        let node = &self.node;
        let definition = Definition { changed_at: node.now(), ..definition };
        let decided =
            node.decide(name.group(), node.deadline(), |view| limit::put(name, &definition, view)).await?;
        if let Put::Same(_) = decided.reply {
            // Its version is in the store.
            return Ok((decided.reply, self.limit(name).await?));
        }
        let defined = Defined { definition, version: decided.revision };
        let defined = node.learn_definition(name, defined, decided.now).defined;
        Ok((decided.reply, LimitState { name: name.key().into(), defined }))
    }

    /// Removes a definition.
    pub async fn remove_limit(&self, name: &Name) -> Result<(), LimitError> {
        let node = &self.node;
        let decided = node.decide(name.group(), node.deadline(), |view| limit::remove(name, view)).await?;
        node.forget_definition(name);
        if decided.reply { Ok(()) } else { Err(LimitError::NotFound { limit: name.key().into() }) }
    }

    /// A definition, as the store has it.
    pub async fn limit(&self, name: &Name) -> Result<LimitState, LimitError> {
        let current = self.node.read_definition(name, self.node.deadline()).await?;
        Ok(LimitState { name: name.key().into(), defined: current.defined })
    }

    /// Definitions of a namespace whose names begin with `prefix`, in an order that is stable from page to page.
    pub async fn list_limits(
        &self,
        namespace: &str,
        prefix: &str,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<LimitPage, LimitError> {
        let listed = self.node.list(DEFINITION, namespace, prefix, limit, cursor).await?;
        let limits = listed.records.iter().map(|(name, record)| {
            Ok(LimitState { name: name.key().into(), defined: Arc::new(defined(record)?) })
        });
        Ok(LimitPage { limits: limits.collect::<Result<_, Failure>>()?, next_cursor: listed.next_cursor })
    }
}

impl From<ListError> for LimitError {
    fn from(error: ListError) -> Self {
        match error {
            ListError::BadCursor => Self::BadCursor,
            ListError::Failed(failure) => Self::Failed(failure),
        }
    }
}

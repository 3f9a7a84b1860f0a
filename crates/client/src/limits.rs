//! Limits to define, to change and to look at.

use crate::baton::Baton;
use crate::clock::Moment;
use crate::connection::Ask;
use crate::error::Error;
use crate::held::encode;
use crate::limit::check_namespace;
use crate::locks::ListQuery;
use crate::path;
use baton_api::limit::{LimitDefinition, LimitList, LimitStatus, RemoveLimitResponse};
use baton_api::{ErrorCode, limits};
use hyper::Method;
use std::sync::Arc;

/// Limits to define and to look at. Made by [`Baton::limits`].
///
/// ```no_run
/// # async fn example(baton: baton_client::Baton) -> Result<(), baton_client::Error> {
/// use baton_client::LimitDefinition;
///
/// baton.limits().put("api", &LimitDefinition::new(100, 60_000)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Limits {
    baton: Baton,
    namespace: Option<Arc<str>>,
}

impl Limits {
    pub(crate) fn new(baton: Baton) -> Self {
        Self { namespace: baton.0.namespace.clone(), baton }
    }

    /// Another namespace than the client's.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Defines a limit, or changes it while it is in use: what was counted stays counted. The definition as it stands then, with
    /// what was chosen for it. One that says the same changes nothing.
    pub async fn put(&self, name: &str, definition: &LimitDefinition) -> Result<LimitStatus, Error> {
        definition.check().map_err(Error::refused)?;
        let ask = Ask { method: Method::PUT, path: self.path(name)?, body: encode(definition)? };
        let deadline = Moment::now().after(self.baton.0.call_timeout);
        let (reply, address) = self.baton.0.repeat(&ask, deadline).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }

    /// A limit's definition; nothing if there is none.
    pub async fn get(&self, name: &str) -> Result<Option<LimitStatus>, Error> {
        let (reply, address) = self.baton.0.get(self.path(name)?).await?;
        match reply.read(&address).map_err(|failure| Error::from_failure(failure, false)) {
            Ok(status) => Ok(Some(status)),
            Err(error) if error.code() == Some(ErrorCode::LimitNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One page of the limits.
    pub async fn list(&self, query: &ListQuery) -> Result<LimitList, Error> {
        check_namespace(self.namespace.as_deref())?;
        if let Some(limit) = query.limit {
            limits::check_number("limit", limit, limits::LIST_LIMIT).map_err(Error::refused)?;
        }
        let limit = query.limit.map(|limit| limit.to_string());
        let parameters = [
            ("namespace", self.namespace.as_deref()),
            ("prefix", query.prefix.as_deref()),
            ("limit", limit.as_deref()),
            ("cursor", query.cursor.as_deref()),
        ];
        let (reply, address) = self.baton.0.get(path::with_query("/v1/limits".into(), &parameters)).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }

    /// Removes a limit; whether there was one. Checks of it fail from then on. What was counted is forgotten when its window
    /// is over.
    pub async fn remove(&self, name: &str) -> Result<bool, Error> {
        // Sent once: a repeated one could remove what has been defined since.
        let ask = Ask { method: Method::DELETE, path: self.path(name)?, body: Default::default() };
        let (reply, address) = self.baton.0.send_once(&ask).await?;
        match reply.read::<RemoveLimitResponse>(&address) {
            Ok(_) => Ok(true),
            Err(failure) => match Error::from_failure(failure, false) {
                error if error.code() == Some(ErrorCode::LimitNotFound) => Ok(false),
                error => Err(error),
            },
        }
    }

    fn path(&self, name: &str) -> Result<String, Error> {
        limits::check_name("name", name).map_err(Error::refused)?;
        check_namespace(self.namespace.as_deref())?;
        Ok(path::at("limits", name, "", self.namespace.as_deref()))
    }
}

//! Sets.

use super::object::{Object, object_options, seen_option};
use crate::{Baton, Error};
use baton_api::crdt::{SetPage, SetWrite, SetWritten};
use hyper::Method;
use std::sync::Arc;

/// Elements on a page, when all are read.
const PAGE: u64 = 1000;

/// A set. Made by [`Baton::set`].
///
/// ```no_run
/// # async fn example(baton: baton_client::Baton) -> Result<(), baton_client::Error> {
/// let tags = baton.set("page:7:tags");
/// tags.add(["new", "sale"]).await?;
/// let seen = tags.page(100, None).await?;
/// // Only what was seen: a tag that somebody adds again meanwhile stays.
/// tags.seen(seen.context).remove(["sale"]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Set {
    object: Object,
}

impl Set {
    pub(crate) fn new(baton: Baton, name: Arc<str>) -> Self {
        Self { object: Object::new(baton, "sets", name) }
    }

    object_options!();
    seen_option!();

    /// Puts elements in, at most 40, all or none. The answer has the `context` of the write.
    pub async fn add<E: Into<String>>(
        &self,
        elements: impl IntoIterator<Item = E>,
    ) -> Result<SetWritten, Error> {
        self.change(elements, Vec::<String>::new()).await
    }

    /// Takes elements out, as far as they were [seen](Self::seen).
    pub async fn remove<E: Into<String>>(
        &self,
        elements: impl IntoIterator<Item = E>,
    ) -> Result<SetWritten, Error> {
        self.change(Vec::<String>::new(), elements).await
    }

    /// Puts elements in and takes others out, in one step.
    pub async fn change<A: Into<String>, R: Into<String>>(
        &self,
        add: impl IntoIterator<Item = A>,
        remove: impl IntoIterator<Item = R>,
    ) -> Result<SetWritten, Error> {
        let (writer, request_id) = self.object.signed();
        let write = SetWrite {
            add: add.into_iter().map(Into::into).collect(),
            remove: remove.into_iter().map(Into::into).collect(),
            context: self.object.seen.clone(),
            writer,
            request_id,
        };
        write.check().map_err(Error::refused)?;
        self.object.write(Method::POST, "", &write).await
    }

    /// Whether an element is in it, as far as the node has seen.
    pub async fn contains(&self, element: &str) -> Result<bool, Error> {
        let page: SetPage = self.object.read(&[("element", Some(element))]).await?;
        Ok(!page.elements.is_empty())
    }

    /// Some of its elements, from the first or from a `next_cursor` on, and what was seen.
    pub async fn page(&self, limit: u64, cursor: Option<&str>) -> Result<SetPage, Error> {
        let limit = limit.to_string();
        self.object.read(&[("limit", Some(&limit)), ("cursor", cursor)]).await
    }

    /// All its elements, page after page: what changes meanwhile may be in it or not.
    pub async fn members(&self) -> Result<Vec<String>, Error> {
        let (mut members, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.page(PAGE, cursor.as_deref()).await?;
            members.extend(page.elements);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(members);
            }
        }
    }
}

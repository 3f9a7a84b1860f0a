//! Something at a replica: where it is, what a read is to have seen, what a removal has seen.

use crate::ListQuery;
use crate::baton::Baton;
use crate::clock::Moment;
use crate::connection::{Ask, Reply};
use crate::error::{Error, Failure};
use crate::held::encode;
use crate::limit::check_namespace;
use crate::{address::Address, path, random};
use baton_api::crdt::{CrdtKind, ObjectList};
use baton_api::limits;
use bytes::Bytes;
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) baton: Baton,
    pub(super) namespace: Option<Arc<str>>,
    pub(super) collection: &'static str,
    pub(super) name: Arc<str>,
    pub(super) kind: Option<CrdtKind>,
    /// What a read is to have seen.
    pub(super) after: Option<String>,
    /// What a removal has seen.
    pub(super) seen: Option<String>,
}

impl Object {
    pub(super) fn new(baton: Baton, collection: &'static str, name: Arc<str>) -> Self {
        let namespace = baton.0.namespace.clone();
        Self { baton, namespace, collection, name, kind: None, after: None, seen: None }
    }

    /// Who writes, and a name for the request that nobody else makes.
    pub(super) fn signed(&self) -> (Option<String>, Option<String>) {
        (Some(self.baton.0.owner.clone()), Some(random::request_id()))
    }

    fn path(&self, action: &str, parameters: &[(&str, Option<&str>)]) -> Result<String, Error> {
        limits::check_name("name", &self.name).map_err(Error::refused)?;
        check_namespace(self.namespace.as_deref())?;
        let mut query = vec![("kind", self.kind.map(CrdtKind::as_str))];
        query.extend(parameters);
        query.insert(0, ("namespace", self.namespace.as_deref()));
        Ok(path::with_query(path::at(self.collection, &self.name, action, None), &query))
    }

    /// Reads it, when the replica has seen what it is to have seen.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        parameters: &[(&str, Option<&str>)],
    ) -> Result<T, Error> {
        let parameters = [&[("after", self.after.as_deref())], parameters].concat();
        let (reply, address) = self.baton.0.get(self.path("", &parameters)?).await?;
        answer(&reply, &address)
    }

    /// Writes at one replica, as often as it takes.
    pub(super) async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        action: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        self.send(Ask { method, path: self.path(action, &[])?, body: encode(body)? }).await
    }

    /// A write that counts once wherever it arrives, and however often: any replica will do.
    pub(super) async fn write_anywhere<T: DeserializeOwned>(
        &self,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let deadline = Moment::now().after(self.baton.0.call_timeout);
        let ask = Ask { method: Method::POST, path: self.path("", &[])?, body: encode(body)? };
        let (reply, address) = self.baton.0.repeat(&ask, deadline).await?;
        answer(&reply, &address)
    }

    /// Removes what was seen of it.
    pub(super) async fn remove<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let (writer, request_id) = self.signed();
        let parameters = [
            ("context", self.seen.as_deref()),
            ("writer", writer.as_deref()),
            ("requestId", request_id.as_deref()),
        ];
        let path = self.path("", &parameters)?;
        self.send(Ask { method: Method::DELETE, path, body: Bytes::new() }).await
    }

    async fn send<T: DeserializeOwned>(&self, ask: Ask) -> Result<T, Error> {
        let deadline = Moment::now().after(self.baton.0.call_timeout);
        let (reply, address) = self.baton.0.at_one(&ask, deadline).await?;
        answer(&reply, &address)
    }
}

fn answer<T: DeserializeOwned>(reply: &Reply, address: &Address) -> Result<T, Error> {
    reply.read(address).map_err(|failure: Failure| Error::from_failure(failure, false))
}

/// One page of what there is in a collection.
pub(crate) async fn list(baton: &Baton, collection: &str, query: &ListQuery) -> Result<ObjectList, Error> {
    if let Some(limit) = query.limit {
        limits::check_number("limit", limit, limits::LIST_LIMIT).map_err(Error::refused)?;
    }
    let limit = query.limit.map(|limit| limit.to_string());
    let parameters = [
        ("namespace", baton.0.namespace.as_deref()),
        ("prefix", query.prefix.as_deref()),
        ("limit", limit.as_deref()),
        ("cursor", query.cursor.as_deref()),
    ];
    let (reply, address) = baton.0.get(path::with_query(format!("/v1/{collection}"), &parameters)).await?;
    answer(&reply, &address)
}

/// What every one of them can be told.
macro_rules! object_options {
    () => {
        /// Another namespace than the client's.
        pub fn namespace(mut self, namespace: impl Into<std::sync::Arc<str>>) -> Self {
            self.object.namespace = Some(namespace.into());
            self
        }

        /// Reads wait until the replica has seen as much: the `context` of any earlier answer, of any node. If that takes longer than
        /// 5 s, another node is asked, until the client's time-out.
        pub fn after(mut self, context: impl Into<String>) -> Self {
            self.object.after = Some(context.into());
            self
        }
    };
}

/// And those that remove.
macro_rules! seen_option {
    () => {
        /// What is removed or replaced is what was seen by the read with this `context`; without it, all that the node has seen.
        pub fn seen(mut self, context: impl Into<String>) -> Self {
            self.object.seen = Some(context.into());
            self
        }
    };
}

pub(super) use {object_options, seen_option};

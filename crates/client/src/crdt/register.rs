//! Registers.

use super::object::{Object, object_options, seen_option};
use crate::{Baton, Error};
use baton_api::crdt::{CrdtKind, RegisterState, RegisterWrite, RemovedResponse};
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// A register. Made by [`Baton::register`].
///
/// ```no_run
/// # async fn example(baton: baton_client::Baton) -> Result<(), baton_client::Error> {
/// baton.register("theme").put(&"dark").await?;
/// let theme: Option<String> = baton.register("theme").get().await?;
/// # drop(theme);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Register {
    object: Object,
}

impl Register {
    pub(crate) fn new(baton: Baton, name: Arc<str>) -> Self {
        let object = Object { kind: Some(CrdtKind::Register), ..Object::new(baton, "registers", name) };
        Self { object }
    }

    object_options!();
    seen_option!();

    /// The register of this name that keeps what was written concurrently: another one.
    pub fn multi_value(mut self) -> Self {
        self.object.kind = Some(CrdtKind::MultiValue);
        self
    }

    /// Sets it to anything that is JSON in at most 16 KiB. The answer has the `context` of the write.
    pub async fn put(&self, value: &impl Serialize) -> Result<RegisterState, Error> {
        let value = serde_json::value::to_raw_value(value).map_err(|error| {
            Error::refused(baton_api::ErrorBody::invalid("value", format!("it isn't JSON: {error}")))
        })?;
        let (writer, request_id) = self.object.signed();
        let write = RegisterWrite { value, context: self.object.seen.clone(), writer, request_id };
        write.check().map_err(Error::refused)?;
        self.object.write(Method::PUT, "", &write).await
    }

    /// What the last write set it to; nothing if there is none.
    pub async fn get<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        let state = self.read().await?;
        if !state.exists {
            return Ok(None);
        }
        parse(state.value.as_deref().map_or("null", |value| value.get())).map(Some)
    }

    /// All concurrent values of a [`multi_value`](Self::multi_value) register, the last one first.
    pub async fn values<T: DeserializeOwned>(&self) -> Result<Vec<T>, Error> {
        self.read().await?.values.iter().map(|value| parse(value.get())).collect()
    }

    /// What it is set to, and what was seen.
    pub async fn read(&self) -> Result<RegisterState, Error> {
        self.object.read(&[]).await
    }

    /// Removes what was seen of it.
    pub async fn remove(&self) -> Result<RemovedResponse, Error> {
        self.object.remove().await
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| {
        Error::unexpected(format!("the register's value isn't what was expected of it: {error}"))
    })
}

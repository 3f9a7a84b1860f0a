//! Calendars: days that jobs leave out or move.

use crate::baton::Baton;
use crate::clock::Moment;
use crate::connection::Ask;
use crate::error::Error;
use crate::held::encode;
use crate::limit::check_namespace;
use crate::locks::ListQuery;
use crate::path;
use baton_api::calendar::{CalendarDefinition, CalendarList, CalendarStatus, RemoveCalendarResponse};
use baton_api::{ErrorCode, limits};
use hyper::Method;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Calendars to define and to look at. Made by [`Baton::calendars`].
///
/// ```no_run
/// # async fn example(baton: baton_client::Baton) -> Result<(), baton_client::Error> {
/// use baton_client::wire_calendar::{CalendarDay, CalendarDefinition};
///
/// let day = |day: &str, note: &str| CalendarDay { day: day.into(), note: Some(note.into()) };
/// let holidays = CalendarDefinition { days: vec![day("12-25..12-26", "Christmas"), day("SAT..SUN", "weekend")] };
/// baton.calendars().put("holidays", &holidays).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Calendars {
    baton: Baton,
    namespace: Option<Arc<str>>,
}

impl Calendars {
    pub(crate) fn new(baton: Baton) -> Self {
        Self { namespace: baton.0.namespace.clone(), baton }
    }

    /// Another namespace than the client's.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Defines a calendar, or changes it; every job that uses it goes by it when the answer comes.
    pub async fn put(&self, name: &str, definition: &CalendarDefinition) -> Result<CalendarStatus, Error> {
        definition.check().map_err(Error::refused)?;
        let ask = Ask { method: Method::PUT, path: self.path(name)?, body: encode(definition)? };
        let deadline = Moment::now().after(self.baton.0.call_timeout);
        let (reply, address) = self.baton.0.repeat(&ask, deadline).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }

    /// A calendar as it stands; nothing if there is none.
    pub async fn get(&self, name: &str) -> Result<Option<CalendarStatus>, Error> {
        match self.look(self.path(name)?).await {
            Ok(status) => Ok(Some(status)),
            Err(error) if error.code() == Some(ErrorCode::CalendarNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One page of the calendars.
    pub async fn list(&self, query: &ListQuery) -> Result<CalendarList, Error> {
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
        self.look(path::with_query("/v1/calendars".into(), &parameters)).await
    }

    /// Removes a calendar that no job uses; whether there was one.
    pub async fn remove(&self, name: &str) -> Result<bool, Error> {
        // Sent once: a repeated one could remove what has been defined since.
        let ask = Ask { method: Method::DELETE, path: self.path(name)?, body: Default::default() };
        let (reply, address) = self.baton.0.send_once(&ask).await?;
        match reply.read::<RemoveCalendarResponse>(&address) {
            Ok(_) => Ok(true),
            Err(failure) => match Error::from_failure(failure, false) {
                error if error.code() == Some(ErrorCode::CalendarNotFound) => Ok(false),
                error => Err(error),
            },
        }
    }

    fn path(&self, name: &str) -> Result<String, Error> {
        limits::check_name("name", name).map_err(Error::refused)?;
        check_namespace(self.namespace.as_deref())?;
        Ok(path::at("calendars", name, "", self.namespace.as_deref()))
    }

    async fn look<T: DeserializeOwned>(&self, path: String) -> Result<T, Error> {
        let (reply, address) = self.baton.0.get(path).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }
}

//! Who is there.

use super::object::{Object, object_options};
use crate::{Baton, Error};
use baton_api::crdt::{PresenceLeave, PresenceList, PresenceMember, PresenceRefresh, PresenceWritten};
use hyper::Method;
use std::sync::Arc;
use std::time::Duration;

/// A group of members that come and go. Made by [`Baton::presence`].
///
/// It says who is probably there: never that somebody is certainly gone.
#[derive(Clone, Debug)]
pub struct Presence {
    object: Object,
}

impl Presence {
    pub(crate) fn new(baton: Baton, name: Arc<str>) -> Self {
        Self { object: Object::new(baton, "presence", name) }
    }

    object_options!();

    /// Says that a member is there, for `ttl` after a node hears of it. Say it again at a third of that.
    pub async fn refresh(&self, member: &str, ttl: Duration) -> Result<PresenceWritten, Error> {
        let ttl_millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let refresh = PresenceRefresh { member: member.to_owned(), ttl_millis };
        refresh.check().map_err(Error::refused)?;
        self.object.write(Method::POST, "", &refresh).await
    }

    /// Says that a member goes.
    pub async fn leave(&self, member: &str) -> Result<PresenceWritten, Error> {
        let leave = PresenceLeave { member: member.to_owned() };
        leave.check().map_err(Error::refused)?;
        self.object.write(Method::POST, "leave", &leave).await
    }

    /// Who is there, as far as the node has heard.
    pub async fn members(&self) -> Result<Vec<PresenceMember>, Error> {
        let (mut members, mut cursor) = (Vec::new(), None);
        loop {
            let parameters = [("limit", Some("1000")), ("cursor", cursor.as_deref())];
            let page: PresenceList = self.object.read(&parameters).await?;
            members.extend(page.members);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(members);
            }
        }
    }
}

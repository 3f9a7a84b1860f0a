//! Audited limits: what was decided is in the store before anybody hears of it. And reading logs.

use super::calls::{Answered, CheckCall, LimitError, LogPage, LogPosition, Source};
use super::check::Wanted;
use super::definitions::Current;
use super::log::{Room, Said};
use crate::engine::{Engine, Node};
use crate::failure::Failure;
use baton_core::Name;
use baton_core::limit::log::Segment;
use baton_core::limit::{Event, Log};
use baton_store::Range;
use std::sync::Arc;
use tokio::time::Instant;

/// Segments read from the store at once.
const SEGMENTS_AT_ONCE: usize = 16;
/// Segments looked at for one page: a page that finds little in so many ends there, and says where to go on.
const SEGMENTS_MAX: usize = 256;

impl Node {
    /// A place for a line, if the limit is audited: taken before anything is decided, so that at the bound nothing is.
    pub(super) async fn room_if_audited(
        self: &Arc<Self>,
        name: &Name,
        until: Instant,
    ) -> Result<Option<Room>, LimitError> {
        let is_audited = self.definition(name, until).await?.defined.definition.audit;
        Ok(if is_audited { Some(self.limit_logs.room(Log::Audit)?) } else { None })
    }

    /// Writes down what was done, if the limit is audited, before that is answered.
    pub(super) async fn audit(
        self: &Arc<Self>,
        name: &Name,
        current: &Current,
        room: Option<Room>,
        said: Said<'_>,
        until: Instant,
    ) -> Result<(), LimitError> {
        if !current.defined.definition.audit {
            return Ok(());
        }
        let room = self.room_or_unknown(room)?;
        self.write_lines(vec![(name.clone(), self.line(said), room)], until).await
    }

    /// Writes down what was decided of those that are audited. What a policy decided without the store is written when that is
    /// back.
    pub(super) async fn audit_checks(
        self: &Arc<Self>,
        calls: &[CheckCall],
        wanted: &Wanted,
        answered: &Answered,
        mut rooms: Vec<Room>,
        until: Instant,
    ) -> Result<(), LimitError> {
        let mut lines = Vec::new();
        for (index, checked) in answered.indices.iter().zip(&answered.checks) {
            let Some(call) = calls.get(*index) else { continue };
            // A look decides nothing.
            if !checked.defined.definition.audit || call.cost == 0 {
                continue;
            }
            let room = self.room_or_unknown(rooms.pop())?;
            let line = self.line(Said {
                event: if answered.allowed { Event::Allowed } else { Event::Refused },
                key: &call.key,
                by: &wanted.principal,
                reference: wanted.request_id.as_deref().unwrap_or_default(),
                source: checked.source.as_str(),
                amount: call.cost,
                remaining: checked.remaining,
                spent: 0,
                ttl_ms: checked.place.as_ref().map_or(0, |place| place.ttl_ms),
            });
            match checked.source {
                Source::Fallback => self.write_later(Log::Audit, &call.limit, line, room),
                _ => lines.push((call.limit.clone(), line, room)),
            }
        }
        if lines.is_empty() {
            return Ok(());
        }
        // A refusal has counted nothing, whether or not it is written down.
        let failed = |_| Failure::Unavailable { unknown: answered.allowed }.into();
        self.write_lines(lines, until).await.map_err(failed)
    }

    /// The place that was taken; or one now, for a limit that was not audited when the call began: it may have taken effect.
    fn room_or_unknown(&self, room: Option<Room>) -> Result<Room, LimitError> {
        let now = || self.limit_logs.room(Log::Audit);
        room.map_or_else(now, Ok).map_err(|_| Failure::Unavailable { unknown: true }.into())
    }
}

impl Engine {
    /// A page of a limit's log, oldest first, perhaps only of one key. It outlives the limit.
    pub async fn limit_log(
        &self,
        log: Log,
        name: &Name,
        key: Option<&str>,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<LogPage, LimitError> {
        let node = &self.node;
        let after = match cursor {
            None => LogPosition::default(),
            Some(text) => LogPosition::parse(text).ok_or(LimitError::BadCursor)?,
        };
        // Before the segments: what is full by then is among them.
        let mut head = node.read(vec![log.head(name)], node.deadline()).await?;
        let Some(head) = head.records.pop().flatten() else {
            node.read_definition(name, node.deadline()).await?;
            return Ok(LogPage::default());
        };
        let mut page = Paging { key, limit, after, page: LogPage::default() };
        let mut last = after.segment.saturating_sub(1);
        for _ in 0..SEGMENTS_MAX / SEGMENTS_AT_ONCE {
            let after = Some(log.segment(name, last).name);
            let range = Range { group: name.group(), prefix: log.segments(name), after };
            let found = node.asked(node.store.scan(range, SEGMENTS_AT_ONCE), node.deadline()).await?;
            let mut segments = Vec::with_capacity(found.records.len() + 1);
            for record in &found.records {
                segments.push(Segment::decode(&record.value).map_err(|_| Failure::Internal)?);
            }
            last = segments.last().map_or(last, |segment| segment.number);
            let is_last = !found.more;
            if is_last {
                let head = Segment::decode(&head.value).map_err(|_| Failure::Internal)?;
                segments.extend((head.number > last || segments.is_empty()).then_some(head));
            }
            for segment in segments {
                if page.is_full_with(segment) {
                    return Ok(page.page);
                }
            }
            if is_last {
                page.page.next_cursor = None;
                return Ok(page.page);
            }
        }
        Ok(page.page)
    }
}

struct Paging<'a> {
    key: Option<&'a str>,
    limit: usize,
    after: LogPosition,
    page: LogPage,
}

impl Paging<'_> {
    /// Takes what is wanted of a segment. Whether that is all that was asked for.
    fn is_full_with(&mut self, segment: Segment) -> bool {
        for (index, line) in segment.lines.into_iter().enumerate() {
            let position = LogPosition { segment: segment.number, index: index as u64 + 1 };
            if position <= self.after {
                continue;
            }
            self.page.next_cursor = Some(position.to_string());
            if self.key.is_none_or(|key| key == line.key) {
                self.page.lines.push((position, line));
            }
            if self.page.lines.len() >= self.limit {
                return true;
            }
        }
        false
    }
}

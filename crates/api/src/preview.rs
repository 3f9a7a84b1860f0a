//! The bodies of `/v1/jobs:preview`: when a schedule would be due (J11).

use crate::calendar::{UsedCalendar, check_used};
use crate::error::ErrorBody;
use crate::limits;
use serde::{Deserialize, Serialize};

/// How many times are shown, unless said otherwise.
pub const COUNT_DEFAULT: u64 = 10;

/// What happens to local times that a change of clocks skips or repeats.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DstPolicy {
    /// A fixed time that is skipped comes right after the gap, a repeated one only the first time; a schedule whose hour or
    /// minute begins with `*` follows the clock.
    #[default]
    Vixie,
    /// What is skipped is skipped, what is repeated comes twice.
    Literal,
}

/// What a change of clocks did to one time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TouchedBy {
    /// At least one of its local times did not exist, and comes right after the gap.
    MovedFromGap,
    /// Its local time comes for the second time.
    Repeated,
    /// Its local time comes a second time, and is then passed over.
    RepeatSkipped,
}

impl TouchedBy {
    /// As it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MovedFromGap => "moved_from_gap",
            Self::Repeated => "repeated",
            Self::RepeatSkipped => "repeat_skipped",
        }
    }
}

/// `POST /v1/jobs:preview`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PreviewRequest {
    /// Five fields, or six with seconds before them; or a word like `@daily` or `@every 90s`. At most 256 bytes.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub schedule: String,
    /// A name of the IANA time zone database; `UTC` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// What changes of clocks do; `vixie` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst: Option<DstPolicy>,
    /// The job's name. A schedule with `H` needs one, since that is a hash of namespace and name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub name: Option<String>,
    /// Calendars of the namespace to go by, up to 4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 4))]
    pub calendars: Vec<UsedCalendar>,
    /// How many times at most; 10 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100))]
    pub count: Option<u64>,
    /// Only times after this, in milliseconds since the Unix epoch; after now, by the store's clock, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 32_503_680_000_000_u64))]
    pub from: Option<u64>,
}

impl PreviewRequest {
    /// All that isn't said is as it is by default.
    pub fn new(schedule: impl Into<String>) -> Self {
        Self {
            schedule: schedule.into(),
            time_zone: None,
            dst: None,
            name: None,
            calendars: Vec::new(),
            count: None,
            from: None,
        }
    }

    /// Whether every field but the schedule is within its limits. What a schedule may be, its parser knows.
    pub fn check(&self) -> Result<(), ErrorBody> {
        if let Some(zone) = &self.time_zone {
            limits::check_text("timeZone", zone, limits::TIME_ZONE_BYTES)?;
        }
        if let Some(name) = &self.name {
            limits::check_name("name", name)?;
        }
        check_used(&self.calendars)?;
        if let Some(count) = self.count {
            limits::check_number("count", count, limits::PREVIEW_COUNT)?;
        }
        match self.from {
            Some(from) => limits::check_number("from", from, limits::PREVIEW_FROM),
            None => Ok(()),
        }
    }
}

/// When a schedule would be due.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PreviewResponse {
    /// As it was given.
    pub schedule: String,
    /// What it says, in plain English.
    pub reading: String,
    /// The time zone, as the database spells it.
    pub time_zone: String,
    /// What changes of clocks do.
    pub dst: DstPolicy,
    /// Whether it is never due again.
    pub never_fires: bool,
    /// The next times, the earliest first; also those that calendars leave out, marked as such.
    pub next: Vec<PreviewedTime>,
}

/// One time at which a schedule would be due.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PreviewedTime {
    /// In milliseconds since the Unix epoch.
    pub at: u64,
    /// The same on the zone's clocks, with their offset: `2026-03-29T03:00:00+02:00`.
    pub local: String,
    /// What a change of clocks did to it; absent if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touched_by: Option<TouchedBy>,
    /// Whether a calendar leaves it out: it doesn't run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excluded: bool,
    /// The local day, like `2026-12-25`, that a calendar moves it from; absent if it isn't moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_checked_and_a_typo_is_no_field() {
        let refused = |change: fn(&mut PreviewRequest)| {
            let mut request = PreviewRequest::new("* * * * *");
            change(&mut request);
            request.check().err().and_then(|error| error.field)
        };
        assert_eq!(refused(|_| ()), None);
        assert_eq!(refused(|request| request.count = Some(100)), None);
        assert_eq!(refused(|request| request.count = Some(101)).as_deref(), Some("count"));
        assert_eq!(refused(|request| request.count = Some(0)).as_deref(), Some("count"));
        assert_eq!(refused(|request| request.name = Some("..".into())).as_deref(), Some("name"));
        assert_eq!(refused(|request| request.time_zone = Some("x".repeat(65))).as_deref(), Some("timeZone"));
        assert_eq!(refused(|request| request.from = Some(u64::MAX)).as_deref(), Some("from"));
        let typo = r#"{"schedule":"* * * * *","timezone":"UTC"}"#;
        assert!(serde_json::from_str::<PreviewRequest>(typo).is_err());
    }
}

//! The bodies of `/v1/calendars` (J13).

use crate::error::ErrorBody;
use crate::limits;
use serde::{Deserialize, Serialize};

/// `PUT /v1/calendars/{name}`
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CalendarDefinition {
    /// Its days, up to 1,000 entries.
    #[cfg_attr(feature = "openapi", schema(max_items = 1_000))]
    pub days: Vec<CalendarDay>,
}

/// One or more days of a calendar.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CalendarDay {
    /// A date `2026-12-25`, a day of every year `12-25`, a weekday `SAT`, or a range of one of these: `2026-12-24..2027-01-02`.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 64))]
    pub day: String,
    /// Why; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 128))]
    pub note: Option<String>,
}

impl CalendarDefinition {
    /// Whether every field is within its limits. Which days a text means is for the server to say.
    pub fn check(&self) -> Result<(), ErrorBody> {
        if self.days.len() > limits::CALENDAR_DAYS_MAX {
            let message = format!("a calendar has at most {} entries", limits::CALENDAR_DAYS_MAX);
            return Err(ErrorBody::invalid("days", message));
        }
        for (place, day) in self.days.iter().enumerate() {
            limits::check_text(&format!("days[{place}].day"), &day.day, 1..=64)?;
            if let Some(note) = &day.note {
                limits::check_text(&format!("days[{place}].note"), note, 0..=128)?;
            }
        }
        Ok(())
    }
}

/// A calendar as it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CalendarStatus {
    /// Its name.
    pub name: String,
    /// Its days.
    pub days: Vec<CalendarDay>,
    /// Grows with every change.
    pub version: u64,
    /// When it was last changed: milliseconds since the Unix epoch.
    pub changed_at: u64,
    /// What a call did to it: `MADE`, `CHANGED`, `UNCHANGED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// In the answer to a PUT: how many jobs use it, and go by it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u64>,
}

/// A page of calendars.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CalendarList {
    /// In an order that is stable from page to page.
    pub calendars: Vec<CalendarStatus>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A calendar is gone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RemoveCalendarResponse {
    /// `REMOVED`.
    pub status: String,
    /// Its name.
    pub name: String,
}

/// What becomes of times on days that a calendar has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CalendarPolicy {
    /// They are left out.
    Exclude,
    /// They come on the next day that isn't in any calendar of the job.
    MoveToNext,
    /// They come on the last such day before.
    MoveToPrevious,
}

/// A calendar that a job goes by.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UsedCalendar {
    /// Which, of the job's namespace.
    pub name: String,
    /// What becomes of times on its days.
    pub policy: CalendarPolicy,
}

/// Whether calendars can be used like this.
pub(crate) fn check_used(used: &[UsedCalendar]) -> Result<(), ErrorBody> {
    if used.len() > limits::JOB_CALENDARS_MAX {
        let message = format!("a job goes by at most {} calendars", limits::JOB_CALENDARS_MAX);
        return Err(ErrorBody::invalid("calendars", message));
    }
    for (place, one) in used.iter().enumerate() {
        limits::check_name("calendars.name", &one.name)?;
        if used[..place].iter().any(|other| other.name == one.name) {
            return Err(ErrorBody::invalid("calendars", "a calendar is named once"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_is_at_fault_is_named() {
        let checked = |body: Value| {
            let definition: CalendarDefinition = serde_json::from_value(body).unwrap();
            definition.check().map_err(|error| error.field.unwrap_or_default())
        };
        assert_eq!(checked(json!({ "days": [{ "day": "SAT", "note": "" }] })), Ok(()));
        let fault = |field: &str| Err(String::from(field));
        assert_eq!(checked(json!({ "days": [{ "day": "SAT" }, { "day": "" }] })), fault("days[1].day"));
        assert_eq!(
            checked(json!({ "days": [{ "day": "SAT", "note": "x".repeat(129) }] })),
            fault("days[0].note")
        );
        assert_eq!(checked(json!({ "days": vec![json!({ "day": "SAT" }); 1_001] })), fault("days"));
    }
}

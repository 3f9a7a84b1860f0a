//! What a job is (J1).

use crate::calendar::{UsedCalendar, check_used};
use crate::error::ErrorBody;
use crate::limits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

macro_rules! words {
    ($(#[doc = $doc:literal])+ $type:ident { $($(#[doc = $what:literal])+ $variant:ident,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum $type {
            $($(#[doc = $what])+ $variant,)+
        }
    };
}

words! {
    /// What happens to times that a change of clocks skips or repeats.
    DaylightSaving {
        /// A fixed time that is skipped runs right after the gap, one that is repeated runs once; wildcards follow the clock.
        Vixie,
        /// What the clock never shows doesn't run, what it shows twice runs twice.
        Literal,
    }
}

words! {
    /// What is promised of a run.
    Guarantee {
        /// Recorded before it is sent, and never repeated.
        AtMostOnce,
        /// Repeated until it is acknowledged.
        AtLeastOnce,
        /// The same, for a target that tells repetitions by the run's id and refuses lower fencing tokens.
        EffectivelyOnce,
    }
}

words! {
    /// What happens when its time comes while it still runs.
    Overlap {
        /// That time is left out.
        Skip,
        /// One waits; others are left out.
        QueueOne,
        /// All wait, up to 100.
        QueueAll,
        /// They run side by side, up to 16.
        Allow,
        /// What runs is cancelled.
        CancelPrevious,
    }
}

words! {
    /// What happens to times that passed while nobody looked.
    Missed {
        /// They are left out.
        Skip,
        /// The most recent one runs.
        Latest,
        /// They run one after the other, as many and as far back as the job says.
        All,
    }
}

/// `PUT /v1/jobs/{name}`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobDefinition {
    /// When; without one it runs when asked to, or after another job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub schedule: Option<String>,
    /// Where its times are, as in the time zone database; `UTC` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// What happens to times that a change of clocks skips or repeats; `vixie` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daylight_saving: Option<DaylightSaving>,
    /// What leaves out or moves its times, up to 4. The first that has a day says what becomes of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 4))]
    pub calendars: Vec<UsedCalendar>,
    /// What runs.
    pub target: JobTarget,
    /// What is promised of a run; `at_least_once` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    /// What happens when its time comes while it still runs; `skip` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// What happens to times that passed while nobody looked; `latest` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
    /// How far back they are made up for, with `missed: all`; a day if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 31_622_400_000_u64))]
    pub missed_window_millis: Option<u64>,
    /// How many of them, with `missed: all`; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000))]
    pub missed_max: Option<u32>,
    /// When a failed attempt is repeated; not with `at_most_once`, which has one attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// No attempt begins later than this after the run was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 31_622_400_000_u64))]
    pub deadline_millis: Option<u64>,
    /// How long an attempt may take; a minute if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 604_800_000))]
    pub timeout_millis: Option<u64>,
    /// A run is due up to this much after its time, by a hash of job and time; not at all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 86_400_000))]
    pub jitter_millis: Option<u64>,
    /// Whether its schedule counts; true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Jobs of its namespace that run when it has succeeded, up to 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 8))]
    pub then: Vec<String>,
    /// Ended runs that are kept; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 10, maximum = 1_000))]
    pub keep_runs: Option<u32>,
    /// For how long; a week if absent. A run that didn't end within this time is forgotten too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 60_000, maximum = 31_622_400_000_u64))]
    pub keep_millis: Option<u64>,
    /// It is overdue when it hasn't succeeded for this long; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1_000, maximum = 31_622_400_000_u64))]
    pub success_within_millis: Option<u64>,
}

/// When a failed attempt is repeated.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Retry {
    /// Attempts, the first included; 3 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000))]
    pub max_attempts: Option<u32>,
    /// The pause after the first, at most; each later one is twice as long. A second if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400_000))]
    pub backoff_millis: Option<u64>,
    /// The longest pause; a minute if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400_000))]
    pub max_backoff_millis: Option<u64>,
}

/// What a job runs: one of these.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobTarget {
    /// A request that the server sends.
    Http(HttpTarget),
    /// A worker of a queue takes it.
    Worker(WorkerTarget),
    /// A command that the server starts, if its configuration allows it.
    Command(CommandTarget),
}

/// A request that the server sends.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpTarget {
    /// Where to: `http://` or `https://`.
    #[cfg_attr(
        feature = "openapi",
        schema(min_length = 8, max_length = 2_048, pattern = "^https?://[!-~]+$")
    )]
    pub url: String,
    /// `POST` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(pattern = "^(GET|HEAD|POST|PUT|PATCH|DELETE)$"))]
    pub method: Option<String>,
    /// Header fields, up to 32.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// What is sent; nothing if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 16_384))]
    pub body: Option<String>,
    /// What requests are signed with. Never shown again; a PUT without it removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub secret: Option<String>,
    /// In answers: whether requests are signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(read_only))]
    pub signed: Option<bool>,
}

impl fmt::Debug for HttpTarget {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTarget")
            .field("url", &self.url)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

/// A worker of a queue takes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkerTarget {
    /// Which workers.
    pub queue: String,
    /// What they are told; nothing if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 16_384))]
    pub payload: Option<String>,
}

/// A command that the server starts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommandTarget {
    /// What is started.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 1_024))]
    pub program: String,
    /// With which arguments, up to 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 64))]
    pub arguments: Vec<String>,
}

/// Methods of a request.
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

impl JobDefinition {
    /// One that runs this, when asked to; everything else is as if nothing were said.
    pub fn new(target: JobTarget) -> Self {
        Self {
            schedule: None,
            time_zone: None,
            daylight_saving: None,
            calendars: Vec::new(),
            target,
            guarantee: None,
            overlap: None,
            missed: None,
            missed_window_millis: None,
            missed_max: None,
            retry: None,
            deadline_millis: None,
            timeout_millis: None,
            jitter_millis: None,
            enabled: None,
            then: Vec::new(),
            keep_runs: None,
            keep_millis: None,
            success_within_millis: None,
        }
    }

    /// Whether every field is within its limits. What its schedule means is for the server to say.
    pub fn check(&self) -> Result<(), ErrorBody> {
        let number = |field: &str, number: Option<u64>, range: std::ops::RangeInclusive<u64>| {
            number.map_or(Ok(()), |number| limits::check_number(field, number, range))
        };
        let year = || limits::WINDOW_MILLIS;
        if let Some(schedule) = &self.schedule {
            limits::check_text("schedule", schedule, limits::SCHEDULE_BYTES)?;
        }
        if let Some(zone) = &self.time_zone {
            limits::check_text("timeZone", zone, limits::TIME_ZONE_BYTES)?;
        }
        check_used(&self.calendars)?;
        self.target.check()?;
        number("missedWindowMillis", self.missed_window_millis, year())?;
        number("missedMax", self.missed_max.map(u64::from), 1..=1_000)?;
        if let Some(retry) = &self.retry {
            if self.guarantee == Some(Guarantee::AtMostOnce) && retry.max_attempts.is_none_or(|most| most > 1)
            {
                return Err(ErrorBody::invalid(
                    "retry",
                    "what may be sent once has one attempt: leave retry out",
                ));
            }
            number("retry.maxAttempts", retry.max_attempts.map(u64::from), 1..=1_000)?;
            number("retry.backoffMillis", retry.backoff_millis, 1..=86_400_000)?;
            number("retry.maxBackoffMillis", retry.max_backoff_millis, 1..=86_400_000)?;
        }
        number("deadlineMillis", self.deadline_millis, year())?;
        number("timeoutMillis", self.timeout_millis, 100..=604_800_000)?;
        number("jitterMillis", self.jitter_millis, 0..=86_400_000)?;
        if self.then.len() > limits::JOB_THEN_MAX {
            return Err(ErrorBody::invalid("then", "at most 8 jobs may follow one"));
        }
        self.then.iter().try_for_each(|name| limits::check_name("then", name))?;
        number("keepRuns", self.keep_runs.map(u64::from), 10..=1_000)?;
        number("keepMillis", self.keep_millis, 60_000..=*year().end())?;
        number("successWithinMillis", self.success_within_millis, 1_000..=*year().end())
    }
}

impl JobTarget {
    fn check(&self) -> Result<(), ErrorBody> {
        match self {
            Self::Http(http) => http.check(),
            Self::Worker(worker) => {
                limits::check_text("target.worker.queue", &worker.queue, limits::KEY_BYTES)?;
                length("target.worker.payload", worker.payload.as_deref(), limits::JOB_BODY_BYTES_MAX)
            }
            Self::Command(command) => {
                limits::check_text("target.command.program", &command.program, 1..=1_024)?;
                let bytes = command.arguments.iter().map(String::len).sum::<usize>();
                if command.arguments.len() > 64 || bytes > limits::JOB_BODY_BYTES_MAX {
                    let message = "a command has at most 64 arguments, of 16384 bytes together";
                    return Err(ErrorBody::invalid("target.command.arguments", message));
                }
                Ok(())
            }
        }
    }
}

impl HttpTarget {
    fn check(&self) -> Result<(), ErrorBody> {
        let url = &self.url;
        limits::check_text("target.http.url", url, 8..=2_048)?;
        let is_plain = url.bytes().all(|byte| matches!(byte, b'!'..=b'~'));
        if !is_plain || !(url.starts_with("http://") || url.starts_with("https://")) {
            let message = "url must begin with http:// or https:// and be plain ASCII without spaces";
            return Err(ErrorBody::invalid("target.http.url", message));
        }
        if self.method.as_deref().is_some_and(|method| !METHODS.contains(&method)) {
            let message = format!("method must be one of {}", METHODS.join(", "));
            return Err(ErrorBody::invalid("target.http.method", message));
        }
        if self.headers.len() > 32 {
            return Err(ErrorBody::invalid("target.http.headers", "at most 32 header fields"));
        }
        for (name, value) in &self.headers {
            let is_token = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
            let is_text = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            if !is_token || !is_text || !(1..=128).contains(&name.len()) || value.len() > 2_048 {
                let message = "a header field has a name of letters, digits, - and _, and a value of up to 2048 printable \
                               ASCII characters";
                return Err(ErrorBody::invalid("target.http.headers", message));
            }
        }
        length("target.http.body", self.body.as_deref(), limits::JOB_BODY_BYTES_MAX)?;
        match &self.secret {
            Some(secret) => limits::check_text("target.http.secret", secret, 1..=256),
            None => Ok(()),
        }
    }
}

fn length(field: &str, text: Option<&str>, most: usize) -> Result<(), ErrorBody> {
    match text {
        Some(text) if text.len() > most => {
            Err(ErrorBody::invalid(field, format!("{field} must have at most {most} bytes")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn checked(body: Value) -> Result<(), Option<String>> {
        let definition: JobDefinition = serde_json::from_value(body).unwrap();
        definition.check().map_err(|error| error.field)
    }

    #[test]
    fn what_is_at_fault_is_named() {
        let fine = json!({ "target": { "worker": { "queue": "q" } } });
        assert_eq!(checked(fine.clone()), Ok(()));
        let http = |http: Value| json!({ "target": { "http": http } });
        for (field, change) in [
            ("schedule", json!({ "schedule": "" })),
            ("timeZone", json!({ "timeZone": "" })),
            ("missedMax", json!({ "missedMax": 0 })),
            ("calendars.name", json!({ "calendars": [{ "name": "", "policy": "exclude" }] })),
            ("calendars", json!({ "calendars": vec![json!({ "name": "c", "policy": "move_to_next" }); 2] })),
            ("missedWindowMillis", json!({ "missedWindowMillis": 0 })),
            ("retry", json!({ "retry": {}, "guarantee": "at_most_once" })),
            ("retry.maxAttempts", json!({ "retry": { "maxAttempts": 0 } })),
            ("retry.backoffMillis", json!({ "retry": { "backoffMillis": 0 } })),
            ("retry.maxBackoffMillis", json!({ "retry": { "maxBackoffMillis": 0 } })),
            ("deadlineMillis", json!({ "deadlineMillis": 0 })),
            ("timeoutMillis", json!({ "timeoutMillis": 99 })),
            ("jitterMillis", json!({ "jitterMillis": 86_400_001 })),
            ("then", json!({ "then": [".."] })),
            ("then", json!({ "then": vec!["j"; 9] })),
            ("keepRuns", json!({ "keepRuns": 9 })),
            ("keepMillis", json!({ "keepMillis": 1 })),
            ("successWithinMillis", json!({ "successWithinMillis": 999 })),
            ("target.worker.queue", json!({ "target": { "worker": { "queue": "" } } })),
            ("target.command.program", json!({ "target": { "command": { "program": "" } } })),
            (
                "target.command.arguments",
                json!({ "target": { "command": { "program": "p", "arguments": vec!["a"; 65] } } }),
            ),
            ("target.http.url", http(json!({ "url": "ftp://example.org" }))),
            ("target.http.url", http(json!({ "url": "http://example.org/a b" }))),
            ("target.http.method", http(json!({ "url": "http://example.org", "method": "post" }))),
            ("target.http.headers", http(json!({ "url": "http://example.org", "headers": { "a:": "b" } }))),
            ("target.http.headers", http(json!({ "url": "http://example.org", "headers": { "a": "b\nc" } }))),
            ("target.http.body", http(json!({ "url": "http://example.org", "body": "x".repeat(16_385) }))),
            ("target.http.secret", http(json!({ "url": "http://example.org", "secret": "" }))),
        ] {
            let mut body = fine.clone();
            body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            assert_eq!(checked(body), Err(Some(field.into())), "{change}");
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        let body = json!({ "target": { "http": { "url": "http://example.org", "secret": "hush" } } });
        let definition: JobDefinition = serde_json::from_value(body).unwrap();
        assert!(!format!("{definition:?}").contains("hush"));
    }
}

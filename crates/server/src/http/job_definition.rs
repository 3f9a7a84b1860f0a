//! What a job's definition means: what is chosen where nothing is said, and what doesn't go together.

use baton_api::ErrorBody;
use baton_api::calendar::{CalendarPolicy, UsedCalendar};
use baton_api::job::{
    self as wire, CommandTarget, HttpTarget, JobDefinition, JobTarget, Retry, WorkerTarget,
};
use baton_core::cron::{DaySet, Policy, Schedule, Zone, full_name};
use baton_core::job::{
    CalendarUse, DaylightSaving, Definition, Guarantee, Http, Missed, Overlap, Secret, Target,
};
use baton_core::{Name, Revision};

/// What is stored for a definition as it came over the wire.
pub(crate) fn read(name: &Name, said: JobDefinition) -> Result<Definition, ErrorBody> {
    let mut job = Definition::plain(said.schedule, target(said.target));
    if let Some(zone) = said.time_zone {
        let known = Zone::parse(&zone);
        let known =
            known.map_err(|unknown| ErrorBody::invalid("timeZone", format!("timeZone: {unknown}")))?;
        job.time_zone = known.name().into();
    }
    if let Some(schedule) = &job.schedule {
        let parsed = Schedule::parse(schedule, &full_name(name.namespace(), name.key()));
        movable(&parsed.map_err(super::preview::refused)?, &said.calendars)?;
    }
    // Their days are the engine's to look up.
    let used = |used: UsedCalendar| CalendarUse {
        name: used.name,
        policy: policy(used.policy),
        revision: Revision(0),
        days: DaySet::default(),
    };
    job.calendars = said.calendars.into_iter().map(used).collect();
    let or = |said: Option<u64>, otherwise: u64| said.unwrap_or(otherwise);
    job.daylight_saving = said.daylight_saving.map_or(job.daylight_saving, |said| match said {
        wire::DaylightSaving::Vixie => DaylightSaving::Vixie,
        wire::DaylightSaving::Literal => DaylightSaving::Literal,
    });
    job.guarantee = said.guarantee.map_or(job.guarantee, |said| match said {
        wire::Guarantee::AtMostOnce => Guarantee::AtMostOnce,
        wire::Guarantee::AtLeastOnce => Guarantee::AtLeastOnce,
        wire::Guarantee::EffectivelyOnce => Guarantee::EffectivelyOnce,
    });
    job.overlap = said.overlap.map_or(job.overlap, |said| match said {
        wire::Overlap::Skip => Overlap::Skip,
        wire::Overlap::QueueOne => Overlap::QueueOne,
        wire::Overlap::QueueAll => Overlap::QueueAll,
        wire::Overlap::Allow => Overlap::Allow,
        wire::Overlap::CancelPrevious => Overlap::CancelPrevious,
    });
    job.missed = said.missed.map_or(job.missed, missed);
    job.missed_window_ms = or(said.missed_window_millis, job.missed_window_ms);
    job.missed_max = said.missed_max.unwrap_or(job.missed_max);
    let retry = said.retry.unwrap_or_default();
    job.attempts_max = retry.max_attempts.unwrap_or(job.attempts_max);
    if job.guarantee == Guarantee::AtMostOnce {
        job.attempts_max = 1;
    }
    job.retry_first_ms = or(retry.backoff_millis, job.retry_first_ms);
    job.retry_most_ms = or(retry.max_backoff_millis, job.retry_most_ms);
    job.deadline_ms = said.deadline_millis;
    job.timeout_ms = or(said.timeout_millis, job.timeout_ms);
    job.jitter_ms = or(said.jitter_millis, job.jitter_ms);
    job.enabled = said.enabled.unwrap_or(job.enabled);
    job.then = said.then;
    job.kept_max = said.keep_runs.unwrap_or(job.kept_max);
    job.kept_ms = or(said.keep_millis, job.kept_ms);
    job.success_within_ms = said.success_within_millis;
    Ok(job)
}

/// What happens to times that nobody looked at.
pub(crate) fn missed(said: wire::Missed) -> Missed {
    match said {
        wire::Missed::Skip => Missed::Skip,
        wire::Missed::Latest => Missed::Latest,
        wire::Missed::All => Missed::All,
    }
}

fn target(said: JobTarget) -> Target {
    match said {
        JobTarget::Http(http) => Target::Http(Http {
            method: http.method.unwrap_or_else(|| "POST".into()),
            url: http.url,
            headers: http.headers.into_iter().collect(),
            body: http.body.unwrap_or_default(),
            secret: http.secret.map(Secret),
        }),
        JobTarget::Worker(WorkerTarget { queue, payload }) => {
            Target::Worker { queue, payload: payload.unwrap_or_default() }
        }
        JobTarget::Command(CommandTarget { program, arguments }) => Target::Command { program, arguments },
    }
}

/// What a definition says, with what was chosen, and without what is secret.
pub(crate) fn shown(job: &Definition) -> JobDefinition {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let target = match &job.target {
        Target::Http(http) => JobTarget::Http(HttpTarget {
            url: http.url.clone(),
            method: Some(http.method.clone()),
            headers: http.headers.iter().cloned().collect(),
            body: text(&http.body),
            secret: None,
            signed: Some(http.secret.is_some()),
        }),
        Target::Worker { queue, payload } => {
            JobTarget::Worker(WorkerTarget { queue: queue.clone(), payload: text(payload) })
        }
        Target::Command { program, arguments } => {
            JobTarget::Command(CommandTarget { program: program.clone(), arguments: arguments.clone() })
        }
    };
    JobDefinition {
        schedule: job.schedule.clone(),
        time_zone: Some(job.time_zone.clone()),
        daylight_saving: Some(match job.daylight_saving {
            DaylightSaving::Vixie => wire::DaylightSaving::Vixie,
            DaylightSaving::Literal => wire::DaylightSaving::Literal,
        }),
        target,
        guarantee: Some(match job.guarantee {
            Guarantee::AtMostOnce => wire::Guarantee::AtMostOnce,
            Guarantee::AtLeastOnce => wire::Guarantee::AtLeastOnce,
            Guarantee::EffectivelyOnce => wire::Guarantee::EffectivelyOnce,
        }),
        overlap: Some(match job.overlap {
            Overlap::Skip => wire::Overlap::Skip,
            Overlap::QueueOne => wire::Overlap::QueueOne,
            Overlap::QueueAll => wire::Overlap::QueueAll,
            Overlap::Allow => wire::Overlap::Allow,
            Overlap::CancelPrevious => wire::Overlap::CancelPrevious,
        }),
        missed: Some(match job.missed {
            Missed::Skip => wire::Missed::Skip,
            Missed::Latest => wire::Missed::Latest,
            Missed::All => wire::Missed::All,
        }),
        missed_window_millis: Some(job.missed_window_ms),
        missed_max: Some(job.missed_max),
        retry: (job.guarantee != Guarantee::AtMostOnce).then_some(Retry {
            max_attempts: Some(job.attempts_max),
            backoff_millis: Some(job.retry_first_ms),
            max_backoff_millis: Some(job.retry_most_ms),
        }),
        deadline_millis: job.deadline_ms,
        timeout_millis: Some(job.timeout_ms),
        jitter_millis: Some(job.jitter_ms),
        enabled: Some(job.enabled),
        calendars: job
            .calendars
            .iter()
            .map(|used| UsedCalendar {
                name: used.name.clone(),
                policy: match used.policy {
                    Policy::Exclude => CalendarPolicy::Exclude,
                    Policy::MoveToNext => CalendarPolicy::MoveToNext,
                    Policy::MoveToPrevious => CalendarPolicy::MoveToPrevious,
                },
            })
            .collect(),
        then: job.then.clone(),
        keep_runs: Some(job.kept_max),
        keep_millis: Some(job.kept_ms),
        success_within_millis: job.success_within_ms,
    }
}

pub(super) fn policy(said: CalendarPolicy) -> Policy {
    match said {
        CalendarPolicy::Exclude => Policy::Exclude,
        CalendarPolicy::MoveToNext => Policy::MoveToNext,
        CalendarPolicy::MoveToPrevious => Policy::MoveToPrevious,
    }
}

/// A period has no times of day, so there is nothing that another day could have.
pub(super) fn movable(schedule: &Schedule, calendars: &[UsedCalendar]) -> Result<(), ErrorBody> {
    if schedule.is_period() && calendars.iter().any(|used| used.policy != CalendarPolicy::Exclude) {
        let message = "times of @every can't be moved to another day, only left out: use exclude";
        return Err(ErrorBody::invalid("calendars", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn stored(body: Value) -> Result<Definition, ErrorBody> {
        let said: JobDefinition = serde_json::from_value(body).unwrap();
        said.check().unwrap();
        read(&Name::new("n", "j"), said)
    }

    #[test]
    fn what_is_shown_means_the_same_when_it_is_put_again() {
        for body in [
            json!({ "target": { "worker": { "queue": "q" } } }),
            json!({ "schedule": "H * * * *", "timeZone": "Europe/Berlin", "daylightSaving": "literal",
                    "target": { "http": { "url": "http://example.org", "headers": { "a": "b" }, "body": "x" } },
                    "guarantee": "at_most_once", "overlap": "queue_all", "missed": "all", "missedMax": 5,
                    "deadlineMillis": 7, "jitterMillis": 9, "enabled": false, "then": ["k"], "keepRuns": 11,
                    "successWithinMillis": 1_000, "calendars": [{ "name": "c", "policy": "move_to_next" }] }),
            json!({ "target": { "command": { "program": "p", "arguments": ["a"] } },
                    "retry": { "maxAttempts": 9, "backoffMillis": 1, "maxBackoffMillis": 2 } }),
        ] {
            let job = stored(body).unwrap();
            let mut again = shown(&job);
            if let JobTarget::Http(http) = &mut again.target {
                http.signed = None;
            }
            assert_eq!(read(&Name::new("n", "j"), again).unwrap(), job);
        }
    }

    #[test]
    fn a_schedule_or_a_zone_that_cant_be_read_is_refused_with_its_field() {
        let refused = |body: Value| stored(body).unwrap_err().field;
        let target = json!({ "worker": { "queue": "q" } });
        assert_eq!(
            refused(json!({ "schedule": "61 * * * *", "target": target })).as_deref(),
            Some("schedule")
        );
        assert_eq!(
            refused(json!({ "timeZone": "Europe/Atlantis", "target": target })).as_deref(),
            Some("timeZone")
        );
        let moved = json!([{ "name": "c", "policy": "move_to_previous" }]);
        let every = json!({ "schedule": "@every 1h", "calendars": moved, "target": target });
        assert_eq!(refused(every).as_deref(), Some("calendars"));
    }

    #[test]
    fn a_secret_is_never_shown() {
        let target = json!({ "http": { "url": "http://example.org", "secret": "hush" } });
        let shown = serde_json::to_string(&shown(&stored(json!({ "target": target })).unwrap())).unwrap();
        assert!(!shown.contains("hush") && shown.contains("\"signed\":true"), "{shown}");
    }
}

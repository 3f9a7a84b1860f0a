//! A YAML file of jobs and calendars, as `baton cron apply` reads it. The server itself reads none: who applies a file is who has it.
//!
//! ```yaml
//! calendars:
//!   holidays:
//!     days: [{day: 12-25, note: Christmas}]
//! jobs:
//!   nightly-report:
//!     schedule: "30 2 * * *"
//!     calendars: [{name: holidays, policy: exclude}]
//!     target: {http: {url: "https://reports.example.org/nightly"}}
//! ```

use crate::http::{calendars, job_definition};
use baton_api::calendar::CalendarDefinition;
use baton_api::job::JobDefinition;
use baton_api::limits;
use baton_core::Name;
use serde::Deserialize;
use serde_saphyr::options::MergeKeyPolicy;
use std::collections::BTreeMap;

/// Bytes of a file.
pub const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    #[serde(default)]
    calendars: BTreeMap<String, CalendarDefinition>,
    #[serde(default)]
    jobs: BTreeMap<String, JobDefinition>,
}

/// What a file says, in the order of the names.
#[derive(Debug)]
pub struct JobsFile {
    /// To be put first.
    pub calendars: Vec<(String, CalendarDefinition)>,
    /// They may go by those.
    pub jobs: Vec<(String, JobDefinition)>,
}

/// Reads a file. All of it can be put, or the error says which part can't and what is wrong with it.
pub fn read(text: &str, namespace: &str) -> Result<JobsFile, String> {
    if text.len() > FILE_BYTES_MAX {
        return Err(format!("it has more than {FILE_BYTES_MAX} bytes"));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            // Without them there is nothing that an alias could repeat.
            max_anchors: 0,
            max_nodes: FILE_BYTES_MAX,
            max_events: 2 * FILE_BYTES_MAX,
        },
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        // What stands in the file may be secret.
        with_snippet: false,
    };
    let mut place = String::new();
    let said = serde_saphyr::with_deserializer_from_str_with_options(text, options, |reader| {
        serde_path_to_error::deserialize::<_, Said>(reader).map_err(|error| {
            place = error.path().to_string();
            error.into_inner()
        })
    });
    let said = said.map_err(|error| format!("{place}: {error}"))?;
    for (name, calendar) in &said.calendars {
        let checked = limits::check_name("name", name);
        let checked = checked.and_then(|()| calendars::read(calendar.clone()).map(drop));
        checked.map_err(|error| format!("calendars.{name}: {}", error.message))?;
    }
    for (name, job) in &said.jobs {
        let checked = limits::check_name("name", name)
            .and_then(|()| job.check())
            .and_then(|()| job_definition::read(&Name::new(namespace, name), job.clone()).map(drop));
        checked.map_err(|error| format!("jobs.{name}: {}", error.message))?;
    }
    Ok(JobsFile { calendars: said.calendars.into_iter().collect(), jobs: said.jobs.into_iter().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let fine = "jobs:\n  a:\n    schedule: '@daily'\n    target: {worker: {queue: q}}\n";
        let file = read(fine, "default").unwrap();
        assert_eq!((file.jobs.len(), file.jobs[0].0.as_str()), (1, "a"));
        let calendar = "calendars:\n  c:\n    days: [{day: 12-25, note: x}, {day: SAT..SUN}]\n";
        assert_eq!(read(calendar, "default").unwrap().calendars[0].1.days.len(), 2);
        for (text, part) in [
            ("jobs:\n  a:\n    schedule: '@dayly'\n    target: {worker: {queue: q}}\n", "jobs.a: schedule"),
            ("jobs:\n  a:\n    timeZone: Mars/Base\n    target: {worker: {queue: q}}\n", "jobs.a: timeZone"),
            ("jobs:\n  a:\n    schedul: '@daily'\n    target: {worker: {queue: q}}\n", "schedul"),
            ("jobs:\n  a:\n    timeoutMillis: 1\n    target: {worker: {queue: q}}\n", "timeoutMillis"),
            ("jobs:\n  a: &x\n    target: {worker: {queue: q}}\n  b: *x\n", "anchor"),
            ("job: {}\n", "job"),
            (
                "calendars:\n  c:\n    days: [{day: SAT}, {day: 2026-02-30}]\n",
                "calendars.c: days[1].day: there is no date",
            ),
        ] {
            let error = read(text, "default").unwrap_err();
            assert!(error.to_lowercase().contains(&part.to_lowercase()), "{text}: {error}");
        }
    }
}

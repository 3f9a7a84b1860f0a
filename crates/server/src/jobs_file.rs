//! A YAML file of jobs, as `baton cron apply` reads it. The server itself reads none: who applies a file is who has it.
//!
//! ```yaml
//! jobs:
//!   nightly-report:
//!     schedule: "30 2 * * *"
//!     target: {http: {url: "https://reports.example.org/nightly"}}
//! ```

use crate::http::job_definition;
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
    jobs: BTreeMap<String, JobDefinition>,
}

/// What a file says, in the order of the names. All of it can be put, or the error says which job and what is wrong with it.
pub fn read(text: &str, namespace: &str) -> Result<Vec<(String, JobDefinition)>, String> {
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
    for (name, job) in &said.jobs {
        let checked = limits::check_name("name", name)
            .and_then(|()| job.check())
            .and_then(|()| job_definition::read(&Name::new(namespace, name), job.clone()).map(drop));
        checked.map_err(|error| format!("jobs.{name}: {}", error.message))?;
    }
    Ok(said.jobs.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let fine = "jobs:\n  a:\n    schedule: '@daily'\n    target: {worker: {queue: q}}\n";
        let jobs = read(fine, "default").unwrap();
        assert_eq!((jobs.len(), jobs[0].0.as_str()), (1, "a"));
        for (text, part) in [
            ("jobs:\n  a:\n    schedule: '@dayly'\n    target: {worker: {queue: q}}\n", "jobs.a: schedule"),
            ("jobs:\n  a:\n    timeZone: Mars/Base\n    target: {worker: {queue: q}}\n", "jobs.a: timeZone"),
            ("jobs:\n  a:\n    schedul: '@daily'\n    target: {worker: {queue: q}}\n", "schedul"),
            ("jobs:\n  a:\n    timeoutMillis: 1\n    target: {worker: {queue: q}}\n", "timeoutMillis"),
            ("jobs:\n  a: &x\n    target: {worker: {queue: q}}\n  b: *x\n", "anchor"),
            ("job: {}\n", "job"),
        ] {
            let error = read(text, "default").unwrap_err();
            assert!(error.to_lowercase().contains(&part.to_lowercase()), "{text}: {error}");
        }
    }
}

//! `baton cron apply`: the jobs and calendars of a file.

use crate::client::ClientOptions;
use crate::failure::{Failure, USAGE};
use crate::output::{self, Format};
use baton_client::wire_job::{JobDefinition, JobStatus};
use baton_client::{Baton, ListQuery};
use baton_server::jobs_file::{self, JobsFile};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

pub const HELP: &str = "Examples:\n  \
    baton cron apply -f jobs.yaml --dry-run\n  \
    baton cron apply -f jobs.yaml\n\n\
    The file has a name and a definition for each job, with the fields of PUT /v1/jobs/{name} (docs/job.md):\n\n  \
    jobs:\n    \
      nightly-report:\n      \
        schedule: \"30 2 * * *\"\n      \
        timeZone: Europe/Berlin\n      \
        guarantee: effectively_once\n      \
        target: {http: {url: \"https://reports.example.org/nightly\"}}\n\n\
    Calendars stand beside them, and are put first:\n\n  \
    calendars:\n    \
      holidays:\n      \
        days: [{day: 12-25..12-26, note: Christmas}, {day: SAT..SUN}]\n\n\
    If one of them is wrong, none is changed. Jobs that the file doesn't name stay as they are, unless you say --prune.";

/// Jobs on one page.
const PAGE: u64 = 500;

/// What became, or would become, of a job or a calendar.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Applied {
    /// `job` or `calendar`.
    kind: &'static str,
    name: String,
    /// `made`, `changed`, `unchanged` or `removed`.
    status: &'static str,
    /// What differs from before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fields: Vec<String>,
}

pub async fn run(file: &Path, dry_run: bool, prune: bool, client: &ClientOptions) -> Result<u8, Failure> {
    let name = file.display();
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::new(
            USAGE,
            format!("{name} can't be used: {error}"),
            "nothing was changed; see `baton cron apply --help`",
        )
    };
    let text = read(file).map_err(|error| unreadable(&error))?;
    let namespace = client.namespace.as_deref().unwrap_or(super::NAMESPACE_DEFAULT);
    let JobsFile { calendars, jobs } =
        jobs_file::read(&text, namespace).map_err(|error| unreadable(&error))?;
    let baton = client.connect().await?;
    let mut planned = Vec::new();
    for (name, definition) in &calendars {
        let before = baton.calendars().get(name).await?;
        let status = match &before {
            None => "made",
            Some(before) if before.days == definition.days => "unchanged",
            Some(_) => "changed",
        };
        planned.push(Applied { kind: "calendar", name: name.clone(), status, fields: Vec::new() });
    }
    for (name, definition) in &jobs {
        let before = baton.jobs().get(name).await?;
        planned.push(plan(name, definition, before.as_ref()));
    }
    let named: BTreeSet<_> = jobs.iter().map(|(name, _)| name.as_str()).collect();
    let surplus = if prune { others(&baton, &named).await? } else { Vec::new() };
    if !dry_run {
        // Calendars first: jobs may name them.
        for (name, definition) in &calendars {
            baton.calendars().put(name, definition).await?;
        }
        for ((name, definition), planned) in jobs.iter().zip(&mut planned[calendars.len()..]) {
            let put = baton.jobs().put(name, definition).await?;
            // What the server found counts: a secret can't be compared here.
            planned.status = match put.status.as_deref() {
                Some("MADE") => "made",
                Some("UNCHANGED") => "unchanged",
                _ => "changed",
            };
        }
        for name in &surplus {
            baton.jobs().remove(name).await?;
        }
    }
    let removed = |name| Applied { kind: "job", name, status: "removed", fields: Vec::new() };
    planned.extend(surplus.into_iter().map(removed));
    show(&planned, dry_run, client.output)
}

/// Jobs of the namespace that the file doesn't name.
async fn others(baton: &Baton, named: &BTreeSet<&str>) -> Result<Vec<String>, Failure> {
    let (mut found, mut query) = (Vec::new(), ListQuery { limit: Some(PAGE), ..ListQuery::default() });
    loop {
        let page = baton.jobs().list(&query).await?;
        let names = page.jobs.into_iter().map(|job| job.name);
        found.extend(names.filter(|name| !named.contains(name.as_str())));
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            return Ok(found);
        }
    }
}

fn read(file: &Path) -> std::io::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        // One byte more than may be says that there are too many.
        std::io::stdin().take(jobs_file::FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(file)
}

fn plan(name: &str, definition: &JobDefinition, before: Option<&JobStatus>) -> Applied {
    let name = name.to_owned();
    let Some(before) = before else {
        return Applied { kind: "job", name, status: "made", fields: Vec::new() };
    };
    let value = |definition: &JobDefinition| serde_json::to_value(definition).unwrap_or_default();
    let mut fields = Vec::new();
    differ("", &value(definition), &value(&before.definition), &mut fields);
    let status = if fields.is_empty() { "unchanged" } else { "changed" };
    Applied { kind: "job", name, status, fields }
}

/// The fields that are said and aren't so; what isn't said is as the server chooses.
fn differ(path: &str, said: &Value, is: &Value, fields: &mut Vec<String>) {
    match said {
        Value::Object(said) => {
            for (name, said) in said {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match name.as_str() {
                    // Never shown, so that nobody can say whether it is the same.
                    "secret" if is["signed"] == Value::Bool(true) => {}
                    _ => differ(&path, said, &is[name], fields),
                }
            }
        }
        said if said != is => fields.push(path.to_owned()),
        _ => {}
    }
}

fn show(applied: &[Applied], dry_run: bool, format: Format) -> Result<u8, Failure> {
    if format == Format::Json {
        output::json(&applied)?;
        return Ok(0);
    }
    for one in applied {
        let mark = match one.status {
            "made" => '+',
            "changed" => '~',
            "removed" => '-',
            _ => '=',
        };
        let fields = match one.fields.is_empty() {
            true => String::new(),
            false => format!(" ({})", one.fields.join(", ")),
        };
        let kind = if one.kind == "job" { "" } else { "calendar " };
        output::line(output::printable(format!("{mark} {kind}{}{fields}", one.name)))?;
    }
    let count = |status: &str| applied.iter().filter(|one| one.status == status).count();
    let would = if dry_run { "would be " } else { "" };
    let (made, changed, unchanged) = (count("made"), count("changed"), count("unchanged"));
    let removed = match count("removed") {
        0 => String::new(),
        removed => format!(", {removed} {would}removed"),
    };
    output::line(format_args!(
        "{made} {would}made, {changed} {would}changed, {unchanged} unchanged{removed}"
    ))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_said_and_is_not_so_differs() {
        let is = json!({ "schedule": "@daily", "missed": "latest", "target": { "http": { "url": "u", "signed": true } } });
        let differs = |said: Value| {
            let mut fields = Vec::new();
            differ("", &said, &is, &mut fields);
            fields
        };
        assert!(differs(json!({ "schedule": "@daily" })).is_empty());
        assert_eq!(differs(json!({ "schedule": "@hourly", "overlap": "skip" })), ["overlap", "schedule"]);
        assert!(differs(json!({ "target": { "http": { "url": "u", "secret": "s" } } })).is_empty());
        assert_eq!(differs(json!({ "target": { "worker": { "queue": "q" } } })), ["target.worker.queue"]);
    }
}

//! From a file's text to definitions.
//!
//! The fields are those of `PUT /v1/limits/{name}`, and so is what is refused. Anchors and aliases are refused as well:
//! without them nothing in memory is larger than it was in the file, which has a bound.

use super::DEFINITIONS_MAX;
use crate::http::definition;
use crate::http::input::{NAMESPACE_DEFAULT, quote};
use baton_api::ErrorBody;
use baton_api::limit::LimitDefinition;
use baton_api::limits;
use baton_core::Name;
use baton_core::limit::Definition;
use serde::Deserialize;
use serde_path_to_error::{Path, Segment};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::MergeKeyPolicy;
use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter};
use std::collections::BTreeMap;
use std::fmt;

/// More keys and values than a file has room for: its length is the bound.
const NODES_MAX: usize = super::FILE_BYTES_MAX as usize;

/// What a file says, by name.
pub(super) type Definitions = Vec<(Name, Definition)>;

/// What is wrong with a file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Fault {
    /// Namespace and name of the limit that it is about.
    limit: Option<(String, String)>,
    /// The field of that limit, or of the file.
    field: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SaidFile {
    limits: Option<SaidLimits>,
    namespaces: Option<BTreeMap<String, SaidNamespace>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SaidNamespace {
    limits: SaidLimits,
}

type SaidLimits = BTreeMap<String, LimitDefinition>;

/// What a file's text defines: all of it is right, or nothing is given.
pub(super) fn parse(text: &str) -> Result<Definitions, Fault> {
    let SaidFile { limits, namespaces } = said(text)?;
    if limits.is_none() && namespaces.is_none() {
        // Also what a file looks like that is just being written.
        return Err(Fault::of("it has neither `limits` nor `namespaces`"));
    }
    let (limits, namespaces) = (limits.unwrap_or_default(), namespaces.unwrap_or_default());
    let number = limits.len() + namespaces.values().map(|said| said.limits.len()).sum::<usize>();
    if number > DEFINITIONS_MAX {
        return Err(Fault::of(format!("it has {number} limits, and {DEFINITIONS_MAX} is the most")));
    }
    let twice = |said: &SaidNamespace| said.limits.keys().find(|name| limits.contains_key(*name)).cloned();
    if let Some(name) = namespaces.get(NAMESPACE_DEFAULT).and_then(twice) {
        let reason = format!("it is in `limits` and in the namespace {NAMESPACE_DEFAULT:?}");
        return Err(Fault::of(reason).at(NAMESPACE_DEFAULT, &name, ""));
    }
    let plain = limits.into_iter().map(|(name, said)| (NAMESPACE_DEFAULT.to_owned(), name, said));
    let named = namespaces.into_iter().flat_map(|(namespace, said)| {
        said.limits.into_iter().map(move |(name, said)| (namespace.clone(), name, said))
    });
    plain.chain(named).map(|(namespace, name, said)| one(&namespace, &name, said)).collect()
}

fn one(namespace: &str, name: &str, said: LimitDefinition) -> Result<(Name, Definition), Fault> {
    let read = || {
        limits::check_text("namespace", namespace, limits::NAMESPACE_BYTES)?;
        limits::check_name("name", name)?;
        said.check()?;
        definition::read(said)
    };
    let definition = read().map_err(|ErrorBody { field, message, .. }| {
        Fault::of(message).at(namespace, name, &field.unwrap_or_default())
    })?;
    Ok((Name::new(namespace, name), definition))
}

fn said(text: &str) -> Result<SaidFile, Fault> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            // Without them there is nothing that an alias could repeat.
            max_anchors: 0,
            max_nodes: NODES_MAX,
            max_events: 2 * NODES_MAX,
        },
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        // What stands in the file is not for the log.
        with_snippet: false,
    };
    let mut place = Vec::new();
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |reader| {
        serde_path_to_error::deserialize(reader).map_err(|error| {
            place = segments(error.path());
            error.into_inner()
        })
    });
    read.map_err(|error| unreadable(place, &error))
}

/// The way to where reading stopped, as far as it is known.
fn segments(path: &Path) -> Vec<String> {
    let known = path.iter().filter(|segment| !matches!(segment, Segment::Unknown));
    known.map(ToString::to_string).collect()
}

fn unreadable(mut place: Vec<String>, error: &Error) -> Fault {
    let (missing, reason) = match error {
        Error::SerdeMissingField { field, .. } => (Some((*field).to_owned()), "it is missing".into()),
        Error::DuplicateMappingKey { key, .. } => (key.clone(), "it is there twice".into()),
        Error::InvalidScalar { ty, .. } if ty.starts_with('u') => {
            (None, "it must be a whole number".to_owned())
        }
        Error::Budget { breach: BudgetBreach::Anchors { .. }, .. } => {
            (None, "anchors and aliases can't be used here".into())
        }
        other => (None, UserMessageFormatter.format_message(other).into_owned()),
    };
    place.extend(missing);
    let line = error.location().map(|location| format!(" (line {})", location.line())).unwrap_or_default();
    let fault = Fault::of(format!("{}{line}", quote(&reason)));
    let place: Vec<_> = place.iter().map(String::as_str).collect();
    match place[..] {
        ["limits", name, ref rest @ ..] => fault.at(NAMESPACE_DEFAULT, name, &joined(rest)),
        ["namespaces", namespace, "limits", name, ref rest @ ..] => fault.at(namespace, name, &joined(rest)),
        ref other => Fault { field: quote(&joined(other)), ..fault },
    }
}

/// As a field is written: `overrides[0].limit`.
fn joined(segments: &[&str]) -> String {
    segments.join(".").replace(".[", "[")
}

impl Fault {
    pub(super) fn of(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ..Self::default() }
    }

    fn at(self, namespace: &str, name: &str, field: &str) -> Self {
        // What is refused may be long.
        Self { limit: Some((quote(namespace), quote(name))), field: quote(field), ..self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((namespace, name)) = &self.limit {
            write!(formatter, "limit {name:?}")?;
            if namespace != NAMESPACE_DEFAULT {
                write!(formatter, " of the namespace {namespace:?}")?;
            }
            write!(formatter, "{}", if self.field.is_empty() { ": " } else { ", " })?;
        }
        if !self.field.is_empty() {
            write!(formatter, "field {}: ", self.field)?;
        }
        formatter.write_str(&self.reason)
    }
}

#[cfg(test)]
mod tests;

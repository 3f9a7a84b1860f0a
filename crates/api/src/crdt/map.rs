//! The bodies of `/v1/maps`. A field is known by its name and its kind, so each kind has its fields of its own.

use super::{Amount, CrdtKind, check_edits, check_elements, check_value, check_write, is_false};
use crate::error::ErrorBody;
use crate::limits;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// `POST /v1/maps/{name}`: 1 to 40 changes in all, which all happen or none. Field names have 1 to 512 bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MapWrite {
    /// What to add to fields that are counters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "distinct")]
    pub counters: BTreeMap<String, Amount>,
    /// What to add to fields that are grow-only counters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "distinct")]
    pub grow_counters: BTreeMap<String, Amount>,
    /// What to put into fields that are sets, and what to take out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "distinct")]
    pub sets: BTreeMap<String, MapSetWrite>,
    /// What to set fields to that are registers: any JSON of at most 16 KiB.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "distinct")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, serde_json::Value>))]
    pub registers: BTreeMap<String, Box<RawValue>>,
    /// What to set fields to that keep concurrent values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "distinct")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, serde_json::Value>))]
    pub multi_values: BTreeMap<String, Box<RawValue>>,
    /// Fields to remove: of a kind other than `set`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<MapField>,
    /// From a read: only what that had seen is removed or, of `multiValues`, replaced. Without it, all that this replica has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1))]
    pub context: Option<String>,
    /// Who writes: requests of different writers are different.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub writer: Option<String>,
    /// Makes a repeated call count once at this replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub request_id: Option<String>,
}

/// What to put into a set in a map, and what to take out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MapSetWrite {
    /// Elements to put in: each 1 to 1024 bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<String>,
    /// Elements to take out, none of which is in `add`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

/// A field of a map.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MapField {
    /// What it is called.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub field: String,
    /// What it is.
    pub kind: CrdtKind,
}

impl MapWrite {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        check_write(self.writer.as_ref(), self.request_id.as_ref(), self.context.as_ref())?;
        let elements: usize = self.sets.values().map(|set| set.add.len() + set.remove.len()).sum();
        let (counters, values) =
            (self.counters.len() + self.grow_counters.len(), self.registers.len() + self.multi_values.len());
        check_edits("body", counters + elements + values + self.remove.len())?;
        for (kind, counters) in [("counters", &self.counters), ("growCounters", &self.grow_counters)] {
            for (field, amount) in counters {
                check_field(kind, field)?;
                amount.check(kind)?;
            }
        }
        for (field, set) in &self.sets {
            check_field("sets", field)?;
            check_elements("sets", &set.add, &set.remove)?;
        }
        for (kind, registers) in [("registers", &self.registers), ("multiValues", &self.multi_values)] {
            for (field, value) in registers {
                check_field(kind, field)?;
                check_value(kind, value.get())?;
            }
        }
        for MapField { field, kind } in &self.remove {
            check_field("remove", field)?;
            if *kind == CrdtKind::Set {
                return Err(ErrorBody::invalid(
                    "remove",
                    "a set in a map is emptied by removing its elements",
                ));
            }
        }
        Ok(())
    }
}

fn check_field(kind: &str, field: &str) -> Result<(), ErrorBody> {
    limits::check_text(kind, field, limits::KEY_BYTES)
}

/// A map was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MapWritten {
    /// What it is called.
    pub map: String,
    /// For `after`: what has to be seen to have seen this write.
    pub context: String,
    /// It had been done before, and was only answered again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replayed: bool,
}

/// Some of a map's fields. A set may go on on the next page.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MapPage {
    /// What it is called.
    pub map: String,
    /// Fields that are counters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, i64>, required = false))]
    pub counters: BTreeMap<String, i128>,
    /// Fields that are grow-only counters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, i64>, required = false))]
    pub grow_counters: BTreeMap<String, i128>,
    /// Fields that are sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sets: BTreeMap<String, Vec<String>>,
    /// Fields that are registers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, serde_json::Value>, required = false))]
    pub registers: BTreeMap<String, Box<RawValue>>,
    /// Fields that keep concurrent values: all of them, the last one first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Vec<serde_json::Value>>, required = false))]
    pub multi_values: BTreeMap<String, Vec<Box<RawValue>>>,
    /// What was seen: for a removal of just that, and for `after`.
    pub context: String,
    /// For the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// What a watch tells of a map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MapChange {
    /// What it is called.
    pub map: String,
    /// Fields that were written or removed.
    pub fields: Vec<MapField>,
    /// What was seen then.
    pub context: String,
}

/// A map in which no name is there twice: which of the two would be meant?
fn distinct<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    struct Distinct<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Distinct<T> {
        type Value = BTreeMap<String, T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = BTreeMap::new();
            while let Some((name, value)) = map.next_entry::<String, T>()? {
                if found.contains_key(&name) {
                    return Err(A::Error::custom("a name is there twice"));
                }
                found.insert(name, value);
            }
            Ok(found)
        }
    }
    from.deserialize_map(Distinct(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_field_is_there_twice_and_values_stay_as_they_were_written() {
        let read = serde_json::from_str::<MapWrite>;
        assert!(read(r#"{"counters":{"a":1,"a":2}}"#).is_err());
        assert!(read(r#"{"registers":{"a":1,"a":1}}"#).is_err());
        assert!(read(r#"{"counters":{"a":1},"growCounters":{"a":1}}"#).unwrap().check().is_ok());
        let write = read(r#"{"counters":{"a":1.0},"registers":{"b":[1.0, 2]}}"#).unwrap();
        assert_eq!((write.counters["a"], write.registers["b"].get()), (Amount(1), "[1.0, 2]"));
    }

    #[test]
    fn a_write_says_something_and_not_too_much() {
        let field = |text: &str| {
            let write: MapWrite = serde_json::from_str(text).unwrap();
            write.check().unwrap_err().field.unwrap()
        };
        for (text, wrong) in [
            ("{}", "body"),
            (r#"{"sets":{"s":{}}}"#, "body"),
            (r#"{"counters":{"":1}}"#, "counters"),
            (r#"{"sets":{"s":{"add":[""]}}}"#, "sets.add"),
            (r#"{"sets":{"s":{"add":["a"],"remove":["a"]}}}"#, "sets.remove"),
            (r#"{"remove":[{"field":"f","kind":"set"}]}"#, "remove"),
        ] {
            assert_eq!(field(text), wrong, "{text}");
        }
    }
}

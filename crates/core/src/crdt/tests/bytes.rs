//! Rows, deltas and names as bytes.

use super::world::{Random, World};
use crate::crdt::kind::Parts;
use crate::crdt::{Delta, ELEMENT_BYTES_MAX, Kind, Object, ROW_NAME_BYTES_MAX, Row, RowKey};
use alloc::vec::Vec;
use proptest::prelude::*;

proptest! {
    // Each has a long history of its own.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_and_deltas_are_read_as_they_were_written(seed: u64) {
        let (mut world, mut random) = (World::new(3), Random(seed));
        for _ in 0..60 {
            world.step(&mut random, &World::keys());
        }
        for (key, row) in world.replicas.iter().flat_map(|replica| &replica.rows) {
            prop_assert_eq!(&Row::decode(&row.encode(), key.kind()), &Ok(row.clone()));
            for other in Kind::ALL {
                // What one kind says is no sense of another, but for the two that share a shape.
                let alike = |kind| match kind { Kind::MultiValue => Kind::Register, Kind::GrowCounter => Kind::Counter, other => other };
                let fits = Row::decode(&row.encode(), other).is_ok();
                prop_assert!(!fits || alike(other) == alike(key.kind()));
            }
        }
        for delta in &world.deltas {
            prop_assert_eq!(&Delta::decode(&delta.encode()), &Ok(delta.clone()));
        }
    }

    #[test]
    fn damaged_bytes_are_unreadable_and_never_a_panic(mut value: Vec<u8>) {
        value.insert(0, 1);
        drop(Delta::decode(&value));
        drop(RowKey::decode(&value));
        for kind in Kind::ALL {
            drop(Row::decode(&value, kind));
        }
    }

    #[test]
    fn a_row_s_name_says_what_it_is_about(namespace in "[^\0]{1,9}", name in "[^\0]{1,9}", field in "[^\0]{1,9}", element: Vec<u8>) {
        for (object, field) in [
            (Object::plain(&namespace, &name), None),
            (Object::field(&namespace, &name, &field), Some(field.as_str())),
        ] {
            for kind in Kind::ALL {
                let element = if kind == Kind::Set { element.as_slice() } else { &[] };
                let key = object.element(kind, element);
                let (namespace, name) = (namespace.as_str(), name.as_str());
                prop_assert_eq!(key.parts(), Parts { namespace, name, field, kind, element });
                prop_assert_eq!(RowKey::decode(key.bytes()), Ok(key.clone()));
                prop_assert!(key.bytes().starts_with(object.row(kind).bytes()));
                let together = match (field, kind) {
                    (Some(_), _) => Some(Object::map_prefix(namespace, name)),
                    (None, Kind::Set) => Some(object.row(Kind::Set).bytes().to_vec()),
                    (None, _) => None,
                };
                prop_assert_eq!(key.collection(), together.as_deref());
            }
        }
    }
}

#[test]
fn names_that_are_no_names_are_refused() {
    let too_long = Object::plain("n", "o").element(Kind::Set, &[b'x'; ROW_NAME_BYTES_MAX]);
    assert!(RowKey::decode(too_long.bytes()).is_err());
    for bad in [&b""[..], b"\0n\0o", b"\0n\0o\0", b"\0n\0o\0x", b"\x02n\0o\0c", b"\0n\0o\0cx", b"\x01n\0m\0c"]
    {
        assert!(RowKey::decode(bad).is_err(), "{}", bad.escape_ascii());
    }
    const { assert!(ELEMENT_BYTES_MAX < ROW_NAME_BYTES_MAX) };
}

#[test]
fn a_newer_version_is_refused() {
    assert!(Delta::decode(&[2, 0]).is_err() && Delta::decode(&[1, 0]).is_ok());
    assert!(Row::decode(&[2, 0], Kind::Set).is_err() && Row::decode(&[1, 0], Kind::Set).is_ok());
}

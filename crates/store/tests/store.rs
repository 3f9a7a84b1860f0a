//! The stores, from the outside.

mod embedded {
    use baton_core::{Check, Commit, Group, Key, Outcome, Ttl, Write};
    use baton_store::embedded::{Embedded, OpenError, Options};
    use baton_store::open;

    fn key(name: &str) -> Key {
        Key::new(Group(7), name.as_bytes())
    }

    fn create(name: &str, value: &str) -> Commit {
        Commit {
            checks: vec![Check::Absent(key(name))],
            writes: vec![Write::Put { key: key(name), value: value.as_bytes().into(), ttl: Ttl::Forever }],
        }
    }

    #[tokio::test]
    async fn what_was_committed_is_there_after_opening_again() {
        let directory = tempfile::tempdir().unwrap();
        let store = open("embedded:", directory.path()).unwrap();
        let Outcome::Committed { revision, .. } = store.commit(create("a", "1")).await.unwrap() else {
            panic!("nothing was there")
        };
        drop(store);
        let store = open("embedded:", directory.path()).unwrap();
        let Outcome::Conflict { found, .. } = store.commit(create("a", "2")).await.unwrap() else {
            panic!("it was there")
        };
        let record = found[0].1.clone().unwrap();
        assert_eq!((&record.value[..], record.created, record.revision), (&b"1"[..], revision, revision));
    }

    #[test]
    fn a_directory_is_open_in_one_place_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let store = Embedded::open(directory.path(), Options::default()).unwrap();
        let error = Embedded::open(directory.path(), Options::default()).err().unwrap();
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        store.close();
        drop(store);
        Embedded::open(directory.path(), Options::default()).unwrap();
    }

    #[test]
    fn an_unknown_url_is_refused_without_repeating_its_password() {
        let directory = tempfile::tempdir().unwrap();
        let error = open("redis://user:secret@host", directory.path()).err().unwrap().to_string();
        assert!(
            error.contains("redis") && error.contains("embedded:") && !error.contains("secret"),
            "{error}"
        );
    }
}

//! What core, store and api must not know.

use crate::assert_tidy;
use crate::source::{blank, code, identifiers, words};
use crate::tree::{files, read};

/// Crates that bring a clock, a socket, a thread or a random number.
const IMPURE: &[&str] = &[
    "async-std",
    "chrono",
    "crossbeam",
    "fastrand",
    "futures",
    "getrandom",
    "hyper",
    "libc",
    "mio",
    "nix",
    "parking_lot",
    "rand",
    "rand_core",
    "rayon",
    "reqwest",
    "rustix",
    "smol",
    "socket2",
    "time",
    "tokio",
    "uuid",
];

fn impurities(library: &str, manifest: &str, workspace: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    // Calendars are pure; with the standard library they would have a clock as well.
    let calendar = workspace.lines().find(|line| line.starts_with("jiff ")).unwrap_or_default();
    if calendar.contains("\"std\"")
        || (!calendar.is_empty() && !calendar.contains("default-features = false"))
    {
        complaints.push("Cargo.toml: jiff with std brings a clock".into());
    }
    let library = code(library);
    if !library.contains("#![no_std]") {
        complaints
            .push("core/src/lib.rs: #![no_std] is gone, and with it the compiler's check of purity".into());
    }
    let lines: Vec<_> = library.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    for (number, line) in lines.iter().enumerate() {
        if line.contains("extern crate std") && (number == 0 || lines[number - 1] != "#[cfg(test)]") {
            complaints
                .push("core/src/lib.rs: std is for core's tests only: put #[cfg(test)] before it".into());
        }
    }
    let mut section = "";
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default().trim_matches('"');
        if section == "[dependencies]" && IMPURE.contains(&name) {
            complaints.push(format!("core/Cargo.toml: {name} brings a clock, I/O, threads or randomness"));
        }
    }
    complaints
}

#[test]
fn core_has_no_clock_socket_thread_or_random_number() {
    let pure = "//! x\n#![no_std]\nextern crate alloc;\n#[cfg(test)]\nextern crate std;";
    assert!(
        impurities(
            pure,
            "[dependencies]\nsha2.workspace = true\n[dev-dependencies]\nrand = \"1\"",
            "jiff = { version = \"0.2\", default-features = false, features = [\"alloc\"] }"
        )
        .is_empty()
    );
    assert_eq!(
        impurities(
            "extern crate std;",
            "[dependencies]\nrand.workspace = true\ntime = \"1\"",
            "jiff = \"0.2\""
        )
        .len(),
        5
    );

    let (library, manifest) = (read("crates/core/src/lib.rs"), read("crates/core/Cargo.toml"));
    assert_tidy(impurities(&library, &manifest, &read("Cargo.toml")));
}

/// Words that belong to a primitive. `limit`, `once` and `job` are too common in plain code to be told apart.
const PRIMITIVES: &[&str] = &[
    "cron",
    "crdt",
    "election",
    "elections",
    "fencing",
    "grant",
    "grants",
    "holder",
    "holders",
    "leader",
    "limiter",
    "lock",
    "locks",
    "locked",
    "reentrant",
    "roster",
    "semaphore",
    "waiter",
    "waiters",
];

/// Identifiers that have a primitive's word but are about mutexes and files: `x.lock()`, `fn lock(&self)` and a
/// local `lock` keep memory or a directory to one user; `lock::` is a module, and `lock_key` a thing with a meaning.
fn is_about_mutexes_or_files(identifier: &str, after: &str, words: &[String]) -> bool {
    const PLAIN: &[&str] =
        &["OnceLock", "LazyLock", "RwLock", "try_lock", "TryLockError", "LOCK", "Semaphore", "_lock"];
    const COMPANIONS: &[&str] = &["file", "directory", "exclusive", "unlock", "poison", "flock"];
    PLAIN.contains(&identifier)
        || words.iter().any(|word| COMPANIONS.contains(&word.as_str()))
        || (identifier == "lock" && !after.trim_start().starts_with("::"))
}

fn primitives_named(path: &str, text: &str) -> Vec<String> {
    let code = code(text);
    identifiers(&code)
        .filter(|(_, start, identifier)| {
            let words = words(identifier);
            words.iter().any(|word| PRIMITIVES.contains(&word.as_str()))
                && !is_about_mutexes_or_files(identifier, &code[start + identifier.len()..], &words)
        })
        .map(|(line, _, identifier)| format!("{path}:{line}: a store must not know what `{identifier}` is"))
        .collect()
}

#[test]
fn no_primitive_is_named_in_a_store() {
    let fine = "// a lock\nlet file = open(\"LOCK\"); inner.lock(); file.try_lock(); struct LockFile; let block = clock; let lock = 1; fn lock(&self) {}";
    assert_eq!(primitives_named("x", fine), Vec::<String>::new());
    for bad in [
        "use baton_core::lock::Roster;",
        "fn lock_key() {}",
        "enum Record { Election }",
        "let fencing_token = 1;",
    ] {
        assert!(!primitives_named("x", bad).is_empty(), "{bad}");
    }

    let stores = files().into_iter().filter(|file| file.is_rust() && file.is_under(&["crates/store/src/"]));
    assert_tidy(stores.flat_map(|file| primitives_named(&file.path, &file.text)).collect());
}

const STORES: &[&str] =
    &["consul", "embedded", "etcd", "mysql", "postgres", "postgresql", "redis", "zookeeper"];

fn stores_named(path: &str, text: &str) -> Vec<String> {
    // Comments and strings count as well: whoever explains a rule by one store has tied it to that store.
    identifiers(text)
        .filter(|(_, _, identifier)| words(identifier).iter().any(|word| STORES.contains(&word.as_str())))
        .map(|(line, _, identifier)| {
            format!("{path}:{line}: `{identifier}` is a store: the rules hold on any")
        })
        .collect()
}

#[test]
fn no_store_is_named_in_core_or_api() {
    assert!(stores_named("x", "a store may share an end; restored, storage").is_empty());
    for bad in ["// unlike etcd", "struct RedisKey;", "let url = \"postgres://\";"] {
        assert_eq!(stores_named("x", bad).len(), 1, "{bad}");
    }

    let rules =
        files().into_iter().filter(|file| file.is_rust() && file.is_under(&["crates/core/", "crates/api/"]));
    assert_tidy(rules.flat_map(|file| stores_named(&file.path, &file.text)).collect());
}

/// Where code outside the stores names one all the same, and why.
const STORES_NAMED: &[(&str, &str)] = &[
    ("crates/cli/src/serve.rs", "its test names one that is elsewhere"),
    ("crates/engine/src/limit/gossip/mod.rs", "the clock is the one that the replica has"),
    ("crates/engine/src/replica/lineage.rs", "a replica's log is on its own disk, whatever the store"),
    ("crates/engine/src/replica/mod.rs", "a replica's log is on its own disk, whatever the store"),
    ("crates/engine/src/replica/open.rs", "a replica's log is on its own disk, whatever the store"),
    ("crates/server/src/config.rs", "the store if none is named"),
    ("crates/server/src/targets/tests.rs", "a test needs some store"),
];

#[test]
fn no_store_is_named_in_the_code_of_engine_server_or_command_line() {
    let named = |path: &str, text: &str| stores_named(path, &blank(text, true));
    assert!(named("x", "// on Redis\n/// embedded:, redis://\nfn f() {}").is_empty());
    for bad in ["if store == \"embedded\" {}", "use baton_store::embedded::Home;", "is_redis()"] {
        assert_eq!(named("x", bad).len(), 1, "{bad}");
    }

    let layers = ["crates/engine/src/", "crates/server/src/", "crates/cli/src/"];
    let files: Vec<_> = files().into_iter().filter(|file| file.is_rust() && file.is_under(&layers)).collect();
    let is_allowed = |path: &str| STORES_NAMED.iter().any(|(allowed, _)| *allowed == path);
    let mut complaints: Vec<_> = files
        .iter()
        .filter(|file| !is_allowed(&file.path))
        .flat_map(|file| named(&file.path, &file.text))
        .collect();
    // Who doesn't need it any more leaves the list.
    for (allowed, _) in STORES_NAMED {
        let needs_it =
            files.iter().any(|file| file.path == *allowed && !named(&file.path, &file.text).is_empty());
        if !needs_it {
            complaints.push(format!("{allowed}: names no store any more: take it off the list"));
        }
    }
    assert_tidy(complaints);
}

fn wall_clocks(path: &str, text: &str) -> Vec<String> {
    let code = code(text);
    identifiers(&code)
        .filter(|(_, _, identifier)| ["SystemTime", "UNIX_EPOCH"].contains(identifier))
        .map(|(line, _, _)| {
            format!("{path}:{line}: the store owns time: use what it answered, or a monotonic clock")
        })
        .collect()
}

#[test]
fn neither_the_engine_nor_the_sdk_reads_a_wall_clock() {
    assert!(wall_clocks("x", "let now = Instant::now(); // SystemTime").is_empty());
    assert_eq!(wall_clocks("x", "let now = SystemTime::now();").len(), 1);

    let readers = files().into_iter().filter(|file| {
        file.is_rust() && file.is_under(&["crates/core/src/", "crates/engine/src/", "crates/client/src/"])
    });
    assert_tidy(readers.flat_map(|file| wall_clocks(&file.path, &file.text)).collect());
}

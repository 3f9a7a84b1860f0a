//! What a server takes of its machine: threads, and pages of memory.

use crate::replicas::insist;
use crate::server::Server;
use serde_json::json;
use std::fs::{read_dir, read_to_string};

/// Threads of a process that are named like the runtime's. Those that open the store are, for a while.
fn runtime_threads(id: u32) -> usize {
    let threads = read_dir(format!("/proc/{id}/task")).unwrap();
    // One that ends meanwhile has no name.
    let names = threads.map(|thread| read_to_string(thread.unwrap().path().join("comm")).unwrap_or_default());
    names.filter(|name| name.starts_with("tokio-rt-worker")).count()
}

/// Whether a process may get pages of two megabytes, as the system says it.
fn huge_pages(process: &str) -> Option<String> {
    let status = read_to_string(format!("/proc/{process}/status")).unwrap();
    status.lines().find_map(|line| Some(line.strip_prefix("THP_enabled:")?.trim().to_owned()))
}

#[test]
fn a_server_has_as_many_workers_as_it_is_told() {
    let few = Server::start_with(vec![("BATON_WORKERS", "1".into())]);
    let many = Server::start_with(vec![("BATON_WORKERS", "12".into())]);
    assert!(runtime_threads(few.id()) < 12);
    assert!(runtime_threads(many.id()) >= 12);
}

#[test]
fn a_server_does_without_huge_pages_unless_its_commands_would_have_to_as_well() {
    let usual = Server::start();
    assert_ne!(huge_pages(&usual.id().to_string()).as_deref(), Some("1"));
    let with_commands = Server::start_with(vec![("BATON_ALLOW_COMMANDS", "true".into())]);
    assert_eq!(huge_pages(&with_commands.id().to_string()), huge_pages("self"));
}

/// Kilobytes of memory that a process has.
fn resident(id: u32) -> u64 {
    let status = read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A server with a set of a thousand elements, of which so many were removed and added again.
fn with_a_set_after(cycles: u32) -> (Server, u64) {
    let server = Server::start();
    let names =
        |first: u32| (first..first + 40).map(|n| format!("element-{:04}", n % 1000)).collect::<Vec<_>>();
    let write = |body| insist(&server.url, "/v1/sets/tags", &body);
    (0..1000).step_by(40).for_each(|first| {
        write(json!({ "add": names(first) }));
    });
    for first in (0..cycles).step_by(40) {
        write(json!({ "remove": names(first) }));
        write(json!({ "add": names(first) }));
    }
    let resident = resident(server.id());
    (server, resident)
}

/// More cycles by `BATON_SET_CYCLES`.
#[test]
fn a_server_s_set_that_was_changed_over_and_over_takes_as_much_memory_as_a_new_one() {
    let cycles = std::env::var("BATON_SET_CYCLES").ok().and_then(|count| count.parse().ok()).unwrap_or(4_000);
    let ((_fresh, fresh), (_churned, churned)) = (with_a_set_after(0), with_a_set_after(cycles));
    println!("after {cycles} cycles: {churned} kB resident beside {fresh} kB");
    assert!(churned < 2 * fresh, "{churned} kB beside {fresh} kB");
}

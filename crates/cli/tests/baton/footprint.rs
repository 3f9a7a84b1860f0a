//! What a server takes of its machine: threads, and pages of memory.

use crate::server::Server;
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

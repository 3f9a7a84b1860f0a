//! `baton serve --limits FILE`: what the file says is in force, and follows it.

use crate::http;
use crate::process::{self, eventually};
use crate::server::{Server, binary};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file of limits in a directory of its own.
struct File {
    directory: tempfile::TempDir,
}

impl File {
    fn new(text: &str) -> Self {
        let file = Self { directory: tempfile::tempdir().unwrap() };
        file.replace(text);
        file
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("limits.yaml")
    }

    /// As editors and deployments do it: the old file or the new one is there, never half of one.
    fn replace(&self, text: &str) {
        let next = self.directory.path().join("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, self.path()).unwrap();
    }

    fn serve(&self) -> Server {
        Server::start_with(vec![("BATON_LIMITS", self.path().display().to_string())])
    }
}

/// A limit as the server shows it; null if there is none.
fn shown(server: &Server, name: &str, namespace: &str) -> Value {
    let path = format!("/v1/limits/{name}?namespace={namespace}");
    let answer = http::get(&server.url, &path, Duration::from_secs(10)).unwrap();
    if answer.status == 404 { Value::Null } else { answer.body }
}

fn limit(server: &Server, name: &str) -> u64 {
    shown(server, name, "default")["definition"]["limit"].as_u64().unwrap_or_default()
}

/// How often its log has this.
fn logged(server: &Server, text: &str) -> usize {
    server.log().matches(text).count()
}

/// How it ends, and what it says, if it is started with this file.
fn refused(path: &Path) -> process::Output {
    let data = tempfile::tempdir().unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--limits"];
    let output = process::run(binary().args(serve).arg(path).arg("--data").arg(data.path().join("data")));
    assert!(!data.path().join("data").exists(), "a refused file leaves nothing behind");
    output
}

#[test]
fn definitions_are_there_from_the_start_and_follow_the_file() {
    let file = File::new(
        "limits: {api: {limit: 100, windowMillis: 60000, burst: 20}, old: {limit: 1, windowMillis: 1}}\n\
         namespaces: {shop: {limits: {checkout: {limit: 10, windowMillis: 1000}}}}",
    );
    let server = file.serve();
    let api = shown(&server, "api", "default");
    assert_eq!((&api["definition"]["limit"], &api["definition"]["burst"]), (&100.into(), &20.into()));
    assert_eq!(shown(&server, "checkout", "shop")["definition"]["limit"], 10);
    assert_eq!(shown(&server, "checkout", "default"), Value::Null);

    file.replace(
        "limits: {api: {limit: 200, windowMillis: 60000, burst: 20}, new: {limit: 2, windowMillis: 1}}\n\
         namespaces: {shop: {limits: {checkout: {limit: 10, windowMillis: 1000}}}}",
    );
    let checkout = shown(&server, "checkout", "shop");
    eventually("the new file is in force", || limit(&server, "api") == 200 && limit(&server, "new") == 2);
    assert_eq!(shown(&server, "checkout", "shop"), checkout, "what says the same is left as it is");
    assert_eq!(limit(&server, "old"), 1, "what is no longer in the file stays");
    assert_eq!(logged(&server, "default/old"), 1, "and that is told: {}", server.log());
    assert_eq!(logged(&server, "default/api"), 0, "{}", server.log());
}

#[test]
fn a_file_behind_a_link_that_moves_is_followed() {
    let file = File::new("");
    let at = |name: &str| file.directory.path().join(name);
    for (name, limit) in [("first", 1), ("second", 2)] {
        std::fs::create_dir(at(name)).unwrap();
        let text = format!("limits: {{api: {{limit: {limit}, windowMillis: 1000}}}}");
        std::fs::write(at(name).join("limits.yaml"), text).unwrap();
    }
    std::fs::remove_file(file.path()).unwrap();
    std::os::unix::fs::symlink("first", at("data")).unwrap();
    std::os::unix::fs::symlink("data/limits.yaml", file.path()).unwrap();
    let server = file.serve();
    assert_eq!(limit(&server, "api"), 1);
    std::os::unix::fs::symlink("second", at("next")).unwrap();
    std::fs::rename(at("next"), at("data")).unwrap();
    eventually("the other directory's file is in force", || limit(&server, "api") == 2);
}

#[test]
fn a_bad_file_changes_nothing_and_is_told_once() {
    let file = File::new("limits: {api: {limit: 100, windowMillis: 60000}}");
    let server = file.serve();
    let before = shown(&server, "api", "default");
    let bad = "limits: {api: {limit: 5, windowMillis: 60000}, logins: {limit: 5, windowMilis: 1}}";
    let told = "limit \\\"logins\\\", field windowMilis: unknown field `windowMilis`";
    file.replace(bad);
    eventually("the log says why", || logged(&server, told) == 1);
    std::fs::remove_file(file.path()).unwrap();
    eventually("the log says that it is gone", || logged(&server, "No such file") == 1);
    assert_eq!((logged(&server, told), shown(&server, "api", "default")), (1, before), "{}", server.log());
    assert_eq!(shown(&server, "logins", "default"), Value::Null);
    file.replace("limits: {api: {limit: 7, windowMillis: 60000}, logins: {limit: 5, windowMillis: 1}}");
    eventually("a good one is in force again", || {
        limit(&server, "api") == 7 && limit(&server, "logins") == 5
    });
}

#[test]
fn what_a_caller_changed_is_put_back_with_the_next_change_and_at_the_next_start() {
    let file = File::new("limits: {api: {limit: 100, windowMillis: 60000}}");
    let mut server = file.serve();
    let put = |server: &Server, limit: &str| {
        assert_eq!(server.run(&["limits", "put", "api", "--limit", limit, "--per", "1m"]).code, 0);
    };
    put(&server, "5");
    assert_eq!(limit(&server, "api"), 5);
    file.replace("limits: {api: {limit: 100, windowMillis: 60000}} # again");
    eventually("the file's is in force again", || limit(&server, "api") == 100);
    put(&server, "6");
    server.stop();
    server.restart();
    assert_eq!(limit(&server, "api"), 100);
}

#[test]
fn a_bad_file_at_the_start_exits_with_78_and_names_the_field() {
    let file = File::new("limits: {api: {limit: 1, windowMillis: 1}, logins: {limit: 5, windowMilis: 1}}");
    let output = refused(&file.path());
    assert_eq!((output.code, output.stdout.as_str()), (78, ""), "{output:?}");
    let told = format!("{} can't be used: limit \"logins\", field windowMilis: ", file.path().display());
    assert!(output.stderr.contains(&told), "{output:?}");
    let output = refused(&file.directory.path().join("absent.yaml"));
    assert!(
        output.code == 78 && output.stderr.contains("absent.yaml can't be used: No such file"),
        "{output:?}"
    );
}

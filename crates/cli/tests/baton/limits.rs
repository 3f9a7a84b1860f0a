//! `baton limits`, and the SDK's limits, against a real server.
//!
//! Windows are a day long and most limits are logs, which are exact over every interval: no test depends on when a window begins.

use crate::process::Output;
use crate::server::Server;
use baton_client::limit::{Checked, Reserved};
use baton_client::wire_limit::{Algorithm, Mechanism};
use baton_client::{Baton, ErrorCode, LimitDefinition, ListQuery, secs};
use serde_json::Value;

/// A limit that counts exactly.
const LOG: &[&str] = &["--per", "24h", "--algorithm", "sliding_log"];

const DAY_MS: u64 = 86_400_000;

fn put(server: &Server, name: &str, limit: &str, more: &[&str]) {
    let output = server.run(&[&["limits", "put", name, "--limit", limit], LOG, more].concat());
    assert_eq!(output.code, 0, "{}", output.stderr);
}

fn check(server: &Server, arguments: &[&str]) -> Output {
    server.run(&[&["limits", "check"], arguments].concat())
}

fn as_json(server: &Server, arguments: &[&str]) -> Value {
    let output = server.run(&[arguments, &["--output", "json"]].concat());
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn those_who_are_not_known_are_said_to_be_and_have_a_mechanism_of_their_own() {
    let server = Server::start();
    for name in ["per-ip", "per-tenant"] {
        let put =
            ["limits", "put", name, "--limit", "1000", "--per", "24h", "--anonymous-mechanism", "leased"];
        assert_eq!(server.run(&put).code, 0);
    }
    let shown = server.run(&["limits", "show", "per-ip"]).stdout;
    let is_shown = shown.lines().any(|line| line.split_whitespace().eq(["anonymous", "leased"]));
    assert!(is_shown, "{shown}");
    let sources = |identity: &[&str]| {
        let together = ["limits", "check", "per-ip", "k", "--also", "per-tenant=k"];
        let checks = as_json(&server, &[&together[..], identity].concat())["checks"].clone();
        [0, 1].map(|index: usize| checks[index]["source"].as_str().unwrap().to_owned())
    };
    for wanted in ["central", "renewed", "local"] {
        assert_eq!(sources(&["--identity", "anonymous"]), [wanted, wanted]);
    }
    for identity in [&["--identity", "authenticated"][..], &[]] {
        assert_eq!(sources(identity), ["central", "central"]);
    }
}

#[test]
fn a_definition_is_made_changed_shown_listed_and_removed() {
    let server = Server::start();
    for command in
        [&["limits", "show", "api"][..], &["limits", "remove", "api"], &["limits", "check", "api", "k"]]
    {
        assert_eq!(server.run(command).code, 69, "{command:?}");
    }
    assert_eq!(server.run(&["limits", "ls"]).stdout, "no limit is defined\n");
    let put =
        ["limits", "put", "api", "--limit", "100", "--per", "1m", "--burst", "20", "--override", "a=b=5000"];
    assert!(server.run(&put).stdout.contains("made"));
    assert!(server.run(&put).stdout.contains("unchanged"));
    assert!(server.run(&[&put[..], &["--dry-run"]].concat()).stdout.contains("what was counted stays"));
    let shown = as_json(&server, &["limits", "show", "api"]);
    let definition = &shown["definition"];
    assert_eq!((&definition["limit"], &definition["windowMillis"]), (&100.into(), &60_000.into()));
    assert_eq!(
        (&definition["algorithm"], &definition["mechanism"]),
        (&"token_bucket".into(), &"central".into())
    );
    assert_eq!((&definition["burst"], &definition["dryRun"]), (&20.into(), &true.into()));
    assert_eq!(definition["overrides"], serde_json::json!([{"key": "a=b", "limit": 5000}]));
    let people = server.run(&["limits", "show", "api"]).stdout;
    assert!(people.contains("100 in 1m") && people.contains("a=b: 5000"), "{people}");
    server.run(&[
        "limits",
        "put",
        "bills",
        "--limit",
        "9",
        "--calendar",
        "month",
        "--time-zone",
        "Europe/Berlin",
    ]);
    let listed = server.run(&["limits", "list"]).stdout;
    assert!(listed.contains("9 a month in Europe/Berlin") && listed.contains("counts only"), "{listed}");
    assert_eq!(as_json(&server, &["limits", "ls", "--prefix", "bi"]).as_array().unwrap().len(), 1);
    assert_eq!(server.run(&["limits", "remove", "api"]).code, 0);
    assert_eq!(server.run(&["limits", "show", "api"]).code, 69);
}

#[test]
fn what_does_not_fit_together_exits_with_64_and_says_why() {
    let server = Server::start();
    for (arguments, said) in [
        (&["--limit", "5"][..], "how much in which time"),
        (&["--limit", "0", "--per", "1m"], "limit must be 1"),
        (&["--limit", "5", "--per", "1m", "--calendar", "day"], "cannot be used with"),
        (&["--limit", "5", "--per", "60"], "30s"),
        (&["--limit", "5", "--per", "1m", "--algorithm", "leaky"], "token_bucket"),
        (&["--limit", "5", "--per", "1m", "--algorithm", "fixed_window", "--burst", "2"], "burst goes with"),
        (&["--limit", "5", "--per", "1m", "--override", "acme"], "KEY=N"),
        (&["--limit", "1000000000000", "--per", "1d"], "at most"),
    ] {
        let output = server.run(&[&["limits", "put", "api"], arguments].concat());
        assert_eq!(output.code, 64, "{arguments:?}: {}", output.stderr);
        assert!(output.stderr.contains(said), "{arguments:?}: {}", output.stderr);
    }
    let unknown = check(&server, &["api", "acme"]);
    assert!(unknown.stderr.contains("help: `baton limits ls`"), "{}", unknown.stderr);
    assert_eq!(check(&server, &["api", "acme", "--also", "x"]).code, 64);
}

#[test]
fn a_check_exits_with_0_until_it_is_used_up_and_then_with_75() {
    let server = Server::start();
    put(&server, "api", "3", &["--override", "vip=9"]);
    for left in ["2 of 3 left", "1 of 3 left", "0 of 3 left"] {
        let output = check(&server, &["api", "acme"]);
        assert!(output.code == 0 && output.stdout.contains(left), "{output:?}");
    }
    let refused = check(&server, &["api", "acme"]);
    assert_eq!((refused.code, refused.stderr.as_str()), (75, ""));
    assert!(
        refused.stdout.starts_with("refused by api for acme: 0 of 3 left; try again in 23h"),
        "{refused:?}"
    );
    let body = as_json(&server, &["limits", "check", "api", "acme"]);
    assert_eq!((&body["allowed"], &body["reason"]), (&false.into(), &"budget_exhausted".into()));
    assert!(body["retryAfterMillis"].as_u64().unwrap() <= DAY_MS);
    assert_eq!(check(&server, &["api", "acme", "--cost", "0"]).code, 75, "a look at what is used up");
    assert_eq!(check(&server, &["api", "other", "--cost", "0"]).code, 0);
    let never = check(&server, &["api", "other", "--cost", "4"]);
    assert!(never.code == 75 && never.stdout.contains("never passes"), "{never:?}");
    let allowed = as_json(&server, &["limits", "check", "api", "vip", "--cost", "9"]);
    assert_eq!((&allowed["allowed"], &allowed["remaining"]), (&true.into(), &0.into()));
    let usage = as_json(&server, &["limits", "usage", "api", "acme"]);
    assert_eq!((&usage["used"], &usage["remaining"]), (&3.into(), &0.into()));
    assert!(server.run(&["limits", "usage", "api", "other"]).stdout.contains("0 of 3"));
}

#[test]
fn several_limits_are_counted_all_or_none() {
    let server = Server::start();
    put(&server, "per-ip", "9", &[]);
    put(&server, "per-tenant", "1", &[]);
    let both = ["per-ip", "10.1.2.3", "--also", "per-tenant=acme"];
    let first = check(&server, &both);
    assert_eq!(first.code, 0, "{}", first.stderr);
    assert!(
        first.stdout.contains("per-ip: 8 of 9") && first.stdout.contains("per-tenant: 0 of 1"),
        "{first:?}"
    );
    let second = check(&server, &both);
    assert!(second.code == 75 && second.stdout.starts_with("refused by per-tenant for acme"), "{second:?}");
    assert_eq!(
        as_json(&server, &["limits", "usage", "per-ip", "10.1.2.3"])["used"],
        1,
        "a refusal counts nothing"
    );
    let body = as_json(&server, &["limits", "check", "per-ip", "k", "--also", "per-tenant=k", "--receipt"]);
    assert!(body["checks"].as_array().unwrap().iter().all(|one| one["receipt"].is_string()), "{body}");
}

#[test]
fn a_request_id_makes_a_check_count_once() {
    let server = Server::start();
    put(&server, "api", "9", &[]);
    for _ in 0..3 {
        assert!(check(&server, &["api", "acme", "--request-id", "r1"]).stdout.contains("8 of 9"));
    }
    let reused = check(&server, &["api", "acme", "--cost", "2", "--request-id", "r1"]);
    assert_eq!(reused.code, 65, "{}", reused.stderr);
    assert_eq!(as_json(&server, &["limits", "usage", "api", "acme"])["used"], 1);
}

#[test]
fn a_limit_that_only_counts_says_what_it_would_have_done() {
    let server = Server::start();
    put(&server, "trial", "1", &["--dry-run"]);
    assert!(!check(&server, &["trial", "acme"]).stdout.contains("would have refused"));
    let output = check(&server, &["trial", "acme"]);
    assert!(output.code == 0 && output.stdout.contains("would have refused"), "{output:?}");
}

#[test]
fn the_bound_itemises_the_worst_case() {
    let server = Server::start();
    put(&server, "exact", "5", &["--override", "vip=7"]);
    let bound = as_json(&server, &["limits", "bound", "exact"]);
    assert_eq!((&bound["limit"], &bound["worst"]), (&5.into(), &5.into()));
    assert_eq!(as_json(&server, &["limits", "bound", "exact", "vip"])["worst"], 7);
    server.run(&["limits", "put", "bucket", "--limit", "100", "--per", "1m", "--burst", "20"]);
    let people = server.run(&["limits", "bound", "bucket"]).stdout;
    assert!(people.contains("120") && people.contains("a burst of 20"), "{people}");
}

#[test]
fn a_receipt_gives_back_once_and_only_what_it_was_given_for() {
    let server = Server::start();
    put(&server, "api", "3", &[]);
    let output = check(&server, &["api", "acme", "--cost", "2", "--receipt"]);
    let receipt = output.stdout.lines().find_map(|line| line.strip_prefix("receipt ")).unwrap();
    let wrong = server.run(&["limits", "refund", "api", "other", receipt]);
    assert!(wrong.code == 77 && wrong.stderr.contains("help: a receipt is good for"), "{wrong:?}");
    for _ in 0..2 {
        let refunded = server.run(&["limits", "refund", "api", "acme", receipt]);
        assert!(refunded.code == 0 && refunded.stdout.contains('2'), "{refunded:?}");
        assert_eq!(as_json(&server, &["limits", "usage", "api", "acme"])["used"], 0);
    }
}

#[test]
fn a_place_in_flight_is_kept_until_it_is_given_back() {
    let server = Server::start();
    let made = server.run(&[
        "limits",
        "put",
        "exports",
        "--limit",
        "2",
        "--algorithm",
        "in_flight",
        "--lease-ttl",
        "10m",
    ]);
    assert!(made.stdout.contains("2 at a time"), "{made:?}");
    let first = as_json(&server, &["limits", "check", "exports", "acme"]);
    let second = check(&server, &["exports", "acme"]);
    assert!(second.stdout.lines().any(|line| line.starts_with("place ")), "{second:?}");
    let refused = check(&server, &["exports", "acme"]);
    assert!(refused.code == 75 && refused.stdout.contains("try again in"), "{refused:?}");
    assert!(server.run(&["limits", "leases", "exports"]).stdout.contains("place"));
    let place = first["leaseId"].as_str().unwrap();
    assert_eq!(server.run(&["limits", "return", "exports", "acme", place]).code, 0);
    assert_eq!(as_json(&server, &["limits", "leases", "exports"])["leases"].as_array().unwrap().len(), 1);
    assert_eq!(check(&server, &["exports", "acme"]).code, 0);
}

fn log(limit: u64) -> LimitDefinition {
    LimitDefinition { algorithm: Some(Algorithm::SlidingLog), ..LimitDefinition::new(limit, DAY_MS) }
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_pass_as_may_however_many_ask_at_once() {
    let server = Server::start();
    let baton = Baton::connect(&server.url).await.unwrap();
    let definition = baton.limits().put("api", &log(100)).await.unwrap();
    assert_eq!((definition.status.as_deref(), definition.definition.limit), (Some("MADE"), 100));
    let limit = baton.limit("api");
    let askers: Vec<_> = (0..20)
        .map(|_| {
            let limit = limit.clone();
            tokio::spawn(async move {
                let mut passed = 0;
                for _ in 0..10 {
                    passed += usize::from(limit.check("acme").await.unwrap().is_allowed());
                }
                passed
            })
        })
        .collect();
    let mut passed = 0;
    for asker in askers {
        passed += asker.await.unwrap();
    }
    assert_eq!(passed, 100);
    assert_eq!(limit.usage("acme").await.unwrap().used, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_defines_finds_and_removes_limits_in_its_namespace() {
    let server = Server::start();
    let baton = Baton::builder().namespace("shop").connect(&server.url).await.unwrap();
    let limits = baton.limits();
    for name in ["api", "mails", "a b/c"] {
        limits.put(name, &log(1)).await.unwrap();
        assert_eq!(limits.get(name).await.unwrap().unwrap().name, name);
        assert!(baton.limit(name).check("k").await.unwrap().is_allowed());
    }
    let page = limits.list(&ListQuery { limit: Some(2), ..ListQuery::default() }).await.unwrap();
    let rest = limits.list(&ListQuery { cursor: page.next_cursor, ..ListQuery::default() }).await.unwrap();
    assert_eq!((page.limits.len(), rest.limits.len(), rest.next_cursor), (2, 1, None));
    assert!(limits.clone().namespace("other").get("api").await.unwrap().is_none());
    assert!(limits.remove("a b/c").await.unwrap());
    assert!(!limits.remove("a b/c").await.unwrap());
    let gone = baton.limit("a b/c").check("k").await.unwrap_err();
    assert_eq!(gone.code(), Some(ErrorCode::LimitNotFound));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_is_empty_can_be_booked_and_cancelled() {
    let server = Server::start();
    let baton = Baton::connect(&server.url).await.unwrap();
    let definition = LimitDefinition { burst: Some(2), ..LimitDefinition::new(24, DAY_MS) };
    baton.limits().put("hourly", &definition).await.unwrap();
    let limit = baton.limit("hourly");
    assert!(limit.check("acme").cost(2).await.unwrap().is_allowed());
    let Checked::Refused(refused) = limit.check("acme").await.unwrap() else { panic!("it is empty") };
    assert!(refused.retry_after.unwrap() <= secs(3_600) && refused.retry_after.unwrap() > secs(3_500));
    let Reserved::Refused { retry_after } = limit.reserve("acme", secs(60)).await.unwrap() else {
        panic!("an hour is more than a minute")
    };
    assert!(retry_after.unwrap() > secs(3_500));
    let booked = limit.reserve("acme", secs(7_200)).retry().await.unwrap().booked().unwrap();
    assert!(booked.wait() > secs(3_500) && booked.wait() <= secs(3_600), "{:?}", booked.wait());
    assert_eq!(limit.usage("acme").await.unwrap().used, 3, "a debt until then");
    // In whole units, rounded down: a part of it may have come back by itself.
    assert!(booked.cancel().await.unwrap() <= 1);
    assert_eq!(limit.usage("acme").await.unwrap().used, 2);
    let too_much = limit.reserve("acme", secs(60)).cost(3).await.unwrap_err();
    assert_eq!(too_much.code(), Some(ErrorCode::InvalidArgument));
    baton.limits().put("log", &log(1)).await.unwrap();
    let mismatch = baton.limit("log").reserve("acme", secs(60)).await.unwrap_err();
    assert_eq!(mismatch.code(), Some(ErrorCode::LimitMismatch));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leased_limit_is_decided_at_the_node_and_admits_no_more_for_it() {
    let server = Server::start();
    let baton = Baton::connect(&server.url).await.unwrap();
    let definition = LimitDefinition {
        algorithm: Some(Algorithm::FixedWindow),
        mechanism: Some(Mechanism::Leased),
        ..LimitDefinition::new(400, DAY_MS)
    };
    baton.limits().put("busy", &definition).await.unwrap();
    let limit = baton.limit("busy");
    let (mut passed, mut local) = (0, 0);
    for _ in 0..450 {
        if let Some(allowed) = limit.check("acme").await.unwrap().allowed() {
            passed += 1;
            local += usize::from(allowed.source != "central");
        }
    }
    assert!(passed <= 400 && local > 100, "{passed} passed, {local} of them without asking the store");
    assert!(limit.check("acme").receipt().await.unwrap().allowed().is_none_or(|one| one.source == "central"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_place_lets_the_next_one_in() {
    let server = Server::start();
    let baton = Baton::connect(&server.url).await.unwrap();
    let definition = LimitDefinition {
        window_millis: None,
        algorithm: Some(Algorithm::InFlight),
        lease_ttl_millis: Some(600_000),
        ..LimitDefinition::new(1, 1)
    };
    baton.limits().put("exports", &definition).await.unwrap();
    let limit = baton.limit("exports");
    let place = limit.check("acme").await.unwrap().allowed().unwrap().place.unwrap();
    assert!(!limit.check("acme").await.unwrap().is_allowed());
    place.give_back().await.unwrap();
    drop(limit.check("acme").await.unwrap().allowed().unwrap());
    let began = std::time::Instant::now();
    while !limit.check("acme").await.unwrap().is_allowed() {
        assert!(began.elapsed() < secs(10), "it goes back in the background");
    }
}

#[test]
fn what_was_decided_is_shown_line_by_line_and_gone_on_with() {
    let server = Server::start();
    put(&server, "bills", "2", &["--audit"]);
    assert_eq!(server.run(&["limits", "audit", "bills"]).stdout, "nothing is written down\n");
    for key in ["acme", "acme", "acme", "other"] {
        check(&server, &["bills", key]);
    }
    let people = server.run(&["limits", "audit", "bills", "--limit", "3"]).stdout;
    assert!(people.contains("refused") && !people.contains("other"), "{people}");
    assert!(people.contains("... and more"), "{people}");
    let log = as_json(&server, &["limits", "audit", "bills", "--key", "acme"]);
    let events: Vec<_> = log["lines"].as_array().unwrap().iter().map(|line| line["event"].clone()).collect();
    assert_eq!(events, ["allowed", "allowed", "refused"]);
    let cursor = log["lines"][2]["cursor"].as_str().unwrap();
    let rest = as_json(&server, &["limits", "audit", "bills", "--after", cursor]);
    assert_eq!((rest["lines"].as_array().unwrap().len(), &rest["lines"][0]["key"]), (1, &"other".into()));
    assert_eq!(server.run(&["limits", "audit", "none"]).code, 69);
    assert!(server.run(&["limits", "show", "bills"]).stdout.contains("every decision is written down"));
    put(&server, "bills", "2", &["--audit=false"]);
    assert!(!server.run(&["limits", "show", "bills"]).stdout.contains("every decision"));
}

//! PostgreSQL: the laws, and what is its own, against a real server.

use baton_core::meter::{Algorithm, Charged, Claim, Edges, Memo, Meter, Reclaim, Rule, Take, Verdict};
use baton_core::{Check, Commit, Group, Key, Outcome, Record, Revision, Ttl, Write};
use baton_store::conformance::{self, Ending, Harness};
use baton_store::watch::{Change, Watch};
use baton_store::{Charge, Reason, Store, StoreError, open};
use baton_testkit::servers::postgres::Postgres;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) async fn server() -> Postgres {
    let mut server = Postgres::new().unwrap();
    server.start().await.unwrap();
    server
}

pub(super) async fn opened(server: &Postgres) -> Arc<dyn Store> {
    open(&server.url(), Path::new("unused")).await.unwrap()
}

pub(super) fn key(name: &str) -> Key {
    Key::new(Group(7), name.as_bytes())
}

pub(super) fn put(name: &str, value: &str) -> Write {
    Write::Put { key: key(name), value: value.as_bytes().into(), ttl: Ttl::Forever }
}

pub(super) fn commit(checks: Vec<Check>, writes: Vec<Write>) -> Commit {
    Commit { checks, writes }
}

pub(super) async fn done(store: &Arc<dyn Store>, checks: Vec<Check>, writes: Vec<Write>) -> Revision {
    match store.commit(commit(checks, writes)).await.unwrap() {
        Outcome::Committed { revision, .. } => revision,
        Outcome::Conflict { found, .. } => panic!("refused: {found:?}"),
    }
}

/// How much of each meter to take, of 25 in an hour; group, name and amount.
fn charge(meters: &[(u8, &str, u64)]) -> Charge {
    let rule = Rule {
        version: 1,
        algorithm: Algorithm::SlidingWindow,
        limit: 25,
        window_ms: 3_600_000,
        capacity: 25,
        edges: Edges::Every { offset_ms: 0 },
        reclaim: Reclaim::Burn,
    };
    let claim = |&(group, name, amount): &(u8, &str, u64)| Claim {
        key: Key::new(Group(group), name.as_bytes()),
        rule: rule.clone(),
        take: Take::AllOrNone(amount),
        row: None,
    };
    Charge { claims: meters.iter().map(claim).collect(), memo: None }
}

fn with_memo(charge: Charge, name: &str) -> Charge {
    let memo = Memo { key: key(name), digest: "0".repeat(32), ttl_ms: 60_000 };
    Charge { memo: Some(memo), ..charge }
}

pub(super) async fn get(store: &Arc<dyn Store>, name: &str) -> Option<Record> {
    store.read(vec![key(name)]).await.unwrap().records.remove(0)
}

async fn heard(watch: &mut Watch, wanted: impl Fn(&Change) -> bool) -> Duration {
    let begun = Instant::now();
    let hearing = async { while !wanted(&watch.next().await.unwrap()) {} };
    tokio::time::timeout(PATIENCE, hearing).await.expect("the hint comes");
    begun.elapsed()
}

/// Tries until it works: the store finds its server again by itself.
pub(super) async fn recovered(store: &Arc<dyn Store>, write: Write) -> Revision {
    let until = Instant::now() + PATIENCE;
    loop {
        match store.commit(commit(vec![], vec![write.clone()])).await {
            Ok(Outcome::Committed { revision, .. }) => return revision,
            answer => assert!(Instant::now() < until, "still {answer:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

struct Real(Mutex<Postgres>);

impl Harness for Real {
    async fn open(&self) -> Arc<dyn Store> {
        opened(&*self.0.lock().await).await
    }

    async fn reopen(&self, store: Arc<dyn Store>, ending: Ending) -> Arc<dyn Store> {
        let mut server = self.0.lock().await;
        match ending {
            Ending::Graceful => server.stop().await.unwrap(),
            Ending::Crash => server.crash().await.unwrap(),
        }
        drop(store);
        server.start().await.unwrap();
        opened(&server).await
    }

    async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_laws() {
    conformance::all(&Real(Mutex::new(server().await))).await;
}

/// Makes a commit that puts the value `slow` take its time after it has drawn its revision.
const SLOW: &str = "
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN IF NEW.value = 'slow' THEN PERFORM pg_sleep(0.5); END IF; RETURN NEW; END $$;
    CREATE TRIGGER slow BEFORE INSERT ON baton.records FOR EACH ROW EXECUTE FUNCTION slow()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waited_behind_another_commit_sees_it_and_draws_a_higher_revision() {
    let server = server().await;
    let (store, other) = (opened(&server).await, opened(&server).await);
    server.sql(SLOW).unwrap();
    let slow = tokio::spawn({
        let store = store.clone();
        async move { done(&store, vec![], vec![put("a", "slow")]).await }
    });
    let until = Instant::now() + PATIENCE;
    while server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'").unwrap() == "0" {
        assert!(Instant::now() < until && !slow.is_finished(), "the slow commit was not seen");
    }
    let absent = vec![Check::Absent(key("a"))];
    let (refused, later) = tokio::join!(
        other.commit(commit(absent, vec![put("a", "new")])),
        done(&other, vec![], vec![put("a", "fast")]),
    );
    let slow = slow.await.unwrap();
    let Outcome::Conflict { found, .. } = refused.unwrap() else { panic!("two have made the same record") };
    assert_eq!(found[0].1.as_ref().unwrap().created, slow);
    assert!(later > slow, "{later:?} after {slow:?}");
    let record = get(&store, "a").await.unwrap();
    assert_eq!((&record.value[..], record.created, record.revision), (&b"fast"[..], slow, later));
}

/// Makes calls at the same time while the only connection is busy with a slow commit, so that they wait together. Gives what
/// became of each, and how many statements that call a function it took, the slow one included.
async fn together<W, A: Send + 'static, F: Future<Output = A> + Send + 'static>(
    works: Vec<W>,
    function: &str,
    call: impl Fn(Arc<dyn Store>, W) -> F,
) -> (Vec<A>, usize) {
    let mut server = Postgres::new().unwrap();
    server.start_with(&["log_statement=all"]).await.unwrap();
    let store = open(&format!("{}?connections=1", server.url()), Path::new("unused")).await.unwrap();
    done(&store, vec![], vec![put("there", "before"), put("old", "before")]).await;
    server.sql(SLOW).unwrap();
    let is_sent = |line: &&str| line.contains("LOG:  ") && line.contains(function);
    let statements = || server.log().unwrap().lines().filter(is_sent).count();
    let before = statements();
    let slow = tokio::spawn({
        let store = store.clone();
        async move { done(&store, vec![], vec![put("s", "slow")]).await }
    });
    let until = Instant::now() + PATIENCE;
    while server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'").unwrap() == "0" {
        assert!(Instant::now() < until && !slow.is_finished(), "the slow commit was not seen");
    }
    let sent: Vec<_> = works.into_iter().map(|work| tokio::spawn(call(store.clone(), work))).collect();
    slow.await.unwrap();
    let mut answers = Vec::new();
    for answer in sent {
        answers.push(answer.await.unwrap());
    }
    (answers, statements() - before)
}

async fn committed_together(commits: Vec<Commit>) -> (Vec<Result<Outcome, StoreError>>, usize) {
    let call = |store: Arc<dyn Store>, commit| async move { store.commit(commit).await };
    together(commits, "commit_together($1", call).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_wait_together_go_in_one_statement_and_each_is_decided_by_itself() {
    let own = |index: usize| {
        let name = format!("own-{index}");
        commit(vec![Check::Absent(key(&name))], vec![put(&name, "new")])
    };
    let mut commits: Vec<_> = (0..40).map(own).collect();
    commits[10] = commit(vec![Check::Absent(key("absent")), Check::Absent(key("there"))], vec![put("x", "")]);
    commits[20] =
        commit(vec![], vec![Write::Delete { key: key("nothing") }, Write::Delete { key: key("old") }]);
    commits[30] = commit(vec![], vec![Write::Touch { key: key("missing"), ttl: PATIENCE }]);
    let (outcomes, statements) = committed_together(commits).await;
    assert_eq!(statements, 2, "the slow one, and one for all the others");
    let mut revisions = std::collections::BTreeSet::new();
    for (index, outcome) in outcomes.into_iter().enumerate() {
        match (index, outcome.unwrap()) {
            (10, Outcome::Conflict { found, .. }) => {
                assert_eq!(found[0], (key("absent"), None));
                assert_eq!(
                    (&found[1].0, &found[1].1.as_ref().unwrap().value[..]),
                    (&key("there"), &b"before"[..])
                );
            }
            (30, Outcome::Conflict { found, .. }) => assert_eq!(found, [(key("missing"), None)]),
            (20, Outcome::Committed { witnessed, .. }) => {
                assert_eq!(witnessed[0], None);
                assert_eq!(witnessed[1].as_ref().unwrap().key, key("old"));
            }
            (_, Outcome::Committed { revision, witnessed, .. }) => {
                assert_eq!(witnessed, []);
                revisions.insert(revision);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(revisions.len(), 1, "they have no name in common");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_checked_and_written_together_is_decided_on_what_was_there() {
    let held = |name: &str| vec![Check::Absent(key(name))];
    let delete = |name: &str| Write::Delete { key: key(name) };
    let commits = vec![
        // What is there is put again, after a check and without one.
        commit(vec![], vec![put("there", "after")]),
        // A refusal shows what was checked as it is, also what would have been deleted or touched.
        commit(
            vec![Check::At(key("old"), Revision(1)), Check::Absent(key("new"))],
            vec![delete("old"), put("new", "")],
        ),
        commit(held("fresh"), vec![put("fresh", "1"), delete("nothing")]),
    ];
    let (outcomes, statements) = committed_together(commits).await;
    assert_eq!(statements, 2);
    let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    let Outcome::Committed { revision, .. } = &outcomes[0] else { panic!("{outcomes:?}") };
    let Outcome::Conflict { found, .. } = &outcomes[1] else { panic!("{outcomes:?}") };
    assert_eq!(found[0].0, key("old"));
    let old = found[0].1.as_ref().unwrap();
    assert_eq!((&old.value[..], old.created, old.touches), (&b"before"[..], old.revision, 0));
    assert_eq!(found[1], (key("new"), None));
    let Outcome::Committed { revision: other, witnessed, .. } = &outcomes[2] else { panic!("{outcomes:?}") };
    assert_eq!((revision, &witnessed[..]), (other, &[None][..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_the_server_refuses_does_no_harm_to_those_who_came_with_it() {
    let long = Write::Put { key: Key::new(Group(7), long_name()), value: b""[..].into(), ttl: Ttl::Forever };
    let commits = vec![
        commit(vec![], vec![put("a", "1")]),
        commit(vec![], vec![long]),
        commit(vec![], vec![put("b", "1")]),
    ];
    let (outcomes, statements) = committed_together(commits).await;
    assert!(matches!(outcomes[0], Ok(Outcome::Committed { .. })), "{outcomes:?}");
    assert!(
        matches!(outcomes[1], Err(StoreError::NotApplied { reason: Reason::Invalid, .. })),
        "{outcomes:?}"
    );
    assert!(matches!(outcomes[2], Ok(Outcome::Committed { .. })), "{outcomes:?}");
    assert_eq!(statements, 1 + 1 + 3, "together, and then one by one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charges_that_wait_together_go_in_one_statement_and_each_is_decided_by_itself() {
    let mut charges = vec![charge(&[(7, "hot", 1)]); 40];
    charges[10] = charge(&[(7, "own", 5), (8, "other", 26)]);
    charges[20] = charge(&[(7, "there", 1)]);
    charges[30] = with_memo(charge(&[(9, "third", 3)]), "memo");
    charges[31] = charges[30].clone();
    let call = |store: Arc<dyn Store>, charge| async move { store.charge(charge).await };
    let (answers, statements) = together(charges, "charge_meters($1", call).await;
    assert_eq!(statements, 1, "also for those on one meter");
    let hot = |index: &usize| ![10, 20, 30, 31].contains(index);
    let taken = |index: usize| answers[index].as_ref().unwrap().meters[0].granted;
    assert_eq!((0..40).filter(hot).map(taken).sum::<u64>(), 25);
    assert_eq!(answers[10].as_ref().unwrap().verdict, Verdict::Refused { index: 1 });
    assert!(matches!(answers[20], Err(StoreError::NotApplied { .. })), "no meter: {:?}", answers[20]);
    let [first, second] = [30, 31].map(|index| answers[index].as_ref().unwrap());
    assert!(first.repeated != second.repeated && first.meters == second.meters, "{first:?} {second:?}");
}

/// What the server was asked since its log had `before` bytes, apart from what goes on beside it: the collector, the hints and
/// further connections.
fn asked(server: &Postgres, before: usize) -> Vec<String> {
    let log = server.log().unwrap().split_off(before);
    // The server's log also tells of checkpoints and the like.
    let is_statement = |line: &&str| line.contains("LOG:  execute") || line.contains("LOG:  statement");
    let beside = |line: &&str| {
        let names = ["due_names", "pg_notify", "SET ", "SHOW transaction_read_only", "prepare"];
        names.iter().any(|it| line.contains(it))
    };
    log.lines().filter(is_statement).filter(|line| !beside(line)).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_one_statement() {
    let mut server = Postgres::new().unwrap();
    server.start_with(&["log_statement=all"]).await.unwrap();
    let store = opened(&server).await;
    let before = server.log().unwrap().len();
    for round in 0..20 {
        done(&store, vec![], vec![put("a", &round.to_string()), put("b", "")]).await;
    }
    let asked = asked(&server, before);
    // Nothing is read.
    assert!(asked.len() == 20 && asked.iter().all(|line| line.contains("commit_together(")), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_is_one_statement_for_meters_of_several_groups() {
    let mut server = Postgres::new().unwrap();
    server.start_with(&["log_statement=all"]).await.unwrap();
    let store = opened(&server).await;
    assert!(store.guarantees().charge_spans_groups);
    let before = server.log().unwrap().len();
    for round in 0..10 {
        let charged = store.charge(charge(&[(1, "a", 1), (200, "b", 2), (255, "a", 0)])).await.unwrap();
        assert_eq!(charged.verdict, Verdict::Charged, "{round}");
    }
    // There is room for it on the first one only.
    let refused = store.charge(charge(&[(1, "a", 10), (200, "b", 10)])).await.unwrap();
    assert_eq!(refused.verdict, Verdict::Refused { index: 1 });
    let asked = asked(&server, before);
    assert!(asked.len() == 11 && asked.iter().all(|line| line.contains("charge_meters(")), "{asked:?}");
    let keys =
        [(1, "a"), (200, "b"), (255, "a")].map(|(group, name)| Key::new(Group(group), name.as_bytes()));
    let records = store.read(keys.to_vec()).await.unwrap().records;
    let used = |place: usize| Meter::decode(&records[place].as_ref().unwrap().value).unwrap().used();
    assert_eq!((used(0), used(1)), (10, 20));
    assert_eq!(records[2], None, "who only looks writes nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_meter_that_lives_long_enough_is_charged_without_a_change_of_its_expiry() {
    let server = server().await;
    let store = opened(&server).await;
    let times = || server.sql("SELECT expires_us, due_us FROM baton.records").unwrap();
    let charged = |charged: Charged| charged.meters[0].meter.used();
    assert_eq!(charged(store.charge(charge(&[(7, "a", 1)])).await.unwrap()), 1);
    let first = get(&store, "a").await.unwrap();
    // Twice the window is what it is worth, and a minute comes on top.
    let two_hours = Duration::from_secs(2 * 3600);
    assert!(first.expires_in.unwrap() > two_hours + Duration::from_secs(50));
    let before = times();
    assert_eq!(charged(store.charge(charge(&[(7, "a", 1)])).await.unwrap()), 2);
    assert_eq!(times(), before);
    let second = get(&store, "a").await.unwrap();
    assert_eq!(second.created, first.created);
    assert!(second.revision > first.revision);
    server.sql("UPDATE baton.records SET expires_us = expires_us - 40000000").unwrap();
    assert_eq!(charged(store.charge(charge(&[(7, "a", 1)])).await.unwrap()), 3);
    assert!(get(&store, "a").await.unwrap().expires_in.unwrap() > two_hours + Duration::from_secs(50));
    assert_ne!(times(), before);
    // What has expired was never there, whether or not it was collected.
    server.sql("UPDATE baton.records SET expires_us = 1").unwrap();
    assert_eq!(charged(store.charge(charge(&[(7, "a", 1)])).await.unwrap()), 1);
    assert!(get(&store, "a").await.unwrap().created > second.revision);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_makes_unknown_in_time_and_is_used_again_afterwards() {
    let server = server().await;
    let store = opened(&server).await;
    let first = done(&store, vec![], vec![put("a", "1")]).await;
    server.pause(true).unwrap();
    let begun = Instant::now();
    let once = commit(vec![Check::Absent(key("id"))], vec![put("id", "mine")]);
    let (answer, charged) =
        tokio::join!(store.commit(once.clone()), store.charge(charge(&[(7, "meter", 1)])));
    let reading = store.read(vec![key("a")]).await;
    let took = begun.elapsed();
    server.pause(false).unwrap();
    assert!(matches!(answer, Err(StoreError::Unknown { .. })), "{answer:?}");
    assert!(matches!(charged, Err(StoreError::Unknown { .. })), "{charged:?}");
    assert!(matches!(reading, Err(StoreError::NotApplied { .. })), "{reading:?}");
    assert!(took < Duration::from_secs(4), "two deadlines took {took:?}");
    assert!(recovered(&store, put("b", "1")).await > first);
    // Sent again it is there once, whether or not it had arrived.
    match store.commit(once).await.unwrap() {
        Outcome::Committed { revision, .. } => assert!(revision > first),
        Outcome::Conflict { found, .. } => assert_eq!(&found[0].1.as_ref().unwrap().value[..], b"mine"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_hang_are_given_up_and_others_take_their_place() {
    let server = server().await;
    let store = opened(&server).await;
    let first = done(&store, vec![], vec![put("a", "1")]).await;
    let _hung = server.hang_sessions("baton").unwrap();
    let answer = store.commit(commit(vec![], vec![put("a", "2")])).await;
    assert!(matches!(answer, Err(StoreError::Unknown { .. })), "{answer:?}");
    assert!(recovered(&store, put("b", "1")).await > first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_away_is_used_again_and_watchers_hear_of_the_gap() {
    let mut server = server().await;
    let store = opened(&server).await;
    let first = done(&store, vec![], vec![put("a", "1")]).await;
    let mut watch = store.watch(key("").name);
    server.stop().await.unwrap();
    let begun = Instant::now();
    loop {
        match store.commit(commit(vec![], vec![put("a", "2")])).await {
            Err(StoreError::NotApplied { detail, .. }) => {
                assert!(detail.contains("PostgreSQL"), "{detail}");
                break;
            }
            // On a connection that was not yet known to be gone.
            answer => assert!(answer.is_err() && begun.elapsed() < PATIENCE, "{answer:?}"),
        }
    }
    assert!(store.read(vec![key("a")]).await.is_err());
    server.start().await.unwrap();
    heard(&mut watch, |change| *change == Change::Lost).await;
    assert!(recovered(&store, put("a", "3")).await > first);
    heard(&mut watch, |change| matches!(change, Change::Put { value, .. } if value[..] == b"3"[..])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_nodes_hear_promptly_also_of_what_is_large() {
    let server = server().await;
    let (store, other) = (opened(&server).await, opened(&server).await);
    let mut watch = other.watch(key("seen").name);
    let mut slowest = Duration::ZERO;
    for value in ["1", &"x".repeat(100_000), "2"] {
        done(&store, vec![], vec![put("unseen", "")]).await;
        let revision = done(&store, vec![], vec![put("seen", value)]).await;
        let wanted = Change::Put { key: key("seen"), value: value.as_bytes().into(), revision };
        slowest = slowest.max(heard(&mut watch, |change| *change == wanted).await);
    }
    let revision = done(&store, vec![], vec![Write::Delete { key: key("seen") }]).await;
    let wanted = Change::Deleted { key: key("seen"), revision };
    slowest = slowest.max(heard(&mut watch, |change| *change == wanted).await);
    assert!(slowest < Duration::from_millis(500), "{slowest:?}: somebody polls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_together_make_one_schema_and_a_newer_one_is_refused() {
    let server = server().await;
    let stores: Vec<_> = (0..8)
        .map(|_| {
            let url = server.url();
            tokio::spawn(async move { open(&url, Path::new("unused")).await.unwrap() })
        })
        .collect();
    let mut last = Revision(0);
    for store in stores {
        let revision = done(&store.await.unwrap(), vec![], vec![put("a", "")]).await;
        assert!(revision > last);
        last = revision;
    }
    assert_eq!(server.sql("SELECT version FROM baton.schema_version").unwrap(), "4");
    server.sql("UPDATE baton.schema_version SET version = 99").unwrap();
    let error = open(&server.url(), Path::new("unused")).await.err().unwrap().to_string();
    assert!(error.contains("99") && error.contains("newer"), "{error}");
    let elsewhere = format!("{}?schema=elsewhere", server.url());
    let store = open(&elsewhere, Path::new("unused")).await.unwrap();
    assert_eq!(get(&store, "a").await, None, "another schema is another store");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_expired_is_collected_and_what_was_touched_stays() {
    let server = server().await;
    let store = opened(&server).await;
    let mut expirations = store.expirations(key("").name);
    let ttl = Duration::from_millis(300);
    let lease = |name: &str| Write::Put { key: key(name), value: b""[..].into(), ttl: Ttl::Exactly(ttl) };
    let writes = (0..200).map(|index| format!("gone-{index}")).collect::<Vec<_>>();
    done(&store, vec![], vec![lease("held")]).await;
    done(&store, vec![], vec![Write::Touch { key: key("held"), ttl: Duration::from_secs(60) }]).await;
    for names in writes.chunks(50) {
        done(&store, vec![], names.iter().map(|name| lease(name)).collect()).await;
    }
    for _ in 0..writes.len() {
        heard(&mut expirations, |change| matches!(change, Change::Expired { .. })).await;
    }
    assert_eq!(server.sql("SELECT count(*) FROM baton.records").unwrap(), "1");
    assert_eq!(get(&store, "held").await.unwrap().touches, 1);
    let due = "SELECT count(*) FROM baton.records WHERE due_us = expires_us";
    let until = Instant::now() + PATIENCE;
    while server.sql(due).unwrap() != "1" {
        assert!(Instant::now() < until, "what was touched isn't looked at again");
    }
}

#[tokio::test]
async fn who_can_not_be_reached_is_named_without_a_password() {
    let address = baton_testkit::process::free_address().unwrap();
    let url = format!("postgres://me:secret@{address}/db");
    let error = open(&url, Path::new("unused")).await.err().unwrap().to_string();
    assert!(error.contains("PostgreSQL") && !error.contains("secret"), "{error}");
    let error = open(&format!("{url}?frobnicate=1"), Path::new("unused")).await.err().unwrap().to_string();
    assert!(error.contains("frobnicate") && !error.contains("secret"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_weaken_its_promises_are_named() {
    let mut server = Postgres::new().unwrap();
    server.start_with(&["fsync=off", "synchronous_commit=off"]).await.unwrap();
    let guarantees = opened(&server).await.guarantees();
    assert!(guarantees.shared && !guarantees.answers_always);
    // What may be set for a session is not left off, so there is no need to warn of it.
    assert_eq!(guarantees.warnings.len(), 1, "{:?}", guarantees.warnings);
    assert!(guarantees.warnings[0].contains("fsync"), "{:?}", guarantees.warnings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_too_long_for_the_index_is_refused_and_changes_nothing() {
    let server = server().await;
    let store = opened(&server).await;
    let long = Write::Put { key: Key::new(Group(7), long_name()), value: b""[..].into(), ttl: Ttl::Forever };
    let answer = store.commit(commit(vec![], vec![put("a", "1"), long])).await;
    assert!(matches!(answer, Err(StoreError::NotApplied { reason: Reason::Invalid, .. })), "{answer:?}");
    assert_eq!(get(&store, "a").await, None);
    done(&store, vec![], vec![put("a", "1")]).await;
}

/// Too long for an index, and nothing that could be compressed.
fn long_name() -> Vec<u8> {
    let mut state = 1_u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..8000).map(|_| byte()).collect()
}

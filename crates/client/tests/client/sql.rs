//! The fences for SQL, on PostgreSQL, MariaDB and SQLite.

use crate::database::Database;
use crate::scripted::ms;
use baton_client::fence::{Dialect, FencingToken, MessageFence, SqlFence, Written};
use std::sync::atomic::{AtomicBool, Ordering};

fn token(token: u64) -> FencingToken {
    FencingToken::new(token)
}

/// A lower token writes nothing, the same and higher ones do, and what is in the way is named.
fn guards_a_row(database: &Database) {
    let mut session = database.session();
    let stock = SqlFence::new(database.dialect(), "stock");
    session.say("CREATE TABLE stock (sku VARCHAR(20) PRIMARY KEY, left_over INT NOT NULL)");
    session.say("INSERT INTO stock (sku, left_over) VALUES ('a', 10)");
    session.say(&stock.add_column());
    let sell = |number| stock.update(token(number), "left_over = left_over - 1", "sku = 'a'");
    let left = "SELECT left_over FROM stock WHERE sku = 'a'";

    assert_eq!(session.write(&sell(34)), Ok(Written::Done));
    assert_eq!(session.write(&sell(34)), Ok(Written::Done), "a holder writes many times");
    assert_eq!(session.write(&sell(33)), Err(Some(34)));
    assert_eq!(session.number(left), Some(8));
    assert_eq!(session.write(&sell(35)), Ok(Written::Done));
    assert_eq!(session.write(&sell(35).only_if("left_over > 100")), Ok(Written::Unchanged));
    assert_eq!(session.write(&sell(34).only_if("left_over > 100")), Err(Some(35)));
    assert_eq!(session.number(left), Some(7));

    // MySQL doesn't count a row that was what it becomes. That must not look like a refusal.
    let same = stock.update(token(35), "left_over = left_over", "sku = 'a'");
    let unchanged = database.dialect() == Dialect::MySql;
    assert_eq!(session.write(&same), Ok(if unchanged { Written::Unchanged } else { Written::Done }));

    let missing = stock.update(token(36), "left_over = 0", "sku = 'b'");
    assert_eq!(session.write(&missing), Ok(Written::Missing));
    assert_eq!(session.write(&stock.delete(token(34), "sku = 'a'")), Err(Some(35)));
    assert_eq!(session.number(left), Some(7));
    assert_eq!(session.write(&stock.delete(token(35), "sku = 'a'")), Ok(Written::Done));
    assert_eq!(session.number(left), None);
}

/// Writers with all tokens race for one row: what is written is written by growing tokens.
fn keeps_order_under_race(database: &Database) {
    const WRITERS: u64 = 4;
    const ROUNDS: u64 = 30;
    let mut session = database.session();
    session.say("CREATE TABLE trail (id INT PRIMARY KEY, seen VARCHAR(2000) NOT NULL)");
    session.say("INSERT INTO trail (id, seen) VALUES (1, '')");
    let fence = SqlFence::new(database.dialect(), "trail");
    session.say(&fence.add_column());
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (mut session, fence, dialect) = (database.session(), &fence, database.dialect());
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let number = 1 + round * WRITERS + writer;
                    let seen = match dialect {
                        Dialect::MySql => format!("seen = CONCAT(seen, ' {number}')"),
                        _ => format!("seen = seen || ' {number}'"),
                    };
                    match session.write(&fence.update(token(number), &seen, "id = 1")) {
                        Ok(Written::Done) => {}
                        Err(Some(highest)) => assert!(highest > number),
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let trail = session.say("SELECT seen FROM trail").join(" ");
    let trail: Vec<u64> = trail.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert!(trail.is_sorted() && trail.last() == Some(&(WRITERS * ROUNDS)), "{trail:?}");
}

/// A transaction that entered a fence keeps it until it ends; a stale one doesn't get in.
fn guards_a_transaction(database: &Database) {
    let mut session = database.session();
    let fences = SqlFence::new(database.dialect(), "fences");
    session.say(&fences.create());
    session.say(&fences.create());
    session.say("CREATE TABLE entries (id INT PRIMARY KEY)");
    assert_eq!(session.write(&fences.enter(token(34), "'a'")), Ok(Written::Done));
    assert_eq!(session.write(&fences.enter(token(34), "'a'")), Ok(Written::Done));
    assert_eq!(session.write(&fences.enter(token(33), "'a'")), Err(Some(34)));
    assert_eq!(session.write(&fences.enter(token(33), "'A'")), Ok(Written::Done), "another resource");

    let (mut first, mut second) = (database.session(), database.session());
    let committing = AtomicBool::new(false);
    first.say("BEGIN");
    assert_eq!(first.write(&fences.enter(token(35), "'a'")), Ok(Written::Done));
    first.say("INSERT INTO entries VALUES (35)");
    std::thread::scope(|scope| {
        let (committing, fences) = (&committing, &fences);
        scope.spawn(move || {
            second.say("BEGIN");
            assert_eq!(second.write(&fences.enter(token(36), "'a'")), Ok(Written::Done));
            assert!(committing.load(Ordering::SeqCst), "two were in at once");
            second.say("COMMIT");
        });
        // Time for the other one to get in, if it could.
        std::thread::sleep(ms(200));
        committing.store(true, Ordering::SeqCst);
        first.say("COMMIT");
    });
    first.say("BEGIN");
    assert_eq!(first.write(&fences.enter(token(35), "'a'")), Err(Some(36)), "stale by now");
    first.say("ROLLBACK");
}

/// Each message takes effect once, whoever is late, whoever crashes.
fn handles_messages_once(database: &Database) {
    let mut session = database.session();
    let progress = MessageFence::new(database.dialect(), "progress");
    session.say(&progress.create());
    session.say("CREATE TABLE effects (message INT NOT NULL)");
    let stream = "'payments-0'";
    // Whether the message's effect was written; the highest token if this processor is stale.
    let handle = |session: &mut crate::database::Session, number, position: u64| {
        session.say("BEGIN");
        if let Err(highest) = session.write(&progress.enter(token(number), stream)) {
            session.say("ROLLBACK");
            return Err(highest);
        }
        let is_new = session.execute(&progress.advance(stream, position)) == 1;
        if is_new {
            session.say(&format!("INSERT INTO effects VALUES ({position})"));
        }
        session.say("COMMIT");
        Ok(is_new)
    };
    let mut old = database.session();
    assert_eq!(handle(&mut old, 34, 0), Ok(true));
    assert_eq!(handle(&mut old, 34, 0), Ok(false), "delivered again");
    // The next processor is told of an old message first: it has no effect, but it raises the fence.
    let mut new = database.session();
    assert_eq!(handle(&mut new, 35, 0), Ok(false));
    assert_eq!(handle(&mut old, 34, 1), Err(Some(35)), "the old processor is late");
    assert_eq!(handle(&mut new, 35, 1), Ok(true));

    // A processor that ends before it commits has done nothing.
    new.say("BEGIN");
    assert_eq!(new.write(&progress.enter(token(35), stream)), Ok(Written::Done));
    assert_eq!(new.execute(&progress.advance(stream, 2)), 1);
    new.say("INSERT INTO effects VALUES (2)");
    drop(new);
    assert_eq!(handle(&mut session, 36, 2), Ok(true));
    assert_eq!(session.number(&progress.position(stream)), Some(2));
    assert_eq!(session.number("SELECT count(*) FROM effects"), Some(3));
    assert_eq!(session.number("SELECT count(DISTINCT message) FROM effects"), Some(3));
}

fn holds_on(database: &Database) {
    guards_a_row(database);
    keeps_order_under_race(database);
    guards_a_transaction(database);
    handles_messages_once(database);
}

#[tokio::test]
async fn fences_hold_on_postgresql() {
    holds_on(&Database::postgres().await);
}

#[tokio::test]
async fn fences_hold_on_mariadb() {
    holds_on(&Database::mariadb().await);
}

#[test]
fn fences_hold_on_sqlite() {
    holds_on(&Database::sqlite());
}

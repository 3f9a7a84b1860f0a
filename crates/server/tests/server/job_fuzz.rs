//! Definitions of jobs and calendars that are almost right: each is taken or refused with what is at fault and where, soon, and never
//! for a fault of the server (J2, J11). `BATON_FUZZ_ROUNDS` says how many.

use crate::fuzz::{Dice, check};
use crate::harness::Baton;
use serde_json::{Value, json};
use std::time::Duration;

/// Found nothing yet that another seed didn't; change it to look elsewhere.
const SEED: u64 = 0x0ba7_0050;
/// However odd it is, an answer takes no longer, on a machine that does other things too.
const ANSWER_MAX: Duration = Duration::from_secs(10);

fn rounds() -> usize {
    std::env::var("BATON_FUZZ_ROUNDS").map_or(1_000, |rounds| rounds.parse().unwrap())
}

/// What schedules are made of.
const WORDS: [&str; 26] = [
    "*",
    "?",
    "L",
    "LW",
    "H",
    "15W",
    "5L",
    "5#3",
    "JAN",
    "fri",
    "L-3",
    "H(1-5)",
    "*/7",
    "1-5/2",
    "H/3",
    "31",
    "2",
    "0",
    "60",
    "-",
    ",",
    "@every",
    "90s",
    "@daily",
    "\u{e9}",
    "\u{1f552}",
];

fn schedule(dice: &mut Dice) -> String {
    let fields = 1 + dice.roll(7);
    let glue = dice.pick(&[" ", " ", " ", "  ", ",", "/"]);
    (0..fields).map(|_| dice.pick(&WORDS).to_owned()).collect::<Vec<_>>().join(glue)
}

fn job(dice: &mut Dice) -> Value {
    let schedule = if dice.roll(4) == 0 { "30 2 * * MON-FRI".to_owned() } else { schedule(dice) };
    let target = match dice.roll(3) {
        0 => {
            json!({ "http": { "url": "https://example.org/x", "headers": { "a": "b" }, "body": "c", "secret": "d" } })
        }
        1 => json!({ "command": { "program": "true", "arguments": ["a"] } }),
        _ => json!({ "worker": { "queue": "q", "payload": "p" } }),
    };
    let mut body = json!({
        "schedule": schedule, "target": target, "guarantee": "at_least_once", "overlap": "queue_all", "missed": "all",
        "missedWindowMillis": 60_000, "missedMax": 10, "retry": { "maxAttempts": 3, "backoffMillis": 10 }, "timeoutMillis": 1_000,
        "jitterMillis": 10, "enabled": false, "then": ["x"], "keepRuns": 10, "keepMillis": 60_000, "successWithinMillis": 60_000,
        "timeZone": dice.pick(&["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Nowhere/Else", "", "../../etc/passwd"]),
        "daylightSaving": dice.pick(&["vixie", "literal"]),
    });
    spoil(dice, &mut body);
    body
}

fn calendar(dice: &mut Dice) -> Value {
    let words = ["12-25", "..", "SAT", "2026-02-28", "2026-02-30", "SUN..SAT", "31", "-", "\u{e9}", "02-29"];
    let day = |dice: &mut Dice| (0..=dice.roll(3)).map(|_| dice.pick(&words)).collect::<String>();
    let days: Vec<_> = (0..dice.roll(4)).map(|_| json!({ "day": day(dice), "note": "n" })).collect();
    let mut body = json!({ "days": days });
    spoil(dice, &mut body);
    body
}

/// Half of the time something in it is of another kind, or isn't there, or is there in addition.
fn spoil(dice: &mut Dice, body: &mut Value) {
    let odd = [
        json!(null),
        json!([]),
        json!({}),
        json!(-1),
        json!(1.5),
        json!(u64::MAX),
        json!("x".repeat(3_000)),
        json!([[[]]]),
    ];
    let Some(fields) = body.as_object_mut().filter(|_| dice.roll(2) == 0) else { return };
    let names: Vec<String> = fields.keys().cloned().collect();
    let name = names[dice.roll(names.len())].clone();
    match dice.roll(4) {
        0 => drop(fields.remove(&name)),
        1 => drop(fields.insert(format!("{name}x"), json!(1))),
        2 => spoil(dice, &mut fields[&name]),
        _ => drop(fields.insert(name, odd[dice.roll(odd.len())].clone())),
    }
}

/// A refusal of a text that has to be read says where in it the fault is.
fn is_placed(refusal: &Value, text: &str) {
    let place = |end: &str| refusal["position"][end].as_u64().map(|place| place as usize);
    let (start, end) = (place("start").expect("a start"), place("end").expect("an end"));
    assert!(start <= end && end <= text.len(), "{refusal} to {text:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_that_are_almost_right_are_taken_or_refused_with_a_place_and_soon() {
    let baton = Baton::start().await;
    let (mut dice, mut client) = (Dice(SEED), baton.client().await);
    let (mut taken, mut placed) = (0, 0);
    for _ in 0..rounds() {
        let is_job = dice.roll(4) > 0;
        let body = if is_job { job(&mut dice) } else { calendar(&mut dice) };
        let path = if is_job { "/v1/jobs/j" } else { "/v1/calendars/c" };
        let mut text = body.to_string().into_bytes();
        if dice.roll(8) == 0 {
            let at = dice.roll(text.len());
            text[at] = dice.roll(256) as u8;
        }
        let call = client.call("PUT", path, &text);
        let answer = tokio::time::timeout(ANSWER_MAX, call).await.expect("an answer, soon");
        if answer.status == 200 {
            taken += 1;
            continue;
        }
        check(&answer, &text);
        let refusal = answer.json();
        let at_fault = match refusal["field"].as_str() {
            Some("schedule") => body["schedule"].as_str(),
            Some(field) if field.ends_with("].day") => {
                let index: usize = field["days[".len()..field.len() - "].day".len()].parse().unwrap();
                body["days"][index]["day"].as_str()
            }
            _ => None,
        };
        // A text that is no text, too long, or was changed on its way isn't read at all.
        if let Some(text) = at_fault.filter(|_| !refusal["position"].is_null()) {
            is_placed(&refusal, text);
            placed += 1;
        }
    }
    assert!(taken > rounds() / 50 && placed > rounds() / 10, "{taken} taken, {placed} refused with a place");
    assert_eq!(baton.get("/readyz").await.status, 200);
}

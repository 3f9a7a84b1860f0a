//! `baton advise --operation`: whether an operation needs coordination, and what to use for it (D11). The table of docs/crdt.md.

use crate::failure::Failure;
use crate::output;
use serde_json::json;

/// An operation that people want.
struct Operation {
    /// What is wanted.
    wanted: &'static str,
    /// Words that somebody who wants it may use, besides those.
    words: &'static str,
    /// Hearing more can only add to its answer, so nobody has to be asked.
    is_monotone: bool,
    /// What to use.
    used: &'static str,
}

const fn operation(
    wanted: &'static str,
    words: &'static str,
    is_monotone: bool,
    used: &'static str,
) -> Operation {
    Operation { wanted, words, is_monotone, used }
}

const OPERATIONS: [Operation; 16] = [
    operation("count something that happened", "add increment views hits likes total", true, "counter, add"),
    operation("count up and down, and read the sum", "decrement counter", true, "counter"),
    operation(
        "know whether a count that only grows has reached n",
        "threshold goal quorum",
        true,
        "grow-counter",
    ),
    operation(
        "stop at n, or know that a count is below n",
        "limit quota cap maximum stock left below",
        false,
        "a limit, or a lock around it",
    ),
    operation("collect things", "tags ids votes seen gather union set", true, "set, add"),
    operation("know that something is in a collection", "contains member exists", true, "set"),
    operation(
        "know that something is not there, and act on that",
        "unique taken free name absent first once duplicate",
        false,
        "once, or a unique index",
    ),
    operation("remove what was seen", "delete cart", true, "set, remove with the context of the read"),
    operation("keep the newest setting", "last latest config flag preference overwrite", true, "register"),
    operation(
        "keep what several wrote at once, and settle it later",
        "conflict concurrent merge edit",
        true,
        "register, kind=multi-value",
    ),
    operation(
        "change a value depending on what it is",
        "compare swap cas update transaction read modify write",
        false,
        "the database's compare-and-swap, or a lock",
    ),
    operation(
        "keep a balance from going below zero",
        "account money pay withdraw spend sell inventory oversell",
        false,
        "a limit leased in advance, or one place that decides",
    ),
    operation(
        "hand out numbers without gaps, or each once",
        "sequence invoice id serial next",
        false,
        "one place that decides, or numbers with the node's name in them",
    ),
    operation("know who is probably there", "presence online alive heartbeat members", true, "presence"),
    operation(
        "know who is in charge",
        "leader primary owner master only one exclusive",
        false,
        "an election, or a lock",
    ),
    operation(
        "keep a maximum or a minimum",
        "highest lowest max min",
        true,
        "a register for each writer in a map, and the highest of them",
    ),
];

/// Rows shown when some fit better than others.
const SHOWN_MAX: usize = 4;

/// Prints the rows that fit best; all of them if none does.
pub fn run(text: &str, json: bool) -> Result<u8, Failure> {
    let found = fitting(text);
    if json {
        let rows = found.iter().map(|operation| {
            json!({ "operation": operation.wanted, "needsCoordination": !operation.is_monotone, "use": operation.used })
        });
        output::json(&rows.collect::<Vec<_>>())?;
        return Ok(0);
    }
    let rows = found.iter().map(|operation| {
        let needed = if operation.is_monotone { "no" } else { "yes" };
        [operation.wanted, needed, operation.used].map(ToOwned::to_owned)
    });
    output::table(["TO", "NEEDS COORDINATION", "USE"], rows.collect())?;
    Ok(0)
}

fn fitting(text: &str) -> Vec<&'static Operation> {
    let asked: Vec<_> = words(text).collect();
    let fits = |operation: &Operation| {
        let known = words(operation.wanted).chain(words(operation.words));
        known.filter(|word| asked.contains(word)).count()
    };
    let mut found: Vec<_> = OPERATIONS.iter().map(|operation| (fits(operation), operation)).collect();
    let best = found.iter().map(|(fits, _)| *fits).max().unwrap_or(0);
    if best == 0 {
        return OPERATIONS.iter().collect();
    }
    found.sort_by_key(|(fits, _)| std::cmp::Reverse(*fits));
    let found = found.into_iter().filter(|(fits, _)| *fits > 0);
    found.take(SHOWN_MAX).map(|(_, operation)| operation).collect()
}

/// The words of a text that mean something, without an ending that makes several of one.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let words = text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    words.map(|word| word.strip_suffix('s').unwrap_or(&word).to_owned()).filter(|word| {
        word.len() > 2 && !["and", "the", "that", "what", "know", "keep", "it"].contains(&word.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_found_by_words_that_people_use_for_it() {
        for (text, is_monotone) in [
            ("count page views", true),
            ("is the user name taken?", false),
            ("never oversell the inventory", false),
            ("add tags", true),
            ("who is the leader", false),
            ("who is online", true),
            ("invoice numbers without gaps", false),
        ] {
            assert_eq!(fitting(text)[0].is_monotone, is_monotone, "{text}: {}", fitting(text)[0].wanted);
        }
        assert_eq!(fitting("zzz").len(), OPERATIONS.len());
    }
}

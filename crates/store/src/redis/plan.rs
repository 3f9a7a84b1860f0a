//! Commits as the arguments of one script, and its answer as their outcomes.

use super::codec::{DIGITS, Names, Terms, ends, micros, number, padded, unpack, wall_time};
use crate::watch::Change;
use ::redis::Cmd;
use baton_core::name::is_listed;
use baton_core::{Check, Commit, Group, Key, Outcome, Record, Revision, Ttl, Write};
use std::collections::HashMap;
use std::time::Duration;

/// The keys of a commit, as often as it names them.
fn keys(commit: &Commit) -> impl Iterator<Item = &Key> {
    commit.checks.iter().map(Check::key).chain(commit.writes.iter().map(Write::key))
}

/// Where it is decided.
pub(super) fn group(commit: &Commit) -> Group {
    keys(commit).next().map_or(Group(0), |key| key.group)
}

/// What is touched, which is checked to be there.
fn touched(commit: &Commit) -> impl Iterator<Item = &Key> {
    commit.writes.iter().filter(|write| matches!(write, Write::Touch { .. })).map(Write::key)
}

/// Adds what comes after the script's hash: how many keys, the keys, and the rest as `commit.lua` says. `own` is the channel
/// that only this node hears, if hints need not be published when nobody else hears them.
pub(super) fn encode(command: &mut Cmd, commits: &[Commit], terms: &Terms<'_>, own: Option<&str>) {
    let mut groups: Vec<Group> = Vec::new();
    for commit in commits {
        let group = group(commit);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    // The script counts from one; the counters come first.
    let before = groups.len() as u16;
    let mut places: HashMap<&Key, u16> = HashMap::new();
    let mut records: Vec<&Key> = Vec::new();
    for key in commits.iter().flat_map(keys) {
        places.entry(key).or_insert_with(|| {
            records.push(key);
            before + records.len() as u16
        });
    }
    let names: Vec<_> = groups.iter().map(|group| Names::new(terms.prefix, *group)).collect();
    let of_group = |wanted: Group| groups.iter().position(|group| *group == wanted).unwrap_or_default();
    command.arg(3 * groups.len() + records.len() + usize::from(terms.is_one));
    for names in &names {
        command.arg(names.counter());
    }
    for key in &records {
        command.arg(names[of_group(key.group)].record(&key.name));
    }
    for names in &names {
        command.arg(names.index()).arg(names.expiry());
    }
    if terms.is_one {
        command.arg(ends(terms.prefix));
    }
    let begin = Names::new(terms.prefix, Group(0)).length() + 1;
    command.arg(&padded(terms.floor)[..]).arg(terms.channel).arg(own.unwrap_or_default());
    command.arg(begin).arg(groups.len()).arg(u8::from(terms.mark)).arg(u8::from(terms.is_one));
    let (mut plan, mut values): (Vec<u8>, Vec<&[u8]>) = Default::default();
    let place = |key: &Key| places[key].to_be_bytes();
    for commit in commits {
        let counter = of_group(group(commit)) as u16 + 1;
        plan.extend(counter.to_be_bytes());
        plan.push((commit.checks.len() + touched(commit).count()) as u8);
        let (mut writes, first) = (Vec::new(), values.len());
        for write in &commit.writes {
            if let Write::Put { value, .. } = write {
                values.push(value);
            }
            let (kind, ttl) = kind(write);
            writes.push(if is_listed(&write.key().name) { kind } else { kind.to_ascii_lowercase() });
            writes.extend(place(write.key()));
            writes.extend(ttl.map(|ttl| padded(micros(ttl))).iter().flatten());
        }
        plan.extend((writes.len() as u16).to_be_bytes());
        plan.push((values.len() - first) as u8);
        plan.push(commit.writes.len() as u8);
        for check in &commit.checks {
            let (kind, revision) = match check {
                Check::Absent(_) => (b'A', None),
                Check::Created(_, revision) => (b'C', Some(*revision)),
                Check::At(_, revision) => (b'R', Some(*revision)),
            };
            plan.push(kind);
            plan.extend(place(check.key()));
            plan.extend(revision.map(|revision| padded(revision.0)).iter().flatten());
        }
        for key in touched(commit) {
            plan.push(b'T');
            plan.extend(place(key));
        }
        plan.extend(writes);
    }
    command.arg(plan);
    for value in values {
        command.arg(value);
    }
}

/// How a write of a listed record is called, and its time to live.
fn kind(write: &Write) -> (u8, Option<Duration>) {
    match write {
        Write::Put { ttl: Ttl::Forever, .. } => (b'F', None),
        // Who wants no more than that it lasts long enough lets the server remove it.
        Write::Put { ttl: Ttl::AtLeast(ttl), key, .. } if !is_listed(&key.name) => (b'V', Some(*ttl)),
        Write::Put { ttl: Ttl::Exactly(ttl) | Ttl::AtLeast(ttl), .. } => (b'P', Some(*ttl)),
        Write::Touch { ttl, .. } => (b'T', Some(*ttl)),
        Write::Delete { .. } => (b'D', None),
    }
}

/// What became of commits that were sent together.
#[derive(PartialEq, Debug)]
pub(super) struct Decided {
    /// Whether their hints come by the channel, as everybody's do.
    pub is_published: bool,
    pub outcomes: Vec<Outcome>,
}

impl Decided {
    /// Takes an answer apart; `None` if it doesn't fit the commits.
    pub fn read(commits: &[Commit], mut answer: &[u8]) -> Option<Self> {
        let rest = &mut answer;
        let now_us = take_number(rest)?;
        let is_published = *rest.split_off_first()? == b'1';
        let now = wall_time(now_us);
        let outcomes = commits.iter().map(|commit| match rest.split_off_first()? {
            b'C' => {
                let revision = Revision(take_number(rest)?);
                let shown = commit.writes.iter().filter(|write| !matches!(write, Write::Put { .. }));
                let witnessed = shown.map(|write| take_record(rest, write.key(), now_us));
                let witnessed = witnessed.collect::<Option<_>>()?;
                Some(Outcome::Committed { revision, now, witnessed })
            }
            b'X' => {
                let shown = commit.checks.iter().map(Check::key).chain(touched(commit));
                let found = shown.map(|key| Some((key.clone(), take_record(rest, key, now_us)?)));
                Some(Outcome::Conflict { found: found.collect::<Option<_>>()?, now })
            }
            _ => None,
        });
        let outcomes = outcomes.collect::<Option<_>>()?;
        rest.is_empty().then_some(Self { is_published, outcomes })
    }

    /// The highest revision that any of them shows.
    pub fn highest(&self) -> Option<Revision> {
        let shown = |outcome: &Outcome| match outcome {
            Outcome::Committed { revision, .. } => Some(*revision),
            Outcome::Conflict { found, .. } => {
                found.iter().flat_map(|(_, record)| record).map(|record| record.revision).max()
            }
        };
        self.outcomes.iter().filter_map(shown).max()
    }
}

/// What a commit's hints say.
pub(super) fn changes(commit: &Commit, outcome: &Outcome) -> Vec<Change> {
    let Outcome::Committed { revision, .. } = *outcome else { return Vec::new() };
    let change = |write: &Write| match write {
        Write::Put { key, value, .. } => {
            Some(Change::Put { key: key.clone(), value: value.clone(), revision })
        }
        Write::Delete { key } => Some(Change::Deleted { key: key.clone(), revision }),
        Write::Touch { .. } => None,
    };
    commit.writes.iter().filter_map(change).collect()
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    number(rest.split_off(..DIGITS)?)
}

/// A record with its length before it; `None` outside if there isn't one.
fn take_record(rest: &mut &[u8], key: &Key, now_us: u64) -> Option<Option<Record>> {
    let length = u32::from_be_bytes(*rest.split_off(..4)?.first_chunk()?);
    match usize::try_from(length).ok()? {
        0 => Some(None),
        length => unpack(key, Some(rest.split_off(..length)?), now_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_core::WallTime;

    fn key(name: &str) -> Key {
        Key::new(Group(7), name.as_bytes())
    }

    #[test]
    fn a_record_that_several_commits_name_is_one_key() {
        let put = |name| Write::Put { key: key(name), value: b"v"[..].into(), ttl: Ttl::Forever };
        let touch = Write::Touch { key: key("a"), ttl: Duration::from_secs(1) };
        let commits = [
            Commit { checks: vec![Check::Absent(key("b"))], writes: vec![put("a")] },
            Commit { checks: vec![Check::At(key("a"), Revision(3))], writes: vec![touch, put("b")] },
        ];
        let mut command = Cmd::new();
        let terms = Terms { floor: 5, channel: "hints", prefix: "p", mark: false, is_one: true };
        encode(&mut command, &commits, &terms, None);
        let texts: Vec<_> = command
            .args_iter()
            .map(|arg| match arg {
                ::redis::Arg::Simple(text) => text.escape_ascii().to_string(),
                _ => "?".into(),
            })
            .collect();
        assert_eq!(
            texts[..7],
            [
                "6",
                "p:{007}:revision",
                "p:{007}:=b",
                "p:{007}:=a",
                "p:{007}:names",
                "p:{007}:expiry",
                "p:ends"
            ]
        );
        assert_eq!(texts[7..14], ["0000000000000005", "hints", "", "10", "1", "0", "1"]);
        let first = r"\x00\x01\x01\x00\x03\x01\x01A\x00\x02F\x00\x03";
        let second = r"\x00\x01\x02\x00\x16\x01\x02R\x00\x030000000000000003T\x00\x03T\x00\x030000000001000000F\x00\x02";
        assert_eq!(texts[14], [first, second].concat());
        assert_eq!(texts[15..], ["v", "v"]);
    }

    #[test]
    fn what_no_list_shows_is_written_small_and_what_need_not_end_exactly_goes_by_itself() {
        let second = Duration::from_secs(1);
        let put = |name, ttl| Write::Put { key: key(name), value: b""[..].into(), ttl };
        let told = |write: Write| {
            let mut command = Cmd::new();
            let terms = Terms { floor: 5, channel: "", prefix: "p", mark: false, is_one: false };
            encode(&mut command, &[Commit { checks: vec![], writes: vec![write] }], &terms, None);
            match command.args_iter().nth(12) {
                Some(::redis::Arg::Simple(plan)) => char::from(plan[7]),
                _ => '?',
            }
        };
        let ttls = [Ttl::Forever, Ttl::Exactly(second), Ttl::AtLeast(second)];
        assert_eq!(ttls.map(|ttl| told(put("Lr", ttl))), ['F', 'P', 'P']);
        assert_eq!(ttls.map(|ttl| told(put("Le", ttl))), ['f', 'p', 'v']);
        let both = ["Lr", "Le"].map(key);
        assert_eq!(both.clone().map(|key| told(Write::Delete { key })), ['D', 'd']);
    }

    #[test]
    fn an_answer_that_does_not_fit_is_none() {
        let commits = [
            Commit { checks: vec![], writes: vec![Write::Delete { key: key("a") }] },
            Commit { checks: vec![Check::Absent(key("b"))], writes: vec![] },
        ];
        let digits = |number| String::from_utf8(padded(number).to_vec()).unwrap();
        let record = [digits(3), digits(4), digits(2), digits(0), "v".into()].concat();
        let record = [&65_u32.to_be_bytes(), record.as_bytes()].concat();
        let head = [digits(9_000), "1C".into(), digits(8)].concat();
        let whole = [head.as_bytes(), &[0; 4], b"X", &record].concat();
        let decided = Decided::read(&commits, &whole).unwrap();
        let found = Record {
            key: key("b"),
            value: b"v"[..].into(),
            created: Revision(3),
            revision: Revision(4),
            touches: 2,
            expires_in: None,
        };
        let now = WallTime(9);
        let outcomes = vec![
            Outcome::Committed { revision: Revision(8), now, witnessed: vec![None] },
            Outcome::Conflict { found: vec![(key("b"), Some(found))], now },
        ];
        assert_eq!(decided, Decided { is_published: true, outcomes });
        assert_eq!(decided.highest(), Some(Revision(8)));
        for length in 0..whole.len() {
            assert_eq!(Decided::read(&commits, &whole[..length]), None, "{length}");
        }
        assert_eq!(Decided::read(&commits, &[&whole[..], b"0"].concat()), None);
    }
}

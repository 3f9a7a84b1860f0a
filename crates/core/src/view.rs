//! What a decision sees, and what it wants: known records, and on top of them the draft of one commit.
//!
//! A rule reads through the view and writes into its draft. Reading adds the check that the commit needs to be
//! sound; reading what isn't known stops the rule with [`Pause::Read`], and it is run again when the engine has
//! looked. Several commands can be decided on one view, each seeing what the ones before it drafted, and
//! committed together. Facts may also be *assumed*: the commit's checks then make the guess harmless.

use crate::codec::Unreadable;
use crate::commit::{Check, Commit, Ttl, Write};
use crate::draft::{Basis, Draft};
use crate::record::{Bytes, Group, Key, Record, Revision};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;
use core::time::Duration;

/// Why a rule stopped before it decided. Whatever it drafted is rolled back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pause {
    /// It needs to know this record.
    Read(Key),
    /// It needs to know the names after `after` that begin with `prefix`.
    Scan {
        /// What the names begin with.
        prefix: Bytes,
        /// Where to go on.
        after: Option<Bytes>,
    },
    /// It has to wait for the commit that the draft already is: decide it again on the next one.
    NextCommit,
    /// Others come first, and what happens to them takes a commit of its own: settle, and decide it again.
    SettleFirst,
    /// A record can't be read by this version.
    Unreadable,
}

impl From<Unreadable> for Pause {
    fn from(_: Unreadable) -> Self {
        Self::Unreadable
    }
}

/// A revision, or the one that the drafted commit is going to get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stamp {
    /// In the store already.
    At(Revision),
    /// To be told when the draft is committed.
    ThisCommit,
}

impl Stamp {
    /// The revision, once the draft's own is known.
    pub fn resolve(self, this_commit: Revision) -> Revision {
        match self {
            Self::At(revision) => revision,
            Self::ThisCommit => this_commit,
        }
    }
}

/// A record as a rule sees it: in the store, or drafted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// What it says.
    pub value: Bytes,
    /// The commit that made it.
    pub created: Stamp,
    /// The last Put.
    pub revision: Stamp,
    /// How often it was touched.
    pub touches: u64,
    /// What is left of its time, when last heard.
    pub expires_in: Option<Duration>,
}

enum Undo {
    Check(Bytes, Option<Basis>),
    Write(Bytes, Option<Write>),
    Fact(Bytes),
}

/// Known records of one group and the draft of a commit on them.
pub struct View {
    group: Group,
    /// Boxed: most views know three records, and a tree's node has room for eleven.
    known: BTreeMap<Bytes, Option<Box<Record>>>,
    /// Prefixes whose names are known up to a name, or all of them.
    scanned: BTreeMap<Bytes, Option<Bytes>>,
    draft: Draft,
    undo: Vec<Undo>,
    /// Whether anything was taken for granted that the store hasn't said.
    assumed: bool,
    /// Names that were found or assumed absent.
    absent: Vec<Bytes>,
}

impl View {
    /// Knows nothing yet.
    pub fn new(group: Group) -> Self {
        Self {
            group,
            known: BTreeMap::new(),
            scanned: BTreeMap::new(),
            draft: Draft::default(),
            undo: Vec::new(),
            assumed: false,
            absent: Vec::new(),
        }
    }

    // What rules use.

    /// The record, checked to be unchanged when the draft is committed.
    pub fn get(&mut self, key: &Key) -> Result<Option<Seen>, Pause> {
        let seen = self.peek(key)?;
        self.check(key, Basis::Revision);
        Ok(seen)
    }

    /// The record, checked to be still the same one, though perhaps touched.
    pub fn lease(&mut self, key: &Key) -> Result<Option<Seen>, Pause> {
        let seen = self.peek(key)?;
        self.check(key, Basis::Creation);
        Ok(seen)
    }

    /// The record, not checked: for what an answer shows, and for what another check vouches for.
    pub fn peek(&self, key: &Key) -> Result<Option<Seen>, Pause> {
        debug_assert_eq!(key.group, self.group);
        let known = self.known.get(&key.name);
        match self.draft.write(&key.name) {
            Some(Write::Delete { .. }) => Ok(None),
            Some(Write::Put { value, ttl, .. }) => {
                let old = known.and_then(Option::as_deref);
                Ok(Some(Seen {
                    value: value.clone(),
                    created: old.map_or(Stamp::ThisCommit, |old| Stamp::At(old.created)),
                    revision: Stamp::ThisCommit,
                    touches: old.map_or(0, |old| old.touches),
                    expires_in: ttl.length(),
                }))
            }
            // A touched record says what it said, but may be one that is only taken to be there.
            Some(Write::Touch { .. }) | None => match known {
                Some(record) => Ok(record.as_deref().map(Seen::from)),
                None => Err(Pause::Read(key.clone())),
            },
        }
    }

    /// Whether the record made by `created` is there: as known, or taken to be so. The commit checks it.
    pub fn holds(&mut self, key: &Key, created: Stamp) -> bool {
        if let Ok(seen) = self.lease(key) {
            return seen.is_some_and(|seen| seen.created == created);
        }
        if let Stamp::At(created) = created {
            self.assumed = true;
            self.set_check(&key.name, Basis::Assumed(created));
        }
        true
    }

    /// The first record after `after` whose name begins with `prefix`, not checked.
    pub fn next(&self, prefix: &Bytes, after: Option<&Bytes>) -> Result<Option<(Bytes, Seen)>, Pause> {
        let scanned = self.scanned.get(prefix);
        let mut last = after.cloned();
        loop {
            let from = Bound::Excluded(last.as_ref().unwrap_or(prefix));
            let stored = self.known.range::<Bytes, _>((from, Bound::Unbounded)).next();
            let stored = stored.map(|(name, _)| name);
            let drafted = self.draft.writes_after(last.as_ref().unwrap_or(prefix)).next();
            let drafted = drafted.map(|write| &write.key().name);
            let name = match (stored, drafted) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            let name = name.filter(|name| name.starts_with(prefix));
            let known_to_here = match (scanned, name) {
                (None, _) | (Some(Some(_)), None) => false,
                (Some(None), _) => true,
                (Some(Some(end)), Some(name)) => name <= end,
            };
            if !known_to_here {
                let after = scanned.cloned().flatten();
                return Err(Pause::Scan { prefix: prefix.clone(), after });
            }
            let Some(name) = name else { return Ok(None) };
            if let Some(seen) = self.peek(&Key::new(self.group, name.clone()))? {
                return Ok(Some((name.clone(), seen)));
            }
            last = Some(name.clone());
        }
    }

    /// Takes the record for absent unless it is known. The commit checks it.
    pub fn assume_absent(&mut self, key: &Key) {
        self.assume(key, None);
    }

    /// Takes the record for this one unless it is known. The commit checks it.
    pub fn assume(&mut self, key: &Key, record: Option<Record>) {
        if !self.known.contains_key(&key.name) {
            self.assumed = true;
            self.undo.push(Undo::Fact(key.name.clone()));
            self.learn(key, record);
        }
    }

    /// Drafts a Put.
    pub fn put(&mut self, key: &Key, value: Bytes, ttl: Ttl) {
        self.write(Write::Put { key: key.clone(), value, ttl });
    }

    /// Drafts a Touch; on a record that is drafted already, or forever, there is nothing to do.
    pub fn touch(&mut self, key: &Key, ttl: Duration) {
        match self.draft.write(&key.name) {
            Some(Write::Touch { ttl: drafted, .. }) if *drafted >= ttl => {}
            Some(Write::Put { .. } | Write::Delete { .. }) => {}
            _ => self.write(Write::Touch { key: key.clone(), ttl }),
        }
    }

    /// Drafts a Delete.
    pub fn delete(&mut self, key: &Key) {
        self.write(Write::Delete { key: key.clone() });
    }

    /// Whether the draft makes a record whose name begins with `prefix`.
    pub fn creates(&self, prefix: &Bytes) -> bool {
        let writes = self.draft.writes_after(prefix);
        let mut writes = writes.take_while(|write| write.key().name.starts_with(prefix));
        writes.any(|write| matches!(write, Write::Put { .. }))
    }

    /// Whether the draft deletes this record.
    pub fn deletes(&self, key: &Key) -> bool {
        matches!(self.draft.write(&key.name), Some(Write::Delete { .. }))
    }

    /// Whether the draft changes this record.
    pub fn writes(&self, key: &Key) -> bool {
        self.draft.write(&key.name).is_some()
    }

    /// Whether the store doesn't have this record, as known or assumed, whatever is drafted.
    pub fn is_new(&self, key: &Key) -> bool {
        matches!(self.known.get(&key.name), Some(None))
    }

    // What the engine uses.

    /// From here on, [`Self::roll_back`] undoes.
    pub fn save(&mut self) {
        self.undo.clear();
    }

    /// Undoes what was drafted and assumed since [`Self::save`].
    pub fn roll_back(&mut self) {
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Fact(name) => {
                    self.known.remove(&name);
                }
                Undo::Check(name, old) => drop(self.draft.set_check(&name, old)),
                Undo::Write(name, old) => drop(self.draft.set_write(&name, old)),
            }
        }
    }

    /// Remembers what the store said of a record.
    pub fn learn(&mut self, key: &Key, record: Option<Record>) {
        if record.is_none() {
            self.absent.push(key.name.clone());
        }
        self.known.insert(key.name.clone(), record.map(Box::new));
    }

    /// Remembers a page of a scan: all names with `prefix` up to its last are now known.
    pub fn learn_page(&mut self, prefix: &Bytes, records: Vec<Record>, more: bool) {
        let end = if more { records.last().map(|record| record.key.name.clone()) } else { None };
        if more && end.is_none() {
            return;
        }
        for record in records {
            // What is known stays: something may have been decided on it, and the commit's check is to say if it is
            // wrong. With the page's record in its place, the check would be true of what nobody assumed.
            self.known.entry(record.key.name.clone()).or_insert_with(|| Some(Box::new(record)));
        }
        self.scanned.insert(prefix.clone(), end);
    }

    /// The record as the store has it, if that is known.
    pub fn record(&self, key: &Key) -> Option<&Record> {
        self.known.get(&key.name)?.as_deref()
    }

    /// Forgets everything, known and drafted.
    pub fn clear(&mut self) {
        *self = Self::new(self.group);
    }

    /// Forgets what is known of records whose names begin with `prefix`.
    pub fn forget(&mut self, prefix: &Bytes) {
        debug_assert!(!self.is_dirty(), "the draft's checks are made of what is known");
        let from = (Bound::Included(prefix.clone()), Bound::Unbounded);
        let names = self.known.range(from).map(|(name, _)| name);
        let names: Vec<_> = names.take_while(|name| name.starts_with(prefix)).cloned().collect();
        for name in names {
            self.known.remove(&name);
        }
        self.scanned.remove(prefix);
    }

    /// Forgets what isn't there: a view that lives long would collect it without end.
    pub fn forget_absences(&mut self) {
        debug_assert!(!self.is_dirty(), "the draft's checks are made of what is known");
        for name in core::mem::take(&mut self.absent) {
            if self.known.get(&name).is_some_and(Option::is_none) {
                self.known.remove(&name);
            }
        }
    }

    /// Whether anything decided so far rests on an assumption. A commit would verify it; an answer without a commit
    /// must not be given on it.
    pub fn is_assuming(&self) -> bool {
        self.assumed
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty() && self.scanned.is_empty()
    }

    /// Whether the draft changes anything.
    pub fn is_dirty(&self) -> bool {
        self.draft.is_dirty()
    }

    /// The draft as a commit.
    pub fn commit(&self) -> Commit {
        let checks = self.draft.checks().filter_map(|(name, basis)| {
            let key = || Key::new(self.group, name.clone());
            match (basis, self.known.get(name)) {
                (Basis::Assumed(created), _) => Some(Check::Created(key(), created)),
                (_, None) => None,
                (_, Some(None)) => Some(Check::Absent(key())),
                (Basis::Revision, Some(Some(record))) => Some(Check::At(key(), record.revision)),
                (Basis::Creation, Some(Some(record))) => Some(Check::Created(key(), record.created)),
            }
        });
        Commit { checks: checks.collect(), writes: self.draft.writes().to_vec() }
    }

    /// Whether the draft is within what a store takes.
    pub fn fits(&self) -> bool {
        self.draft.fits()
    }

    /// The draft was committed: its records are facts now.
    pub fn committed(&mut self, revision: Revision) {
        self.undo.clear();
        self.assumed = false;
        for write in core::mem::take(&mut self.draft).into_writes() {
            if let Write::Delete { key } = &write {
                // Not kept as an absence: a view that lives long would collect them without end.
                self.known.remove(&key.name);
                continue;
            }
            let known = self.known.entry(write.key().name.clone()).or_default();
            match write {
                Write::Delete { .. } => {}
                Write::Touch { ttl, .. } => {
                    if let Some(record) = known {
                        record.touches += 1;
                        record.expires_in = record.expires_in.map(|left| left.max(ttl));
                    }
                }
                Write::Put { key, value, ttl } => {
                    let old = known.take();
                    let created = old.as_ref().map_or(revision, |old| old.created);
                    let touches = old.map_or(0, |old| old.touches);
                    let expires_in = ttl.length();
                    let record = Record { key, value, created, revision, touches, expires_in };
                    *known = Some(Box::new(record));
                }
            }
        }
    }

    fn check(&mut self, key: &Key, basis: Basis) {
        // A drafted record needs no check of its own; one that was read as it stands in the store does, unless
        // it is checked already: either basis is enough for either reader.
        let is_needed = match self.draft.check(&key.name) {
            None => self.known.contains_key(&key.name),
            Some(Basis::Creation) => basis == Basis::Revision,
            Some(_) => false,
        };
        if is_needed {
            self.set_check(&key.name, basis);
        }
    }

    fn set_check(&mut self, name: &Bytes, basis: Basis) {
        let old = self.draft.set_check(name, Some(basis));
        self.undo.push(Undo::Check(name.clone(), old));
    }

    fn write(&mut self, write: Write) {
        let name = write.key().name.clone();
        let old = self.draft.set_write(&name, Some(write));
        self.undo.push(Undo::Write(name, old));
    }
}

impl From<&Record> for Seen {
    fn from(record: &Record) -> Self {
        Self {
            value: record.value.clone(),
            created: Stamp::At(record.created),
            revision: Stamp::At(record.revision),
            touches: record.touches,
            expires_in: record.expires_in,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn key(name: &str) -> Key {
        Key::new(Group(7), name.as_bytes())
    }

    fn record(name: &str, revision: u64) -> Record {
        let revision = Revision(revision);
        let value = name.as_bytes().into();
        Record { key: key(name), value, created: revision, revision, touches: 0, expires_in: None }
    }

    #[test]
    fn what_a_rule_read_is_checked_and_what_it_peeked_at_is_not() {
        let mut view = View::new(Group(7));
        view.learn(&key("a"), Some(record("a", 5)));
        view.learn(&key("b"), None);
        view.learn(&key("c"), Some(record("c", 6)));
        view.learn(&key("d"), Some(record("d", 7)));
        view.get(&key("a")).unwrap();
        view.get(&key("b")).unwrap();
        view.lease(&key("c")).unwrap();
        view.peek(&key("d")).unwrap();
        let expected = vec![
            Check::At(key("a"), Revision(5)),
            Check::Absent(key("b")),
            Check::Created(key("c"), Revision(6)),
        ];
        assert_eq!(view.commit().checks, expected);
        assert_eq!(view.get(&key("e")), Err(Pause::Read(key("e"))));
    }

    #[test]
    fn a_paused_rule_leaves_nothing_behind() {
        let mut view = View::new(Group(7));
        view.put(&key("kept"), b"1"[..].into(), Ttl::Forever);
        view.save();
        view.assume_absent(&key("guess"));
        view.get(&key("guess")).unwrap();
        view.put(&key("kept"), b"2"[..].into(), Ttl::Forever);
        view.delete(&key("gone"));
        view.roll_back();
        let put = Write::Put { key: key("kept"), value: b"1"[..].into(), ttl: Ttl::Forever };
        assert_eq!(view.commit(), Commit { checks: vec![], writes: vec![put] });
        assert!(view.peek(&key("guess")).is_err());
    }

    #[test]
    fn names_are_walked_in_order_through_store_and_draft_and_never_past_what_is_known() {
        let prefix: Bytes = b"q"[..].into();
        let mut view = View::new(Group(7));
        let first = Pause::Scan { prefix: prefix.clone(), after: None };
        assert_eq!(view.next(&prefix, None), Err(first));
        view.learn_page(&prefix, vec![record("q1", 1), record("q3", 1)], true);
        view.put(&key("q2"), b"x"[..].into(), Ttl::Forever);
        view.put(&key("q9"), b"x"[..].into(), Ttl::Forever);
        view.delete(&key("q1"));
        let (two, _) = view.next(&prefix, None).unwrap().unwrap();
        assert_eq!(&*two, b"q2");
        let (three, _) = view.next(&prefix, Some(&two)).unwrap().unwrap();
        assert_eq!(&*three, b"q3");
        let more = Pause::Scan { prefix: prefix.clone(), after: Some(three.clone()) };
        assert_eq!(view.next(&prefix, Some(&three)), Err(more), "q9 may not be the next one");
        view.learn_page(&prefix, vec![], false);
        let (nine, _) = view.next(&prefix, Some(&three)).unwrap().unwrap();
        assert_eq!(&*nine, b"q9");
        assert_eq!(view.next(&prefix, Some(&nine)), Ok(None));
    }

    #[test]
    fn a_page_doesnt_make_a_wrong_guess_look_right() {
        let prefix: Bytes = b"q"[..].into();
        let mut view = View::new(Group(7));
        view.assume_absent(&key("q1"));
        assert_eq!(view.get(&key("q1")), Ok(None));
        view.learn_page(&prefix, vec![record("q1", 5), record("q2", 5)], false);
        assert_eq!(view.commit().checks, vec![Check::Absent(key("q1"))]);
        assert_eq!(view.next(&prefix, None).unwrap().map(|(name, _)| name), Some(b"q2"[..].into()));
    }

    #[test]
    fn a_committed_draft_is_what_is_known() {
        let mut view = View::new(Group(7));
        view.learn(&key("a"), Some(record("a", 5)));
        view.put(&key("a"), b"new"[..].into(), Ttl::Forever);
        view.put(&key("b"), b"new"[..].into(), Ttl::Exactly(Duration::from_secs(1)));
        assert_eq!(view.peek(&key("b")).unwrap().unwrap().created, Stamp::ThisCommit);
        view.committed(Revision(9));
        let a = view.peek(&key("a")).unwrap().unwrap();
        assert_eq!((a.created, a.revision), (Stamp::At(Revision(5)), Stamp::At(Revision(9))));
        assert_eq!(view.peek(&key("b")).unwrap().unwrap().created, Stamp::At(Revision(9)));
        assert!(!view.is_dirty());
    }
}

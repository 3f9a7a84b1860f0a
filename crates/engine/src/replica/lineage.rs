//! The runs that this directory had before, and that it is still the same directory.
//!
//! Whoever opens a directory holds its lock, so the runs it had before are over, unless it is a copy: then one of them may go on
//! where it was copied from. A copy of files is a directory of its own to the file system, and begins a lineage of its own. One of a whole disk
//! can't be told from the original here; `baton_core::crdt::heirs` is for that.
//!
//! Layout, version 1: the directory's number and when it was made, how many runs it ever had that wrote something, how many of
//! these are listed, and those (16 each).

use baton_core::Bytes;
use baton_core::codec::{Decoder, Encoder, Unreadable};
use baton_core::crdt::Actor;
use baton_core::crdt::heirs::RUNS_MAX;
use baton_store::embedded::Home;

const VERSION: u8 = 1;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Lineage {
    home: Home,
    /// Runs that wrote something, in all.
    pub runs: u64,
    /// Those of them that may have slots in counters, the oldest first.
    pub unfolded: Vec<Actor>,
}

impl Lineage {
    /// Goes on in a directory after a run, if that wrote something. In another directory that run was of where it was copied from,
    /// and may go on there.
    pub fn follow(self, home: Home, before: Option<Actor>) -> Self {
        if self.home != home {
            return Self { home, ..Self::default() };
        }
        let mut next = self;
        if let Some(before) = before {
            next.runs += 1;
            next.unfolded.push(before);
            let surplus = next.unfolded.len().saturating_sub(RUNS_MAX);
            next.unfolded.drain(..surplus);
        }
        next
    }

    pub fn encode(&self) -> Bytes {
        let to = Encoder::new(VERSION).number(self.home.number).number(self.home.made_ms);
        let to = to.number(self.runs).number(self.unfolded.len() as u64);
        self.unfolded.iter().fold(to, |to, run| to.fixed(&run.0)).finish()
    }

    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let home = Home { number: from.number()?, made_ms: from.number()? };
        let (runs, count) = (from.number()?, from.number()?);
        if count > RUNS_MAX as u64 {
            return Err(Unreadable);
        }
        let unfolded = (0..count).map(|_| Ok(Actor(from.fixed()?))).collect::<Result<_, _>>()?;
        from.finish()?;
        Ok(Self { home, runs, unfolded })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lineage_is_read_as_it_was_written_and_goes_on_only_in_its_own_directory() {
        let home = Home { number: 7, made_ms: 8 };
        let first = Lineage::default().follow(home, None);
        let lineage =
            first.follow(home, Some(Actor([1; 16]))).follow(home, None).follow(home, Some(Actor([2; 16])));
        assert_eq!((lineage.runs, &lineage.unfolded[..]), (2, &[Actor([1; 16]), Actor([2; 16])][..]));
        let read = Lineage::decode(&lineage.encode()).unwrap();
        assert_eq!(read, lineage);
        let copied = read.follow(Home { number: 9, made_ms: 8 }, Some(Actor([3; 16])));
        assert_eq!((copied.runs, copied.unfolded), (0, Vec::new()));
    }
}

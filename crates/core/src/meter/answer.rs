//! What comes back of a charge, as text, from whichever store.
//!
//! The first line is `verdict now index version`, then comes one line for each claim: `granted wait meter`. The verdict is `C` (all
//! charged), `R` (refused by the claim at the index) or `O` (the claim at the index follows an older version, and nothing more is
//! said). Of a refused charge the meters are as they would be if it had not refused.

use super::claim::Memo;
use super::state::Meter;
use crate::codec::Unreadable;
use crate::record::WallTime;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// What became of a charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All of it was taken.
    Charged,
    /// Nothing was: this claim found no room.
    Refused {
        /// The first such claim.
        index: usize,
    },
    /// Nothing was: this claim follows an older definition than its meter.
    Outdated {
        /// The first such claim.
        index: usize,
        /// What the meter follows.
        version: u64,
    },
}

/// A store's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Charged {
    /// What became of it.
    pub verdict: Verdict,
    /// The store's clock.
    pub now: WallTime,
    /// For each claim; empty if outdated.
    pub meters: Vec<ChargedMeter>,
    /// Whether it was done before, under the same memo.
    pub repeated: bool,
    /// The digest under which it was done before.
    pub digest: Option<String>,
}

/// What one claim did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChargedMeter {
    /// How much was taken.
    pub granted: u64,
    /// When a booking begins, in milliseconds.
    pub wait_ms: u64,
    /// The meter afterwards.
    pub meter: Meter,
}

/// An answer as text.
pub fn encode_answer(verdict: Verdict, now_ms: u64, effects: &[(u64, u64, crate::record::Bytes)]) -> Vec<u8> {
    let (letter, index, version) = match verdict {
        Verdict::Charged => ('C', 0, 0),
        Verdict::Refused { index } => ('R', index, 0),
        Verdict::Outdated { index, version } => ('O', index, version),
    };
    let mut text = String::new();
    let mut line = |arguments: core::fmt::Arguments<'_>| {
        text.write_fmt(arguments).expect("a string takes all that is written");
    };
    line(format_args!("{letter} {now_ms} {index} {version}"));
    for (granted, wait_ms, meter) in effects {
        line(format_args!("\n{granted} {wait_ms} {}", core::str::from_utf8(meter).unwrap_or_default()));
    }
    text.into_bytes()
}

impl Charged {
    /// Reads an answer.
    pub fn decode(answer: &[u8]) -> Result<Self, Unreadable> {
        let text = core::str::from_utf8(answer).map_err(|_| Unreadable)?;
        let mut lines = text.split('\n');
        let mut head = lines.next().ok_or(Unreadable)?.split(' ');
        let letter = head.next().ok_or(Unreadable)?;
        let mut number = || head.next().and_then(|text| text.parse::<u64>().ok()).ok_or(Unreadable);
        let (now, index, version) = (WallTime(number()?), number()?, number()?);
        let index = usize::try_from(index).map_err(|_| Unreadable)?;
        let verdict = match letter {
            "C" => Verdict::Charged,
            "R" => Verdict::Refused { index },
            "O" => Verdict::Outdated { index, version },
            _ => return Err(Unreadable),
        };
        let meters = lines.map(|line| {
            let mut parts = line.splitn(3, ' ');
            let mut part = || parts.next().ok_or(Unreadable);
            let granted = part()?.parse().map_err(|_| Unreadable)?;
            let wait_ms = part()?.parse().map_err(|_| Unreadable)?;
            Ok(ChargedMeter { granted, wait_ms, meter: Meter::decode(part()?.as_bytes())? })
        });
        let meters = meters.collect::<Result<_, _>>()?;
        Ok(Self { verdict, now, meters, repeated: false, digest: None })
    }

    /// Reads what was remembered of an earlier one.
    pub fn decode_memo(value: &[u8]) -> Result<Self, Unreadable> {
        let place = value.iter().position(|byte| *byte == b' ').ok_or(Unreadable)?;
        let digest = core::str::from_utf8(&value[..place]).map_err(|_| Unreadable)?;
        let charged = Self::decode(&value[place + 1..])?;
        Ok(Self { repeated: true, digest: Some(digest.into()), ..charged })
    }

    /// Whether it answers this memo's charge and not another one of the same key.
    pub fn is_of(&self, memo: &Memo) -> bool {
        self.digest.as_ref().is_none_or(|digest| *digest == memo.digest)
    }
}

//! What is stored of a meter.
//!
//! Layout, version 1, as text with one space between:
//! `1 version algorithm limit window offset since at start current previous`, how many pairs the log has, its pairs `time
//! amount`, how many rows there are, and for each `id owner kind amount spent sequence expires`. Times are
//! milliseconds of the store's clock. An offset as long as the window stands for windows that follow the calendar.

use super::claim::{Algorithm, RowKind};
use super::{NUMBER_MAX, PRODUCT_MAX};
use crate::codec::Unreadable;
use crate::record::Bytes;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// A meter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meter {
    /// Of the definition that it follows.
    pub version: u64,
    /// What is counted.
    pub algorithm: Algorithm,
    /// How much in a window.
    pub limit: u64,
    /// Milliseconds.
    pub window_ms: u64,
    /// Where windows begin; the window's length for those of the calendar.
    pub offset_ms: u64,
    /// Since when it counts like this: nothing is given back for what was taken before.
    pub since_ms: u64,
    /// Up to when it was brought.
    pub at_ms: u64,
    /// Where the present window began.
    pub start_ms: u64,
    /// What came in this window; for a bucket its level, times the window's length.
    pub current: u64,
    /// What came in the last window.
    pub previous: u64,
    /// What came when.
    pub log: Vec<(u64, u64)>,
    /// What is outstanding, earliest expiry first.
    pub rows: Vec<Row>,
}

/// Something outstanding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Made by the holder.
    pub id: String,
    /// Who holds it.
    pub owner: String,
    /// Why.
    pub kind: RowKind,
    /// How much is left of it, as far as is known here.
    pub amount: u64,
    /// All that was spent of it.
    pub spent: u64,
    /// Of the last message about it.
    pub sequence: u64,
    /// By the store's clock.
    pub expires_ms: u64,
}

const VERSION: &str = "1";

impl Meter {
    /// What is outstanding.
    pub fn outstanding(&self) -> u64 {
        self.rows.iter().fold(0, |sum, row| sum.saturating_add(row.amount))
    }

    /// The row of this id.
    pub fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }

    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let mut text = String::with_capacity(96 + 24 * self.log.len() + 64 * self.rows.len());
        self.write(&mut text).expect("a string takes all that is written");
        text.into_bytes().into()
    }

    fn write(&self, text: &mut String) -> core::fmt::Result {
        let Self { version, algorithm, limit, window_ms, offset_ms, since_ms, at_ms, start_ms, .. } = self;
        write!(text, "{VERSION} {version} {} {limit} {window_ms} {offset_ms} ", algorithm.letter())?;
        write!(text, "{since_ms} {at_ms} {start_ms} {} {} {}", self.current, self.previous, self.log.len())?;
        for (time, amount) in &self.log {
            write!(text, " {time} {amount}")?;
        }
        write!(text, " {}", self.rows.len())?;
        for Row { id, owner, kind, amount, spent, sequence, expires_ms } in &self.rows {
            write!(text, " {id} {owner} {} {amount} {spent} {sequence} {expires_ms}", kind.letter())?;
        }
        Ok(())
    }

    /// Whether it keeps the bounds that every charge keeps: then nothing overflows.
    fn is_computable(&self) -> bool {
        let most = self.algorithm.amount_max(self.window_ms);
        let is_multiplied = self.algorithm == Algorithm::SlidingWindow;
        (1..=PRODUCT_MAX).contains(&self.window_ms)
            && (1..=most).contains(&self.limit)
            && self.offset_ms <= self.window_ms
            && (!is_multiplied || self.current.max(self.previous) <= most)
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let text = core::str::from_utf8(value).map_err(|_| Unreadable)?;
        let mut fields = Fields(text.split(' '));
        let meter = fields.meter()?;
        if fields.0.next().is_some() {
            return Err(Unreadable);
        }
        Ok(meter)
    }
}

struct Fields<'a>(core::str::Split<'a, char>);

impl<'a> Fields<'a> {
    fn text(&mut self) -> Result<&'a str, Unreadable> {
        self.0.next().ok_or(Unreadable)
    }

    fn number(&mut self) -> Result<u64, Unreadable> {
        let number = self.text()?.parse().map_err(|_| Unreadable)?;
        if number <= NUMBER_MAX { Ok(number) } else { Err(Unreadable) }
    }

    fn count(&mut self, most: usize) -> Result<usize, Unreadable> {
        let count = usize::try_from(self.number()?).map_err(|_| Unreadable)?;
        if count <= most { Ok(count) } else { Err(Unreadable) }
    }

    fn meter(&mut self) -> Result<Meter, Unreadable> {
        if self.text()? != VERSION {
            return Err(Unreadable);
        }
        let mut meter = Meter {
            version: self.number()?,
            algorithm: Algorithm::of_letter(self.text()?).ok_or(Unreadable)?,
            limit: self.number()?,
            window_ms: self.number()?,
            offset_ms: self.number()?,
            since_ms: self.number()?,
            at_ms: self.number()?,
            start_ms: self.number()?,
            current: self.number()?,
            previous: self.number()?,
            log: Vec::new(),
            rows: Vec::new(),
        };
        if !meter.is_computable() {
            return Err(Unreadable);
        }
        for _ in 0..self.count(super::LOG_MAX)? {
            meter.log.push((self.number()?, self.number()?));
        }
        for _ in 0..self.count(super::ROWS_MAX)? {
            meter.rows.push(Row {
                id: self.text()?.into(),
                owner: self.text()?.into(),
                kind: RowKind::of_letter(self.text()?).ok_or(Unreadable)?,
                amount: self.number()?,
                spent: self.number()?,
                sequence: self.number()?,
                expires_ms: self.number()?,
            });
        }
        Ok(meter)
    }
}

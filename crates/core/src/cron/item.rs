//! One item of a field's list: `*`, `5`, `1-5`, `*/15`, `H(0-29)/10`, `L-3`, `15W`, `FRI#2`.

use super::error::ScheduleError;
use super::field::Field;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A piece of an expression, and where it begins.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub text: &'a str,
    pub start: usize,
}

impl<'a> Piece<'a> {
    pub fn range(self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// The pieces between separators; each is a byte that is never part of another character.
    pub fn split(self, is_separator: impl Fn(u8) -> bool) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        let mut start = 0;
        for end in 0..=self.text.len() {
            if end == self.text.len() || is_separator(self.text.as_bytes()[end]) {
                pieces.push(Piece { text: &self.text[start..end], start: self.start + start });
                start = end + 1;
            }
        }
        pieces
    }

    fn split_once(self, separator: u8) -> Option<(Piece<'a>, Piece<'a>)> {
        let place = self.text.bytes().position(|byte| byte == separator)?;
        let after = Piece { text: &self.text[place + 1..], start: self.start + place + 1 };
        Some((Piece { text: &self.text[..place], start: self.start }, after))
    }

    fn without_suffix(self, suffix: char) -> Option<Piece<'a>> {
        let text = self.text.strip_suffix(|last: char| last.eq_ignore_ascii_case(&suffix))?;
        Some(Piece { text, ..self })
    }

    fn is(self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }
}

/// What a field's list says.
#[derive(Default)]
pub(super) struct Values {
    /// The numbers that are meant, by their bits. Sunday is 0.
    pub bits: u64,
    /// Whether it begins with `*`, or with `?`: then it restricts nothing, as far as the two fields for days and
    /// changes of clocks are concerned.
    pub is_star: bool,
    /// Whether there is an `H`.
    pub is_hashed: bool,
    /// Days that depend on the month.
    pub days: Vec<DayItem>,
}

/// A day that depends on the month.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DayItem {
    /// `L`, `L-3`: so many days before the month's last.
    BeforeLast(u8),
    /// `LW`: the last from Monday to Friday.
    LastWorking,
    /// `15W`: the day from Monday to Friday that is nearest to this one, within the month.
    NearestWorking(u8),
    /// `5L`: the last such day of the week.
    LastOf(u8),
    /// `5#3`: the third such day of the week.
    Nth(u8, u8),
}

/// Reads the lists of one expression.
pub(super) struct Reader<'a> {
    pub field: Field,
    /// What `H` is a hash of.
    pub name: &'a str,
}

impl Reader<'_> {
    /// Reads a field's whole text.
    pub fn read(&self, text: Piece) -> Result<Values, ScheduleError> {
        let mut values = Values { is_star: text.text.starts_with(['*', '?']), ..Values::default() };
        for item in text.split(|byte| byte == b',') {
            self.read_item(item, &mut values)?;
        }
        Ok(values)
    }

    fn read_item(&self, item: Piece, values: &mut Values) -> Result<(), ScheduleError> {
        if item.text.is_empty() {
            return Err(
                self.wrong(item, format!("something is missing; allowed are {}", self.field.allowed()))
            );
        }
        if let Some(day) = self.day_item(item)? {
            values.days.push(day);
            return Ok(());
        }
        let (base, step) = match item.split_once(b'/') {
            Some((base, step)) => (base, Some(step)),
            None => (item, None),
        };
        let (lowest, highest) = self.field.bounds();
        if base.text.starts_with(['H', 'h']) {
            values.is_hashed = true;
            values.bits |= self.hashed(base, step)?;
            return Ok(());
        }
        let (first, last) = match base.text {
            "*" => (lowest, highest),
            "?" if self.field.is_day() => (lowest, highest),
            "?" => return Err(self.wrong(base, String::from("? is for days only; write *"))),
            _ => match base.split_once(b'-') {
                Some((first, last)) => self.range(base, first, last)?,
                // `5/15` goes on to the end.
                None => {
                    let only = self.value(base)?;
                    (only, if step.is_some() { highest.max(only) } else { only })
                }
            },
        };
        let step = step.map_or(Ok(1), |step| self.step(step, highest - lowest))?;
        for value in (first..=last).step_by(usize::from(step)) {
            values.bits |= self.bit(value);
        }
        Ok(())
    }

    fn bit(&self, value: u8) -> u64 {
        match self.field {
            Field::DayOfWeek => 1 << (value % 7),
            _ => 1 << value,
        }
    }

    fn range(&self, whole: Piece, first: Piece, last: Piece) -> Result<(u8, u8), ScheduleError> {
        let (from, mut to) = (self.value(first)?, self.value(last)?);
        if self.field == Field::DayOfWeek && to == 0 && last.is("SUN") && from > 0 {
            to = 7;
        }
        if from > to {
            let (lowest, highest) = self.field.bounds();
            let problem =
                format!("{} goes backwards; write it as two: {from}-{highest},{lowest}-{to}", whole.text);
            return Err(self.wrong(whole, problem));
        }
        Ok((from, to))
    }

    fn value(&self, piece: Piece) -> Result<u8, ScheduleError> {
        if let Some(value) = self.field.of_name(piece.text) {
            return Ok(value);
        }
        let (lowest, highest) = (self.field.bounds().0, self.field.highest_written());
        match number(piece.text) {
            Some(value) if (lowest..=highest).contains(&value) => Ok(value),
            _ => {
                let problem =
                    format!("{:?} is not allowed; allowed are {}", piece.text, self.field.allowed());
                Err(self.wrong(piece, problem))
            }
        }
    }

    fn step(&self, piece: Piece, highest: u8) -> Result<u8, ScheduleError> {
        match number(piece.text) {
            Some(step) if (1..=highest).contains(&step) => Ok(step),
            _ => {
                let problem = format!(
                    "{:?} is not a step; allowed are 1 to {highest}. Steps begin anew with each field's range; \
                     for another period there is @every",
                    piece.text
                );
                Err(self.wrong(piece, problem))
            }
        }
    }

    /// `H`, `H(0-29)`, `H/15`, `H(0-29)/10`.
    fn hashed(&self, base: Piece, step: Option<Piece>) -> Result<u64, ScheduleError> {
        let inner = Piece { text: &base.text[1..], start: base.start + 1 };
        let (first, last) = match inner.text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            None if inner.text.is_empty() => self.field.hash_bounds(),
            None => {
                let problem = format!("{:?} is not allowed; write H, or H(0-9) with a range", base.text);
                return Err(self.wrong(base, problem));
            }
            Some(text) => {
                let range = Piece { text, start: inner.start + 1 };
                let Some((first, last)) = range.split_once(b'-') else {
                    let problem = format!("{:?} is not a range like 0-9", range.text);
                    return Err(self.wrong(range, problem));
                };
                self.range(range, first, last)?
            }
        };
        let count = last - first + 1;
        let hash = xxh3_64_with_seed(self.name.as_bytes(), self.field as u64);
        let pick = |of: u8| first + (hash % u64::from(of)) as u8;
        let Some(step) = step else { return Ok(self.bit(pick(count))) };
        let (lowest, highest) = self.field.bounds();
        let step = self.step(step, highest - lowest)?;
        let picked = (pick(step.min(count))..=last).step_by(usize::from(step));
        Ok(picked.fold(0, |bits, value| bits | self.bit(value)))
    }

    fn day_item(&self, item: Piece) -> Result<Option<DayItem>, ScheduleError> {
        match self.field {
            Field::DayOfMonth => self.day_of_month(item),
            Field::DayOfWeek => self.day_of_week(item),
            _ => Ok(None),
        }
    }

    fn day_of_month(&self, item: Piece) -> Result<Option<DayItem>, ScheduleError> {
        if item.is("L") {
            return Ok(Some(DayItem::BeforeLast(0)));
        }
        if item.is("LW") {
            return Ok(Some(DayItem::LastWorking));
        }
        if let Some(day) = item.without_suffix('W') {
            return Ok(Some(DayItem::NearestWorking(self.value(day)?)));
        }
        if !item.text.starts_with(['L', 'l']) {
            return Ok(None);
        }
        let before = item.split_once(b'-').filter(|(l, _)| l.is("L")).and_then(|(_, days)| number(days.text));
        match before {
            Some(days @ 1..=30) => Ok(Some(DayItem::BeforeLast(days))),
            _ => {
                let problem = format!("{:?} is not allowed; allowed are L, LW and L-1 to L-30", item.text);
                Err(self.wrong(item, problem))
            }
        }
    }

    fn day_of_week(&self, item: Piece) -> Result<Option<DayItem>, ScheduleError> {
        if let Some((day, nth)) = item.split_once(b'#') {
            let day = self.value(day)? % 7;
            return match number(nth.text) {
                Some(nth @ 1..=5) => Ok(Some(DayItem::Nth(day, nth))),
                _ => {
                    let problem = format!("{:?} is not allowed after #; allowed are 1 to 5", nth.text);
                    Err(self.wrong(nth, problem))
                }
            };
        }
        if item.is("L") {
            let problem = "L needs a day before it: 5L is the month's last Friday";
            return Err(self.wrong(item, String::from(problem)));
        }
        let Some(day) = item.without_suffix('L') else { return Ok(None) };
        Ok(Some(DayItem::LastOf(self.value(day)? % 7)))
    }

    fn wrong(&self, piece: Piece, problem: String) -> ScheduleError {
        ScheduleError { at: piece.range(), field: Some(self.field), problem }
    }
}

/// Digits only: no sign, and no more than fit.
fn number(text: &str) -> Option<u8> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

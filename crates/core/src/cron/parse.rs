//! From text to a schedule: the fields, and the words that begin with `@`.

use super::calendar::Calendar;
use super::days::Days;
use super::error::ScheduleError;
use super::field::Field;
use super::item::{Piece, Reader, Values};
use super::schedule::Plan;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Bytes of an expression; a longer one is refused.
pub const EXPRESSION_BYTES_MAX: usize = 256;

/// The longest period of `@every`, in seconds: a leap year.
const EVERY_SECONDS_MAX: u64 = 366 * 86_400;

/// What an expression means, and whether that depends on the job's name.
pub(super) fn parse(text: &str, name: &str) -> Result<(Plan, bool), ScheduleError> {
    if text.len() > EXPRESSION_BYTES_MAX {
        let problem = format!("a schedule has at most {EXPRESSION_BYTES_MAX} bytes, not {}", text.len());
        return Err(whole(0..0, problem));
    }
    let all = Piece { text, start: 0 };
    let mut pieces = all.split(|byte| matches!(byte, b' ' | b'\t'));
    pieces.retain(|piece| !piece.text.is_empty());
    match pieces.first() {
        None => Err(whole(
            0..text.len(),
            String::from("a schedule is missing; \"30 2 * * *\" is 02:30 every day"),
        )),
        Some(first) if first.text.starts_with('@') => word(&pieces, name),
        Some(first) if first.text.contains('=') => {
            let problem = "the time zone is not part of the schedule, it is given beside it";
            Err(whole(first.range(), String::from(problem)))
        }
        Some(_) => fields(&pieces, name),
    }
}

fn fields(pieces: &[Piece], name: &str) -> Result<(Plan, bool), ScheduleError> {
    let names = match pieces.len() {
        5 => &Field::ALL[1..],
        6 => &Field::ALL[..],
        7.. => {
            let problem = "this is one field too many: there are five, or six with seconds before them; there is none for years";
            return Err(whole(pieces[6].range(), String::from(problem)));
        }
        count => {
            let missing = Field::ALL[1 + count];
            let end = pieces.last().map_or(0, |piece| piece.range().end);
            let problem = format!(
                "{count} of five fields: minute, hour, day of month, month and day of week are needed"
            );
            return Err(ScheduleError { at: end..end, field: Some(missing), problem });
        }
    };
    let mut read = Vec::with_capacity(6);
    if names.len() == 5 {
        read.push(Values { bits: 1, ..Values::default() });
    }
    for (field, piece) in names.iter().zip(pieces) {
        read.push(Reader { field: *field, name }.read(*piece)?);
    }
    let is_hashed = read.iter().any(|values| values.is_hashed);
    let calendar = Calendar {
        seconds: read[0].bits,
        minutes: read[1].bits,
        hours: read[2].bits as u32,
        months: read[4].bits as u16,
        days: Days::new(&read[3], &read[5]),
        follows_clock: read[1].is_star || read[2].is_star,
        closures: None,
    };
    Ok((Plan::Calendar(calendar), is_hashed))
}

fn word(pieces: &[Piece], name: &str) -> Result<(Plan, bool), ScheduleError> {
    let word = pieces[0];
    if word.text.eq_ignore_ascii_case("@every") {
        return Ok((Plan::Every { seconds: period(pieces)?, open: None }, false));
    }
    if let Some(more) = pieces.get(1) {
        let problem = format!("nothing can follow {}", word.text);
        return Err(whole(more.range(), problem));
    }
    let text = match word.text.to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let problem = format!(
                "{:?} is not known; there are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, \
                 and @every with a period",
                word.text
            );
            return Err(whole(word.range(), problem));
        }
    };
    parse(text, name)
}

/// The seconds of `@every 1h30m`.
fn period(pieces: &[Piece]) -> Result<u64, ScheduleError> {
    let allowed = "write it like 90s, 5m, 1h30m or 1d";
    let Some(given) = pieces.get(1) else {
        let end = pieces[0].range().end;
        return Err(whole(end..end, format!("@every needs a period; {allowed}")));
    };
    if let Some(more) = pieces.get(2) {
        return Err(whole(more.range(), format!("the period is one word; {allowed}")));
    }
    let wrong = || whole(given.range(), format!("{:?} is not a period; {allowed}", given.text));
    let mut rest = given.text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit_seconds = match rest.as_bytes().get(digits) {
            Some(b's') => 1,
            Some(b'm') => 60,
            Some(b'h') => 3_600,
            Some(b'd') => 86_400,
            _ => return Err(wrong()),
        };
        let part = number.checked_mul(unit_seconds).ok_or_else(wrong)?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = &rest[digits + 1..];
    }
    if !(1..=EVERY_SECONDS_MAX).contains(&total) {
        let problem = format!("{:?} is out of bounds; a period is from 1s to 366d", given.text);
        return Err(whole(given.range(), problem));
    }
    Ok(total)
}

fn whole(at: core::ops::Range<usize>, problem: String) -> ScheduleError {
    ScheduleError { at, field: None, problem }
}

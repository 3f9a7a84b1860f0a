//! What is wrong with an expression, and where.

use super::field::Field;
use alloc::string::String;
use core::fmt;
use core::ops::Range;

/// Why a text is not a schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduleError {
    /// The bytes at fault, within the text and on the borders of characters; empty where something is missing.
    pub at: Range<usize>,
    /// The field they are in; none if it is about the whole.
    pub field: Option<Field>,
    /// What is wrong, and what is allowed.
    pub problem: String,
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field {
            Some(field) => write!(f, "{}: {}", field.name(), self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

impl core::error::Error for ScheduleError {}

//! What is added to a counter.

use crate::error::ErrorBody;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// Whole numbers up to this are exact in every JSON reader.
pub const EXACT_MAX: i64 = (1 << 53) - 1;

/// A whole number, below zero to take. Also read if it is written as `5.0`: a body that isn't read the first time is put right and read
/// again, and that would change the values of registers beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Amount(pub i64);

impl Amount {
    /// Whether every JSON reader keeps it exact.
    pub(super) fn check(self, field: &str) -> Result<(), ErrorBody> {
        if (-EXACT_MAX..=EXACT_MAX).contains(&self.0) {
            return Ok(());
        }
        let message = format!("{field} must be {} to {EXACT_MAX}, not {}", -EXACT_MAX, self.0);
        Err(ErrorBody::invalid(field, message))
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(from)?;
        let exact = |value: &f64| value.fract() == 0.0 && value.abs() <= EXACT_MAX as f64;
        let found = number.as_i64().or_else(|| number.as_f64().filter(exact).map(|value| value as i64));
        found.map(Self).ok_or_else(|| Error::custom("must be a whole number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_numbers_are_amounts_however_they_are_written() {
        for (text, amount) in
            [("5", 5), ("-5", -5), ("5.0", 5), ("-5e0", -5), ("9007199254740991", EXACT_MAX)]
        {
            assert_eq!(serde_json::from_str::<Amount>(text).unwrap(), Amount(amount), "{text}");
        }
        for text in ["0.5", "1e300", "18446744073709551615", "\"5\"", "null", "true"] {
            assert!(serde_json::from_str::<Amount>(text).is_err(), "{text}");
        }
        assert!(Amount(EXACT_MAX).check("add").is_ok() && Amount(-EXACT_MAX).check("add").is_ok());
        assert_eq!(Amount(EXACT_MAX + 1).check("add").unwrap_err().field.as_deref(), Some("add"));
        assert!(Amount(i64::MIN).check("add").is_err());
    }
}

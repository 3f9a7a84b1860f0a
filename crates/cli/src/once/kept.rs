//! What is kept of a command: the result that `baton once` stores.

use super::tee::Printed;
use crate::failure::Failure;
use serde::{Deserialize, Serialize};

/// Longer than this as a JSON string, output is kept in hexadecimal pairs instead: escapes would outgrow a result.
const TEXT_BYTES_MAX: usize = 48 * 1024;

#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kept {
    pub exit_code: u8,
    /// As text, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stdout: Option<String>,
    /// Each byte as a number, if it isn't text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stdout_hex: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

impl Kept {
    pub fn new(exit_code: u8, printed: Printed) -> Self {
        let truncated = printed.truncated;
        let fits = |text: &String| serde_json::to_string(text).is_ok_and(|json| json.len() <= TEXT_BYTES_MAX);
        match String::from_utf8(printed.bytes) {
            Ok(text) if fits(&text) => Self { exit_code, stdout: Some(text), stdout_hex: None, truncated },
            Ok(text) => Self { exit_code, stdout: None, stdout_hex: Some(hex(text.as_bytes())), truncated },
            Err(error) => {
                Self { exit_code, stdout: None, stdout_hex: Some(hex(error.as_bytes())), truncated }
            }
        }
    }

    /// What the command printed, byte for byte.
    pub fn printed(&self) -> Result<Vec<u8>, Failure> {
        match (&self.stdout, &self.stdout_hex) {
            (Some(text), _) => Ok(text.as_bytes().to_vec()),
            (None, Some(hex)) => bytes(hex).ok_or_else(|| {
                Failure::new(
                    65,
                    "the stored output can't be read",
                    "it was stored by something else than `baton once`",
                )
            }),
            (None, None) => Ok(Vec::new()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<_>> = hex.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tee::KEPT_BYTES_MAX;
    use super::*;

    #[test]
    fn whatever_a_command_prints_comes_back_and_fits_a_result() {
        for output in [
            b"".to_vec(),
            b"plain\n".to_vec(),
            vec![0xff; KEPT_BYTES_MAX],
            vec![1; KEPT_BYTES_MAX],
            "é".repeat(KEPT_BYTES_MAX / 2).into_bytes(),
        ] {
            let kept = Kept::new(7, Printed { bytes: output.clone(), truncated: false });
            let json = serde_json::to_string(&kept).unwrap();
            assert!(json.len() <= 64 * 1024 + 64, "{} bytes", json.len());
            let read: Kept = serde_json::from_str(&json).unwrap();
            assert_eq!((read.exit_code, read.printed().unwrap()), (7, output));
        }
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        assert!(serde_json::from_str::<Kept>("42").is_err());
        assert!(serde_json::from_str::<Kept>(r#"{"exitCode":0,"more":1}"#).is_err());
        let odd = Kept { exit_code: 0, stdout: None, stdout_hex: Some("abc".into()), truncated: false };
        assert!(odd.printed().is_err());
    }
}

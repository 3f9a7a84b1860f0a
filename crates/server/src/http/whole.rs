//! Whole numbers that are written as if they weren't: to JSON Schema, and to many a JSON writer, `1000.0` and `1e3`
//! are integers. serde's integers take neither, so a body that was refused gets a second chance with them rewritten.

/// Integers up to here are exact in every JSON reader.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The same text with such numbers written as integers; nothing if there are none.
pub(super) fn numbers(text: &[u8]) -> Option<Vec<u8>> {
    let mut written = Vec::with_capacity(text.len());
    let mut changed = false;
    let mut rest = text;
    while let Some(first) = rest.first() {
        let bytes = match first {
            b'"' => string(rest),
            b'-' | b'0'..=b'9' => rest.iter().take_while(|byte| b"+-.eE0123456789".contains(byte)).count(),
            _ => 1,
        };
        let (token, after) = rest.split_at(bytes);
        match whole(token) {
            Some(number) => {
                written.extend_from_slice(number.to_string().as_bytes());
                changed = true;
            }
            None => written.extend_from_slice(token),
        }
        rest = after;
    }
    changed.then_some(written)
}

/// Bytes of the string that `text` begins with, quotes included.
fn string(text: &[u8]) -> usize {
    let mut escaped = false;
    let end = text.iter().skip(1).position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |at| at + 2)
}

fn whole(token: &[u8]) -> Option<u64> {
    if !token.first()?.is_ascii_digit() || !token.iter().any(|byte| b".eE".contains(byte)) {
        return None;
    }
    // Only what is a number by JSON's own grammar: no `1.` and no `01.0`.
    let number: f64 = serde_json::from_slice(token).ok()?;
    (number.fract() == 0.0 && number <= EXACT_MAX).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_numbers_outside_of_strings_are_rewritten() {
        for (text, wanted) in [
            (r#"{"a":1000.0}"#, Some(r#"{"a":1000}"#)),
            (r#"{"a":1e3,"b":1.50,"c":"2.0"}"#, Some(r#"{"a":1000,"b":1.50,"c":"2.0"}"#)),
            (r#"["\\\"1.0",2.0]"#, Some(r#"["\\\"1.0",2]"#)),
            ("[1.5, 1000, -1.0, 1., 01.0, 1e300, 1e-1]", None),
            (r#"{"1.0":"1.0"#, None),
            ("", None),
        ] {
            let found = numbers(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap());
            assert_eq!(found.as_deref(), wanted, "{text}");
        }
    }
}

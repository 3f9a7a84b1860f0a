//! The fields `RateLimit-Policy` and `RateLimit` (IETF draft 10): what the limits are, and what is left of them.

use std::fmt::Write;

/// The values of the two fields, made member by member.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RateLimitFields {
    policy: String,
    state: String,
}

impl RateLimitFields {
    /// `RateLimit-Policy`
    pub const POLICY: &str = "ratelimit-policy";
    /// `RateLimit`
    pub const STATE: &str = "ratelimit";

    /// One more limit: its name, how much may be used at once and in which window if that is known, what is left, and when all of it
    /// is available again.
    pub fn push(
        &mut self,
        name: &str,
        quota: u64,
        window_millis: Option<u64>,
        remaining: u64,
        reset_millis: u64,
    ) {
        if !self.policy.is_empty() {
            self.policy.push_str(", ");
            self.state.push_str(", ");
        }
        quote(&mut self.policy, name);
        quote(&mut self.state, name);
        // Writing to a string doesn't fail.
        write!(self.policy, ";q={quota}").ok();
        if let Some(window_millis) = window_millis {
            write!(self.policy, ";w={}", window_millis.div_ceil(1000)).ok();
        }
        write!(self.state, ";r={remaining};t={}", reset_millis.div_ceil(1000)).ok();
    }

    /// Each field's name and value, in printable ASCII.
    pub fn into_fields(self) -> [(&'static str, String); 2] {
        [(Self::POLICY, self.policy), (Self::STATE, self.state)]
    }
}

/// A structured field's string: printable ASCII only, so that other characters are escaped as in a URL.
fn quote(text: &mut String, name: &str) {
    text.push('"');
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => drop(write!(text, "%{byte:02X}")),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_string_that_a_header_can_carry() {
        for (name, expected) in
            [("per-ip", "\"per-ip\""), ("a\"b\\c", "\"a\\\"b\\\\c\""), ("é", "\"%C3%A9\"")]
        {
            let mut text = String::new();
            quote(&mut text, name);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn limits_are_members_of_one_list_in_whole_seconds() {
        let mut fields = RateLimitFields::default();
        fields.push("per-ip", 100, Some(60_000), 42, 1_300);
        fields.push("all", 7, None, 0, 0);
        let [(_, policy), (_, state)] = fields.into_fields();
        assert_eq!(policy, "\"per-ip\";q=100;w=60, \"all\";q=7");
        assert_eq!(state, "\"per-ip\";r=42;t=2, \"all\";r=0;t=0");
    }
}

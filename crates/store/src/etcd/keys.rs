//! Names in etcd: `<prefix>/<group, two hexadecimal digits>/<name>`.

use baton_core::{Group, Key};

/// Where the records are.
#[derive(Clone)]
pub(super) struct Keys {
    /// With a slash at its end.
    prefix: Vec<u8>,
}

impl Keys {
    pub fn under(prefix: &str) -> Self {
        Self { prefix: format!("{prefix}/").into_bytes() }
    }

    pub fn encode(&self, key: &Key) -> Vec<u8> {
        [&self.group(key.group)[..], &key.name].concat()
    }

    /// What the names of a group begin with.
    pub fn group(&self, group: Group) -> Vec<u8> {
        [&self.prefix[..], format!("{:02x}/", group.0).as_bytes()].concat()
    }

    /// `None` for what isn't a record.
    pub fn decode(&self, bytes: &[u8]) -> Option<Key> {
        let (group, name) = bytes.strip_prefix(&self.prefix[..])?.split_at_checked(3)?;
        let digits = std::str::from_utf8(group.strip_suffix(b"/")?).ok()?;
        Some(Key::new(Group(u8::from_str_radix(digits, 16).ok()?), name))
    }

    /// Put by commits that put nothing else. Not the name of a record.
    pub fn mark(&self) -> Vec<u8> {
        [&self.prefix[..], b"revision"].concat()
    }

    /// Everything of ours, as etcd has ranges.
    pub fn all(&self) -> (Vec<u8>, Vec<u8>) {
        (self.prefix.clone(), after_prefix(&self.prefix))
    }
}

/// The first name after all that begin with `prefix`; etcd reads a zero byte as "no end".
pub(super) fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    match prefix.iter().rposition(|byte| *byte != u8::MAX) {
        Some(last) => [&prefix[..last], &[prefix[last] + 1]].concat(),
        None => vec![0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_the_mark_is_none() {
        let keys = Keys::under("baton");
        let key = Key::new(Group(0xab), &b"\x00/x\xff"[..]);
        assert_eq!(keys.encode(&key), b"baton/ab/\x00/x\xff");
        assert_eq!(keys.decode(&keys.encode(&key)), Some(key));
        assert_eq!(keys.decode(&keys.mark()), None);
        assert_eq!(keys.decode(b"other/ab/x"), None);
    }

    #[test]
    fn a_range_ends_after_its_prefix() {
        assert_eq!(after_prefix(b"ab"), b"ac");
        assert_eq!(after_prefix(b"a\xff\xff"), b"b");
        assert_eq!(after_prefix(b"\xff"), [0]);
    }
}

//! What jobs and runs are called: a job by a number that edits keep, a run by its job, its nominal time and what set it off.

use crate::codec::{Decoder, Encoder, Unreadable};
use crate::lock::name::digest;
use crate::record::{Group, WallTime};
use alloc::string::String;
use core::fmt;

/// A job's number: made once, kept by every edit, never used again. Its first byte is the group of the job's records, so that
/// a run is found by its id alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Uid(pub u128);

impl Uid {
    /// Of random bytes, for a job whose records are in `group`.
    pub fn new(group: Group, mut random: [u8; 16]) -> Self {
        random[0] = group.0;
        Self(u128::from_be_bytes(random))
    }

    /// Where the job's records are.
    pub fn group(self) -> Group {
        Group(self.bytes()[0])
    }

    /// As it stands in records' names.
    pub fn bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

/// What set a run off.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Trigger {
    /// Its time had come.
    Schedule,
    /// Somebody asked for it.
    Manual,
    /// Somebody asked for a range of times.
    Backfill,
    /// Another job's run succeeded.
    Chain,
}

impl Trigger {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Schedule, Self::Manual, Self::Backfill, Self::Chain];

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Manual => "manual",
            Self::Backfill => "backfill",
            Self::Chain => "chain",
        }
    }

    fn letter(self) -> u8 {
        self.as_str().as_bytes()[0]
    }

    fn of_letter(letter: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|trigger| trigger.letter() == letter)
    }
}

/// A run among those of its job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunPlace {
    /// The time that it is for.
    pub nominal: WallTime,
    /// What set it off.
    pub trigger: Trigger,
    /// Tells those apart that were asked for at one time: a hash of the request, or of the run that set it off. Zero for what
    /// is told apart by its time.
    pub number: u64,
}

impl RunPlace {
    /// The occurrence of a schedule.
    pub fn scheduled(nominal: WallTime) -> Self {
        Self { nominal, trigger: Trigger::Schedule, number: 0 }
    }

    /// One that was asked for, by a request.
    pub fn manual(now: WallTime, request_id: &str) -> Self {
        let number = u64::from_be_bytes(digest(&[b"run", request_id.as_bytes()]));
        Self { nominal: now, trigger: Trigger::Manual, number }
    }

    /// The one that another job's run sets off.
    pub fn after(run: RunId) -> Self {
        let number = u64::from_be_bytes(digest(&[b"after", &run.uid.bytes(), &run.place.bytes()]));
        Self { nominal: run.place.nominal, trigger: Trigger::Chain, number }
    }

    /// As it stands in records' names: in the order of nominal times.
    pub fn bytes(self) -> [u8; 17] {
        let mut bytes = [0; 17];
        bytes[..8].copy_from_slice(&self.nominal.0.to_be_bytes());
        bytes[8] = self.trigger.letter();
        bytes[9..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Reads what stands in a record's name.
    pub fn of_bytes(bytes: &[u8; 17]) -> Option<Self> {
        let (nominal, rest) = bytes.split_first_chunk()?;
        let (letter, number) = rest.split_first()?;
        Some(Self {
            nominal: WallTime(u64::from_be_bytes(*nominal)),
            trigger: Trigger::of_letter(*letter)?,
            number: u64::from_be_bytes(number.try_into().ok()?),
        })
    }

    pub(super) fn write(self, to: Encoder) -> Encoder {
        to.fixed(&self.bytes())
    }

    pub(super) fn read(from: &mut Decoder<'_>) -> Result<Self, Unreadable> {
        Self::of_bytes(&from.fixed()?).ok_or(Unreadable)
    }
}

/// A run. All its attempts share it: it is what targets tell repetitions by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunId {
    /// Of which job.
    pub uid: Uid,
    /// Which of its runs.
    pub place: RunPlace,
}

impl RunId {
    /// Reads an id as it came over the wire.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (uid, nominal, last) = (parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_plain = uid.len() == 32 && is_hex(uid) && nominal.bytes().all(|byte| byte.is_ascii_digit());
        if !is_plain || parts.next().is_some() {
            return None;
        }
        let (letter, number) = (last.as_bytes().first()?, last.get(1..)?);
        let number = match number {
            "" => 0,
            hex if hex.len() == 16 && is_hex(hex) => u64::from_str_radix(hex, 16).ok()?,
            _ => return None,
        };
        let nominal = WallTime(nominal.parse().ok()?);
        let trigger = Trigger::of_letter(*letter)?;
        let uid = Uid(u128::from_str_radix(uid, 16).ok()?);
        let id = Self { uid, place: RunPlace { nominal, trigger, number } };
        // One run has one id: no zeros before the time.
        (alloc::format!("{id}") == text).then_some(id)
    }

    /// As it goes over the wire.
    pub fn text(self) -> String {
        alloc::format!("{self}")
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunPlace { nominal, trigger, number } = self.place;
        write!(f, "{:032x}-{}-{}", self.uid.0, nominal.0, char::from(trigger.letter()))?;
        if number == 0 { Ok(()) } else { write!(f, "{number:016x}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn any_place() -> impl Strategy<Value = RunPlace> {
        (any::<u64>(), 0..4_usize, any::<u64>()).prop_map(|(nominal, trigger, number)| RunPlace {
            nominal: WallTime(nominal),
            trigger: Trigger::ALL[trigger],
            number,
        })
    }

    proptest! {
        #[test]
        fn an_id_is_read_as_it_was_written(uid: u128, place in any_place()) {
            let id = RunId { uid: Uid(uid), place };
            prop_assert_eq!(RunId::parse(&id.text()), Some(id));
            prop_assert_eq!(RunPlace::of_bytes(&place.bytes()), Some(place));
        }

        #[test]
        fn runs_are_in_the_order_of_their_times(one in any_place(), other in any_place()) {
            if one.nominal != other.nominal {
                prop_assert_eq!(one.bytes().cmp(&other.bytes()), one.nominal.cmp(&other.nominal));
            }
        }

        #[test]
        fn what_is_no_id_is_none_and_never_a_panic(text in "\\PC{0,70}") {
            prop_assert_eq!(RunId::parse(&text).map(RunId::text).filter(|same| *same != text), None);
        }
    }

    #[test]
    fn a_run_has_one_id_only() {
        let id = RunId { uid: Uid(7), place: RunPlace::scheduled(WallTime(1_000)) };
        assert_eq!(id.text(), "00000000000000000000000000000007-1000-s");
        for other in [
            "7-1000-s",
            "00000000000000000000000000000007-01000-s",
            "00000000000000000000000000000007-+1000-s",
            "00000000000000000000000000000007-1000-x",
            "00000000000000000000000000000007-1000-s0000000000000000",
            "00000000000000000000000000000007-1000-s-",
            "0000000000000000000000000000000A-1000-s",
        ] {
            assert_eq!(RunId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_uid_says_which_group_its_job_is_in() {
        assert_eq!(Uid::new(Group(0xab), [7; 16]).group(), Group(0xab));
    }
}

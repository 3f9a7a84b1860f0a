//! Randomness: requestIds, the default owner, and jitter.

/// 128 bits as text: a requestId that nobody else makes, also after a fork.
pub(crate) fn request_id() -> String {
    let mut bytes = [0; 16];
    fill(&mut bytes);
    hex(&bytes)
}

/// Who we are by default: host, process and a few random digits, so that two clients of one process differ.
pub(crate) fn owner() -> String {
    let host = rustix::system::uname();
    let mut host: String = host.nodename().to_string_lossy().chars().filter(|c| !c.is_control()).collect();
    host.truncate(host.char_indices().map(|(at, _)| at).take_while(|at| *at <= 64).last().unwrap_or(0));
    let mut bytes = [0; 4];
    fill(&mut bytes);
    format!("{host}-{}-{}", std::process::id(), hex(&bytes))
}

/// A number from 0 to `max`, both included, for jitter.
pub(crate) fn up_to(max: u64) -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    let number = u64::from_le_bytes(bytes);
    max.checked_add(1).map_or(number, |range| number % range)
}

/// 128 bits as a number.
pub(crate) fn wide() -> u128 {
    let mut bytes = [0; 16];
    fill(&mut bytes);
    u128::from_le_bytes(bytes)
}

fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system gives randomness");
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_differ_and_fit_the_wire() {
        let (one, two) = (request_id(), request_id());
        assert_ne!(one, two);
        assert!(baton_api::limits::REQUEST_ID_BYTES.contains(&one.len()));
    }

    #[test]
    fn the_default_owner_fits_the_wire_and_names_this_process() {
        let owner = owner();
        assert!(owner.contains(&format!("-{}-", std::process::id())), "{owner}");
        assert!(baton_api::limits::check_text("ownerId", &owner, baton_api::limits::OWNER_BYTES).is_ok());
    }

    #[test]
    fn jitter_stays_within_its_bound() {
        assert_eq!(up_to(0), 0);
        assert!((0..1000).all(|_| up_to(7) <= 7));
    }
}

//! Where ids and secrets come from: the operating system, or a seed in simulations.

use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A source of random bytes.
#[derive(Clone)]
pub struct Random(Source);

#[derive(Clone)]
enum Source {
    System(Arc<Mutex<Pool>>),
    Seeded(Arc<Mutex<u64>>),
}

/// Random bytes asked for together, because asking is a system call. Each is given out once, and wiped.
struct Pool {
    bytes: [u8; POOL_BYTES],
    left: usize,
}

const POOL_BYTES: usize = 4096;

impl Pool {
    fn take(&mut self, into: &mut [u8]) {
        if self.left < into.len() {
            getrandom::fill(&mut self.bytes).expect("the operating system has randomness");
            self.left = POOL_BYTES;
        }
        let from = self.left - into.len();
        into.copy_from_slice(&self.bytes[from..self.left]);
        self.bytes[from..self.left].fill(0);
        self.left = from;
    }
}

impl Random {
    /// Unguessable.
    pub fn system() -> Self {
        Self(Source::System(Arc::new(Mutex::new(Pool { bytes: [0; POOL_BYTES], left: 0 }))))
    }

    /// The same for the same seed: for simulations only.
    pub fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(Arc::new(Mutex::new(seed))))
    }

    /// This many random bytes.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        match &self.0 {
            Source::System(pool) => pool.lock().expect("no panic while held").take(&mut bytes),
            Source::Seeded(state) => {
                let mut state = state.lock().expect("no panic while held");
                for chunk in bytes.chunks_mut(8) {
                    let word = split_mix(&mut state).to_le_bytes();
                    chunk.copy_from_slice(&word[..chunk.len()]);
                }
            }
        }
        bytes
    }

    /// About as long, by up to a quarter: so that nodes don't all do something at once.
    pub fn jittered(&self, length: Duration) -> Duration {
        length.mul_f64(0.75 + 0.5 * (self.number() as f64 / u64::MAX as f64))
    }

    /// A random number.
    pub fn number(&self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

/// SplitMix64: a counter through a mixer.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

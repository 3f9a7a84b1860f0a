//! What was admitted here under a `requestId`: sent again to this node, it counts once, as it does at the store.

use crate::limit::calls::{Answered, LimitError};
use std::collections::{HashMap, VecDeque};

/// As long as the store would remember it.
const MEMORY_MS: u64 = 60_000;
/// Requests remembered at once. Beyond it the oldest are forgotten: sent again, they count again.
const REPEATS_MAX: usize = 50_000;

/// What a node has answered by itself.
#[derive(Default)]
pub(crate) struct Repeats {
    answers: HashMap<[u8; 16], Answer>,
    order: VecDeque<(u64, [u8; 16])>,
}

struct Answer {
    digest: String,
    answered: Answered,
    until_ms: u64,
}

impl Repeats {
    pub fn remember(&mut self, id: [u8; 16], digest: String, answered: Answered, now_ms: u64) {
        if self.order.len() >= REPEATS_MAX
            && let Some((_, oldest)) = self.order.pop_front()
        {
            self.answers.remove(&oldest);
        }
        let until_ms = now_ms.saturating_add(MEMORY_MS);
        self.order.push_back((until_ms, id));
        self.answers.insert(id, Answer { digest, answered, until_ms });
    }

    /// What was answered, if it was; another question under the same id is refused.
    pub fn get(&self, id: &[u8; 16], digest: &str, now_ms: u64) -> Result<Option<Answered>, LimitError> {
        match self.answers.get(id).filter(|answer| now_ms < answer.until_ms) {
            None => Ok(None),
            Some(answer) if answer.digest != digest => Err(LimitError::RequestIdReused),
            Some(answer) => Ok(Some(answer.answered.clone())),
        }
    }

    pub fn forget_old(&mut self, now_ms: u64) {
        while let Some((_, id)) = self.order.pop_front_if(|(until_ms, _)| *until_ms <= now_ms) {
            // One that was answered anew after its time has a later end.
            if self.answers.get(&id).is_some_and(|answer| answer.until_ms <= now_ms) {
                self.answers.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(allowed: bool) -> Answered {
        Answered { allowed, indices: Vec::new(), checks: Vec::new(), refused: None }
    }

    #[test]
    fn an_answer_is_given_again_for_a_minute_and_to_the_same_question_only() {
        let mut repeats = Repeats::default();
        repeats.remember([1; 16], "a".into(), answered(true), 0);
        assert_eq!(repeats.get(&[1; 16], "a", MEMORY_MS - 1), Ok(Some(answered(true))));
        assert_eq!(repeats.get(&[1; 16], "b", 0), Err(LimitError::RequestIdReused));
        assert_eq!(repeats.get(&[2; 16], "a", 0), Ok(None));
        assert_eq!(repeats.get(&[1; 16], "a", MEMORY_MS), Ok(None));
        repeats.remember([1; 16], "a".into(), answered(false), MEMORY_MS);
        repeats.forget_old(MEMORY_MS);
        assert_eq!(repeats.get(&[1; 16], "a", MEMORY_MS), Ok(Some(answered(false))));
        repeats.forget_old(2 * MEMORY_MS);
        assert!(repeats.answers.is_empty() && repeats.order.is_empty());
    }

    #[test]
    fn at_the_bound_the_oldest_are_forgotten() {
        let mut repeats = Repeats::default();
        let id = |number: usize| (number as u128).to_be_bytes();
        for number in 0..=REPEATS_MAX {
            repeats.remember(id(number), "a".into(), answered(true), 0);
        }
        assert_eq!((repeats.answers.len(), repeats.order.len()), (REPEATS_MAX, REPEATS_MAX));
        assert_eq!(repeats.get(&id(0), "a", 0), Ok(None));
        assert!(repeats.get(&id(1), "a", 0).unwrap().is_some());
    }
}

//! Advice, with figures that are simulated where they can't be reckoned: about as much is wanted as there is.

use crate::plan::Plan;
use crate::world::run;
use baton_core::limit::advise::{Measured, Question};
use baton_core::limit::{Advice, Mechanism};

/// Checks simulated for one figure, at most: a second or two of computing for all of them. What needs more is said as "up to".
const CHECKS_MAX: u64 = 600_000;
/// What is not counted at the start: holders find out how much they need. Never less than a window.
const WARM_MS: u64 = 2_000;
/// How long it is looked at then, if there is room for it. Never less than a window.
const MEASURED_MS: u64 = 28_000;

/// What to choose, and why.
pub fn advise(question: &Question) -> Advice {
    baton_core::limit::advise(question, |mechanism| measured(question, mechanism))
}

/// What a mechanism does with this traffic. Keys are alike and know nothing of each other, so one of them stands for all.
fn measured(question: &Question, mechanism: Mechanism) -> Option<Measured> {
    let window_ms = question.definition.window_ms;
    let rate = (question.rate / question.keys.max(1)).max(1);
    let whole_ms = |ms: u64| ms.div_ceil(1_000).saturating_mul(1_000);
    let warm_ms = whole_ms(window_ms.max(WARM_MS));
    let room_ms = (CHECKS_MAX.saturating_mul(1_000) / rate).checked_sub(warm_ms)?;
    let windows = MEASURED_MS.min(room_ms) / window_ms.max(1);
    let least_ms = if windows == 0 { window_ms } else { windows * window_ms };
    let measured_ms = whole_ms(least_ms.max(1_000));
    if measured_ms > room_ms {
        return None;
    }
    let plan = Plan {
        duration_ms: warm_ms + measured_ms,
        latency_us: question.store_latency_us,
        ..Plan::new(rate, question.nodes, question.definition.clone())
    };
    let outcome = run(&plan, mechanism, &[], |_| {}).ok()?;
    let seconds = outcome.seconds.get(warm_ms as usize / 1_000..)?;
    let operations: u64 = seconds.iter().map(|second| second.store_operations).sum();
    let per_check = question.rate as f64 / rate as f64;
    Some(Measured {
        store_operations: per_check * operations as f64 / seconds.len() as f64,
        added_latency_us: outcome.added_latency_micros,
    })
}

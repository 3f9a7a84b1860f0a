//! Promises about time, on a machine that other tests keep busy too.

use std::time::Duration;

/// Something that took so long, and may take so long, is tried again if it was late: a machine may stand still for a moment, but what is
/// slow by itself is so each time.
pub async fn promptly(mut tried: impl AsyncFnMut() -> (Duration, Duration)) {
    let mut late = Vec::new();
    for _ in 0..3 {
        let (took, latest) = tried().await;
        if took <= latest {
            return;
        }
        late.push((took, latest));
    }
    panic!("late each time, by what it took and might take: {late:?}");
}

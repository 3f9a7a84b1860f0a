//! The way to the store: one charge, sent again only if that can't count twice.

use super::calls::LimitError;
use super::definitions::Current;
use crate::engine::Node;
use crate::failure::Failure;
use baton_core::meter::{Charged, Verdict};
use baton_core::{Name, WallTime};
use baton_store::{Charge, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The first pause before a charge of unknown outcome is sent again.
const RESEND_FIRST: Duration = Duration::from_millis(5);

/// How often a definition may change under one charge.
const NEWER_MAX: usize = 8;

impl Node {
    /// Charges meters. What has a memo is sent again while its outcome is unknown; what has none may have happened then.
    pub(super) async fn charge(&self, charge: &Charge, until: Instant) -> Result<Charged, Failure> {
        let (mut pause, mut unknown) = (RESEND_FIRST, false);
        loop {
            let started = Instant::now();
            let outcome = self.in_time_until(until, self.store.charge(charge.clone())).await;
            self.metrics.charge_seconds.observe(started.elapsed().as_secs_f64());
            match outcome {
                Ok(Ok(charged)) => {
                    // A memo's time is of the day it was written.
                    if !charged.repeated {
                        self.note_time(charged.now);
                    }
                    return Ok(charged);
                }
                Ok(Err(error @ StoreError::NotApplied { reason, .. })) => {
                    self.store_failed(&error);
                    return Err(Failure::of(reason, unknown));
                }
                Ok(Err(error @ StoreError::Unknown { .. })) => self.store_failed(&error),
                Err(_) => {}
            }
            unknown = true;
            if charge.memo.is_none() || Instant::now() + pause >= until {
                return Err(Failure::Unavailable { unknown });
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// Charges by definitions as they are known; if a meter follows a newer one, that is read first and all is done again.
    /// `charge` makes the charge of the definitions of `names`, in their order.
    pub(super) async fn charge_by(
        self: &Arc<Self>,
        names: &[&Name],
        until: Instant,
        charge: impl Fn(&[Current]) -> Result<Charge, LimitError>,
    ) -> Result<(Vec<Current>, Charge, Charged), LimitError> {
        let mut currents = Vec::with_capacity(names.len());
        for name in names {
            currents.push(self.definition(name, until).await?);
        }
        // A definition changes seldom: one that is newer than what was just read is one that came meanwhile.
        for _ in 0..names.len() + NEWER_MAX {
            let charge = charge(&currents)?;
            let charged = self.charge(&charge, until).await?;
            self.note_overshoot(names, &charge, &charged);
            let Verdict::Outdated { index, .. } = charged.verdict else {
                return Ok((currents, charge, charged));
            };
            let name = names.get(index).ok_or(Failure::Internal)?;
            currents[index] = self.read_definition(name, until).await?;
        }
        Err(Failure::Overloaded.into())
    }

    /// When something was counted, by the meter.
    pub(super) fn counted_at(charged: &Charged, index: usize) -> WallTime {
        charged.meters.get(index).map_or(charged.now, |charged| WallTime(charged.meter.at_ms))
    }
}

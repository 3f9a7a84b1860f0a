//! Checking tokens, looking at fences, forgetting one.

use crate::cursor::ListError;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::metrics::Metrics;
use baton_core::fence::{self, Check, Checked, FENCE, Fence, Tally, fence_key};
use baton_core::{Name, Record, WallTime};

/// A check, already within the limits on input.
#[derive(Clone, Debug)]
pub struct CheckCall {
    /// The token.
    pub token: u64,
    /// Whether it must be higher than any before.
    pub strict: bool,
    /// As whom.
    pub principal: baton_core::lock::Principal,
    /// Makes a repeated strict check give the same answer.
    pub request_id: Option<String>,
}

/// A fence that has seen a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FenceState {
    /// The resource.
    pub resource: String,
    /// The highest token so far.
    pub highest: u64,
    /// Since when.
    pub raised_at: WallTime,
    /// How many checks there were, about.
    pub tally: Tally,
}

/// A page of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FencePage {
    /// Fences.
    pub fences: Vec<FenceState>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

/// Why a call didn't do what it was asked to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FenceError {
    /// A higher token was seen, or the same in a strict check.
    Stale {
        /// The highest.
        highest: u64,
    },
    /// No token was ever checked.
    NotFound,
    /// A list's cursor that no list gave out.
    BadCursor,
    /// It couldn't be done.
    Failed(Failure),
}

impl From<Failure> for FenceError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Engine {
    /// Accepts a token that isn't lower than any before (higher, if strict), and remembers it.
    pub async fn check_fence(&self, name: &Name, call: CheckCall) -> Result<(), FenceError> {
        let node = &self.node;
        let request_id = call.request_id.unwrap_or_else(|| node.request_id());
        let id = fence::check_id(name, &call.principal, call.token, &request_id);
        let unwritten = node.tallies.of(name);
        let check = Check { token: call.token, strict: call.strict, id, unwritten };
        let rule = |view: &mut _| fence::check(name, &check, view, node.now());
        let checked = node.decide(name.group(), node.deadline(), rule).await;
        let outcome = match &checked {
            Ok(checked) => match checked.reply {
                Checked::Accepted { .. } => "accepted",
                Checked::Stale { .. } => "stale",
            },
            Err(failure) => failure.label(),
        };
        Metrics::count(&node.metrics.fence_checks, outcome);
        match checked?.reply {
            Checked::Accepted { raised: true } => {
                node.tallies.written(name, unwritten);
                Ok(())
            }
            Checked::Accepted { raised: false } => {
                node.tallies.add(name, Tally { accepted: 1, refused: 0 });
                Ok(())
            }
            Checked::Stale { highest } => {
                node.tallies.add(name, Tally { accepted: 0, refused: 1 });
                Err(FenceError::Stale { highest })
            }
        }
    }

    /// The highest token of a resource.
    pub async fn fence_state(&self, name: &Name) -> Result<FenceState, FenceError> {
        let mut reading = self.node.read(vec![fence_key(name)], self.node.deadline()).await?;
        let record = reading.records.pop().flatten().ok_or(FenceError::NotFound)?;
        self.shown(name, &record)
    }

    /// Fences of a namespace whose resources begin with `prefix`, in an order that is stable from page to page.
    pub async fn list_fences(
        &self,
        namespace: &str,
        prefix: &str,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<FencePage, FenceError> {
        let listed =
            self.node.list(FENCE, namespace, prefix, limit, cursor).await.map_err(|error| match error {
                ListError::BadCursor => FenceError::BadCursor,
                ListError::Failed(failure) => FenceError::Failed(failure),
            })?;
        let fences = listed.records.iter().map(|(name, record)| self.shown(name, record));
        let fences = fences.collect::<Result<_, _>>()?;
        Ok(FencePage { fences, next_cursor: listed.next_cursor })
    }

    /// Forgets a fence: from then on it accepts any token.
    pub async fn forget_fence(&self, name: &Name) -> Result<FenceState, FenceError> {
        let node = &self.node;
        let decided = node.decide(name.group(), node.deadline(), |view| fence::forget(name, view)).await?;
        let fence = decided.reply.ok_or(FenceError::NotFound)?;
        let state = self.state_of(name, &fence);
        node.tallies.forget(name);
        Ok(state)
    }

    fn shown(&self, name: &Name, record: &Record) -> Result<FenceState, FenceError> {
        let fence = Fence::decode(&record.value).map_err(|_| {
            tracing::error!("a record can't be read by this version");
            Failure::Internal
        })?;
        Ok(self.state_of(name, &fence))
    }

    fn state_of(&self, name: &Name, fence: &Fence) -> FenceState {
        FenceState {
            resource: name.key().into(),
            highest: fence.highest,
            raised_at: fence.raised_at,
            tally: fence.tally.plus(self.node.tallies.of(name)),
        }
    }
}

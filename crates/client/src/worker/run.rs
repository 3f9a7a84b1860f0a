//! A run that is ours: heard of in the background until it is completed or failed.

use super::Worker;
use crate::baton::{Baton, TRY_MAX};
use crate::clock::Moment;
use crate::error::Error;
use crate::held::{Held, encode};
use crate::lease::{Lease, LeaseLost, LossReason, margin};
use crate::path;
use crate::renewal::Renewal;
use crate::token::FencingToken;
use baton_api::worker::{
    ClaimedRun as Wire, EndRunRequest, EndRunResponse, HeartbeatRunRequest, HeartbeatRunResponse,
};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// Bytes of output that are sent: the last ones, as many as are kept.
const OUTPUT_BYTES_MAX: usize = 4 * 1024;
/// Bytes of a message that are sent: the first ones.
const MESSAGE_BYTES_MAX: usize = 512;

/// A run that is ours. Dropping it says in the background that the attempt failed.
pub struct ClaimedRun {
    run: WorkerRun,
    renewal: Arc<Renewal>,
    keeper: Option<AbortHandle>,
    done: bool,
}

/// A run, as the work that is done for it sees it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WorkerRun {
    said: Arc<Wire>,
    lease: Lease,
    baton: Baton,
}

impl WorkerRun {
    /// The run's id: the same for all attempts. Whoever does something twice can tell it by this.
    pub fn id(&self) -> &str {
        &self.said.run_id
    }

    /// The job's name.
    pub fn job(&self) -> &str {
        &self.said.job
    }

    /// The time that it is for: milliseconds since the Unix epoch.
    pub fn scheduled_at(&self) -> u64 {
        self.said.scheduled_at
    }

    /// Which attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.said.attempt
    }

    /// What the job says to its workers.
    pub fn payload(&self) -> &str {
        &self.said.payload
    }

    /// The attempt's token: give it to the resource, and let the resource refuse lower ones.
    pub fn fencing_token(&self) -> FencingToken {
        self.lease.fencing_token()
    }

    /// For how long the run is ours.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Shows with the run what it has written so far: the end of it, 4 KiB. It is also a word that the attempt lives; an error
    /// that [is about the lease](Error::is_lease_lost) means that it isn't ours any more.
    pub async fn report(&self, output: impl RunOutput) -> Result<(), Error> {
        let output = end_of(&output.into_output());
        let (fencing_token, lease_millis) = (self.said.fencing_token, self.said.lease_millis);
        let body = encode(&HeartbeatRunRequest { fencing_token, lease_millis, output: Some(output) })?;
        let path = path::at("runs", &self.said.run_id, "heartbeat", None);
        let deadline = Moment::now().after(self.baton.0.call_timeout).min(self.lease.deadline());
        let (reply, address) = self.baton.0.post(path, body, deadline, TRY_MAX).await?;
        match reply.read::<HeartbeatRunResponse>(&address) {
            Ok(_) => Ok(()),
            Err(failure) => match Error::from_failure(failure, false) {
                error if error.code() == Some(baton_api::ErrorCode::RunLost) => {
                    Err(self.lease.as_lost(LossReason::Expired).into())
                }
                error => Err(error),
            },
        }
    }

    /// How long the attempt may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.said.timeout_millis)
    }
}

/// What can be kept as a run's output: the end of it, 4 KiB.
pub trait RunOutput {
    /// As text.
    fn into_output(self) -> String;
}

impl RunOutput for () {
    fn into_output(self) -> String {
        String::new()
    }
}

impl RunOutput for String {
    fn into_output(self) -> String {
        self
    }
}

impl RunOutput for &'static str {
    fn into_output(self) -> String {
        self.into()
    }
}

impl RunOutput for Vec<u8> {
    fn into_output(self) -> String {
        String::from_utf8_lossy(&self).into_owned()
    }
}

impl ClaimedRun {
    /// A run as it came; `sent` is when the request left that was answered with it.
    pub(super) async fn new(worker: &Worker, said: Wire, sent: Moment) -> Result<Self, Error> {
        let received = Moment::now();
        let (key, fencing) = (said.run_id.as_str().into(), FencingToken::new(said.fencing_token));
        // Whatever the wait was, the store's lease can't outlive this.
        let lease = Lease::new(Held::Lock, key, fencing, received.after(worker.lease));
        let heartbeat = HeartbeatRunRequest {
            fencing_token: said.fencing_token,
            lease_millis: said.lease_millis,
            output: None,
        };
        let renewal = Arc::new(Renewal {
            baton: worker.baton.clone(),
            path: path::at("runs", &said.run_id, "heartbeat", None),
            body: encode(&heartbeat)?,
            ttl: worker.lease,
            lease: lease.clone(),
        });
        let run = WorkerRun { said: Arc::new(said), lease, baton: worker.baton.clone() };
        let mut claimed = Self { run, renewal, keeper: None, done: false };
        let mut sent = sent;
        if received.since(sent) > worker.lease / 10 {
            // A wait: the lease may be almost over, or seem to be. It is renewed before anyone sees it.
            sent = match claimed.renewal.renew().await {
                Ok(sent) => sent,
                Err(reason) => {
                    claimed.done = true;
                    return Err(claimed.run.lease.as_lost(reason).into());
                }
            };
        }
        let renewal = &claimed.renewal;
        renewal.lease.renewed(renewal.deadline(sent));
        let keeper = renewal.baton.0.runtime.spawn(renewal.clone().keep(sent));
        claimed.keeper = Some(keeper.abort_handle());
        Ok(claimed)
    }

    /// What the work needs to know.
    pub fn handle(&self) -> WorkerRun {
        self.run.clone()
    }

    /// The attempt succeeded. An error that [is about the lease](Error::is_lease_lost) means that it doesn't count: the run is
    /// another's, or was called off.
    pub async fn complete(self, output: impl RunOutput) -> Result<EndRunResponse, Error> {
        self.end("complete", None, output.into_output()).await
    }

    /// The attempt failed: another follows if the job says so.
    pub async fn fail(self, message: &str, output: impl RunOutput) -> Result<EndRunResponse, Error> {
        self.end("fail", Some(message), output.into_output()).await
    }

    /// Does the work, and says what came of it, for as long as the run is ours.
    pub(super) async fn carry_out<T: RunOutput, E: Display>(self, work: impl Future<Output = Result<T, E>>) {
        let lease = self.run.lease();
        // Should what is said not get through, the run's lease runs out.
        let _said = match lease.run(work).await {
            Ok(Ok(output)) => self.complete(output).await.map(drop),
            Ok(Err(error)) => self.fail(&error.to_string(), ()).await.map(drop),
            Err(lost) => {
                self.abandon();
                Err(lost.into())
            }
        };
    }

    /// Says nothing more of it, because it isn't ours any more. Should it be, it is another's when the lease is over.
    pub fn abandon(mut self) {
        self.done = true;
        self.stop();
    }

    /// Heartbeats go on until it is answered: only then is the attempt over.
    async fn end(
        mut self,
        action: &str,
        message: Option<&str>,
        output: String,
    ) -> Result<EndRunResponse, Error> {
        let body = encode(&self.end_request(message, &output))?;
        let baton = &self.renewal.baton.0;
        let deadline = Moment::now().after(baton.call_timeout);
        let answered = baton.post(self.path(action), body, deadline, TRY_MAX).await;
        // After an answer there is nothing left to say; without one it may have been heard.
        self.done = true;
        self.stop();
        let (reply, address) = answered?;
        let ended = reply.read(&address).map_err(|failure| Error::from_failure(failure, false));
        ended.map_err(|error| match error.code() {
            Some(baton_api::ErrorCode::RunLost) => self.lost_as(LossReason::Expired).into(),
            _ => error,
        })
    }

    fn lost_as(&self, reason: LossReason) -> LeaseLost {
        self.run.lease.as_lost(reason)
    }

    fn end_request(&self, message: Option<&str>, output: &str) -> EndRunRequest {
        EndRunRequest {
            fencing_token: self.run.said.fencing_token,
            message: message.map(|message| message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)].into()),
            output: Some(end_of(output)).filter(|output: &String| !output.is_empty()),
        }
    }

    fn path(&self, action: &str) -> String {
        path::at("runs", &self.run.said.run_id, action, None)
    }

    fn stop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.abort();
        }
        self.run.lease.end(LossReason::Released);
    }
}

/// As much of the end of an output as is kept.
fn end_of(output: &str) -> String {
    output[output.ceil_char_boundary(output.len().saturating_sub(OUTPUT_BYTES_MAX))..].into()
}

impl Drop for ClaimedRun {
    fn drop(&mut self) {
        // Once the lease has run out there is nothing to say.
        let deadline = self.run.lease.deadline().after(margin(self.renewal.ttl));
        self.stop();
        if !self.done {
            let (renewal, path) = (self.renewal.clone(), self.path("fail"));
            let request = self.end_request(Some("the worker dropped it"), "");
            let deadline = deadline.min(Moment::now().after(renewal.baton.0.call_timeout));
            self.renewal.baton.0.runtime.spawn(async move {
                let Ok(body) = encode(&request) else { return };
                // Nobody is left to be told; if it fails, the lease runs out.
                drop(renewal.baton.0.post(path, body, deadline, TRY_MAX).await);
            });
        }
    }
}

impl std::fmt::Debug for ClaimedRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimedRun").field("run", &self.run).finish_non_exhaustive()
    }
}

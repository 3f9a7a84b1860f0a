//! Taking the runs of jobs whose target is a worker (J7).

mod run;

pub use run::{ClaimedRun, RunOutput, WorkerRun};

use crate::baton::{Baton, TRY_MAX};
use crate::clock::{Moment, sleep_until};
use crate::error::Error;
use crate::held::encode;
use crate::limit::check_namespace;
use crate::path;
use baton_api::limits;
use baton_api::worker::{ClaimRunRequest, ClaimRunResponse};
use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long one call waits for a run; then it is made again.
const WAIT_CALL: Duration = Duration::from_secs(30);
/// Between calls that nothing came of sooner: a server that is about to stop doesn't wait.
const WAIT_PAUSE: Duration = Duration::from_millis(500);
/// How long a worker may not be heard of, unless it says otherwise.
const LEASE: Duration = Duration::from_secs(30);

/// A worker of a queue. Made by [`Baton::worker`].
///
/// ```no_run
/// # async fn example(baton: baton_client::Baton) -> Result<(), baton_client::Error> {
/// let worker = baton.worker("reports").concurrency(4);
/// worker
///     .run(|run| async move {
///         println!("{} for {}, token {}", run.job(), run.scheduled_at(), run.fencing_token());
///         Ok::<_, std::io::Error>("what is kept of its output")
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Worker {
    pub(super) baton: Baton,
    queue: Arc<str>,
    namespace: Option<Arc<str>>,
    owner: String,
    pub(super) lease: Duration,
    concurrency: usize,
}

impl Worker {
    pub(crate) fn new(baton: Baton, queue: Arc<str>) -> Self {
        let (namespace, owner) = (baton.0.namespace.clone(), baton.0.owner.clone());
        Self { baton, queue, namespace, owner, lease: LEASE, concurrency: 1 }
    }

    /// Another namespace than the client's.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Another owner than the client's, for runs to show.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = owner.into();
        self
    }

    /// How long this process may not be heard of before its runs are another's: 100 ms to an hour, by default 30 s. A live one
    /// says so at a third of it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How many runs at a time; by default one.
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.concurrency = runs.max(1);
        self
    }

    /// Takes a run, and waits for one for up to `wait`. Nothing if none came.
    pub async fn claim(&self, wait: Duration) -> Result<Option<ClaimedRun>, Error> {
        let request = self.request(wait)?;
        let deadline = Moment::now().after(wait + self.baton.0.call_timeout);
        let path = path::at("workers", &self.queue, "claim", self.namespace.as_deref());
        let (reply, address) = self.baton.0.post(path, encode(&request)?, deadline, wait + TRY_MAX).await?;
        let response: ClaimRunResponse =
            reply.read(&address).map_err(|failure| Error::from_failure(failure, false))?;
        match response.run {
            Some(run) => ClaimedRun::new(self, run, reply.sent).await.map(Some),
            None => Ok(None),
        }
    }

    /// Takes a run, however long that takes. A server that can't be reached is tried until it can be.
    pub async fn next(&self) -> Result<ClaimedRun, Error> {
        loop {
            let began = Moment::now();
            match self.claim(WAIT_CALL).await {
                Ok(Some(run)) => return Ok(run),
                Ok(None) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
            if Moment::now().since(began) < WAIT_PAUSE {
                sleep_until(began.after(WAIT_PAUSE)).await;
            }
        }
    }

    /// Does the work of every run that comes, for good. It ends with an error that no retry would mend.
    ///
    /// What the work returns is kept with the run: its output, or its error. When the run is lost or called off, the work is dropped
    /// where it stands.
    pub async fn run<Work, Doing, T, E>(&self, work: Work) -> Result<(), Error>
    where
        Work: Fn(WorkerRun) -> Doing,
        Doing: Future<Output = Result<T, E>> + Send + 'static,
        T: RunOutput + Send + 'static,
        E: Display + Send + 'static,
    {
        self.run_until(std::future::pending(), work).await
    }

    /// The same until `stop`: then no more runs are taken, and those under way are done first.
    pub async fn run_until<Work, Doing, T, E>(
        &self,
        stop: impl Future<Output = ()>,
        work: Work,
    ) -> Result<(), Error>
    where
        Work: Fn(WorkerRun) -> Doing,
        Doing: Future<Output = Result<T, E>> + Send + 'static,
        T: RunOutput + Send + 'static,
        E: Display + Send + 'static,
    {
        let mut stop = pin!(stop);
        let mut under_way = JoinSet::new();
        // Asked for to the end, whatever else happens: an answer that nobody reads would be a run that nobody has.
        let mut next = Box::pin(self.next());
        let ended = loop {
            let has_room = under_way.len() < self.concurrency;
            tokio::select! {
                biased;
                () = &mut stop => break Ok(()),
                Some(_) = under_way.join_next(), if !under_way.is_empty() => {}
                run = &mut next, if has_room => match run {
                    Ok(run) => {
                        let doing = work(run.handle());
                        under_way.spawn_on(run.carry_out(doing), &self.baton.0.runtime);
                        next = Box::pin(self.next());
                    }
                    Err(error) => break Err(error),
                },
            }
        };
        drop(next);
        while under_way.join_next().await.is_some() {}
        ended
    }

    fn request(&self, wait: Duration) -> Result<ClaimRunRequest, Error> {
        limits::check_name("queue", &self.queue).map_err(Error::refused)?;
        check_namespace(self.namespace.as_deref())?;
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let request = ClaimRunRequest {
            owner_id: self.owner.clone(),
            lease_millis: millis(self.lease),
            wait_timeout_millis: Some(millis(wait)).filter(|wait| *wait > 0),
        };
        request.check().map_err(Error::refused)?;
        Ok(request)
    }
}

/// Whether it is worth asking again.
fn is_passing(error: &Error) -> bool {
    // Lost before anyone saw it: it is another's, and there will be others.
    error.is_unavailable() || error.is_unreachable() || error.is_unknown() || error.is_lease_lost()
}

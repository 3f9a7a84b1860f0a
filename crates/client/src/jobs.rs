//! Jobs to define, to run and to look at, and what became of their runs.

use crate::baton::{Baton, TRY_MAX};
use crate::clock::Moment;
use crate::connection::Ask;
use crate::error::Error;
use crate::held::encode;
use crate::limit::check_namespace;
use crate::locks::ListQuery;
use crate::{path, random};
use baton_api::job::{
    BackfillRequest, BackfillResponse, CancelRunRequest, JobDefinition, JobList, JobStatus, Missed,
    PauseJobRequest, RemoveJobResponse, ResumeJobRequest, Run, RunJobRequest, RunJobResponse, RunList,
};
use baton_api::{ErrorCode, limits};
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at a run that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Jobs to define and to look at. Made by [`Baton::jobs`].
///
/// ```no_run
/// # async fn example(baton: baton_client::Baton) -> Result<(), baton_client::Error> {
/// use baton_client::wire_job::{JobDefinition, JobTarget, WorkerTarget};
///
/// let target = JobTarget::Worker(WorkerTarget { queue: "reports".into(), payload: None });
/// let nightly = JobDefinition { schedule: Some("30 2 * * *".into()), ..JobDefinition::new(target) };
/// baton.jobs().put("nightly-report", &nightly).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Jobs {
    baton: Baton,
    namespace: Option<Arc<str>>,
}

/// A job to run, to pause, to look at. Made by [`Baton::job`].
#[derive(Clone, Debug)]
pub struct Job {
    jobs: Jobs,
    name: String,
}

impl Jobs {
    pub(crate) fn new(baton: Baton) -> Self {
        Self { namespace: baton.0.namespace.clone(), baton }
    }

    /// Another namespace than the client's.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Defines a job, or changes it: what is under way goes on, and no time fires twice. One that says the same changes nothing.
    pub async fn put(&self, name: &str, definition: &JobDefinition) -> Result<JobStatus, Error> {
        definition.check().map_err(Error::refused)?;
        let ask = Ask { method: Method::PUT, path: self.path(name, "")?, body: encode(definition)? };
        self.repeat(&ask).await
    }

    /// A job as it stands; nothing if there is none.
    pub async fn get(&self, name: &str) -> Result<Option<JobStatus>, Error> {
        let (reply, address) = self.baton.0.get(self.path(name, "")?).await?;
        match reply.read(&address).map_err(|failure| Error::from_failure(failure, false)) {
            Ok(status) => Ok(Some(status)),
            Err(error) if error.code() == Some(ErrorCode::JobNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One page of the jobs.
    pub async fn list(&self, query: &ListQuery) -> Result<JobList, Error> {
        check_namespace(self.namespace.as_deref())?;
        let limit = checked_limit(query.limit)?;
        let parameters = [
            ("namespace", self.namespace.as_deref()),
            ("prefix", query.prefix.as_deref()),
            ("limit", limit.as_deref()),
            ("cursor", query.cursor.as_deref()),
        ];
        self.look(path::with_query("/v1/jobs".into(), &parameters)).await
    }

    /// Removes a job and what became of its runs; whether there was one.
    pub async fn remove(&self, name: &str) -> Result<bool, Error> {
        // Sent once: a repeated one could remove what has been defined since.
        let ask = Ask { method: Method::DELETE, path: self.path(name, "")?, body: Default::default() };
        let (reply, address) = self.baton.0.send_once(&ask).await?;
        match reply.read::<RemoveJobResponse>(&address) {
            Ok(_) => Ok(true),
            Err(failure) => match Error::from_failure(failure, false) {
                error if error.code() == Some(ErrorCode::JobNotFound) => Ok(false),
                error => Err(error),
            },
        }
    }

    /// A run, by its id.
    pub async fn run(&self, id: &str) -> Result<Run, Error> {
        self.look(run_path(id, "")?).await
    }

    /// Calls a run off; whoever runs it finds its lease gone.
    pub async fn cancel(&self, id: &str) -> Result<Run, Error> {
        self.post(run_path(id, "cancel")?, &CancelRunRequest {}).await
    }

    /// Waits until a run has ended.
    pub async fn wait(&self, id: &str) -> Result<Run, Error> {
        loop {
            let run = self.run(id).await?;
            if run.ended_at.is_some() {
                return Ok(run);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn path(&self, name: &str, action: &str) -> Result<String, Error> {
        limits::check_name("name", name).map_err(Error::refused)?;
        check_namespace(self.namespace.as_deref())?;
        Ok(path::at("jobs", name, action, self.namespace.as_deref()))
    }

    async fn look<T: DeserializeOwned>(&self, path: String) -> Result<T, Error> {
        let (reply, address) = self.baton.0.get(path).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }

    async fn repeat<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, Error> {
        let deadline = Moment::now().after(self.baton.0.call_timeout);
        let (reply, address) = self.baton.0.repeat(ask, deadline).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }

    async fn post<T: DeserializeOwned>(&self, path: String, body: &impl Serialize) -> Result<T, Error> {
        let deadline = Moment::now().after(self.baton.0.call_timeout);
        let (reply, address) = self.baton.0.post(path, encode(body)?, deadline, TRY_MAX).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }
}

impl Job {
    pub(crate) fn new(baton: Baton, name: String) -> Self {
        Self { jobs: Jobs::new(baton), name }
    }

    /// Another namespace than the client's.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.jobs = self.jobs.namespace(namespace);
        self
    }

    /// Runs it now, and gives the run's id. A call that is repeated because its answer got lost runs it once.
    pub async fn run(&self) -> Result<String, Error> {
        self.run_as(random::request_id()).await
    }

    /// The same with a requestId of your own: the same one gives the same run, also from another process.
    pub async fn run_as(&self, request_id: impl Into<String>) -> Result<String, Error> {
        let request = RunJobRequest { request_id: Some(request_id.into()) };
        request.check().map_err(Error::refused)?;
        let asked: RunJobResponse = self.jobs.post(self.path("run")?, &request).await?;
        Ok(asked.run_id)
    }

    /// Its schedule doesn't count until it is resumed; what runs goes on.
    pub async fn pause(&self) -> Result<JobStatus, Error> {
        self.jobs.post(self.path("pause")?, &PauseJobRequest {}).await
    }

    /// Its schedule counts again. `missed` says what happens to the times that passed meanwhile, or else the job does.
    pub async fn resume(&self, missed: Option<Missed>) -> Result<JobStatus, Error> {
        self.jobs.post(self.path("resume")?, &ResumeJobRequest { missed }).await
    }

    /// Runs the times of its schedule from one moment to before another, in milliseconds since the Unix epoch, one after the
    /// other. How many they are.
    pub async fn backfill(&self, from: u64, to: u64) -> Result<u64, Error> {
        let request = BackfillRequest { from, to };
        request.check().map_err(Error::refused)?;
        let planned: BackfillResponse = self.jobs.post(self.path("backfill")?, &request).await?;
        Ok(planned.times)
    }

    /// One page of its runs, the newest first.
    pub async fn runs(&self, limit: Option<u64>, cursor: Option<&str>) -> Result<RunList, Error> {
        let limit = checked_limit(limit)?;
        let path = path::at("jobs", &self.name, "runs", None);
        let parameters =
            [("namespace", self.jobs.namespace.as_deref()), ("limit", limit.as_deref()), ("cursor", cursor)];
        self.jobs.look(path::with_query(path, &parameters)).await
    }

    fn path(&self, action: &str) -> Result<String, Error> {
        self.jobs.path(&self.name, action)
    }
}

fn run_path(id: &str, action: &str) -> Result<String, Error> {
    limits::check_name("runId", id).map_err(Error::refused)?;
    Ok(path::at("runs", id, action, None))
}

fn checked_limit(limit: Option<u64>) -> Result<Option<String>, Error> {
    if let Some(limit) = limit {
        limits::check_number("limit", limit, limits::LIST_LIMIT).map_err(Error::refused)?;
    }
    Ok(limit.map(|limit| limit.to_string()))
}

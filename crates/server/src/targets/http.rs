//! Sending a job's request.
//!
//! A request is sent once in an attempt, whatever happens to its connection: whether it may be sent again is for the job's guarantee to
//! say, and for the scheduler to record. Only a request of which no byte left goes out on another connection. What may be sent
//! once has a fresh connection, which can't have gone stale (J3).

use super::allow::Allowed;
use super::connect::{Connection, Connector, Origin};
use super::pool::{Pool, Taken, Turn};
use baton_core::job::{AttemptEnd, Guarantee, Http, signature};
use baton_engine::job::{Attempt, Ran};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Request, Response, StatusCode, Uri};
use std::time::Duration;
use tokio::time::timeout;

/// Bytes of an answer that are read; the end of them is kept. The connection of a longer one is closed.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How long the rest of an answer may take after its status, which is what counts.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Header fields that say how a request is sent, which is not for a job to say.
const OURS: [&str; 8] = [
    "connection",
    "content-length",
    "host",
    "idempotency-key",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
];
/// How many of them Baton sets.
const FIELDS: usize = 9;

/// Sends requests.
pub(super) struct Sender {
    connector: Connector,
    pool: Pool,
}

impl Sender {
    pub fn new(allowed: Vec<Allowed>) -> Self {
        Self { connector: Connector::new(allowed), pool: Pool::default() }
    }

    /// Makes an attempt.
    pub async fn send(&self, attempt: &Attempt, http: &Http) -> Ran {
        match self.exchange(attempt, http).await {
            Ok(ran) => ran,
            Err(message) => Ran::Ended(AttemptEnd::failed(&message)),
        }
    }

    async fn exchange(&self, attempt: &Attempt, http: &Http) -> Result<Ran, String> {
        let uri: Uri = http.url.parse().map_err(|error| format!("the URL can't be used: {error}"))?;
        let origin = Origin::of(&uri)?;
        let mut request = request(attempt, http, &uri)?;
        // What may be sent once isn't sent where nobody could say whether it arrived.
        let is_fresh = attempt.definition.guarantee == Guarantee::AtMostOnce;
        let (mut connection, mut turn) = match self.pool.get(&origin, &self.connector, is_fresh).await? {
            Taken::Fresh(connection, turn) => (connection, turn),
            Taken::Used(mut connection, mut turn) => {
                in_time(attempt)?;
                let answer = connection.try_send_request(request);
                attempt.is_sent();
                match Turn::lasting_for(&mut turn, answer).await {
                    Ok(response) => return Ok(self.answered(&origin, connection, turn, response).await),
                    Err(mut error) => match error.take_message() {
                        Some(unsent) => {
                            request = unsent;
                            (self.connector.connect(&origin).await?, turn)
                        }
                        None => return Err(error.into_error().to_string()),
                    },
                }
            }
        };
        in_time(attempt)?;
        let answer = connection.send_request(request);
        attempt.is_sent();
        let response = Turn::lasting_for(&mut turn, answer).await.map_err(|error| error.to_string())?;
        Ok(self.answered(&origin, connection, turn, response).await)
    }

    /// What an answer means. Its status is what counts; how much of its body comes doesn't.
    async fn answered(
        &self,
        origin: &Origin,
        connection: Connection,
        mut turn: Option<Turn>,
        response: Response<Incoming>,
    ) -> Ran {
        let status = response.status();
        let (output, is_whole) = Turn::lasting_for(&mut turn, read(response.into_body())).await;
        if is_whole {
            self.pool.keep(origin, connection, turn);
        }
        if status == StatusCode::ACCEPTED {
            return Ran::Taken;
        }
        let message = match status {
            status if status.is_redirection() => format!("{status}: redirects aren't followed"),
            status => status.to_string(),
        };
        Ran::Ended(AttemptEnd {
            succeeded: status.is_success(),
            reason: None,
            message,
            output: output.into(),
        })
    }
}

/// Where requests of a job go to: what they wait for together.
pub(super) fn destination(http: &Http) -> Option<String> {
    let uri: Uri = http.url.parse().ok()?;
    Some(Origin::of(&uri).ok()?.text())
}

/// Looked at right before it is sent: it may have waited for a connection, or this process slept, and the run isn't its own any more.
fn in_time(attempt: &Attempt) -> Result<(), String> {
    if attempt.is_over() { Err("it was too late to send it".into()) } else { Ok(()) }
}

/// The beginning of a body, and whether that is all of it.
async fn read(mut body: Incoming) -> (Vec<u8>, bool) {
    let mut read = Vec::new();
    let whole = timeout(ANSWER_MAX, async {
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            if let Some(data) = frame.data_ref() {
                read.extend_from_slice(&data[..data.len().min(ANSWER_BYTES_MAX - read.len())]);
            }
            if read.len() >= ANSWER_BYTES_MAX {
                return false;
            }
        }
        true
    });
    let is_whole = whole.await.unwrap_or(false);
    (read, is_whole)
}

fn request(attempt: &Attempt, http: &Http, uri: &Uri) -> Result<Request<Full<Bytes>>, String> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let mut request = Request::builder()
        .method(http.method.as_str())
        .uri(path)
        .header(USER_AGENT, concat!("baton/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(Bytes::copy_from_slice(http.body.as_bytes())))
        .map_err(|error| error.to_string())?;
    let headers = request.headers_mut();
    headers.reserve(FIELDS + http.headers.len());
    for (name, value) in &http.headers {
        let field: HeaderName = name.parse().map_err(|_| format!("{name:?} is no header field"))?;
        if OURS.contains(&field.as_str()) || field.as_str().starts_with("x-baton-") {
            return Err(format!("the header field {name:?} is Baton's to set; remove it from the job"));
        }
        headers
            .insert(field, HeaderValue::from_str(value).map_err(|_| format!("{name:?} has a wrong value"))?);
    }
    let said = [
        (HOST, host.to_owned()),
        (HeaderName::from_static("idempotency-key"), attempt.run.text()),
        (HeaderName::from_static("x-baton-fencing-token"), attempt.fencing.0.to_string()),
        (HeaderName::from_static("x-baton-scheduled-at"), attempt.run.place.nominal.0.to_string()),
        (HeaderName::from_static("x-baton-namespace"), attempt.job.namespace().to_owned()),
        (HeaderName::from_static("x-baton-job"), attempt.job.key().to_owned()),
        (HeaderName::from_static("x-baton-attempt"), attempt.attempt.to_string()),
    ];
    for (field, value) in said {
        let value = HeaderValue::from_maybe_shared(Bytes::from(value)).map_err(|error| error.to_string())?;
        headers.insert(field, value);
    }
    if let Some(secret) = &http.secret {
        let said = signature(secret, crate::server::now(), http.body.as_bytes());
        let said = HeaderValue::from_str(&said).map_err(|error| error.to_string())?;
        headers.insert(HeaderName::from_static("x-baton-signature"), said);
    }
    Ok(request)
}

//! Booking a time instead of being refused.

use super::check::send;
use super::{Limit, Receipt};
use crate::clock::{Moment, sleep_until};
use crate::error::Error;
use crate::held::encode;
use crate::random;
use baton_api::ErrorCode;
use baton_api::limit::{ReserveRequest, ReserveResponse};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A reservation to make: await it. Made by [`Limit::reserve`]. Sent once, unless it says otherwise.
#[derive(Clone, Debug)]
#[must_use = "nothing is booked before it is awaited"]
pub struct Reserve {
    limit: Limit,
    key: Arc<str>,
    cost: u64,
    wait_max: Duration,
    request_id: Option<String>,
}

/// What came of it.
#[derive(Debug)]
#[must_use = "it may be a no"]
pub enum Reserved {
    /// There is a time.
    Booked(Reservation),
    /// There is none near enough, and nothing was booked.
    Refused {
        /// After how long a check is worth trying.
        retry_after: Option<Duration>,
    },
}

impl Reserved {
    /// The time, if there is one.
    pub fn booked(self) -> Option<Reservation> {
        match self {
            Self::Booked(reservation) => Some(reservation),
            Self::Refused { .. } => None,
        }
    }
}

/// A time to go on at. It is counted already: dropping it changes nothing, [`cancel`](Self::cancel) gives it back.
#[derive(Clone, Debug)]
pub struct Reservation {
    wait: Duration,
    from: Moment,
    receipt: Receipt,
}

impl Reserve {
    pub(super) fn new(limit: Limit, key: Arc<str>, wait_max: Duration) -> Self {
        Self { limit, key, cost: 1, wait_max, request_id: None }
    }

    /// How much it uses: at least 1, and no more than the limit holds at once.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Sends it again until it is answered, under a requestId of its own, so that it books once.
    pub fn retry(self) -> Self {
        let id = random::request_id();
        self.request_id(id)
    }

    /// The same under a requestId of yours: the same one within a minute is the same reservation.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    async fn send(self) -> Result<Reserved, Error> {
        self.limit.check_names()?;
        let Self { limit, key, cost, wait_max, request_id } = self;
        let is_repeatable = request_id.is_some();
        let max_wait_millis = u64::try_from(wait_max.as_millis()).unwrap_or(u64::MAX);
        let request = ReserveRequest { key: key.to_string(), cost, max_wait_millis, request_id };
        request.check().map_err(Error::refused)?;
        let (path, body) = (limit.path("reserve"), encode(&request)?);
        let (reply, address) = send(&limit.baton.0, path, body, is_repeatable).await?;
        let read = reply.read::<ReserveResponse>(&address);
        let response = match read.map_err(|failure| Error::from_failure(failure, false)) {
            Ok(response) => response,
            Err(error) if error.code() == Some(ErrorCode::LimitExceeded) => {
                let retry_after = error.body().and_then(|body| body.retry_after_millis);
                return Ok(Reserved::Refused { retry_after: retry_after.map(Duration::from_millis) });
            }
            Err(error) => return Err(error),
        };
        Ok(Reserved::Booked(Reservation {
            wait: Duration::from_millis(response.wait_millis),
            // The answer was on its way for a while: rather late than early.
            from: Moment::now(),
            receipt: Receipt::new(limit, key, response.reservation_id),
        }))
    }
}

impl IntoFuture for Reserve {
    type Output = Result<Reserved, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl Reservation {
    /// How long to wait, from when the answer came; nothing if it may go on at once.
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// Returns when it may go on.
    pub async fn ready(&self) {
        sleep_until(self.from.after(self.wait)).await;
    }

    /// Gives it back. How much: nothing once its time is over.
    pub async fn cancel(self) -> Result<u64, Error> {
        self.receipt.refund().await
    }

    /// Its id, to cancel it elsewhere with [`Limit::refund`].
    pub fn reveal(&self) -> &str {
        self.receipt.reveal()
    }
}

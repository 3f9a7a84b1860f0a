//! A fence on objects: the token travels in an object's metadata, and the store compares the version that was read with
//! the one it replaces (F2).
//!
//! S3 (`If-Match`, `If-None-Match: *`), Google Cloud Storage (`ifGenerationMatch`) and Azure (`If-Match`) can do that.
//! With the feature `object-store`, every store of the `object_store` crate that has conditional puts is one.

use super::refusal::{Refused, StaleToken};
use crate::FencingToken;
use bytes::Bytes;

/// How often a put starts anew because another one came in between. Whoever holds the lock writes alone, so that more
/// than a few of them are several writers with the same token.
const ROUNDS_MAX: usize = 16;

/// A store of objects that can put on a condition.
#[allow(async_fn_in_trait, reason = "a put's future is awaited where it is made")]
pub trait Objects {
    /// What changes with every put: an ETag, a generation.
    type Version;
    /// How the store fails. A failed put may have happened.
    type Error;

    /// An object's version and the token that it was put with, as one consistent answer; nothing if there is no object.
    /// An object without a token counts as 0.
    async fn head(&self, key: &str) -> Result<Option<(Self::Version, u64)>, Self::Error>;

    /// Puts an object with a token in its metadata, if its version is still `expected` (nothing: if there still is no
    /// object). Gives `false` if it isn't.
    async fn put_if(
        &self,
        key: &str,
        body: Bytes,
        token: u64,
        expected: Option<Self::Version>,
    ) -> Result<bool, Self::Error>;
}

/// Why a fenced put didn't happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PutError<E> {
    /// The store failed. The put may have happened.
    Store(E),
    /// Others with the same token put faster, 16 times in a row; nothing was written. Write from one place.
    Contended,
}

impl<E: std::fmt::Display> std::fmt::Display for PutError<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Contended => f.write_str("others put the same object at the same time, again and again"),
        }
    }
}

impl<E: std::error::Error> std::error::Error for PutError<E> {}

/// Puts an object unless one with a higher token is there. Two requests if nothing interferes.
///
/// A deleted object forgets its fence: put an empty one instead.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use baton_client::fence::{FencingToken, Objects, put_fenced};
/// # use std::{collections::HashMap, convert::Infallible, sync::Mutex};
/// #
/// # /// Generation, token and body of each object.
/// # #[derive(Default)]
/// # struct Bucket(Mutex<HashMap<String, (u64, u64, bytes::Bytes)>>);
/// #
/// # impl Objects for Bucket {
/// #     type Version = u64;
/// #     type Error = Infallible;
/// #     async fn head(&self, key: &str) -> Result<Option<(u64, u64)>, Infallible> {
/// #         Ok(self.0.lock().unwrap().get(key).map(|(generation, token, _)| (*generation, *token)))
/// #     }
/// #     async fn put_if(&self, key: &str, body: bytes::Bytes, token: u64, expected: Option<u64>) -> Result<bool, Infallible> {
/// #         let mut objects = self.0.lock().unwrap();
/// #         let generation = objects.get(key).map(|(generation, ..)| *generation);
/// #         if generation == expected {
/// #             objects.insert(key.to_owned(), (generation.unwrap_or(0) + 1, token, body));
/// #         }
/// #         Ok(generation == expected)
/// #     }
/// # }
///
/// let bucket = Bucket::default();     // implements Objects, on whatever client you have
/// put_fenced(&bucket, "report.csv", FencingToken::new(34), "a,b,c").await?;
/// let late = put_fenced(&bucket, "report.csv", FencingToken::new(33), "x,y,z").await.unwrap_err();
/// assert_eq!(late.stale().map(|stale| stale.highest), Some(Some(34)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub async fn put_fenced<O: Objects + ?Sized>(
    objects: &O,
    key: &str,
    token: FencingToken,
    body: impl Into<Bytes>,
) -> Result<(), Refused<PutError<O::Error>>> {
    let failed = |error| Refused::Failed(PutError::Store(error));
    let body = body.into();
    for _ in 0..ROUNDS_MAX {
        let found = objects.head(key).await.map_err(failed)?;
        let version = match found {
            Some((_, highest)) if highest > token.get() => {
                return Err(StaleToken::new(token, Some(highest)).into());
            }
            Some((version, _)) => Some(version),
            None => None,
        };
        if objects.put_if(key, body.clone(), token.get(), version).await.map_err(failed)? {
            return Ok(());
        }
    }
    Err(Refused::Failed(PutError::Contended))
}

#[cfg(test)]
#[cfg(feature = "object-store")]
mod tests {
    use super::*;
    use ::object_store::ObjectStoreExt;
    use ::object_store::memory::InMemory;
    use std::sync::Arc;

    fn store() -> Arc<dyn ::object_store::ObjectStore> {
        Arc::new(InMemory::new())
    }

    async fn put(
        store: &dyn ::object_store::ObjectStore,
        token: u64,
        body: &'static str,
    ) -> Result<(), Option<u64>> {
        let put = put_fenced(store, "report.csv", FencingToken::new(token), body).await;
        put.map_err(|refused| refused.stale().expect("the store doesn't fail").highest)
    }

    async fn body(store: &dyn ::object_store::ObjectStore) -> Bytes {
        store.get(&"report.csv".into()).await.unwrap().bytes().await.unwrap()
    }

    #[tokio::test]
    async fn a_put_with_a_lower_token_is_refused_and_the_object_stays() {
        let store = store();
        assert_eq!(put(&*store, 34, "first").await, Ok(()));
        assert_eq!(put(&*store, 34, "again").await, Ok(()));
        assert_eq!(put(&*store, 33, "late").await, Err(Some(34)));
        assert_eq!(body(&*store).await, "again");
        assert_eq!(put(&*store, 35, "next").await, Ok(()));
        assert_eq!(body(&*store).await, "next");
    }

    #[tokio::test]
    async fn an_object_whose_token_can_not_be_read_is_not_replaced() {
        let store = store();
        let mut options = ::object_store::PutOptions::default();
        options.attributes.insert(::object_store::Attribute::Metadata("baton-token".into()), "x".into());
        store.put_opts(&"report.csv".into(), "odd".into(), options).await.unwrap();
        assert_eq!(put(&*store, 34, "first").await, Err(Some(u64::MAX)));
    }

    /// Lets someone else put between the look and the put, once or every time.
    struct Interrupted {
        inner: Arc<dyn ::object_store::ObjectStore>,
        others: std::sync::Mutex<Vec<u64>>,
    }

    impl Objects for Interrupted {
        type Version = ::object_store::UpdateVersion;
        type Error = ::object_store::Error;

        async fn head(&self, key: &str) -> Result<Option<(Self::Version, u64)>, Self::Error> {
            Objects::head(&*self.inner, key).await
        }

        async fn put_if(
            &self,
            key: &str,
            body: Bytes,
            token: u64,
            expected: Option<Self::Version>,
        ) -> Result<bool, Self::Error> {
            let other = self.others.lock().unwrap().pop();
            if let Some(other) = other {
                put_fenced(&*self.inner, key, FencingToken::new(other), "other").await.unwrap();
            }
            Objects::put_if(&*self.inner, key, body, token, expected).await
        }
    }

    #[tokio::test]
    async fn a_higher_token_that_comes_between_look_and_put_wins() {
        let objects = Interrupted { inner: store(), others: vec![35].into() };
        let late = put_fenced(&objects, "report.csv", FencingToken::new(34), "late").await.unwrap_err();
        assert_eq!(late.stale().map(|stale| stale.highest), Some(Some(35)));
        assert_eq!(body(&*objects.inner).await, "other");
        // And with an object that was there before.
        objects.others.lock().unwrap().push(37);
        let late = put_fenced(&objects, "report.csv", FencingToken::new(36), "late").await.unwrap_err();
        assert_eq!(late.stale().map(|stale| stale.highest), Some(Some(37)));
        // A lower one in between costs a round, and no more.
        objects.others.lock().unwrap().push(37);
        put_fenced(&objects, "report.csv", FencingToken::new(38), "next").await.unwrap();
        assert_eq!(body(&*objects.inner).await, "next");
    }

    #[tokio::test]
    async fn a_put_that_others_keep_overtaking_gives_up_without_having_written() {
        let objects = Interrupted { inner: store(), others: vec![34; ROUNDS_MAX].into() };
        let refused = put_fenced(&objects, "report.csv", FencingToken::new(34), "mine").await.unwrap_err();
        assert!(matches!(refused, Refused::Failed(PutError::Contended)), "{refused}");
        assert_eq!(body(&*objects.inner).await, "other");
    }
}

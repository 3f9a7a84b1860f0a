//! Every store of the `object_store` crate that has conditional puts (feature `object-store`).

use super::object::Objects;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{Attribute, Error, GetOptions, ObjectStore, PutMode, PutOptions, UpdateVersion};

/// Where the token is kept: in the object's metadata, under this name.
const TOKEN: &str = "baton-token";

impl Objects for dyn ObjectStore {
    type Version = UpdateVersion;
    type Error = Error;

    async fn head(&self, key: &str) -> Result<Option<(UpdateVersion, u64)>, Error> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        let found = match self.get_opts(&Path::from(key), options).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let token = match found.attributes.get(&Attribute::Metadata(TOKEN.into())) {
            None => 0,
            // What can't be read can't be compared: nobody gets past it.
            Some(token) => token.parse().unwrap_or(u64::MAX),
        };
        let version = UpdateVersion { e_tag: found.meta.e_tag, version: found.meta.version };
        Ok(Some((version, token)))
    }

    async fn put_if(
        &self,
        key: &str,
        body: Bytes,
        token: u64,
        expected: Option<UpdateVersion>,
    ) -> Result<bool, Error> {
        let mut options = PutOptions::from(expected.map_or(PutMode::Create, PutMode::Update));
        options.attributes.insert(Attribute::Metadata(TOKEN.into()), token.to_string().into());
        match self.put_opts(&Path::from(key), body.into(), options).await {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. }) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

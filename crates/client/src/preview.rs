//! When a schedule would be due.

use crate::baton::Baton;
use crate::clock::Moment;
use crate::connection::Ask;
use crate::error::Error;
use crate::held::encode;
use crate::limit::check_namespace;
use crate::path;
use baton_api::preview::{PreviewRequest, PreviewResponse};
use hyper::Method;

pub(crate) async fn preview(baton: &Baton, request: &PreviewRequest) -> Result<PreviewResponse, Error> {
    let namespace = baton.0.namespace.as_deref();
    check_namespace(namespace)?;
    request.check().map_err(Error::refused)?;
    let path = path::with_query("/v1/jobs:preview".into(), &[("namespace", namespace)]);
    // It changes nothing, so it may be repeated.
    let ask = Ask { method: Method::POST, path, body: encode(request)? };
    let (reply, address) = baton.0.repeat(&ask, Moment::now().after(baton.0.call_timeout)).await?;
    reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
}

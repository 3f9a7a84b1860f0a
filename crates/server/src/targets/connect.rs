//! Connections to targets: to an address that was looked at, over TLS if the URL says so.

use super::allow::{Allowed, may_connect};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Uri;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// How long a connection may take to come about.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;
/// Names that are looked up at once. Each takes a thread while it lasts, and others need threads too.
const LOOKUPS_MAX: usize = 32;

/// A connection to a target.
pub(super) type Connection = SendRequest<Full<Bytes>>;

/// Where a connection leads.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Origin {
    is_secure: bool,
    /// Without brackets.
    host: String,
    port: u16,
}

impl Origin {
    pub fn of(uri: &Uri) -> Result<Self, String> {
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("the URL begins with neither http:// nor https://".into()),
        };
        let authority = uri.authority().ok_or("the URL names no host")?;
        if authority.as_str().contains('@') {
            return Err("the URL has a user in it; send credentials in a header field".into());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let port = authority.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        Ok(Self { is_secure, host, port })
    }

    /// It in words.
    pub fn text(&self) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{}:{}", self.host, self.port)
    }
}

/// Opens connections.
pub(super) struct Connector {
    allowed: Vec<Allowed>,
    tls: OnceLock<Result<TlsConnector, String>>,
    lookups: Semaphore,
}

impl Connector {
    pub fn new(allowed: Vec<Allowed>) -> Self {
        Self { allowed, tls: OnceLock::new(), lookups: Semaphore::new(LOOKUPS_MAX) }
    }

    /// Connects. Nothing is sent by it that a target could take for a request, so several addresses may be tried.
    pub async fn connect(&self, origin: &Origin) -> Result<Connection, String> {
        match timeout(CONNECT_MAX, self.connect_somewhere(origin)).await {
            Ok(connected) => connected,
            Err(_) => Err(format!("no connection to {} within {} s", origin.host, CONNECT_MAX.as_secs())),
        }
    }

    async fn connect_somewhere(&self, origin: &Origin) -> Result<Connection, String> {
        let mut failure = format!("{} has no address", origin.host);
        for address in self.addresses(origin).await?.into_iter().take(ADDRESSES_MAX) {
            match self.connect_to(origin, address).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = format!("{address}: {error}"),
            }
        }
        Err(failure)
    }

    /// The addresses that may be connected to. They are what is connected to: the name isn't looked up again.
    async fn addresses(&self, origin: &Origin) -> Result<Vec<SocketAddr>, String> {
        let Origin { host, port, .. } = origin;
        let found: Vec<SocketAddr> = match host.parse::<IpAddr>() {
            Ok(address) => vec![(address, *port).into()],
            Err(_) => {
                let _place = self.lookups.acquire().await.map_err(|error| error.to_string())?;
                let found = lookup_host((host.as_str(), *port)).await;
                found.map_err(|error| format!("{host} can't be found: {error}"))?.collect()
            }
        };
        let (may, may_not): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|address| may_connect(&self.allowed, host, *address));
        match may_not.first() {
            Some(address) if may.is_empty() => Err(format!(
                "{} is an internal address, which jobs may not call; if this one may, say --job-allow {host}:{port} \
                 where the server is started",
                address.ip()
            )),
            _ => Ok(may),
        }
    }

    async fn connect_to(&self, origin: &Origin, address: SocketAddr) -> Result<Connection, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        if !origin.is_secure {
            return begin(stream).await;
        }
        let tls = self.tls.get_or_init(trusting).as_ref().map_err(Clone::clone)?;
        let name = ServerName::try_from(origin.host.clone()).map_err(|error| error.to_string())?;
        begin(tls.connect(name, stream).await.map_err(|error| error.to_string())?).await
    }
}

async fn begin<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> Result<Connection, String> {
    let (connection, driver) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // It ends with the connection, however that ends.
    tokio::spawn(async move { drop(driver.await) });
    Ok(connection)
}

/// Trusts whom this machine trusts.
fn trusting() -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err("this machine trusts no certificate authority; install its ca-certificates".into());
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_it_leads() {
        let origin = |url: &str| Origin::of(&url.parse().unwrap()).map(|it| (it.is_secure, it.host, it.port));
        assert_eq!(origin("http://Example.org/a?b"), Ok((false, "example.org".into(), 80)));
        assert_eq!(origin("https://example.org:8443"), Ok((true, "example.org".into(), 8443)));
        assert_eq!(origin("http://[::1]:9/x"), Ok((false, "::1".into(), 9)));
        assert!(origin("ftp://example.org/").is_err());
        assert!(origin("http://me:secret@example.org/").is_err());
        assert!(origin("/x").is_err());
    }

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_is_refused_by_its_address() {
        let connector = Connector::new(Vec::new());
        for url in ["http://localhost:9/", "http://127.0.0.1:9/", "http://[::ffff:127.0.0.1]:9/"] {
            let origin = Origin::of(&url.parse().unwrap()).unwrap();
            let error = connector.connect(&origin).await.unwrap_err();
            assert!(error.contains("--job-allow"), "{url}: {error}");
        }
    }
}

//! From a URL to where and how to connect. Its password goes into the driver's configuration and nowhere else.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

/// A connection is there within this time, or counts as failed. One for each host of the URL.
const CONNECT_MAX: Duration = Duration::from_millis(1500);

/// What the driver understands of a URL and what may stand in ours; everything that decides about
/// transactions is set by us.
const PASSED_ON: &[&str] = &[
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "password",
    "port",
    "sslnegotiation",
    "tcp_user_timeout",
    "user",
];

/// Where the store is.
pub(super) struct Target {
    pub config: tokio_postgres::Config,
    pub tls: MakeRustlsConnect,
    /// A plain identifier: lower-case letters, digits and `_`.
    pub schema: String,
    pub connections: usize,
}

impl Target {
    /// Understands `postgres://user[:password]@host:port/database?schema=…&connections=…&sslmode=…`.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (mut plain, query) = url.split_once('?').map_or((url.to_owned(), ""), |(a, b)| (a.to_owned(), b));
        let (mut schema, mut connections) = ("baton".to_owned(), 4);
        let (mut mode, mut roots) = ("prefer", None);
        let mut separator = '?';
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "schema" => schema = identifier(value)?,
                "connections" => connections = count(value)?,
                "sslmode" => mode = value,
                "sslrootcert" => roots = Some(value),
                _ if PASSED_ON.contains(&name) => {
                    plain.push(separator);
                    plain.push_str(pair);
                    separator = '&';
                }
                _ => return Err(unsupported(name, query)),
            }
        }
        let mut config: tokio_postgres::Config = plain.parse().map_err(|error| super::describe(&error))?;
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_MAX);
        }
        if config.get_application_name().is_none() {
            config.application_name("baton");
        }
        config.ssl_mode(match mode {
            "disable" => SslMode::Disable,
            "prefer" => SslMode::Prefer,
            "require" | "verify-full" => SslMode::Require,
            _ => return Err("sslmode is disable, prefer, require or verify-full".into()),
        });
        let tls = MakeRustlsConnect::new(match (mode, roots) {
            ("verify-full", Some(path)) => verifying(path)?,
            ("verify-full", None) => return Err("sslmode=verify-full needs sslrootcert=, a PEM file".into()),
            (_, Some(_)) => return Err("sslrootcert= is for sslmode=verify-full".into()),
            _ => encrypting()?,
        });
        Ok(Self { config, tls, schema, connections })
    }
}

fn unsupported(name: &str, query: &str) -> String {
    let names = PASSED_ON.join(", ");
    // What isn't a word may be anything, also part of a password with an unescaped `?` in it.
    let is_word = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let name = if is_word && !query.contains('@') { name } else { "…" };
    format!("no parameter {name:?}; there are schema, connections, sslmode, sslrootcert, {names}")
}

fn identifier(value: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let begins = value.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    if begins && value.len() <= 40 && value.bytes().all(plain) && !value.starts_with("pg_") {
        Ok(value.to_owned())
    } else {
        Err("schema= is lower-case letters, digits and _, at most 40, and doesn't begin with pg_".into())
    }
}

fn count(value: &str) -> Result<usize, String> {
    let number = value.parse().ok().filter(|number| (1..=64).contains(number));
    number.ok_or_else(|| "connections= is a number from 1 to 64".to_owned())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn verifying(path: &str) -> Result<ClientConfig, String> {
    let trouble = |error: &dyn std::fmt::Display| format!("sslrootcert: {error}");
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| trouble(&error))? {
        let certificate = certificate.map_err(|error| trouble(&error))?;
        roots.add(certificate).map_err(|error| trouble(&error))?;
    }
    if roots.is_empty() {
        return Err("sslrootcert: no certificate in it".into());
    }
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    Ok(builder.map_err(|error| trouble(&error))?.with_root_certificates(roots).with_no_client_auth())
}

fn encrypting() -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?.dangerous();
    Ok(builder.with_custom_certificate_verifier(Arc::new(AnyServer(provider()))).with_no_client_auth())
}

/// `prefer` and `require` mean for PostgreSQL's clients: encrypted, whoever it is. `verify-full` is there for more.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how() {
        let target =
            Target::parse("postgresql://me@host:1/db?schema=other_1&connections=9&user=you").unwrap();
        assert_eq!((target.schema.as_str(), target.connections), ("other_1", 9));
        assert_eq!(target.config.get_user(), Some("you"));
        let target = Target::parse("postgres://me@host:1/db").unwrap();
        assert_eq!((target.schema.as_str(), target.connections), ("baton", 4));
        assert_eq!(target.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    }

    #[test]
    fn what_it_does_not_understand_is_refused_without_repeating_a_password() {
        for query in [
            "frobnicate=1",
            "schema=a\"b",
            "schema=",
            "schema=1a",
            "schema=pg_own",
            "connections=0",
            "connections=x",
            "sslmode=verify-full",
            "sslmode=maybe",
            "sslrootcert=x",
            "options=-cfsync",
            "port=secret",
            "secret@host=1",
        ] {
            let error = Target::parse(&format!("postgres://me:secret@host/db?{query}")).err();
            let error = error.unwrap_or_else(|| panic!("{query} was taken"));
            assert!(!error.contains("secret"), "{query}: {error}");
        }
        for url in ["postgres://me:se/cret@host:x/db", "postgres://me:se?cret&x@host/db"] {
            let error = Target::parse(url).err().unwrap();
            assert!(!error.contains("cret"), "{url}: {error}");
        }
    }
}

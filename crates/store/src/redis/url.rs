//! From a URL to which servers, and how.

use ::redis::{
    Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
    TlsCertificates,
};
use std::time::Duration;

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// More replicas than this nobody waits for.
const WAIT_MAX: u32 = 16;
/// A commit must be answered before the engine gives up on it.
const WAIT_MILLIS_MAX: u64 = 1_300;

/// How to find the server for a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Topology {
    Single,
    Sentinel { master: String },
    Cluster,
}

/// What a URL says. It has no `Debug`: there is a password in it.
pub(super) struct Target {
    pub topology: Topology,
    pub addresses: Vec<(String, u16)>,
    tls: bool,
    /// For TLS with an authority of one's own, and perhaps a certificate.
    certificates: Option<TlsCertificates>,
    pub settings: RedisConnectionInfo,
    /// Replicas to wait for.
    pub wait: u32,
    pub wait_max: Duration,
    pub prefix: String,
}

impl Target {
    /// Understands a URL; errors never repeat it.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("a Redis URL begins with redis://")?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        let mut settings = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
        if let Some(credentials) = credentials {
            let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
            if !user.is_empty() {
                settings = settings.set_username(decoded(user)?);
            }
            settings = settings.set_password(decoded(password)?);
        }
        let (scheme, tls) = match scheme.strip_prefix("rediss") {
            Some(rest) => (format!("redis{rest}"), true),
            None => (scheme.to_owned(), false),
        };
        let port = if scheme == "redis-sentinel" { SENTINEL_PORT } else { PORT };
        let addresses = hosts.split(',').map(|host| address(host, port)).collect::<Result<Vec<_>, _>>()?;
        let topology = match scheme.as_str() {
            "redis" if addresses.len() == 1 => Topology::Single,
            "redis" => return Err("one host, or redis-cluster:// or redis-sentinel://".into()),
            "redis-sentinel" if path.is_empty() => {
                return Err("redis-sentinel:// needs the primary's name after the hosts".into());
            }
            "redis-sentinel" => Topology::Sentinel { master: decoded(path)? },
            "redis-cluster" if path.is_empty() => Topology::Cluster,
            "redis-cluster" => return Err("Redis Cluster has no databases: nothing after the hosts".into()),
            _ => return Err("no such kind of Redis URL".into()),
        };
        if topology == Topology::Single && !path.is_empty() {
            settings = settings.set_db(path.parse().map_err(|_| "the database is not a number")?);
        }
        let mut target = Self {
            topology,
            addresses,
            tls,
            certificates: None,
            settings,
            wait: 0,
            wait_max: Duration::from_millis(1_000),
            prefix: "baton".into(),
        };
        let mut files = Files::default();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value = decoded(value)?;
            match name {
                "ca" => files.ca = Some(value),
                "cert" => files.cert = Some(value),
                "key" => files.key = Some(value),
                _ => target.set(name, &value)?,
            }
        }
        target.certificates = files.read(tls)?;
        Ok(target)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = |max: u64| match value.parse::<u64>() {
            Ok(number) if (1..=max).contains(&number) => Ok(number),
            _ => Err(format!("{name} is a number from 1 to {max}")),
        };
        match name {
            "wait" if value == "0" => self.wait = 0,
            "wait" => self.wait = u32::try_from(number(WAIT_MAX.into())?).expect("at most WAIT_MAX"),
            "wait_millis" => self.wait_max = Duration::from_millis(number(WAIT_MILLIS_MAX)?),
            "prefix" => {
                let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
                if value.is_empty() || value.len() > 64 || !value.bytes().all(fits) {
                    return Err("prefix has 1 to 64 letters, digits and -_.:/".into());
                }
                self.prefix = value.into();
            }
            _ => return Err("parameters of a Redis URL: wait, wait_millis, prefix, ca, cert, key".into()),
        }
        Ok(())
    }

    /// How to connect to one of the servers.
    pub fn client(&self, address: &(String, u16)) -> Result<Client, String> {
        self.client_with(address, self.settings.clone())
    }

    /// How to connect to a Sentinel. Credentials are for the servers; Sentinels seldom have any.
    pub fn sentinel(&self, address: &(String, u16)) -> Result<Client, String> {
        self.client_with(address, RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3))
    }

    fn client_with(
        &self,
        (host, port): &(String, u16),
        settings: RedisConnectionInfo,
    ) -> Result<Client, String> {
        let (host, port) = (host.clone(), *port);
        let address = if self.tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let information = address.into_connection_info().expect("an address can always be one");
        let tcp = ::redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let information = information.set_redis_settings(settings).set_tcp_settings(tcp);
        let client = match self.certificates.clone() {
            Some(certificates) => Client::build_with_tls(information, certificates),
            None => Client::open(information),
        };
        client.map_err(|error| error.to_string())
    }
}

/// Files in PEM format, for TLS.
#[derive(Default)]
struct Files {
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
}

impl Files {
    fn read(self, tls: bool) -> Result<Option<TlsCertificates>, String> {
        let read = |path: String| std::fs::read(&path).map_err(|error| format!("can't read {path}: {error}"));
        let client_tls = match (self.cert, self.key) {
            (None, None) => None,
            (Some(cert), Some(key)) => {
                Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? })
            }
            _ => return Err("cert and key come together".into()),
        };
        let root_cert = self.ca.map(read).transpose()?;
        let any = client_tls.is_some() || root_cert.is_some();
        if any && !tls {
            return Err(
                "ca, cert and key are for TLS: rediss://, rediss-sentinel:// or rediss-cluster://".into()
            );
        }
        Ok(any.then_some(TlsCertificates { client_tls, root_cert }))
    }
}

fn address(host: &str, port: u16) -> Result<(String, u16), String> {
    let bad = || "hosts are written as host:port".to_owned();
    let (name, port) = match host.rsplit_once(':') {
        Some((name, digits)) if !digits.ends_with(']') => (name, digits.parse().map_err(|_| bad())?),
        _ => (host, port),
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    if name.is_empty() { Err(bad()) } else { Ok((name.into(), port)) }
}

fn decoded(text: &str) -> Result<String, String> {
    let bad = || "a percent sign in the URL is not followed by two hexadecimal digits".to_owned();
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let pair = [rest.next().ok_or_else(bad)?, rest.next().ok_or_else(bad)?];
            let pair = std::str::from_utf8(&pair).map_err(|_| bad())?;
            bytes.push(u8::from_str_radix(pair, 16).map_err(|_| bad())?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

//! `etcd://[user:password@]host:port,host:port[/prefix][?ca=…&cert=…&key=…]`, and `etcds://` for TLS.

use std::path::PathBuf;

/// Under which everything is kept when the URL doesn't say.
const PREFIX: &str = "baton";
const PORT: u16 = 2379;

/// Where etcd is and how to speak to it. Has no `Debug`: it may carry a password.
pub(super) struct Target {
    pub tls: bool,
    pub endpoints: Vec<String>,
    pub user: Option<(String, String)>,
    /// Without slashes at its ends.
    pub prefix: String,
    pub ca: Option<PathBuf>,
    /// Certificate and key of this client.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Errors never repeat the URL: it may carry a password.
pub(super) fn parse(url: &str) -> Result<Target, String> {
    let (scheme, rest) = url.split_once("://").ok_or("an etcd URL is etcd://host:port")?;
    let tls = scheme == "etcds";
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, prefix) = rest.split_once('/').unwrap_or((rest, PREFIX));
    if prefix.contains('@') {
        // Then these are hardly the hosts, and a part of a password must not be taken for one.
        return Err("a / in a user's name or password is written %2F, and an @ in the prefix %40".into());
    }
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => {
            let (name, password) = user.split_once(':').ok_or("a user needs a password: user:password@")?;
            (Some((decode(name)?, decode(password)?)), hosts)
        }
        None => (None, authority),
    };
    let with_scheme = |host: &str| {
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let port = if has_port { String::new() } else { format!(":{PORT}") };
        format!("{}://{host}{port}", if tls { "https" } else { "http" })
    };
    if hosts.is_empty() || hosts.split(',').any(str::is_empty) {
        return Err("an etcd URL names at least one host, and no empty ones".into());
    }
    let endpoints = hosts.split(',').map(with_scheme).collect();
    let prefix = match prefix.trim_matches('/') {
        "" => PREFIX.to_owned(),
        prefix => decode(prefix)?,
    };
    let (mut ca, mut cert, mut key) = (None, None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let place = match name {
            "ca" => &mut ca,
            "cert" => &mut cert,
            "key" => &mut key,
            _ => return Err(unsupported(name, query)),
        };
        *place = Some(PathBuf::from(decode(value)?));
    }
    let identity = match (cert, key) {
        (None, None) => None,
        (Some(cert), Some(key)) => Some((cert, key)),
        _ => return Err("cert and key come together".into()),
    };
    if !tls && (ca.is_some() || identity.is_some()) {
        return Err("ca, cert and key are for etcds://".into());
    }
    if tls && ca.is_none() {
        return Err(
            "etcds:// needs ca=, the file with the authority that signed the servers' certificates".into()
        );
    }
    Ok(Target { tls, endpoints, user, prefix, ca, identity })
}

fn unsupported(name: &str, query: &str) -> String {
    // With an @ in it, what stands after the ? may be the rest of a password that has a ? in it.
    let is_plain = !query.contains('@') && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let name = if is_plain { name } else { "…" };
    format!("unknown parameter {name:?}; supported: ca, cert, key")
}

/// Percent-decoding.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let code = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = code.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("a % in the URL isn't followed by two hexadecimal digits")?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| "the URL isn't UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::super::client::Client;
    use super::*;

    #[test]
    fn a_url_says_where_who_and_under_which_prefix() {
        let target = parse("etcd://me:p%40ss@a:1,b/here").unwrap();
        assert_eq!(target.endpoints, ["http://a:1", "http://b:2379"]);
        assert_eq!(target.user, Some(("me".into(), "p@ss".into())));
        assert_eq!((target.prefix.as_str(), target.tls), ("here", false));
        assert_eq!(parse("etcd://a").unwrap().prefix, "baton");
        let target = parse("etcds://a/?ca=/x&cert=/y&key=/z").unwrap();
        assert_eq!(target.endpoints, ["https://a:2379"]);
        assert_eq!(target.identity, Some(("/y".into(), "/z".into())));
    }

    #[tokio::test]
    async fn what_isnt_understood_is_refused_without_repeating_a_password() {
        let wrong = [
            "etcd://",
            "etcd://me:secret@",
            "etcd://me:secret%@a",
            "etcd://me:secret@a,,b",
            "etcd://me:secret@a?colour=blue",
            "etcd://me:secret@a?ca=/x",
            "etcds://me:secret@a",
            "etcds://me:secret@a?ca=/x&cert=/y",
            "etcd://secret@a",
            // What isn't written as a URL wants it comes to stand where something else is looked for.
            "etcd://me:my?secret@a",
            "etcd://me:my?secret&x@a",
            "etcd://me:my?secret=1@a",
            "etcd://me:secret/more@a",
            "etcd://me:more/secret@a",
            "etcd://me:1/secret@a",
            "etcd://me:more@secret/more@a",
            "etcds://me:secret?ca=@a",
        ];
        for url in wrong {
            let opened = parse(url).and_then(|target| Client::new(&target).map(drop));
            let error = opened.err().unwrap_or_else(|| panic!("{url} was taken"));
            assert!(!error.contains("secret"), "{url}: {error}");
        }
        let error = parse("etcd://a?colour=blue").err().unwrap();
        assert!(error.contains("colour"), "{error}");
    }
}

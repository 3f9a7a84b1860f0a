//! Where the servers are: one URL, or several separated by commas.

use crate::error::Error;
use hyper::header::HeaderValue;

/// More addresses than this are refused: a list that long is a mistake.
const ADDRESSES_MAX: usize = 64;
const PORT_DEFAULT: u16 = 7117;

/// One server.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// As `TcpStream::connect` wants it.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// As the `Host` header wants it.
    pub(crate) authority: HeaderValue,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}", self.authority.to_str().unwrap_or("?"))
    }
}

/// `http://a:7117,http://b:7117`; without a port, 7117.
pub(crate) fn parse_list(text: &str) -> Result<Vec<Address>, Error> {
    let addresses: Vec<_> = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .take(ADDRESSES_MAX + 1)
        .map(parse)
        .collect::<Result<_, _>>()?;
    match addresses.len() {
        0 => Err(Error::address("no server address was given: try http://127.0.0.1:7117")),
        1..=ADDRESSES_MAX => Ok(addresses),
        _ => Err(Error::address(format!("more than {ADDRESSES_MAX} server addresses were given"))),
    }
}

fn parse(text: &str) -> Result<Address, Error> {
    let bad = |why: &str| Error::address(format!("{text:?} is not a server address: {why}"));
    let rest = match text.split_once("://") {
        Some(("http", rest)) => rest,
        Some(("https", _)) => return Err(bad("TLS comes with authentication; until then use http://")),
        Some(_) => return Err(bad("it must begin with http://")),
        None => text,
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#', '@']) {
        return Err(bad("it must be http://HOST:PORT without a path, a query or a user"));
    }
    let (host, port) = match rest.rsplit_once(':') {
        // The last colon of a bare IPv6 address is no port.
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => {
            (host, port.parse().map_err(|_| bad("the port must be a number from 1 to 65535"))?)
        }
        _ => (rest, PORT_DEFAULT),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if bare.is_empty() || port == 0 {
        return Err(bad("it must be http://HOST:PORT"));
    }
    let shown = if bare.contains(':') { format!("[{bare}]:{port}") } else { format!("{bare}:{port}") };
    let authority =
        HeaderValue::from_str(&shown).map_err(|_| bad("the host has characters it must not have"))?;
    Ok(Address { host: bare.to_owned(), port, authority })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_ports_and_brackets() {
        let shown = |text: &str| {
            parse_list(text).map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(shown("http://127.0.0.1:7117").unwrap(), ["http://127.0.0.1:7117"]);
        assert_eq!(
            shown("http://a/, http://b:1,c").unwrap(),
            ["http://a:7117", "http://b:1", "http://c:7117"]
        );
        assert_eq!(shown("http://[::1]:9").unwrap(), ["http://[::1]:9"]);
        assert_eq!(parse_list("http://[::1]").unwrap()[0].host, "::1");
    }

    #[test]
    fn addresses_that_cannot_work_are_refused_with_a_reason() {
        for bad in
            ["", ",", "ftp://a", "http://a:0", "http://a:x", "http://a/path", "http://u@a", "http://:1"]
        {
            assert!(parse_list(bad).is_err(), "{bad}");
        }
        let error = parse_list("https://a").unwrap_err();
        assert!(error.to_string().contains("TLS comes with authentication"), "{error}");
    }
}

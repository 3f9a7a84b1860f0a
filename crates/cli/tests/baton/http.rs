//! One HTTP call on a connection of its own: what curl would do.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// An answer, or nothing known.
pub struct Answer {
    pub status: u16,
    pub body: serde_json::Value,
}

/// Sends a body and waits for the answer, for at most as long as `patience`.
pub fn post(url: &str, path: &str, body: &serde_json::Value, patience: Duration) -> io::Result<Answer> {
    let address = url.strip_prefix("http://").expect("a plain address");
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience))?;
    let body = body.to_string();
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: baton\r\nconnection: close\r\ncontent-length: {length}\r\n");
    stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(cut)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut)?;
    let body = serde_json::from_str(body).map_err(|_| cut())?;
    Ok(Answer { status, body })
}

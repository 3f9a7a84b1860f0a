//! One HTTP call on a connection of its own: what curl would do.

use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// An answer, or nothing known.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Answer {
    /// The error's code, if it is one.
    pub fn code(&self) -> &str {
        self.body["error"].as_str().unwrap_or_default()
    }

    /// The number that grows with every grant.
    pub fn fencing_token(&self) -> u64 {
        self.body["fencingToken"].as_u64().unwrap_or_else(|| panic!("no token: {}", self.body))
    }
}

/// Sends a body and waits for the answer, for at most as long as `patience`.
pub fn post(url: &str, path: &str, body: &Value, patience: Duration) -> io::Result<Answer> {
    let (status, body) = call(url, "POST", path, &body.to_string(), patience)?;
    let body = serde_json::from_str(&body).map_err(|_| cut())?;
    Ok(Answer { status, body })
}

/// The same with PUT.
pub fn put(url: &str, path: &str, body: &Value, patience: Duration) -> io::Result<Answer> {
    let (status, body) = call(url, "PUT", path, &body.to_string(), patience)?;
    let body = serde_json::from_str(&body).map_err(|_| cut())?;
    Ok(Answer { status, body })
}

/// Asks for what is there.
pub fn get(url: &str, path: &str, patience: Duration) -> io::Result<Answer> {
    let (status, body) = call(url, "GET", path, "", patience)?;
    let body = serde_json::from_str(&body).map_err(|_| cut())?;
    Ok(Answer { status, body })
}

/// The text that a GET is answered with; nothing if it isn't answered.
pub fn text(url: &str, path: &str, patience: Duration) -> String {
    call(url, "GET", path, "", patience).map_or_else(|_| String::new(), |(_, text)| text)
}

/// The status that a GET is answered with; 0 if it isn't answered.
pub fn status(url: &str, path: &str, patience: Duration) -> u16 {
    call(url, "GET", path, "", patience).map_or(0, |(status, _)| status)
}

fn call(url: &str, method: &str, path: &str, body: &str, patience: Duration) -> io::Result<(u16, String)> {
    let address = url.strip_prefix("http://").expect("a plain address");
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience))?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: baton\r\nconnection: close\r\ncontent-length: {length}\r\n"
    );
    stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(cut)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut)?;
    Ok((status, body.to_owned()))
}

fn cut() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

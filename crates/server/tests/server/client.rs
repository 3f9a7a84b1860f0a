//! A client that sends exactly the bytes it is given.

use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Nothing here takes as long, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// An answer, whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The stable code, if this is a refusal of that status.
    pub fn code(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        self.json()["error"].as_str().unwrap_or_else(|| panic!("no code in {self:?}")).to_owned()
    }

    /// The field of an INVALID_ARGUMENT.
    pub fn field(&self) -> String {
        assert_eq!(self.code(400), "INVALID_ARGUMENT");
        assert!(self.json()["message"].as_str().is_some_and(|message| !message.is_empty()), "{self:?}");
        self.json()["field"].as_str().unwrap_or_else(|| panic!("no field in {self:?}")).to_owned()
    }

    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }
}

/// One connection.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    pub async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Says that nothing more is coming.
    pub async fn finish(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    pub async fn request(&mut self, method: &str, path: &str, body: &[u8]) {
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", body.len());
        self.send(&[head.as_bytes(), body].concat()).await.unwrap();
    }

    pub async fn call(&mut self, method: &str, path: &str, body: &[u8]) -> Answer {
        self.request(method, path, body).await;
        self.answer(method).await.unwrap_or_else(|| panic!("no answer to {method} {path}"))
    }

    /// The next answer; nothing if the server closed the connection first.
    pub async fn answer(&mut self, method: &str) -> Option<Answer> {
        let answer = tokio::time::timeout(PATIENCE, self.read_answer(method));
        answer.await.expect("an answer in time")
    }

    async fn read_answer(&mut self, method: &str) -> Option<Answer> {
        let (status, head) = loop {
            let head = self.head().await?;
            let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
            if status >= 200 {
                break (status, head);
            }
        };
        let mut answer = Answer { status, head, text: String::new() };
        if method == "HEAD" {
            return Some(answer);
        }
        if answer.header("transfer-encoding").is_some() {
            while let Some(chunk) = self.chunk().await {
                answer.text.push_str(&chunk);
            }
        } else if let Some(length) = answer.header("content-length") {
            let length: usize = length.parse().unwrap();
            while self.buffer.len() < length {
                self.more().await?;
            }
            let rest = self.buffer.split_off(length);
            answer.text = String::from_utf8(std::mem::replace(&mut self.buffer, rest)).unwrap();
        }
        Some(answer)
    }

    /// Everything up to the empty line.
    pub async fn head(&mut self) -> Option<String> {
        self.until(b"\r\n\r\n").await
    }

    /// A chunk of a chunked body; nothing at its end, or at the connection's.
    pub async fn chunk(&mut self) -> Option<String> {
        let size = self.until(b"\r\n").await?;
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        while self.buffer.len() < size + 2 {
            self.more().await?;
        }
        let rest = self.buffer.split_off(size + 2);
        let chunk = std::mem::replace(&mut self.buffer, rest);
        (size > 0).then(|| String::from_utf8(chunk[..size].to_vec()).unwrap())
    }

    async fn until(&mut self, end: &[u8]) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                let rest = self.buffer.split_off(at + end.len());
                return Some(String::from_utf8(std::mem::replace(&mut self.buffer, rest)).unwrap());
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Option<()> {
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(()),
        }
    }
}

//! A client so cheap that the server is what is measured: prebuilt requests, one write, one read, and only as much
//! of the answer looked at as is needed.

use anyhow::{Context, bail};
use std::net::SocketAddr;
use std::ops::Range;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request, ready to be sent as it is.
pub fn post(path: &str, body: &str) -> Vec<u8> {
    request("POST", path, body)
}

/// The same, to put something.
pub fn put(path: &str, body: &str) -> Vec<u8> {
    request("PUT", path, body)
}

fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A connection that is kept alive.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// What was received and not yet used.
    unread: Range<usize>,
}

/// The body of an answer.
enum Body {
    Sized(usize),
    Chunked,
}

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 2048], unread: 0..0 })
    }

    /// Sends a request and gives the body of its answer, if that is 200.
    pub async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<&[u8]> {
        self.stream.write_all(request).await?;
        let (status, body) = self.head().await?;
        let Body::Sized(length) = body else { bail!("a streamed answer to a plain call") };
        while self.unread.len() < length {
            self.receive().await?;
        }
        let start = self.unread.start;
        self.unread.start += length;
        let body = &self.buffer[start..start + length];
        if status != 200 {
            bail!("{status}: {}", String::from_utf8_lossy(body));
        }
        Ok(body)
    }

    /// Sends a batch; its answers come from [`Lines::next`].
    pub async fn batch(mut self, request: &[u8]) -> anyhow::Result<Lines> {
        self.stream.write_all(request).await?;
        Ok(Lines { connection: self, left: None, line: Vec::new() })
    }

    /// Reads to the end of the headers.
    async fn head(&mut self) -> anyhow::Result<(u16, Body)> {
        loop {
            let received = &self.buffer[self.unread.clone()];
            if let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = &received[..end + 2];
                let status = head.get(9..12).and_then(|code| std::str::from_utf8(code).ok());
                let status = status.and_then(|code| code.parse().ok()).context("no status")?;
                let body = match header(head, b"content-length:") {
                    Some(length) => Body::Sized(length.parse()?),
                    None if header(head, b"transfer-encoding:") == Some("chunked") => Body::Chunked,
                    None => bail!("an answer without a length"),
                };
                self.unread.start += end + 4;
                return Ok((status, body));
            }
            self.receive().await?;
        }
    }

    async fn receive(&mut self) -> anyhow::Result<()> {
        if self.unread.is_empty() {
            self.unread = 0..0;
        } else if self.unread.end == self.buffer.len() {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
            if self.unread.end == self.buffer.len() {
                self.buffer.resize(2 * self.buffer.len(), 0);
            }
        }
        match self.stream.read(&mut self.buffer[self.unread.end..]).await? {
            0 => bail!("the server closed the connection"),
            length => self.unread.end += length,
        }
        Ok(())
    }
}

/// The value of a header; `name` is in small letters, with its colon.
fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a str> {
    let lines = head.split(|byte| *byte == b'\n');
    let mut found =
        lines.filter(|line| line.len() > name.len() && line[..name.len()].eq_ignore_ascii_case(name));
    std::str::from_utf8(&found.next()?[name.len()..]).ok().map(str::trim)
}

/// The answers of a batch, one a line, as they come.
pub struct Lines {
    connection: Connection,
    /// Bytes left of the chunk; nothing before the headers have been read.
    left: Option<usize>,
    line: Vec<u8>,
}

impl Lines {
    /// The next answer, or the end.
    pub async fn next(&mut self) -> anyhow::Result<Option<&[u8]>> {
        self.line.clear();
        let connection = &mut self.connection;
        if self.left.is_none() {
            let (status, body) = connection.head().await?;
            if status != 200 || matches!(body, Body::Sized(_)) {
                let rest =
                    String::from_utf8_lossy(&connection.buffer[connection.unread.clone()]).into_owned();
                bail!("a batch was answered with {status}: {rest}");
            }
            self.left = Some(0);
        }
        loop {
            let left = self.left.get_or_insert(0);
            if *left == 0 {
                let Some(length) = chunk_length(connection).await? else { return Ok(None) };
                *left = length;
            }
            if connection.unread.is_empty() {
                connection.receive().await?;
            }
            let start = connection.unread.start;
            let length = connection.unread.len().min(*left);
            let received = &connection.buffer[start..start + length];
            let end = received.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(length, |end| end + 1);
            self.line.extend_from_slice(&received[..taken]);
            connection.unread.start += taken;
            *left -= taken;
            if end.is_some() {
                return Ok(Some(&self.line));
            }
        }
    }

    /// The connection, for the next request: only after the end.
    pub fn into_connection(self) -> Connection {
        self.connection
    }
}

/// The size in front of a chunk, after the line end of the one before; nothing at the last.
async fn chunk_length(connection: &mut Connection) -> anyhow::Result<Option<usize>> {
    loop {
        let received = &connection.buffer[connection.unread.clone()];
        let skipped = received.iter().take_while(|byte| b"\r\n".contains(byte)).count();
        let sized = &received[skipped..];
        if let Some(end) = sized.windows(2).position(|window| window == b"\r\n") {
            let length = usize::from_str_radix(std::str::from_utf8(&sized[..end])?, 16)?;
            // The last chunk is followed by an empty line.
            let after = skipped + end + 2;
            if length > 0 || received.len() >= after + 2 {
                connection.unread.start += if length > 0 { after } else { after + 2 };
                return Ok((length > 0).then_some(length));
            }
        }
        connection.receive().await?;
    }
}

/// The text of a JSON member that has no escapes, such as a token.
pub fn text_of<'a>(body: &'a [u8], name: &str) -> Option<&'a str> {
    let pattern = [b"\"", name.as_bytes(), b"\":\""].concat();
    let start = body.windows(pattern.len()).position(|window| window == pattern)? + pattern.len();
    let length = body[start..].iter().position(|byte| *byte == b'"')?;
    std::str::from_utf8(&body[start..start + length]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// A server that reads something and answers `answer` in pieces of `size` bytes.
    async fn answering(answer: &'static [u8], size: usize) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            stream.read_u8().await.unwrap();
            for piece in answer.chunks(size) {
                stream.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            stream.read_u8().await.ok();
        });
        Connection::open(address).await.unwrap()
    }

    #[tokio::test]
    async fn a_body_is_read_however_the_answer_is_cut() {
        let answer =
            b"HTTP/1.1 200 OK\r\ncontent-type: x\r\nContent-Length: 19\r\n\r\n{\"lockToken\":\"abc\"}";
        for size in [1, 7, 1000] {
            let mut connection = answering(answer, size).await;
            let body = connection.exchange(b"x").await.unwrap();
            assert_eq!(text_of(body, "lockToken"), Some("abc"), "{size}");
        }
    }

    #[tokio::test]
    async fn lines_are_read_however_they_are_cut_into_chunks() {
        let answer =
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n5\r\n\ntwo\n\r\n0\r\n\r\n";
        for size in [1, 5, 1000] {
            let mut lines = answering(answer, size).await.batch(b"x").await.unwrap();
            assert_eq!(lines.next().await.unwrap(), Some(&b"one\n"[..]), "{size}");
            assert_eq!(lines.next().await.unwrap(), Some(&b"two\n"[..]), "{size}");
            assert_eq!(lines.next().await.unwrap(), None, "{size}");
        }
    }
}

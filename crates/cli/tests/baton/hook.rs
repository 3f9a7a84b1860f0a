//! A real webhook: notes what it is sent, and answers as it is told to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request that came.
#[derive(Clone, Debug)]
pub struct Call {
    pub line: String,
    /// By name in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Call {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    pub fn job(&self) -> &str {
        self.header("x-baton-job")
    }

    pub fn key(&self) -> &str {
        self.header("idempotency-key")
    }

    pub fn number(&self, name: &str) -> u64 {
        self.header(name).parse().unwrap()
    }

    pub fn attempt(&self) -> u64 {
        self.number("x-baton-attempt")
    }

    pub fn token(&self) -> u64 {
        self.number("x-baton-fencing-token")
    }

    pub fn scheduled_at(&self) -> u64 {
        self.number("x-baton-scheduled-at")
    }
}

type Answers = Arc<dyn Fn(&Call) -> (Duration, String) + Send + Sync>;

pub struct Hook {
    pub address: SocketAddr,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Hook {
    /// Answers after a while with a status line, header fields and a body, as `answers` says; with nothing, it closes the connection.
    pub fn start(answers: impl Fn(&Call) -> (Duration, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let calls = Arc::<Mutex<Vec<Call>>>::default();
        let (noted, answers) = (calls.clone(), Arc::new(answers) as Answers);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (noted, answers) = (noted.clone(), answers.clone());
                std::thread::spawn(move || serve(&stream, &noted, &answers));
            }
        });
        Self { address, calls }
    }

    /// Answers everything with 200, at once.
    pub fn willing() -> Self {
        Self::start(|_| (Duration::ZERO, ok("done")))
    }

    pub fn calls(&self) -> Vec<Call> {
        self.since(0)
    }

    /// All but the first so many.
    pub fn since(&self, first: usize) -> Vec<Call> {
        self.calls.lock().unwrap()[first..].to_vec()
    }

    pub fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    /// What a server needs to be allowed to call it.
    pub fn allowed(&self) -> Vec<(&'static str, String)> {
        vec![("BATON_JOB_ALLOW", self.address.to_string())]
    }
}

pub fn ok(body: &str) -> String {
    format!("200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Answers the requests of a connection, until it ends.
fn serve(stream: &TcpStream, noted: &Mutex<Vec<Call>>, answers: &Answers) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let line = line.trim_end().to_owned();
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        let fields = lines[1..].iter().filter_map(|line| line.split_once(": "));
        let headers: BTreeMap<_, _> =
            fields.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let call = Call { line: lines[0].clone(), headers, body: String::from_utf8(body).unwrap() };
        noted.lock().unwrap().push(call.clone());
        let (after, answer) = answers(&call);
        std::thread::sleep(after);
        if answer.is_empty() {
            return None;
        }
        let mut stream = stream;
        stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).ok()?;
    }
}

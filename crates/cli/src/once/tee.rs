//! What a command prints goes on to our standard output as it comes, and the beginning of it is kept.

use std::io::{Read, Write};
use std::process::{ChildStderr, ChildStdout};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

/// Bytes that are kept: as hexadecimal pairs they are within what a result may have.
pub const KEPT_BYTES_MAX: usize = 32 * 1024 - 256;
/// Bytes that are kept of the end: as many as a run keeps.
const END_BYTES_MAX: usize = 4 * 1024;
/// How long the end of the output may take after the command's: whoever it left behind may still print.
const REST_MAX: Duration = Duration::from_secs(2);

/// What a command printed.
#[derive(Default, Debug)]
pub struct Printed {
    pub bytes: Vec<u8>,
    /// There was more, or there may be.
    pub truncated: bool,
}

/// Between a command and our standard output; between its errors and ours too, if they are to be kept.
#[derive(Default)]
pub struct Tee {
    part: Part,
    /// At most one byte more than may be, which says that there was more.
    kept: Arc<Mutex<Vec<u8>>>,
    /// Told when all was copied; empty if nothing was begun.
    ended: Vec<oneshot::Receiver<()>>,
}

/// What is kept.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Part {
    /// The beginning of its output.
    #[default]
    Beginning,
    /// The end of its output and its errors, in the order in which they come.
    End,
}

impl Tee {
    /// One that keeps the end of everything that is printed.
    pub fn of_the_end() -> Self {
        Self { part: Part::End, ..Self::default() }
    }

    /// Whether errors go through it too.
    pub fn takes_errors(&self) -> bool {
        self.part == Part::End
    }

    pub fn begin(&mut self, output: ChildStdout, errors: Option<ChildStderr>) {
        let (part, kept) = (self.part, &self.kept);
        self.ended = vec![copy(output, std::io::stdout(), part, kept.clone())];
        self.ended.extend(errors.map(|errors| copy(errors, std::io::stderr(), part, kept.clone())));
    }

    /// What is kept so far; to be asked for again and again.
    pub fn so_far(&self) -> impl Fn() -> Vec<u8> + Send + use<> {
        let kept = self.kept.clone();
        move || kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was printed, once the command has ended.
    pub async fn end(self) -> Printed {
        let Self { kept, ended, .. } = self;
        let all = async {
            for ended in ended {
                ended.await.ok();
            }
        };
        let is_all = tokio::time::timeout(REST_MAX, all).await.is_ok();
        let mut bytes = kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let truncated = !is_all || bytes.len() > KEPT_BYTES_MAX;
        bytes.truncate(KEPT_BYTES_MAX);
        Printed { bytes, truncated }
    }
}

/// Passes on what comes, and keeps a part of it.
fn copy(
    mut from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    part: Part,
    kept: Arc<Mutex<Vec<u8>>>,
) -> oneshot::Receiver<()> {
    let (end, ended) = oneshot::channel();
    thread::spawn(move || {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            // Kept first: whoever is slow to read what we print slows the command down, as a pipe does.
            keep(part, &buffer[..read], &mut kept.lock().unwrap_or_else(PoisonError::into_inner));
            // If nobody reads it, the command goes on, and what it prints is kept all the same.
            to.write_all(&buffer[..read]).and_then(|()| to.flush()).ok();
        }
        // If nobody waits for it, nobody wants to know.
        end.send(()).ok();
    });
    ended
}

fn keep(part: Part, bytes: &[u8], kept: &mut Vec<u8>) {
    match part {
        Part::Beginning => {
            let room = KEPT_BYTES_MAX + 1 - kept.len();
            kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        Part::End => {
            kept.extend_from_slice(bytes);
            let too_many = kept.len().saturating_sub(END_BYTES_MAX);
            kept.drain(..too_many);
        }
    }
}

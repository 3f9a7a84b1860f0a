//! What a command prints goes on to our standard output as it comes, and the beginning of it is kept.

use std::io::{Read, Write};
use std::process::ChildStdout;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

/// Bytes that are kept: as hexadecimal pairs they are within what a result may have.
pub const KEPT_BYTES_MAX: usize = 32 * 1024 - 256;
/// How long the end of the output may take after the command's: whoever it left behind may still print.
const REST_MAX: Duration = Duration::from_secs(2);

/// What a command printed.
#[derive(Default, Debug)]
pub struct Printed {
    pub bytes: Vec<u8>,
    /// There was more, or there may be.
    pub truncated: bool,
}

/// Between a command and our standard output.
#[derive(Default)]
pub struct Tee(Option<Begun>);

struct Begun {
    /// At most one byte more than is kept, which says that there was more.
    kept: Arc<Mutex<Vec<u8>>>,
    ended: oneshot::Receiver<()>,
}

impl Tee {
    pub fn begin(&mut self, mut output: ChildStdout) {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let (end, ended) = oneshot::channel();
        self.0 = Some(Begun { kept: kept.clone(), ended });
        thread::spawn(move || {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(read @ 1..) = output.read(&mut buffer) {
                // Kept first: whoever is slow to read what we print slows the command down, as a pipe does.
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let room = KEPT_BYTES_MAX + 1 - kept.len();
                kept.extend_from_slice(&buffer[..read.min(room)]);
                drop(kept);
                let mut out = std::io::stdout().lock();
                // If nobody reads it, the command goes on, and what it prints is kept all the same.
                out.write_all(&buffer[..read]).and_then(|()| out.flush()).ok();
            }
            // If nobody waits for it, nobody wants to know.
            end.send(()).ok();
        });
    }

    /// What was printed, once the command has ended.
    pub async fn end(self) -> Printed {
        let Some(Begun { kept, ended }) = self.0 else { return Printed::default() };
        let is_all = tokio::time::timeout(REST_MAX, ended).await.is_ok();
        let mut bytes = kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let truncated = !is_all || bytes.len() > KEPT_BYTES_MAX;
        bytes.truncate(KEPT_BYTES_MAX);
        Printed { bytes, truncated }
    }
}

//! Putting a file's definitions into the store, and looking for changes of the file.
//!
//! The file is looked at, not watched: that works on every file system, and with every way to replace a file. Whatever the
//! store doesn't take is tried again, with growing pauses, until it does or the file says something else; meanwhile the
//! server serves.

use super::LimitsFileError;
use super::parse::{Definitions, Fault, parse};
use super::source::{Stamp, read, stamp};
use baton_core::Name;
use baton_core::limit::{Definition, Put};
use baton_engine::limit::LimitError;
use baton_engine::{Engine, Failure};
use futures_util::future::join_all;
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// How often the file is looked at. It is read when two looks in a row see the same change, so that a file is not read
/// while it is being written.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long the start waits for the store to take the definitions; the rest comes while it serves.
const START_MAX: Duration = Duration::from_secs(5);
/// Definitions that are put at once.
const AT_ONCE: usize = 16;
/// The pause after the first try that failed; it doubles.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Names in a log line; of more, their number is told.
const NAMES_MAX: usize = 10;

/// A file of limits, and how far the store has them.
pub(crate) struct LimitsFile {
    path: PathBuf,
    /// How the file stood when it was last looked at, and when it was last read.
    seen: Option<Stamp>,
    read: Option<Stamp>,
    /// What the text was that was last read, whether or not it was fine. Nothing if it couldn't be read.
    text: Option<u64>,
    /// What the last file that was fine has.
    names: HashSet<Name>,
    /// What the store doesn't have yet.
    left: VecDeque<(Name, Definition)>,
    /// How many of it the store had otherwise, or not at all.
    changed: usize,
    pause: Duration,
    try_at: Instant,
}

impl LimitsFile {
    /// Reads a file for the first time.
    pub(crate) async fn open(path: PathBuf) -> Result<Self, LimitsFileError> {
        let mut file = Self {
            path,
            seen: None,
            read: None,
            text: None,
            names: HashSet::new(),
            left: VecDeque::new(),
            changed: 0,
            pause: PAUSE_MIN,
            try_at: Instant::now(),
        };
        let looked = file.blocking(stamp).await;
        (file.seen, file.read) = (looked, looked);
        match file.load().await {
            Ok(definitions) => file.take(definitions.unwrap_or_default()),
            Err(fault) => return Err(LimitsFileError { path: file.path, fault }),
        }
        Ok(file)
    }

    /// Puts what the file says before anybody is served, if the store doesn't take too long.
    pub(crate) async fn begin(&mut self, engine: &Engine) {
        if timeout(START_MAX, self.put(engine)).await.is_err() {
            tracing::warn!(left = self.left.len(), "putting the file's limits takes long; it goes on");
        }
        // What the store doesn't have yet is what their policies are known by until it has.
        for (name, definition) in &self.left {
            engine.assume_limit(name, definition.clone());
        }
    }

    /// Follows the file until the server is about to stop.
    pub(crate) async fn follow(mut self, engine: Engine, mut stopping: watch::Receiver<bool>) {
        let following = async {
            let mut has_store = engine.has_met_its_store();
            loop {
                sleep(LOOK_EVERY).await;
                self.look().await;
                if !has_store && engine.has_met_its_store() {
                    // Whoever was served without it must not wait for a file that the store could have by now.
                    (has_store, self.try_at) = (true, Instant::now());
                }
                if !self.left.is_empty() && self.try_at <= Instant::now() {
                    self.put(&engine).await;
                }
            }
        };
        // Whatever is cut off here is put again at the next start.
        tokio::select! {
            () = following => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    }

    async fn look(&mut self) {
        let now = self.blocking(stamp).await;
        let before = std::mem::replace(&mut self.seen, now);
        if now == self.read || now != before {
            return;
        }
        self.read = now;
        match self.load().await {
            Ok(Some(definitions)) => {
                self.log_vanished(&definitions);
                self.take(definitions);
            }
            Ok(None) => {}
            Err(fault) => {
                let error = LimitsFileError { path: self.path.clone(), fault };
                tracing::error!("{error}; the limits stay as they were");
            }
        }
    }

    /// What the file says; nothing if it says what it said when it was last read.
    async fn load(&mut self) -> Result<Option<Definitions>, Fault> {
        let text = self.blocking(read).await;
        let hash = text.as_ref().ok().map(|text| {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            hasher.finish()
        });
        let before = std::mem::replace(&mut self.text, hash);
        let text = text?;
        if hash == before {
            return Ok(None);
        }
        let parsed = tokio::task::spawn_blocking(move || parse(&text)).await;
        parsed.unwrap_or_else(|error| Err(Fault::of(error.to_string()))).map(Some)
    }

    fn take(&mut self, definitions: Definitions) {
        self.names = definitions.iter().map(|(name, _)| name.clone()).collect();
        self.left = definitions.into();
        (self.changed, self.pause, self.try_at) = (0, PAUSE_MIN, Instant::now());
    }

    /// They stay in the store: it isn't known here whose they are.
    fn log_vanished(&self, definitions: &Definitions) {
        let kept: HashSet<_> = definitions.iter().map(|(name, _)| name).collect();
        let mut vanished: Vec<_> = self.names.iter().filter(|name| !kept.contains(name)).collect();
        if vanished.is_empty() {
            return;
        }
        vanished.sort();
        let names: Vec<_> = vanished.iter().take(NAMES_MAX).map(|name| shown(name)).collect();
        tracing::warn!(
            number = vanished.len(),
            ?names,
            "limits are no longer in the file, and stay in force until they are removed"
        );
    }

    /// Tries to put what the store doesn't have yet.
    async fn put(&mut self, engine: &Engine) {
        let (mut untried, mut failed) = (self.left.len(), None);
        while untried > 0 {
            let number = untried.min(AT_ONCE);
            let first = self.left.iter().take(number);
            let put = join_all(first.map(|(name, said)| engine.put_limit(name, said.clone()))).await;
            untried -= number;
            for put in put {
                // One for each that was sent, and in their order. Only now is it taken out: a start that can't wait any
                // longer cuts this off above.
                let Some(sent) = self.left.pop_front() else { break };
                match put {
                    Ok((put, _)) => self.changed += usize::from(!matches!(put, Put::Same(_))),
                    Err(error) => {
                        // The others would fare no better, and each would wait for the store.
                        if matches!(error, LimitError::Failed(Failure::Unavailable { .. })) {
                            untried = 0;
                        }
                        failed = Some((shown(&sent.0), error));
                        self.left.push_back(sent);
                    }
                }
            }
        }
        let Some((limit, error)) = failed else {
            tracing::info!(
                limits = self.names.len(),
                changed = self.changed,
                "the file's limits are in force"
            );
            return;
        };
        let again_seconds = self.pause.as_secs();
        tracing::warn!(
            left = self.left.len(),
            limit,
            ?error,
            again_seconds,
            "can't put the file's limits yet"
        );
        self.try_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// Files are asked for elsewhere: a slow disk must not keep a thread that serves.
    async fn blocking<T: Send + 'static>(&self, ask: fn(&Path) -> T) -> T {
        let path = self.path.clone();
        match tokio::task::spawn_blocking(move || ask(&path)).await {
            Ok(answer) => answer,
            // Only while the runtime goes down, or by a bug in it.
            Err(_) => ask(&self.path),
        }
    }
}

fn shown(name: &Name) -> String {
    format!("{}/{}", name.namespace(), name.key())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: &str = "limits: {api: {limit: 1, windowMillis: 1}}";
    const BAD: &str = "limits: {api: {limit: 0, windowMillis: 1}}";

    /// What the file is said to have after it was replaced and looked at as often as it takes; nothing new is nothing.
    async fn seen(file: &mut LimitsFile, text: &str) -> Vec<u64> {
        file.left.clear();
        let next = file.path.with_extension("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, &file.path).unwrap();
        file.look().await;
        assert!(file.left.is_empty() && file.read != file.seen, "it may still be written");
        file.look().await;
        assert_eq!(file.read, file.seen, "it stands still");
        file.left.iter().map(|(_, definition)| definition.limit).collect()
    }

    #[tokio::test]
    async fn a_file_is_read_when_it_stands_still_and_taken_if_it_says_something_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("limits.yaml");
        std::fs::write(&path, FINE).unwrap();
        let mut file = LimitsFile::open(path).await.unwrap();
        assert_eq!(file.left.len(), 1);
        assert!(seen(&mut file, FINE).await.is_empty(), "the same text");
        assert_eq!(seen(&mut file, &FINE.replace("limit: 1", "limit: 2")).await, [2]);
        for _ in 0..2 {
            assert!(seen(&mut file, BAD).await.is_empty(), "nothing of a bad file");
            assert_eq!(file.names.len(), 1, "what was there is still known");
        }
        assert_eq!(seen(&mut file, FINE).await, [1], "after a bad one it is put again");
        assert!(seen(&mut file, "limits: {}").await.is_empty() && file.names.is_empty());
    }
}

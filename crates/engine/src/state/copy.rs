//! Definitions of limits as they were last known, so that a node that starts while the store is away can follow their policies.
//!
//! It is written anew when something changes, beside the old one, synced, and renamed. It is a memory, not a truth: what is in it is
//! used for policies alone, and one that is damaged is as good as none.
//!
//! Layout, version 1: a frame with the version and the cluster, then one for each definition: the version, namespace, limit, the
//! definition's revision, and its record's value.

use super::frames::{self, Frames};
use super::{StateError, sync_names};
use baton_core::Name;
use baton_core::codec::{Decoder, Encoder, Unreadable};
use baton_core::limit::{Defined, Definition};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

const LETTERS: &[u8; 8] = b"batonlim";
const VERSION: u8 = 1;
const FILE: &str = "limits";
/// Bytes of the file; definitions beyond it are left out.
const FILE_BYTES_MAX: usize = 32 << 20;

/// What was known.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Copied {
    /// Whose they are.
    pub cluster: [u8; 16],
    pub definitions: Vec<(Name, Defined)>,
}

fn decoded(payload: &[u8]) -> Result<(Name, Defined), Unreadable> {
    let mut from = Decoder::new(payload, VERSION)?;
    let name = Name::new(&from.string()?, &from.string()?);
    let version = from.revision()?;
    let definition = Definition::decode(from.bytes()?)?;
    from.finish()?;
    Ok((name, Defined { definition, version }))
}

fn encoded(name: &Name, defined: &Defined) -> baton_core::Bytes {
    Encoder::new(VERSION)
        .bytes(name.namespace().as_bytes())
        .bytes(name.key().as_bytes())
        .number(defined.version.0)
        .bytes(&defined.definition.encode())
        .finish()
}

/// What the file has; nothing if there is none, or its begin can't be read.
pub(super) fn read(directory: &Path) -> Result<Option<Copied>, StateError> {
    let path = directory.join(FILE);
    let mut bytes = Vec::new();
    match File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX as u64).read_to_end(&mut bytes)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StateError::Unreadable { path, error }),
        Ok(_) => {}
    }
    let Some(mut frames) = Frames::read(&bytes, LETTERS, VERSION, &path)? else { return Ok(None) };
    let Some(cluster) = frames.next().and_then(|payload| Decoder::new(payload, VERSION).ok()?.fixed().ok())
    else {
        return Ok(None);
    };
    let mut copied = Copied { cluster, definitions: Vec::new() };
    for payload in frames.by_ref() {
        match decoded(payload) {
            Ok(definition) => copied.definitions.push(definition),
            Err(Unreadable) => tracing::warn!("a definition in the state directory can't be read"),
        }
    }
    if frames.rest() > 0 {
        tracing::warn!("the definitions in the state directory are damaged: some are missing");
    }
    Ok(Some(copied))
}

/// Replaces the file. Blocks. `name` is nobody else's: nodes may share a directory.
pub(super) fn write(directory: &Path, name: u64, copied: &Copied) -> io::Result<()> {
    let mut bytes = frames::head(LETTERS, VERSION);
    frames::add(&Encoder::new(VERSION).fixed(&copied.cluster).finish(), &mut bytes);
    let mut left_out = 0;
    for (name, defined) in &copied.definitions {
        let payload = encoded(name, defined);
        if bytes.len() + frames::FRAME_BYTES + payload.len() > FILE_BYTES_MAX {
            left_out += 1;
            continue;
        }
        frames::add(&payload, &mut bytes);
    }
    if left_out > 0 {
        tracing::warn!(left_out, "definitions are not kept for a start without the store: they are too long");
    }
    std::fs::create_dir_all(directory)?;
    let next = directory.join(format!("{FILE}-{name:016x}.next"));
    let written = (|| {
        let mut file = File::create(&next)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&next, directory.join(FILE))
    })();
    written.inspect_err(|_| drop(std::fs::remove_file(&next)))?;
    sync_names(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_core::limit::Policy;
    use baton_core::meter::Algorithm;
    use baton_core::{Revision, WallTime};

    fn copied() -> Copied {
        let definition = |limit| Definition {
            on_failure: Policy::Local,
            expected_nodes: Some(3),
            keys_max: 10,
            changed_at: WallTime(5),
            ..Definition::plain(Algorithm::FixedWindow, limit, 60_000)
        };
        let one = |name, limit| {
            (Name::new("n", name), Defined { definition: definition(limit), version: Revision(1 << 50) })
        };
        Copied { cluster: [9; 16], definitions: vec![one("a", 5), one("b", 6)] }
    }

    #[test]
    fn what_was_known_is_read_back_and_a_damaged_rest_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("made/when/needed");
        assert_eq!(read(&state).unwrap(), None);
        write(&state, 1, &Copied::default()).unwrap();
        write(&state, 1, &copied()).unwrap();
        assert_eq!(read(&state).unwrap(), Some(copied()));
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1, "nothing is left beside it");
        let path = state.join(FILE);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(read(&state).unwrap().unwrap().definitions, copied().definitions[..1]);
        std::fs::write(&path, b"something else").unwrap();
        assert_eq!(read(&state).unwrap(), None);
    }

    #[test]
    fn what_a_newer_version_wrote_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), 1, &copied()).unwrap();
        let path = directory.path().join(FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8] = VERSION + 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(read(directory.path()), Err(StateError::Newer { .. })));
    }
}

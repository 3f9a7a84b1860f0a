//! The file: its text, and whether it is still the same.

use super::FILE_BYTES_MAX;
use super::parse::Fault;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What changes when a file does. Links are followed, so another file at the end of the same name shows as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    /// Nobody can set this one back.
    changed: (i64, i64),
}

/// How the file stands; nothing if it isn't there.
pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    Some(Stamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        bytes: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    })
}

/// The file's text, if it isn't too long.
pub(super) fn read(path: &Path) -> Result<String, Fault> {
    let failed = |error: std::io::Error| Fault::of(error.to_string());
    // A pipe could keep whoever opens it forever.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Fault::of("it isn't a file"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    // One more than is allowed tells that there are more; it may grow while it is read.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Fault::of(format!("it is longer than {FILE_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| Fault::of("it isn't UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_bound_and_not_beyond() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("limits.yaml");
        let refused = |why: &str| assert!(read(&path).unwrap_err().to_string().contains(why), "{why}");
        refused("No such file");
        fs::write(&path, vec![b' '; FILE_BYTES_MAX as usize]).unwrap();
        assert_eq!(read(&path).unwrap().len() as u64, FILE_BYTES_MAX);
        fs::write(&path, vec![b' '; FILE_BYTES_MAX as usize + 1]).unwrap();
        refused("longer than 4194304 bytes");
        fs::write(&path, b"\xff").unwrap();
        refused("UTF-8");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        refused("isn't a file");
    }

    #[test]
    fn another_file_behind_the_same_link_is_another_stamp() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("one"), "same").unwrap();
        fs::write(at("two"), "same").unwrap();
        std::os::unix::fs::symlink("one", at("data")).unwrap();
        std::os::unix::fs::symlink("data", at("limits.yaml")).unwrap();
        let before = stamp(&at("limits.yaml"));
        assert!(before.is_some() && before == stamp(&at("limits.yaml")));
        std::os::unix::fs::symlink("two", at("next")).unwrap();
        fs::rename(at("next"), at("data")).unwrap();
        assert_ne!(stamp(&at("limits.yaml")), before);
        fs::remove_file(at("two")).unwrap();
        assert_eq!(stamp(&at("limits.yaml")), None);
    }
}

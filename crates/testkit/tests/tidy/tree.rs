//! Which files there are: everything that would be committed.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the tree.
pub struct File {
    /// From the tree's root, with `/` between the parts.
    pub path: String,
    /// What it says.
    pub text: String,
}

impl File {
    /// Whether it is Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it is below one of these directories.
    pub fn is_under(&self, directories: &[&str]) -> bool {
        directories.iter().any(|directory| self.path.starts_with(directory))
    }
}

/// The tree's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// Every text file, in order. Build directories, data and hidden directories other than `.ci` are left out.
pub fn files() -> Vec<File> {
    let root = root();
    let mut found = Vec::new();
    collect(&root, &root, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 10, "the walk found next to nothing below {}", root.display());
    found
}

/// One file's text; the path is from the tree's root.
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn collect(root: &Path, directory: &Path, found: &mut Vec<File>) {
    for entry in fs::read_dir(directory).expect("readable directory") {
        let entry = entry.expect("readable entry");
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            let hidden = name.starts_with('.') && name != ".ci";
            let made = ["target", "baton-data", "node_modules", "__pycache__"].contains(&name.as_str());
            if !hidden && !made && !path.join("CACHEDIR.TAG").exists() {
                collect(root, &path, found);
            }
        } else if kind.is_file() {
            // What isn't UTF-8 isn't text; what vanished meanwhile isn't there.
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let path = path.strip_prefix(root).expect("below the root").to_string_lossy().replace('\\', "/");
            found.push(File { path, text });
        }
    }
}

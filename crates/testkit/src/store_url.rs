//! Which store a test runs on: the same tests, unchanged, on every one.

use std::path::Path;

/// Where the URL is given; `{}` in it stands for a word of the test's own.
pub const VARIABLE: &str = "BATON_TEST_STORE";

/// The URL of the store for a test whose temporary directory this is: its own part of the server that `with-store` has
/// started, or else the embedded one. The same directory gives the same part, so that a test can come back to it.
pub fn store_url(directory: &Path) -> String {
    let Ok(template) = std::env::var(VARIABLE) else { return "embedded:".into() };
    let name = directory.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let word: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    template.replace("{}", &format!("t{word}"))
}

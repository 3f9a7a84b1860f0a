//! Where a lockToken or a claimToken must not go: logs, traces, metrics.

use crate::assert_tidy;
use crate::source::{blank, bracketed, code, identifiers, line_of};
use crate::tree::files;

const TOKENS: &[&str] = &["lock_token", "lockToken", "LockToken", "claim_token", "claimToken", "ClaimToken"];
const LOG_MACROS: &[&str] = &[
    "trace!",
    "debug!",
    "info!",
    "warn!",
    "error!",
    "event!",
    "span!",
    "trace_span!",
    "debug_span!",
    "info_span!",
    "warn_span!",
    "error_span!",
];

fn tokens_logged(path: &str, text: &str) -> Vec<String> {
    // Strings stay: a format string can name the variable it prints.
    let source = blank(text, true);
    let mut complaints = Vec::new();
    for name in LOG_MACROS {
        for (start, _) in source.match_indices(name) {
            let open = start + name.len();
            let whole = !source[..start].ends_with(|before: char| before == '_' || before.is_alphanumeric());
            if whole && source[open..].starts_with(['(', '[', '{']) {
                let arguments = bracketed(&source, open);
                if identifiers(arguments).any(|(_, _, word)| TOKENS.contains(&word)) {
                    let line = line_of(&source, start);
                    complaints.push(format!(
                        "{path}:{line}: a secret token in {name}: whoever reads the log owns what it proves"
                    ));
                }
            }
        }
    }
    complaints
}

#[test]
fn a_lock_token_is_never_logged() {
    assert!(
        tokens_logged("x", "info!(fencing_token, \"granted\"); let lock_token = 1; // info!(lock_token)")
            .is_empty()
    );
    for bad in [
        "tracing::info!(lock_token = %token, \"granted\")",
        "warn!(\n  \"refused {lock_token}\"\n)",
        "debug!(?request.lock_token)",
        "debug!(claimToken = request.claim_token)",
        "let span = info_span!(\"renew\", %lock_token);",
    ] {
        assert_eq!(tokens_logged("x", bad).len(), 1, "{bad}");
    }

    let sources = files().into_iter().filter(|file| file.is_rust() && !file.path.contains("/tests/tidy/"));
    assert_tidy(sources.flat_map(|file| tokens_logged(&file.path, &file.text)).collect());
}

/// Fields that may not be a metric's label: secrets, and whatever a caller can make endlessly many of.
const NOT_LABELS: &[&str] =
    &["lock_token", "claim_token", "lock_key", "key", "owner", "owner_id", "request_id", "token"];

fn unbounded_labels(path: &str, text: &str) -> Vec<String> {
    let code = code(text);
    let mut complaints = Vec::new();
    for (start, _) in code.match_indices("EncodeLabelSet") {
        let Some(item) = code[start..].find("struct ") else { continue };
        // An import is followed by some struct as well; a derive has only attributes in between.
        if code[start..start + item].contains(';') {
            continue;
        }
        let Some(open) = code[start + item..].find('{') else { continue };
        let fields = bracketed(&code, start + item + open);
        for (_, offset, field) in identifiers(fields) {
            let named = fields[offset + field.len()..].trim_start().starts_with(':');
            if named && NOT_LABELS.contains(&field) {
                let line = line_of(&code, start);
                complaints.push(format!(
                    "{path}:{line}: `{field}` as a metric's label is a secret or has no bound"
                ));
            }
        }
    }
    complaints
}

#[test]
fn metric_labels_are_bounded_and_hold_no_secret() {
    let fine = "use p::EncodeLabelSet;\nstruct Lock { key: String }\n#[derive(EncodeLabelSet)]\nstruct L { outcome: Outcome }";
    assert!(unbounded_labels("x", fine).is_empty());
    assert_eq!(
        unbounded_labels("x", "#[derive(Clone, EncodeLabelSet)]\npub struct L { pub lock_key: String }")
            .len(),
        1
    );

    let sources = files().into_iter().filter(|file| file.is_rust() && !file.path.contains("/tests/tidy/"));
    assert_tidy(sources.flat_map(|file| unbounded_labels(&file.path, &file.text)).collect());
}

fn leaky_tokens(path: &str, text: &str) -> Vec<String> {
    let code = code(text);
    let mut complaints = Vec::new();
    for token in ["LockToken", "ClaimToken"] {
        if code.contains(&format!("Display for {token}")) {
            complaints.push(format!("{path}: a {token} that can be displayed will be"));
        }
    }
    for (start, _) in code.match_indices("#[instrument").chain(code.match_indices("#[tracing::instrument")) {
        if !bracketed(&code, start + 1).contains("skip_all") {
            let line = line_of(&code, start);
            complaints.push(format!(
                "{path}:{line}: instrument without skip_all records every argument, secrets too"
            ));
        }
    }
    complaints
}

#[test]
fn a_lock_token_can_not_be_displayed_or_recorded_by_accident() {
    assert!(
        leaky_tokens("x", "impl fmt::Debug for LockToken {}\n#[instrument(skip_all)]\nfn f() {}").is_empty()
    );
    assert_eq!(
        leaky_tokens("x", "impl fmt::Display for LockToken {}\n#[tracing::instrument]\nfn f() {}").len(),
        2
    );

    let sources = files().into_iter().filter(crate::tree::File::is_rust);
    assert_tidy(sources.flat_map(|file| leaky_tokens(&file.path, &file.text)).collect());
}

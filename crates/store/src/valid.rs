//! What every store refuses before it looks at anything.

use crate::contract::{Reason, StoreError};
use baton_core::{COMMIT_BYTES_MAX, COMMIT_OPERATIONS_MAX, Check, Commit, Write};

/// Refuses what can't be appended: it has as many writes as fit, and only such as always hold.
pub(crate) fn validate_appended(commit: &Commit) -> Result<(), StoreError> {
    if commit.bytes() > COMMIT_BYTES_MAX {
        return invalid(format!("{} bytes; at most {COMMIT_BYTES_MAX}", commit.bytes()));
    }
    if !commit.checks.is_empty() || commit.writes.iter().any(|write| matches!(write, Write::Touch { .. })) {
        return invalid("what is appended only puts and deletes".into());
    }
    Ok(())
}

fn invalid(detail: String) -> Result<(), StoreError> {
    Err(StoreError::NotApplied { reason: Reason::Invalid, detail })
}

/// Refuses what breaks the contract.
pub(crate) fn validate(commit: &Commit) -> Result<(), StoreError> {
    if commit.operations() > COMMIT_OPERATIONS_MAX {
        return invalid(format!("{} operations; at most {COMMIT_OPERATIONS_MAX}", commit.operations()));
    }
    if commit.bytes() > COMMIT_BYTES_MAX {
        return invalid(format!("{} bytes; at most {COMMIT_BYTES_MAX}", commit.bytes()));
    }
    let mut keys = commit.checks.iter().map(Check::key).chain(commit.writes.iter().map(Write::key));
    if let Some(first) = keys.next()
        && let Some(other) = keys.find(|key| key.group != first.group)
    {
        return invalid(format!("keys of two groups: {first:?} and {other:?}"));
    }
    for (index, write) in commit.writes.iter().enumerate() {
        if commit.writes[..index].iter().any(|earlier| earlier.key() == write.key()) {
            return invalid(format!("two writes for {:?}", write.key()));
        }
    }
    Ok(())
}

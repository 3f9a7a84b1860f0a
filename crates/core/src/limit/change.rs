//! Putting and removing a definition. What was counted stays: meters follow when they are next charged.

use super::definition::Definition;
use super::definition_key;
use crate::commit::Ttl;
use crate::name::Name;
use crate::view::{Pause, View};
use alloc::boxed::Box;

/// What putting one did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Put {
    /// There was none.
    Made,
    /// There was another.
    Changed,
    /// It says what it said.
    Same(Box<Definition>),
}

/// Puts a definition. One that says the same stays as it is, so that putting it twice does no more than putting it once.
pub fn put(name: &Name, definition: &Definition, view: &mut View) -> Result<Put, Pause> {
    let key = definition_key(name);
    let seen = view.get(&key)?;
    let before = seen.map(|seen| Definition::decode(&seen.value)).transpose()?;
    match before {
        Some(before) if before.says_the_same(definition) => Ok(Put::Same(Box::new(before))),
        before => {
            view.put(&key, definition.encode(), Ttl::Forever);
            Ok(if before.is_some() { Put::Changed } else { Put::Made })
        }
    }
}

/// Removes a definition; whether there was one. Its meters are forgotten when their windows are over.
pub fn remove(name: &Name, view: &mut View) -> Result<bool, Pause> {
    let key = definition_key(name);
    let there = view.get(&key)?.is_some();
    if there {
        view.delete(&key);
    }
    Ok(there)
}

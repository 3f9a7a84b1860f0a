//! For tests of rules that decide one command at a time: the engine's loop in a few lines, on the store of the lock's
//! tests, with each commit in the test's hands.

use crate::commit::{Commit, Outcome};
use crate::lock::tests::store::Store;
use crate::record::{Group, Revision};
use crate::view::{Pause, View};

/// Decides until the store agrees. `send` makes a commit happen, in whatever way the test wants.
pub fn decide_with<R>(
    store: &mut Store,
    group: Group,
    mut rule: impl FnMut(&mut View) -> Result<R, Pause>,
    mut send: impl FnMut(&mut Store, &Commit) -> Outcome,
) -> (R, Revision) {
    let mut view = View::new(group);
    for _ in 0..100 {
        view.save();
        let reply = match rule(&mut view) {
            Ok(reply) => reply,
            Err(Pause::Read(key)) => {
                view.roll_back();
                let found = store.read(&key);
                view.learn(&key, found);
                continue;
            }
            Err(pause) => panic!("{pause:?}"),
        };
        assert!(view.fits());
        if !view.is_dirty() && !view.is_assuming() {
            return (reply, Revision::default());
        }
        let commit = view.commit();
        if !view.is_dirty() {
            view.clear();
            for check in &commit.checks {
                let found = store.read(check.key());
                view.learn(check.key(), found);
            }
            continue;
        }
        match send(store, &commit) {
            Outcome::Committed { revision, .. } => return (reply, revision),
            Outcome::Conflict { found, .. } => {
                view.clear();
                found.into_iter().for_each(|(key, record)| view.learn(&key, record));
            }
        }
    }
    panic!("undecided after a hundred rounds");
}

/// Decides, on a store that answers.
pub fn decide<R>(
    store: &mut Store,
    group: Group,
    rule: impl FnMut(&mut View) -> Result<R, Pause>,
) -> (R, Revision) {
    decide_with(store, group, rule, |store, commit| store.commit(commit))
}

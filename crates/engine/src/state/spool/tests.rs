//! What is read back after whatever happened to the node.

use super::*;

fn owed(key: &str, amount: u64) -> Owed {
    let id = [key.len() as u8; 16];
    Owed { id, cluster: Some([7; 16]), limit: Name::new("n", "l"), key: key.into(), amount }
}

/// A spool, and what is owed by it.
struct Ground {
    directory: tempfile::TempDir,
    spool: Option<Spool>,
    owed: BTreeMap<u64, Owed>,
}

impl Ground {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let spool = Some(Spool::new(directory.path().join("state"), 1));
        Self { directory, spool, owed: BTreeMap::new() }
    }

    fn spool(&mut self) -> &mut Spool {
        self.spool.as_mut().unwrap()
    }

    fn append(&mut self, lines: &[Line]) -> Result<(), SpoolError> {
        let owed = self.owed.clone();
        self.spool().append(lines, &owed)?;
        for line in lines {
            match line {
                Line::Begun(number, one) => drop(self.owed.insert(*number, one.clone())),
                Line::Added(number, amount) => self.owed.get_mut(number).unwrap().amount += amount,
                Line::Settled(number) => drop(self.owed.remove(number)),
            }
        }
        Ok(())
    }

    fn files(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.directory.path().join("state")) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// What the next node finds.
    fn left(&self) -> Vec<Left> {
        left(&self.directory.path().join("state"), &self.files()).unwrap()
    }

    fn end(&mut self) -> Vec<Left> {
        self.spool = None;
        self.left()
    }
}

#[test]
fn what_is_owed_is_found_by_the_next_node_with_its_id() {
    let mut ground = Ground::new();
    assert!(ground.files().is_empty() && !ground.directory.path().join("state").exists());
    ground.append(&[Line::Begun(1, owed("a", 5)), Line::Begun(2, owed("bb", 1))]).unwrap();
    ground.append(&[Line::Added(1, 2)]).unwrap();
    let was = ground.owed.remove(&2).unwrap();
    ground.spool().settled(2, &was);
    assert!(ground.left().is_empty(), "its node lives");
    let left = ground.end();
    assert_eq!(left[0].owed, [owed("a", 7)]);
    assert!(ground.left().is_empty(), "whoever finds it has it alone");
    left.into_iter().for_each(Left::remove);
    assert!(ground.files().is_empty());
}

#[test]
fn a_file_that_grew_goes_on_in_another_and_nothing_is_lost_whenever_it_ends() {
    let mut ground = Ground::new();
    ground.append(&[Line::Begun(1, owed("a", 1))]).unwrap();
    let mut admitted = 1;
    for synced in [false, true] {
        for _ in 0..100_000 {
            ground.append(&[Line::Added(1, 1)]).unwrap();
            admitted += 1;
            assert!(ground.spool().bytes() <= FILE_BYTES_MIN);
        }
        assert!(ground.files().len() > 1, "the first is kept until the next is on disk");
        if synced {
            let unsynced = ground.spool().unsynced().unwrap();
            unsynced.sync().unwrap();
            ground.spool().synced(unsynced.generation, true);
            assert_eq!(ground.files().len(), 1);
            assert!(ground.spool().unsynced().is_none());
        }
    }
    // The machine went down while a generation was written: its begin isn't whole.
    let newest = ground.files().into_iter().max().unwrap();
    let next = format!("{}{:016x}", &newest[..newest.len() - 16], 99);
    let mut begin = frames::head(LETTERS, VERSION);
    begin.extend(encoded(&Line::Begun(1, owed("a", 3))));
    std::fs::write(ground.directory.path().join("state").join(next), begin).unwrap();
    let left = ground.end();
    assert_eq!(left[0].owed, [owed("a", admitted)]);
    assert_eq!(left[0].files.len(), 2, "both are done with");
}

#[test]
fn what_is_owed_has_a_bound_and_what_is_known_can_still_be_added_to() {
    let mut ground = Ground::new();
    let (long, mut number) = ("k".repeat(500), 0);
    // By what a file may have, not by trying: all of that would take a while.
    ground.append(&[Line::Begun(number, owed(&long, 1))]).unwrap();
    let each = owed(&long, 1).bytes();
    ground.spool().owed_bytes = FILE_BYTES_MAX / 2 - each;
    number += 1;
    ground.append(&[Line::Begun(number, owed(&long, 1))]).unwrap();
    let refused = ground.append(&[Line::Begun(number + 1, owed(&long, 1))]);
    assert!(matches!(refused, Err(SpoolError::Full)));
    ground.append(&[Line::Added(number, 1)]).unwrap();
    let was = ground.owed.remove(&0).unwrap();
    ground.spool().settled(0, &was);
    ground.append(&[Line::Begun(number + 1, owed(&long, 1))]).unwrap();
    assert_eq!(ground.end()[0].owed.len(), 2);
}

#[test]
fn a_disk_that_does_not_take_it_is_an_error_and_nothing_is_half_there() {
    let mut ground = Ground::new();
    let state = ground.directory.path().join("state");
    std::fs::write(&state, "a file is where the directory should be").unwrap();
    let refused = ground.append(&[Line::Begun(1, owed("a", 1))]);
    assert!(matches!(refused, Err(SpoolError::Failed(_))));
    std::fs::remove_file(&state).unwrap();
    ground.append(&[Line::Begun(1, owed("a", 1))]).unwrap();
    assert_eq!(ground.end()[0].owed, [owed("a", 1)]);
}

#[test]
fn when_nothing_is_owed_nothing_is_kept() {
    let mut ground = Ground::new();
    ground.append(&[Line::Begun(1, owed("a", 1))]).unwrap();
    ground.owed.clear();
    ground.spool().clear();
    assert!(ground.files().is_empty());
    ground.append(&[Line::Begun(2, owed("bb", 4))]).unwrap();
    assert_eq!(ground.end()[0].owed, [owed("bb", 4)]);
}

//! A disk in memory that does to its files what real ones do: it tears and reorders what wasn't synced, forgets
//! names, flips bits, fills up and fails. What it does follows from its seed.

use super::{Disk, DiskFile};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Writes that weren't synced survive a crash in pieces of this size.
const SECTOR_BYTES: usize = 64;

/// Numbers that follow from a seed (SplitMix64).
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }

    /// True once in `count` times.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// The disk. A clone is the same disk.
#[derive(Clone)]
pub struct SimulatedDisk(Arc<(Mutex<World>, Condvar)>);

struct World {
    random: Random,
    /// Names as the process sees them, and as a crash would leave them at worst.
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameChange>,
    files: Vec<Contents>,
    operations: u64,
    crash_at: Option<u64>,
    down: bool,
    /// Files opened before a crash are of no use after it.
    run: u64,
    capacity_bytes: u64,
    syncs_fail: bool,
    syncs_wait: bool,
    syncs: u64,
}

#[derive(Clone)]
enum NameChange {
    Link(String, usize),
    Unlink(String),
}

#[derive(Default)]
struct Contents {
    seen: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

enum Pending {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

impl SimulatedDisk {
    /// An empty disk.
    pub fn new(seed: u64) -> Self {
        let world = World {
            random: Random::new(seed),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            files: Vec::new(),
            operations: 0,
            crash_at: None,
            down: false,
            run: 0,
            capacity_bytes: u64::MAX,
            syncs_fail: false,
            syncs_wait: false,
            syncs: 0,
        };
        Self(Arc::new((Mutex::new(world), Condvar::new())))
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.0.0.lock().expect("no panic while held")
    }

    /// How many changes it was asked for so far.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// The machine goes down in the middle of this change; `None` means never.
    pub fn crash_at(&self, operation: Option<u64>) {
        self.lock().crash_at = operation;
    }

    /// The machine goes down now, if it isn't, and comes up with what survived.
    pub fn restart(&self) {
        self.lock().restart();
    }

    /// Writes that would make its files larger than this in total fail.
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().capacity_bytes = bytes;
    }

    /// Syncs fail from now on, or work again.
    pub fn fail_syncs(&self, fail: bool) {
        self.lock().syncs_fail = fail;
    }

    /// Syncs of files take until this is said otherwise.
    pub fn hold_syncs(&self, hold: bool) {
        self.lock().syncs_wait = hold;
        self.0.1.notify_all();
    }

    /// How many syncs of files have begun.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// The bytes of a file.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let world = self.lock();
        world.names.get(name).map(|id| world.files[*id].seen.clone())
    }

    /// Replaces a file's bytes, durably: damage.
    pub fn set_bytes(&self, name: &str, bytes: Vec<u8>) {
        let mut world = self.lock();
        if let Some(id) = world.names.get(name).copied() {
            world.files[id] = Contents { seen: bytes.clone(), durable: bytes, pending: Vec::new() };
        }
    }
}

impl World {
    /// Counts a change; whether this is the one in which the machine goes down. An error if it is down.
    fn step(&mut self, run: u64) -> io::Result<bool> {
        if self.down || run != self.run {
            return Err(io::Error::other("the machine is down"));
        }
        self.operations += 1;
        self.down = self.crash_at.is_some_and(|at| self.operations >= at);
        Ok(self.down)
    }

    fn outcome(&self) -> io::Result<()> {
        if self.down { Err(io::Error::other("the machine went down")) } else { Ok(()) }
    }

    fn rename_pending(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.pending_names.push(change);
    }

    fn restart(&mut self) {
        for id in 0..self.files.len() {
            let (manner, random) = (self.random.below(4), &mut self.random);
            let file = &mut self.files[id];
            let mut survived = std::mem::take(&mut file.durable);
            let kept = random.below(file.pending.len() as u64 + 1) as usize;
            for (position, pending) in file.pending.drain(..).enumerate() {
                match (manner, &pending) {
                    (0, _) => {}
                    (1, _) => pending.apply(&mut survived),
                    (2, _) if position < kept => pending.apply(&mut survived),
                    (2, Pending::Write(offset, bytes)) if position == kept => {
                        let length = random.below(bytes.len() as u64 + 1) as usize;
                        write(&mut survived, *offset, &bytes[..length]);
                    }
                    (2, _) => {}
                    (_, Pending::Truncate(_)) if random.one_in(2) => pending.apply(&mut survived),
                    (_, Pending::Truncate(_)) => {}
                    (_, Pending::Write(offset, bytes)) => {
                        for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                            if random.one_in(2) {
                                write(&mut survived, offset + index * SECTOR_BYTES, sector);
                            }
                        }
                    }
                }
            }
            file.durable = survived;
            file.seen = file.durable.clone();
        }
        let kept = self.random.below(self.pending_names.len() as u64 + 1) as usize;
        let pending = std::mem::take(&mut self.pending_names);
        pending.iter().take(kept).for_each(|change| apply(&mut self.durable_names, change));
        self.names = self.durable_names.clone();
        self.run += 1;
        (self.down, self.crash_at) = (false, None);
    }
}

impl Pending {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Write(offset, bytes) => write(to, *offset, bytes),
            Self::Truncate(length) => to.resize(*length, 0),
        }
    }
}

fn write(to: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if to.len() < end {
        to.resize(end, 0);
    }
    to[offset..end].copy_from_slice(bytes);
}

fn apply(names: &mut BTreeMap<String, usize>, change: &NameChange) {
    match change {
        NameChange::Link(name, id) => drop(names.insert(name.clone(), *id)),
        NameChange::Unlink(name) => drop(names.remove(name)),
    }
}

fn not_found(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, name.to_owned())
}

impl Disk for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let world = self.lock();
        world.outcome()?;
        Ok(world.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut world = self.lock();
        let run = world.run;
        world.step(run)?;
        let id = world.files.len();
        world.files.push(Contents::default());
        world.rename_pending(NameChange::Link(name.to_owned(), id));
        world.outcome()?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), id, run }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let world = self.lock();
        world.outcome()?;
        let id = *world.names.get(name).ok_or_else(|| not_found(name))?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), id, run: world.run }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.lock();
        let run = world.run;
        world.step(run)?;
        let id = *world.names.get(from).ok_or_else(|| not_found(from))?;
        // A crash in between leaves both names, which no rename does; but one that loses neither is harder on
        // the store than one that loses either.
        world.rename_pending(NameChange::Link(to.to_owned(), id));
        world.rename_pending(NameChange::Unlink(from.to_owned()));
        world.outcome()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut world = self.lock();
        let run = world.run;
        world.step(run)?;
        if !world.names.contains_key(name) {
            return Err(not_found(name));
        }
        world.rename_pending(NameChange::Unlink(name.to_owned()));
        world.outcome()
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut world = self.lock();
        let run = world.run;
        let crash = world.step(run)?;
        if !crash || world.random.one_in(2) {
            world.durable_names = world.names.clone();
            world.pending_names.clear();
        }
        world.outcome()
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    id: usize,
    run: u64,
}

impl SimulatedFile {
    fn change(&self, change: Pending) -> io::Result<()> {
        let mut world = self.disk.lock();
        world.step(self.run)?;
        if let Pending::Write(offset, bytes) = &change {
            let used: usize = world.names.values().map(|id| world.files[*id].seen.len()).sum();
            let added = (offset + bytes.len()).saturating_sub(world.files[self.id].seen.len());
            if (used + added) as u64 > world.capacity_bytes {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        let file = &mut world.files[self.id];
        change.apply(&mut file.seen);
        file.pending.push(change);
        world.outcome()
    }
}

impl DiskFile for SimulatedFile {
    fn len(&self) -> io::Result<u64> {
        let world = self.disk.lock();
        world.outcome()?;
        Ok(world.files[self.id].seen.len() as u64)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let world = self.disk.lock();
        world.outcome()?;
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let found = world.files[self.id].seen.get(from..from + bytes.len());
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(Pending::Write(usize::try_from(offset).map_err(io::Error::other)?, bytes.to_vec()))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.change(Pending::Truncate(usize::try_from(length).map_err(io::Error::other)?))
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.disk.lock();
        world.syncs += 1;
        let held = self.disk.0.1.wait_while(world, |world| world.syncs_wait);
        let mut world = held.expect("no panic while held");
        let crash = world.step(self.run)?;
        if world.syncs_fail {
            return Err(io::Error::other("the disk failed"));
        }
        if !crash || world.random.one_in(2) {
            let Contents { durable, pending, .. } = &mut world.files[self.id];
            pending.drain(..).for_each(|pending| pending.apply(durable));
        }
        world.outcome()
    }
}

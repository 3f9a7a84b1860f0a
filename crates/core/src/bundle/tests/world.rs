//! One request, and the calls that are made for it.

use crate::bundle::{self, Begin, Begun, Bundle, Nonce, bundle_key};
use crate::commit::{Commit, Outcome};
use crate::lock::tests::store::Store;
use crate::name::Name;
use crate::trial::decide_with;
use crate::view::{Pause, View};
use core::time::Duration;

pub const KEPT: Duration = Duration::from_secs(600);

#[derive(Clone)]
pub struct World {
    pub store: Store,
    pub name: Name,
}

/// What a call does after it has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Under this nonce.
    Seal(Nonce),
    Rest(u8),
    Renew(Nonce),
    Close,
    Forsake,
}

/// What becomes of the commits of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Answered,
    /// The answer gets lost, and it is sent again.
    Repeated,
}

pub fn call(number: u8) -> Nonce {
    [number; 16]
}

impl World {
    pub fn new() -> Self {
        Self { store: Store::default(), name: bundle::name("n", "", "request") }
    }

    pub fn begin(&mut self, by: Nonce, way: Way) -> Begun {
        self.begin_as(by, 1, way)
    }

    /// With parameters that `digest` stands for.
    pub fn begin_as(&mut self, by: Nonce, digest: u8, way: Way) -> Begun {
        let (name, begin) = (self.name.clone(), Begin { digest: [digest; 8], fresh: by, kept: KEPT });
        let rule = |view: &mut _| bundle::begin(&name, &begin, view);
        decide_with(&mut self.store, name.group(), rule, |store, commit| sent(store, commit, way)).0
    }

    pub fn step(&mut self, by: Nonce, step: Step, way: Way) -> bool {
        let name = self.name.clone();
        let rule = |view: &mut View| ruled(&name, by, step, view);
        decide_with(&mut self.store, name.group(), rule, |store, commit| sent(store, commit, way)).0
    }

    /// The commit that a step would make now, and doesn't.
    pub fn unsent(&self, by: Nonce, step: Step) -> Option<Commit> {
        let mut made = None;
        let rule = |view: &mut View| ruled(&self.name, by, step, view);
        let keep = |store: &mut Store, commit: &Commit| {
            made = Some(commit.clone());
            store.commit(commit)
        };
        decide_with(&mut self.store.clone(), self.name.group(), rule, keep);
        made
    }

    pub fn record(&self) -> Option<Bundle> {
        let record = self.store.look(&bundle_key(&self.name))?;
        Some(Bundle::decode(&record.value).unwrap())
    }
}

fn ruled(name: &Name, by: Nonce, step: Step, view: &mut View) -> Result<bool, Pause> {
    match step {
        Step::Seal(nonce) => bundle::seal(name, by, nonce, KEPT, view),
        Step::Rest(at) => bundle::rest(name, by, at, KEPT, view),
        Step::Renew(fresh) => bundle::renew(name, by, fresh, KEPT, view),
        Step::Close => bundle::close(name, by, view).map(|()| true),
        Step::Forsake => bundle::forsake(name, by, KEPT, view),
    }
}

fn sent(store: &mut Store, commit: &Commit, way: Way) -> Outcome {
    if way == Way::Repeated {
        store.commit(commit);
    }
    store.commit(commit)
}

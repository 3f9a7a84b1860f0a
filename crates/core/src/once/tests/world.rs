//! One key, and those who call for it.

use crate::commit::Commit;
use crate::lock::FencingToken;
use crate::lock::tests::store::Store;
use crate::name::Name;
use crate::once::claim::{Claim, Claimed};
use crate::once::holder::Ended;
use crate::once::token::{ClaimId, ClaimToken};
use crate::record::{Bytes, WallTime};
use crate::trial::{decide, decide_with};
use crate::{lock::ClusterKey, once};
use alloc::format;
use core::time::Duration;

pub const MEMORY: Duration = Duration::from_secs(600);
pub const KEPT: Duration = Duration::from_secs(3600);

pub struct World {
    pub store: Store,
    pub name: Name,
}

pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn bytes(text: &str) -> Bytes {
    text.as_bytes().into()
}

impl World {
    pub fn new() -> Self {
        Self { store: Store::default(), name: Name::new("n", "k") }
    }

    pub fn id(&self, request: &str) -> ClaimId {
        ClaimId::of(&self.name, "", request)
    }

    /// A claim for a second, by an owner of the request's name.
    pub fn request(&self, request: &str) -> Claim {
        Claim { id: self.id(request), owner: format!("of {request}").into(), ttl: millis(1000) }
    }

    pub fn claim(&mut self, request: &str) -> Claimed {
        self.claim_as(&self.request(request))
    }

    /// The answer, with its token resolved.
    pub fn claim_as(&mut self, claim: &Claim) -> Claimed {
        let (name, now) = (self.name.clone(), WallTime(self.store.now));
        let (claimed, revision) =
            decide(&mut self.store, name.group(), |view| once::claim(&name, claim, view, now));
        match claimed {
            Claimed::First { fencing } => {
                Claimed::First { fencing: crate::Stamp::At(fencing.resolve(revision)) }
            }
            other => other,
        }
    }

    /// The commit that would make a request's claim now, and doesn't.
    pub fn unsent(&self, request: &str) -> Commit {
        let (name, now, claim) = (&self.name, WallTime(self.store.now), self.request(request));
        let mut sent = None;
        let send = |store: &mut Store, commit: &Commit| {
            sent = Some(commit.clone());
            store.commit(commit)
        };
        decide_with(&mut self.store.clone(), name.group(), |view| once::claim(name, &claim, view, now), send);
        sent.expect("it is free")
    }

    /// Keeps late copies of a request's commits out.
    pub fn void(&mut self, request: &str) {
        let (name, id) = (self.name.clone(), self.id(request));
        decide(&mut self.store, name.group(), |view| once::void(&name, id, MEMORY, view));
    }

    /// The claim's token, of one who is first.
    pub fn first(&mut self, request: &str) -> ClaimToken {
        let Claimed::First { fencing } = self.claim(request) else { panic!("{request} isn't first") };
        self.token(request, fencing.resolve(Default::default()).0)
    }

    pub fn token(&self, request: &str, fencing: u64) -> ClaimToken {
        let key = ClusterKey([1; 32]);
        ClaimToken::new(&key, &self.name, "", self.id(request), FencingToken(fencing))
    }

    pub fn complete(&mut self, token: &ClaimToken, result: &str) -> Ended {
        let (name, now, result) = (self.name.clone(), WallTime(self.store.now), bytes(result));
        decide(&mut self.store, name.group(), |view| once::complete(&name, token, &result, KEPT, view, now)).0
    }

    pub fn renew(&mut self, token: &ClaimToken, ttl: Duration) -> Ended {
        let name = self.name.clone();
        decide(&mut self.store, name.group(), |view| once::renew(&name, token, ttl, view)).0
    }

    pub fn fail(&mut self, token: &ClaimToken) -> Ended {
        let name = self.name.clone();
        decide(&mut self.store, name.group(), |view| once::fail(&name, token, MEMORY, view)).0
    }
}

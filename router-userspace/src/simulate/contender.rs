//! Who chooses.

use crate::policy::PolicyKind;

/// A policy, or a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// A policy of the router.
    Policy(PolicyKind),
    /// One cache as large as all of them together, seen by every backend; dispatch to the least work.
    Pooled,
    /// The rule of `least_cost` with what the caches really hold.
    Oracle,
}

impl Contender {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Contender::Policy(kind) => kind.name(),
            Contender::Pooled => "pooled",
            Contender::Oracle => "oracle",
        }
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Contender> {
        let policies = PolicyKind::ALL.into_iter().map(Contender::Policy);
        policies.chain([Contender::Pooled, Contender::Oracle])
    }

    /// The contender with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Contender> {
        Contender::all().find(|contender| contender.name() == name)
    }
}

//! What goes into a choice and what comes out of it.

use crate::prefix::PromptKey;
use crate::types::{BackendId, BackendSnapshot, BackendState, Micros};

/// What a policy may know of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// The key of its body; `None` where it isn't an inference call.
    pub key: Option<&'a PromptKey>,
    /// The value of the session header, where one is configured and present.
    pub session: Option<&'a [u8]>,
    /// Backends that have failed this request already.
    pub tried: &'a [BackendId],
    /// The time of the decision.
    pub now: Micros,
}

impl RequestView<'_> {
    /// Whether `backend` may get this request: healthy and not tried yet.
    #[must_use]
    pub fn allows(&self, backend: &BackendSnapshot) -> bool {
        backend.state == BackendState::Healthy && !self.tried.contains(&backend.id)
    }
}

/// Why a backend was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// By turn, chance or load: nothing about the prompt mattered.
    Load,
    /// Where the request's key belongs.
    Affinity,
    /// Its first choice was saturated or unfit; this was the next best.
    Overflow,
}

impl Reason {
    /// The word for it in metrics and `/explain`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Load => "load",
            Reason::Affinity => "affinity",
            Reason::Overflow => "overflow",
        }
    }
}

/// A choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The chosen backend.
    pub backend: BackendId,
    /// Why.
    pub reason: Reason,
}

/// Why there is no choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoBackend {
    /// No backend is configured, or none of them is healthy and untried.
    #[error("no healthy backend")]
    NoneHealthy,
    /// Every healthy backend is at its limit.
    #[error("every healthy backend is saturated")]
    AllSaturated,
}

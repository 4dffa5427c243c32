//! What all policies share: who is eligible, and who carries less.

use std::cmp::Ordering;

use super::{NoBackend, RequestView};
use crate::types::BackendSnapshot;

/// Whether `backend` may get `request` now.
pub(super) fn eligible(request: &RequestView<'_>, backend: &BackendSnapshot) -> bool {
    request.allows(backend) && !backend.saturated()
}

/// Why none is eligible.
pub(super) fn refusal(request: &RequestView<'_>, backends: &[BackendSnapshot]) -> NoBackend {
    if backends.iter().any(|backend| request.allows(backend)) {
        NoBackend::AllSaturated
    } else {
        NoBackend::NoneHealthy
    }
}

/// A backend's share, at least 1 whatever the snapshot says.
pub(super) fn weight(backend: &BackendSnapshot) -> u64 {
    u64::from(backend.weight.max(1))
}

/// Compares the loads that two backends would have with one request more, relative to their weights.
///
/// With the request counted, an idle backend of weight 4 comes before an idle one of weight 1.
pub(super) fn compare(left: &BackendSnapshot, right: &BackendSnapshot) -> Ordering {
    let with_one_more = |backend: &BackendSnapshot| u64::from(backend.in_flight) + 1;
    (with_one_more(left) * weight(right)).cmp(&(with_one_more(right) * weight(left)))
}

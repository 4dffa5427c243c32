//! Tests of the policies, all by the same snapshots.

use std::collections::HashSet;

use proptest::prelude::*;

use super::{
    Decision, Member, NoBackend, Policy, PolicyConfig, PolicyKind, PolicyPlan, Reason, RequestView, Ring,
    build,
};
use crate::prefix::PromptKey;
use crate::types::{BackendId, BackendSnapshot, BackendState, Micros, Rng};

fn backend(id: u32) -> BackendSnapshot {
    BackendSnapshot {
        id: BackendId(id),
        weight: 1,
        state: BackendState::Healthy,
        in_flight: 0,
        max_in_flight: 256,
        waiting: None,
        max_waiting: 16,
    }
}

fn backends(count: u32) -> Vec<BackendSnapshot> {
    (0..count).map(backend).collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count)
        .map(|index| format!("10.0.{}.{}:8000", index / 256, index % 256))
        .collect()
}

fn policy(kind: PolicyKind, backends: &[BackendSnapshot], seed: u64) -> Box<dyn Policy + Send> {
    let names = names(backends.len());
    let members: Vec<Member<'_>> = names
        .iter()
        .zip(backends)
        .map(|(name, backend)| Member {
            name,
            weight: backend.weight,
        })
        .collect();
    build(
        &PolicyConfig {
            kind,
            ..PolicyConfig::default()
        },
        &members,
        seed,
    )
}

fn key(affinity: u64) -> PromptKey {
    PromptKey {
        affinity: Some(affinity),
        ..PromptKey::default()
    }
}

fn view<'a>(key: Option<&'a PromptKey>, tried: &'a [BackendId]) -> RequestView<'a> {
    RequestView {
        key,
        session: None,
        tried,
        now: Micros(0),
    }
}

fn pick(
    policy: &mut dyn Policy,
    key: Option<&PromptKey>,
    backends: &[BackendSnapshot],
) -> Result<Decision, NoBackend> {
    policy.pick(&view(key, &[]), backends)
}

/// Requests given to each backend when every request stays in flight.
fn fill(policy: &mut dyn Policy, backends: &mut [BackendSnapshot], keys: impl Iterator<Item = Option<u64>>) {
    for affinity in keys {
        let key = affinity.map(key);
        let chosen = pick(policy, key.as_ref(), backends).unwrap();
        backends[chosen.backend.0 as usize].in_flight += 1;
    }
}

#[test]
fn every_policy_has_one_name_and_is_found_by_it() {
    for kind in PolicyKind::ALL {
        assert_eq!(PolicyKind::from_name(kind.name()), Some(kind));
    }
    assert_eq!(PolicyKind::from_name("Random"), None);
}

#[test]
fn without_backends_none_is_healthy() {
    for kind in PolicyKind::ALL {
        let mut policy = policy(kind, &[], 1);
        for key in [None, Some(&key(7))] {
            assert_eq!(pick(&mut *policy, key, &[]), Err(NoBackend::NoneHealthy));
        }
    }
}

#[test]
fn unfit_backends_are_told_from_saturated_ones() {
    let mut unfit = backends(3);
    unfit[0].state = BackendState::Draining;
    unfit[1].state = BackendState::Stalled;
    unfit[2].state = BackendState::Unhealthy;
    let mut saturated = unfit.clone();
    saturated.extend([backend(3), backend(4)]);
    saturated[3].in_flight = 256;
    saturated[4].waiting = Some(16);
    for kind in PolicyKind::ALL {
        for key in [None, Some(&key(7))] {
            assert_eq!(
                pick(&mut *policy(kind, &unfit, 1), key, &unfit),
                Err(NoBackend::NoneHealthy)
            );
            assert_eq!(
                pick(&mut *policy(kind, &saturated, 1), key, &saturated),
                Err(NoBackend::AllSaturated)
            );
        }
    }
}

#[test]
fn a_tried_backend_is_not_chosen_again() {
    let backends = backends(3);
    let tried = [BackendId(0), BackendId(2)];
    for kind in PolicyKind::ALL {
        for affinity in 0..50 {
            let key = key(affinity << 58);
            let chosen = policy(kind, &backends, affinity).pick(&view(Some(&key), &tried), &backends);
            assert_eq!(chosen.unwrap().backend, BackendId(1));
        }
    }
}

#[test]
fn equals_get_equal_shares() {
    for kind in [PolicyKind::RoundRobin, PolicyKind::LeastLoad] {
        let mut idle = backends(5);
        idle[2].in_flight = 3;
        let mut counts = [0; 5];
        let mut policy = policy(kind, &idle, 3);
        for _ in 0..100 {
            counts[pick(&mut *policy, None, &idle).unwrap().backend.0 as usize] += 1;
        }
        let shares = if kind == PolicyKind::LeastLoad {
            [25, 25, 0, 25, 25]
        } else {
            [20; 5]
        };
        assert_eq!(counts, shares);
    }
}

#[test]
fn workers_do_not_all_begin_with_the_same_backend() {
    for kind in [PolicyKind::RoundRobin, PolicyKind::LeastLoad] {
        let backends = backends(8);
        let firsts: HashSet<u32> = (0..40)
            .map(|seed| {
                pick(&mut *policy(kind, &backends, seed), None, &backends)
                    .unwrap()
                    .backend
                    .0
            })
            .collect();
        assert!(firsts.len() >= 6, "{firsts:?}");
    }
}

#[test]
fn weights_decide_the_shares() {
    for kind in [
        PolicyKind::LeastLoad,
        PolicyKind::PowerOfTwo,
        PolicyKind::Random,
        PolicyKind::ConsistentHash,
    ] {
        let mut backends = backends(3);
        backends
            .iter_mut()
            .for_each(|backend| backend.max_in_flight = u32::MAX);
        backends[1].weight = 3;
        let mut rng = Rng::new(9);
        let mut policy = policy(kind, &backends, 5);
        fill(
            &mut *policy,
            &mut backends,
            (0..10_000).map(|_| Some(rng.next_u64())),
        );
        assert!(
            (5_000..7_000).contains(&backends[1].in_flight),
            "{kind:?}: {}",
            backends[1].in_flight
        );
    }
}

#[test]
fn the_less_loaded_of_two_is_taken() {
    let mut two = backends(2);
    two[0].in_flight = 1;
    for kind in [PolicyKind::LeastLoad, PolicyKind::PowerOfTwo] {
        for seed in 0..20 {
            assert_eq!(
                pick(&mut *policy(kind, &two, seed), None, &two).unwrap().backend,
                BackendId(1)
            );
        }
    }
}

#[test]
fn power_of_two_leaves_the_most_loaded_alone() {
    let mut backends = backends(4);
    backends[3].in_flight = 9;
    let mut policy = policy(PolicyKind::PowerOfTwo, &backends, 5);
    for _ in 0..200 {
        assert_ne!(pick(&mut *policy, None, &backends).unwrap().backend, BackendId(3));
    }
}

#[test]
fn a_key_keeps_to_its_backend_and_overflows_to_the_next() {
    let mut backends = backends(8);
    let key = key(0xfeed);
    let mut policy = policy(PolicyKind::ConsistentHash, &backends, 1);
    let mut order = Vec::new();
    for reason in std::iter::once(Reason::Affinity).chain([Reason::Overflow; 7]) {
        let chosen = pick(&mut *policy, Some(&key), &backends).unwrap();
        assert_eq!(chosen.reason, reason);
        assert_eq!(pick(&mut *policy, Some(&key), &backends), Ok(chosen));
        backends[chosen.backend.0 as usize].waiting = Some(99);
        order.push(chosen.backend);
    }
    assert_eq!(order.iter().collect::<HashSet<_>>().len(), 8);
    assert_eq!(
        pick(&mut *policy, Some(&key), &backends),
        Err(NoBackend::AllSaturated)
    );
    backends.iter_mut().for_each(|backend| backend.waiting = None);
    assert_eq!(
        pick(&mut *policy, Some(&key), &backends).unwrap().backend,
        order[0]
    );
}

#[test]
fn without_a_key_consistent_hash_goes_by_load() {
    let mut backends = backends(3);
    backends[0].in_flight = 2;
    backends[1].in_flight = 1;
    let mut policy = policy(PolicyKind::ConsistentHash, &backends, 1);
    for key in [None, Some(&PromptKey::default())] {
        let expected = Decision {
            backend: BackendId(2),
            reason: Reason::Load,
        };
        assert_eq!(pick(&mut *policy, key, &backends), Ok(expected));
    }
}

#[test]
fn among_a_thousand_the_few_that_are_fit_are_found() {
    let mut backends = backends(1000);
    for backend in &mut backends {
        backend.state = BackendState::Unhealthy;
    }
    backends[777].state = BackendState::Healthy;
    for kind in PolicyKind::ALL {
        let mut policy = policy(kind, &backends, 1);
        for affinity in [0, 1 << 40, u64::MAX] {
            assert_eq!(
                pick(&mut *policy, Some(&key(affinity)), &backends)
                    .unwrap()
                    .backend,
                BackendId(777)
            );
        }
    }
}

#[test]
fn the_ring_is_the_same_in_whatever_order_the_names_come() {
    let names = names(20);
    let members: Vec<Member<'_>> = names.iter().map(|name| Member { name, weight: 2 }).collect();
    let mut turned = members.clone();
    turned.rotate_left(7);
    let (ring, turned_ring) = (Ring::new(&members, 160), Ring::new(&turned, 160));
    let mut rng = Rng::new(4);
    for _ in 0..1000 {
        let key = rng.next_u64();
        let owner = members[ring.walk(key).next().unwrap()];
        assert_eq!(owner, turned[turned_ring.walk(key).next().unwrap()]);
    }
}

#[test]
fn workers_share_one_ring_and_agree() {
    let names = names(8);
    let members: Vec<Member<'_>> = names.iter().map(|name| Member { name, weight: 1 }).collect();
    let plan = PolicyPlan::new(&PolicyConfig::default(), &members);
    let (mut one, mut other) = (plan.policy(1), plan.policy(2));
    let backends = backends(8);
    for affinity in 0..100 {
        let key = key(affinity << 55);
        assert_eq!(
            pick(&mut *one, Some(&key), &backends),
            pick(&mut *other, Some(&key), &backends)
        );
    }
}

#[test]
fn the_ring_is_bounded_whatever_the_weights() {
    let names = names(100);
    let members: Vec<Member<'_>> = names
        .iter()
        .map(|name| Member {
            name,
            weight: u32::MAX,
        })
        .collect();
    let points = Ring::new(&members, u32::MAX).walk(0).count();
    assert!(
        (100 * 1000..=super::RING_POINTS_MAX).contains(&points),
        "{points}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn adding_a_backend_moves_only_its_share_of_the_keys(count in 2..40usize, seed in any::<u64>()) {
        let names = names(count + 1);
        let members: Vec<Member<'_>> = names.iter().map(|name| Member { name, weight: 1 }).collect();
        let (before, after) = (Ring::new(&members[..count], 160), Ring::new(&members, 160));
        let mut rng = Rng::new(seed);
        let keys: Vec<u64> = (0..4000).map(|_| rng.next_u64()).collect();
        let owner = |ring: &Ring, key: u64| ring.walk(key).next().unwrap();
        let moved: Vec<usize> = keys.iter().filter(|key| owner(&before, **key) != owner(&after, **key)).map(|key| owner(&after, *key)).collect();
        prop_assert!(moved.iter().all(|to| *to == count), "keys move to the new backend only");
        let share = moved.len() as f64 / keys.len() as f64 * (count + 1) as f64;
        prop_assert!((0.6..1.5).contains(&share), "{share}");
    }

    #[test]
    fn no_load_exceeds_its_bound(weights in proptest::collection::vec(1..5u32, 1..12), hot in 1..4u64, requests in 1..400usize, seed in any::<u64>()) {
        let mut backends = backends(weights.len() as u32);
        for (backend, weight) in backends.iter_mut().zip(&weights) {
            backend.weight = *weight;
            backend.max_in_flight = u32::MAX;
        }
        let mut policy = policy(PolicyKind::ConsistentHash, &backends, seed);
        let mut rng = Rng::new(seed);
        fill(&mut *policy, &mut backends, (0..requests).map(|_| Some(rng.next_u64() % hot)));
        let total_weight: u32 = weights.iter().sum();
        for backend in &backends {
            let limit = 1.25 * requests as f64 * f64::from(backend.weight) / f64::from(total_weight);
            prop_assert!(f64::from(backend.in_flight) <= limit.ceil());
        }
    }

    #[test]
    fn a_choice_is_fit_and_missing_only_where_none_is(
        states in proptest::collection::vec((0..4u8, 0..300u32, proptest::option::of(0..20u32), 0..4u32), 0..20),
        tried in proptest::collection::vec(0..20u32, 0..3),
        affinity in proptest::option::of(any::<u64>()),
        seed in any::<u64>(),
    ) {
        let mut backends = backends(states.len() as u32);
        for (backend, (state, in_flight, waiting, weight)) in backends.iter_mut().zip(&states) {
            backend.state = BackendState::from_u8(*state);
            (backend.in_flight, backend.waiting, backend.weight) = (*in_flight, *waiting, *weight);
        }
        let tried: Vec<BackendId> = tried.into_iter().map(BackendId).collect();
        let key = affinity.map(key);
        let request = view(key.as_ref(), &tried);
        let fit = |backend: &BackendSnapshot| request.allows(backend) && !backend.saturated();
        for kind in PolicyKind::ALL {
            match policy(kind, &backends, seed).pick(&request, &backends) {
                Ok(chosen) => prop_assert!(fit(&backends[chosen.backend.0 as usize])),
                Err(refused) => {
                    prop_assert!(!backends.iter().any(fit));
                    let healthy = backends.iter().any(|backend| request.allows(backend));
                    prop_assert_eq!(refused == NoBackend::AllSaturated, healthy);
                }
            }
        }
    }
}

//! What the policies have to reach, on traces small enough for a debug build.

use std::time::Duration;

use super::generate::{Shape, sessions};
use crate::policy::PolicyKind;
use crate::simulate::{Contender, Fault, Figures, Load, Setup, Trace, run};

fn figures(trace: &Trace, contender: Contender, setup: &Setup) -> Figures {
    run(trace, contender, setup, &mut |_| ()).unwrap()
}

fn policy(trace: &Trace, kind: PolicyKind, setup: &Setup) -> Figures {
    figures(trace, Contender::Policy(kind), setup)
}

/// 40 groups, of which the caches hold all together and one alone holds a quarter.
fn shared() -> Shape {
    Shape {
        requests: 800,
        groups: 40,
        hot: 0.0,
        prefix_blocks: 60,
        own_blocks: 4,
        output_tokens: 30,
        gap_ms: 25.0,
    }
}

const CAPACITY: u64 = 40_000;

#[test]
fn least_cost_comes_near_the_bound_where_prefixes_are_shared() {
    let trace = shared().trace(1);
    let setup = Setup::new(4, 2 * CAPACITY, Load::AsRecorded);
    let bound = figures(&trace, Contender::Pooled, &setup);
    let ours = policy(&trace, PolicyKind::LeastCost, &setup);
    assert!(
        ours.hit_ratio >= 0.95 * bound.hit_ratio,
        "{} of {}",
        ours.hit_ratio,
        bound.hit_ratio
    );
    let blind = policy(&trace, PolicyKind::RoundRobin, &setup);
    assert!(blind.hit_ratio < ours.hit_ratio - 0.2, "{}", blind.hit_ratio);
    assert!(ours.ttft_p99_s < blind.ttft_p99_s);
}

#[test]
fn every_policy_that_looks_at_prefixes_beats_round_robin() {
    let trace = shared().trace(2);
    let setup = Setup::new(4, 2 * CAPACITY, Load::AsRecorded);
    let blind = policy(&trace, PolicyKind::RoundRobin, &setup).hit_ratio;
    for kind in PolicyKind::ALL.into_iter().filter(|kind| kind.needs_key()) {
        let hits = policy(&trace, kind, &setup).hit_ratio;
        assert!(hits > blind + 0.1, "{}: {hits}, blind {blind}", kind.name());
    }
}

#[test]
fn with_nothing_shared_least_cost_is_no_worse_than_least_load() {
    for seed in 1..4 {
        let shape = Shape {
            prefix_blocks: 0,
            own_blocks: 64,
            gap_ms: 85.0,
            ..shared()
        };
        let trace = shape.trace(seed);
        let setup = Setup::new(4, 4 * CAPACITY, Load::AsRecorded);
        let ours = policy(&trace, PolicyKind::LeastCost, &setup);
        let by_load = policy(&trace, PolicyKind::LeastLoad, &setup);
        for (ours, other) in [
            (ours.ttft_p50_s, by_load.ttft_p50_s),
            (ours.ttft_p99_s, by_load.ttft_p99_s),
        ] {
            let (ours, other) = (ours.unwrap(), other.unwrap());
            assert!(
                ours <= 1.05 * other,
                "seed {seed}: {ours} s, least load {other} s"
            );
        }
    }
}

#[test]
fn a_hot_prefix_is_held_by_several_before_it_overflows_one() {
    let shape = Shape {
        hot: 0.8,
        gap_ms: 12.0,
        ..shared()
    };
    let trace = shape.trace(3);
    let setup = Setup::new(4, 2 * CAPACITY, Load::AsRecorded);
    let ours = policy(&trace, PolicyKind::LeastCost, &setup);
    let bound = figures(&trace, Contender::Pooled, &setup);
    assert!(ours.load_max_over_mean < 1.25, "{}", ours.load_max_over_mean);
    assert!(ours.hit_ratio >= 0.95 * bound.hit_ratio);
    let (ours, bound) = (ours.ttft_p99_s.unwrap(), bound.ttft_p99_s.unwrap());
    assert!(ours <= 3.0 * bound, "{ours} s, bound {bound} s");
}

#[test]
fn sessions_stay_where_their_cache_is() {
    let trace = sessions(60, 8, 100, 3);
    let setup = Setup::new(4, 80_000, Load::Sessions(4));
    let ours = policy(&trace, PolicyKind::LeastCost, &setup).hit_ratio;
    let bound = figures(&trace, Contender::Pooled, &setup).hit_ratio;
    assert!(ours >= 0.97 * bound, "{ours} of {bound}");
}

#[test]
fn a_slow_backend_gets_less() {
    let trace = shared().trace(4);
    let mut setup = Setup::new(4, 2 * CAPACITY, Load::AsRecorded);
    setup.faults.push(Fault::Slow {
        backend: 1,
        factor: 3.0,
        at: Duration::ZERO,
    });
    let ours = policy(&trace, PolicyKind::LeastCost, &setup);
    let blind = policy(&trace, PolicyKind::RoundRobin, &setup);
    assert!(ours.ttft_p99_s < blind.ttft_p99_s);
    assert_eq!(ours.failed, 0);
}

#[test]
fn wrong_beliefs_cost_little() {
    let trace = shared().trace(5);
    let right = Setup::new(4, 3 * CAPACITY, Load::AsRecorded);
    let hits = policy(&trace, PolicyKind::LeastCost, &right).hit_ratio;
    let beliefs = [
        Fault::Capacity(0.5),
        Fault::Capacity(1.5),
        Fault::Speed(2.0),
        Fault::EventLag(Duration::from_millis(250)),
    ];
    for belief in beliefs {
        let setup = Setup {
            faults: vec![belief],
            ..right.clone()
        };
        let wrong = policy(&trace, PolicyKind::LeastCost, &setup).hit_ratio;
        assert!(wrong > 0.8 * hits, "{belief:?}: {wrong} instead of {hits}");
    }
}

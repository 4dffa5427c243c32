use std::time::Duration;

use super::pool::Pool;
use crate::backend::health::ProbeOutcome;
use crate::types::{BackendState, Rng};

/// What is wrong with an invented engine at the moment.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Dead,
    Frozen,
    Busy,
    Sick,
}

/// Engines with random faults under traffic: whatever happens, health is heeded only while at most half are out,
/// and once the faults end every engine is fit again.
fn simulate(seed: u64) {
    let mut rng = Rng::new(seed);
    let count = 2 + rng.below(6);
    let mut pool = Pool::new(count);
    let mut faults = vec![Fault::None; count];
    for step in 0..4 * 900 {
        let calm = step >= 4 * 300;
        for (index, fault) in faults.iter_mut().enumerate() {
            if calm {
                *fault = Fault::None;
            } else if rng.below(200) == 0 {
                let kinds = [Fault::None, Fault::Dead, Fault::Frozen, Fault::Busy, Fault::Sick];
                *fault = kinds[rng.below(kinds.len())];
            }
            live(&mut pool, index, *fault, &mut rng);
        }
        pool.step();
        let out = (0..count)
            .filter(|index| pool.state(*index) != BackendState::Healthy)
            .count();
        assert_eq!(pool.health.ignored(), out * 2 > count, "seed {seed}, step {step}");
    }
    for index in 0..count {
        let verdict = pool.health.verdicts()[index];
        assert_eq!(
            verdict.state,
            BackendState::Healthy,
            "seed {seed}, engine {index}: {}",
            verdict.reason
        );
    }
}

fn live(pool: &mut Pool, index: usize, fault: Fault, rng: &mut Rng) {
    pool.engines[index].probe = match fault {
        Fault::Dead => ProbeOutcome::Refused,
        Fault::Busy => ProbeOutcome::TimedOut,
        Fault::None | Fault::Frozen | Fault::Sick => ProbeOutcome::Passed,
    };
    let welcome = pool.health.ignored() || pool.state(index) == BackendState::Healthy;
    if welcome && rng.below(2) == 0 {
        pool.send(index);
    }
    let busy = pool.engines[index].counts.in_flight > 0;
    if !busy {
        return;
    }
    match fault {
        Fault::None | Fault::Busy => {
            pool.engines[index].counts.answers[0] += 1;
            pool.byte(index);
            pool.end(index);
        }
        Fault::Sick => {
            pool.engines[index].counts.answers[2] += 1;
            pool.byte(index);
            pool.end(index);
        }
        Fault::Dead => {
            pool.engines[index].counts.connect_failures += 1;
            pool.end(index);
        }
        // Its clients leave after a while.
        Fault::Frozen if rng.below(100) == 0 => pool.end(index),
        Fault::Frozen => {}
    }
}

#[test]
fn random_faults_never_empty_the_pool_and_all_engines_return_after_them() {
    (0..40).for_each(simulate);
}

#[test]
fn one_seed_gives_one_run() {
    let run = || {
        let mut pool = Pool::new(3);
        let mut rng = Rng::new(7);
        let mut states = Vec::new();
        pool.run_with(Duration::from_secs(120), |pool| {
            let fault = if rng.below(3) == 0 {
                Fault::Sick
            } else {
                Fault::None
            };
            live(pool, 0, fault, &mut rng);
            states.push(pool.state(0).as_str());
        });
        states
    };
    assert_eq!(run(), run());
}

use std::time::Duration;

use super::pool::Pool;
use crate::backend::health::ProbeOutcome;
use crate::types::BackendState::{Healthy, Unhealthy};

#[test]
fn a_refused_probe_ejects_at_once_and_two_passed_ones_bring_back() {
    let mut pool = Pool::new(2);
    pool.engines[0].probe = ProbeOutcome::Refused;
    pool.until(0, Unhealthy, 1);
    assert_eq!(pool.state(1), Healthy);
    pool.engines[0].probe = ProbeOutcome::Passed;
    let before = pool.engines[0].probes;
    pool.until(0, Healthy, 11);
    assert_eq!(pool.engines[0].probes - before, 2);
}

#[test]
fn two_failed_probes_eject_nobody_and_the_third_does() {
    let mut pool = Pool::new(2);
    pool.run(1);
    pool.engines[0].probe = ProbeOutcome::Failed;
    let before = pool.engines[0].probes;
    pool.until(0, Unhealthy, 20);
    assert_eq!(pool.engines[0].probes - before, 3);
}

#[test]
fn a_passed_probe_between_failed_ones_begins_the_count_anew() {
    let mut pool = Pool::new(2);
    for round in 0..30 {
        pool.engines[0].probe = if round % 3 == 2 {
            ProbeOutcome::Passed
        } else {
            ProbeOutcome::Failed
        };
        let before = pool.engines[0].probes;
        while pool.engines[0].probes == before {
            pool.step();
        }
        assert_eq!(pool.state(0), Healthy);
    }
}

#[test]
fn probe_timeouts_do_not_eject_a_backend_that_sent_a_byte_in_the_last_15_s() {
    let mut pool = Pool::new(2);
    pool.engines
        .iter_mut()
        .for_each(|engine| engine.probe = ProbeOutcome::TimedOut);
    pool.send(0);
    let mut steps = 0;
    pool.run_with(Duration::from_secs(300), |pool| {
        if steps % 56 == 0 {
            pool.byte(0);
        }
        steps += 1;
    });
    assert_eq!(pool.state(0), Healthy, "a byte every 14 s");
    assert_eq!(pool.state(1), Unhealthy, "no byte at all");
}

#[test]
fn an_unreachable_backend_is_probed_at_once_instead_of_at_its_turn() {
    let mut pool = Pool::new(2);
    pool.run(2);
    pool.engines[0].probe = ProbeOutcome::Refused;
    pool.engines[0].counts.connect_failures += 1;
    pool.until(0, Unhealthy, 1);
}

#[test]
fn connect_failures_without_end_hurry_at_most_one_probe_a_second() {
    let mut pool = Pool::new(2);
    let before = pool.engines[0].probes;
    pool.run_with(Duration::from_secs(60), |pool| {
        pool.engines[0].counts.connect_failures += 1;
    });
    let probes = pool.engines[0].probes - before;
    assert!((13..=61).contains(&probes), "{probes} probes in 60 s");
    assert_eq!(pool.state(0), Healthy, "its probes pass");
}

#[test]
fn more_than_half_unfit_means_that_health_is_ignored() {
    let mut pool = Pool::new(4);
    for (dead, ignored) in [(0, false), (1, false), (2, true), (3, true)] {
        pool.engines[dead].probe = ProbeOutcome::Refused;
        pool.until(dead, Unhealthy, 6);
        assert_eq!(pool.health.ignored(), ignored, "{} of 4 dead", dead + 1);
    }
    let mut alone = Pool::new(1);
    alone.engines[0].probe = ProbeOutcome::Refused;
    alone.until(0, Unhealthy, 1);
    assert!(alone.health.ignored(), "the only backend is kept");
}

#[test]
fn draining_backends_are_no_part_of_the_pool_whose_half_counts() {
    let mut pool = Pool::new(4);
    pool.engines[2].counts.draining = true;
    pool.engines[3].counts.draining = true;
    pool.engines[0].probe = ProbeOutcome::Refused;
    pool.until(0, Unhealthy, 1);
    assert!(!pool.health.ignored(), "1 of 2");
    pool.engines[1].probe = ProbeOutcome::Refused;
    pool.until(1, Unhealthy, 6);
    assert!(pool.health.ignored(), "2 of 2");
}

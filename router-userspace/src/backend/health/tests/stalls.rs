use std::time::Duration;

use super::pool::Pool;
use crate::backend::health::{HealthConfig, ProbeOutcome};
use crate::types::BackendState::{Healthy, Stalled};

#[test]
fn a_frozen_backend_that_passes_its_probes_is_stalled_after_30_s_and_back_by_a_byte() {
    let mut pool = Pool::new(2);
    pool.send(0);
    let took = pool.until(0, Stalled, 40);
    assert!(took >= Duration::from_secs(30), "{took:?}");
    pool.run(120);
    assert_eq!(pool.state(0), Stalled, "passed probes alone don't bring it back");
    pool.byte(0);
    pool.until(0, Healthy, 1);
}

#[test]
fn an_idle_backend_is_never_stalled() {
    let mut pool = Pool::new(2);
    pool.send(0);
    pool.byte(0);
    pool.run(1);
    pool.end(0);
    pool.run_with(Duration::from_secs(600), |pool| {
        assert_eq!(pool.state(0), Healthy);
    });
    // The silence before a request isn't held against it.
    pool.send(0);
    pool.run_with(Duration::from_secs(29), |pool| assert_eq!(pool.state(0), Healthy));
}

#[test]
fn moving_token_counters_excuse_silence_and_standing_ones_do_not() {
    let mut pool = Pool::new(2);
    pool.engines[0].tokens = Some(1000);
    pool.send(0);
    pool.run_with(Duration::from_secs(300), |pool| {
        pool.engines[0].tokens = pool.engines[0].tokens.map(|tokens| tokens + 10);
        assert_eq!(pool.state(0), Healthy, "it computes");
    });
    let took = pool.until(0, Stalled, 60);
    assert!(took >= Duration::from_secs(15), "{took:?}");
}

#[test]
fn a_stalled_backend_is_back_when_its_counters_move_and_a_probe_passes() {
    let mut pool = Pool::new(2);
    pool.engines[0].tokens = Some(5);
    pool.send(0);
    pool.run(25);
    pool.engines[0].probe = ProbeOutcome::TimedOut;
    pool.until(0, Stalled, 10);
    pool.engines[0].tokens = Some(6);
    pool.run(10);
    assert_eq!(pool.state(0), Stalled, "no probe has passed");
    pool.engines[0].probe = ProbeOutcome::Passed;
    pool.engines[0].tokens = Some(7);
    pool.until(0, Healthy, 30);
}

#[test]
fn without_stall_metrics_bytes_alone_decide() {
    let config = HealthConfig {
        stall_metrics: false,
        ..HealthConfig::default()
    };
    let mut pool = Pool::with(config, 2);
    pool.engines[0].tokens = Some(0);
    pool.send(0);
    let took = pool.until(0, Stalled, 31);
    assert!(took >= Duration::from_secs(30), "{took:?}");
}

#[test]
fn a_backend_with_long_gaps_of_its_own_gets_four_times_its_p99() {
    let mut pool = Pool::new(2);
    pool.send(0);
    for _ in 0..40 {
        pool.byte(0);
        pool.run(20);
    }
    // 20 s lie in the bucket below 32 s.
    let took = pool.until(0, Stalled, 130);
    assert!(took >= Duration::from_secs(4 * 32 - 20), "{took:?}");
}

#[test]
fn a_stalled_backend_without_requests_gets_one_as_a_trial_and_a_failed_trial_doubles_the_wait() {
    let mut pool = Pool::new(2);
    pool.send(0);
    pool.until(0, Stalled, 40);
    pool.end(0);
    let took = pool.until(0, Healthy, 31);
    assert!(took >= Duration::from_secs(30), "{took:?}");
    pool.send(0);
    pool.until(0, Stalled, 1);
    // It hangs again; its client gives up after a minute.
    pool.run(60);
    pool.end(0);
    let took = pool.until(0, Healthy, 61);
    assert!(took >= Duration::from_secs(60), "{took:?}");
    // This time it answers.
    pool.send(0);
    pool.until(0, Stalled, 1);
    pool.byte(0);
    pool.until(0, Healthy, 1);
    pool.send(0);
    pool.step();
    assert_eq!(pool.state(0), Healthy, "no trial any more");
}

#[test]
fn a_restart_ends_a_stall() {
    let mut pool = Pool::new(2);
    pool.send(0);
    pool.until(0, Stalled, 40);
    pool.engines[0].probe = ProbeOutcome::Refused;
    pool.end(0);
    pool.run(6);
    pool.engines[0].probe = ProbeOutcome::Passed;
    pool.until(0, Healthy, 11);
}

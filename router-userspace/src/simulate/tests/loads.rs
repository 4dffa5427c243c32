//! Loads, faults and the rules of a run.

use std::time::Duration;

use super::generate::{Shape, sessions};
use crate::policy::PolicyKind;
use crate::simulate::{Contender, Fault, Figures, Load, Setup, SetupError, Trace, run};

const LEAST_COST: Contender = Contender::Policy(PolicyKind::LeastCost);

fn shape() -> Shape {
    Shape {
        requests: 400,
        groups: 12,
        hot: 0.0,
        prefix_blocks: 60,
        own_blocks: 4,
        output_tokens: 30,
        gap_ms: 60.0,
    }
}

fn figures(trace: &Trace, contender: Contender, setup: &Setup) -> Figures {
    let mut figures = run(trace, contender, setup, &mut |_| ()).unwrap();
    // The one figure that isn't virtual.
    figures.decision_us_p50 = None;
    figures
}

#[test]
fn the_same_seed_gives_the_same_figures_for_every_contender() {
    let trace = shape().trace(3);
    for contender in Contender::all() {
        let mut setup = Setup::new(4, 40_000, Load::Rate(20.0));
        setup.routers = 2;
        setup.peer_lag = Some(Duration::from_millis(100));
        let first = figures(&trace, contender, &setup);
        assert_eq!(first, figures(&trace, contender, &setup), "{}", contender.name());
        assert_eq!((first.completed, first.failed), (400, 0), "{}", contender.name());
    }
}

#[test]
fn sessions_wait_for_their_turns_and_are_replaced_by_the_next() {
    let trace = sessions(20, 5, 40, 2);
    let setup = Setup::new(2, 100_000, Load::Sessions(2));
    let figures = figures(&trace, LEAST_COST, &setup);
    assert_eq!(figures.completed, 100);
    // 5 generations of 4 sessions with 4 pauses of 2 s each.
    assert!(
        figures.span_s > 40.0 && figures.span_s < 60.0,
        "{}",
        figures.span_s
    );
    assert!(figures.hit_ratio > 0.75, "{}", figures.hit_ratio);
}

#[test]
fn a_saturating_load_keeps_24_requests_a_backend_under_way() {
    let trace = shape().trace(1);
    let one = figures(&trace, LEAST_COST, &Setup::new(1, 1 << 20, Load::Saturate));
    let two = figures(&trace, LEAST_COST, &Setup::new(2, 1 << 20, Load::Saturate));
    let (one, two) = (one.requests_per_s.unwrap(), two.requests_per_s.unwrap());
    assert!(two > 1.5 * one, "{one} and {two} requests/s");
}

#[test]
fn the_pooled_bound_hits_all_that_any_backend_could() {
    let trace = shape().trace(2);
    let setup = Setup::new(4, 1 << 20, Load::Rate(10.0));
    let pooled = figures(&trace, Contender::Pooled, &setup).hit_ratio;
    // Of 400 requests 12 are the first of their group; the tails are never shared.
    let expected = 388.0 * 60.0 / (400.0 * 64.0);
    assert!((pooled - expected).abs() < 1e-9, "{pooled}, not {expected}");
    for contender in Contender::all() {
        assert!(figures(&trace, contender, &setup).hit_ratio <= pooled);
    }
}

#[test]
fn a_restart_loses_the_cache_and_no_request_without_a_first_token() {
    let trace = shape().trace(4);
    let mut setup = Setup::new(2, 1 << 20, Load::Rate(15.0));
    let whole = figures(&trace, LEAST_COST, &setup);
    setup.faults.push(Fault::Restart {
        backend: 0,
        at: Duration::from_secs(12),
    });
    let restarted = figures(&trace, LEAST_COST, &setup);
    assert_eq!(restarted.completed + restarted.failed, 400);
    assert!(restarted.failed < 24, "only what was being answered is lost");
    assert!(restarted.hit_ratio < whole.hit_ratio);
}

#[test]
fn a_request_larger_than_an_engine_fails_and_the_loop_goes_on() {
    let trace = shape().trace(5);
    let figures = figures(&trace, LEAST_COST, &Setup::new(2, 1000, Load::Saturate));
    assert_eq!((figures.completed, figures.failed), (0, 400));
}

#[test]
fn a_limit_on_requests_in_flight_refuses_what_is_beyond_it() {
    let trace = shape().trace(6);
    let mut setup = Setup::new(2, 1 << 20, Load::Rate(500.0));
    setup.max_in_flight = 4;
    let figures = figures(&trace, LEAST_COST, &setup);
    assert!(figures.failed > 200, "{} failed", figures.failed);
}

#[test]
fn attention_to_long_contexts_takes_its_time() {
    let trace = shape().trace(7);
    let mut setup = Setup::new(2, 1 << 20, Load::Rate(2.0));
    let linear = figures(&trace, LEAST_COST, &setup).ttft_mean_s;
    setup.attention_tokens = Some(1000);
    assert!(figures(&trace, LEAST_COST, &setup).ttft_mean_s > linear);
}

#[test]
fn a_setup_that_does_not_fit_its_trace_is_refused() {
    let (timed, turns) = (shape().trace(1), sessions(2, 2, 2, 1));
    let with = |load| Setup::new(2, 1 << 20, load);
    assert!(with(Load::Sessions(2)).check(&timed).is_err());
    assert!(with(Load::Rate(1.0)).check(&turns).is_err());
    assert!(with(Load::Saturate).check(&turns).is_ok());
    assert_eq!(
        Setup::new(0, 1, Load::Saturate).check(&timed),
        Err(SetupError::Nobody)
    );
    let mut setup = with(Load::AsRecorded);
    setup.faults.push(Fault::Restart {
        backend: 2,
        at: Duration::ZERO,
    });
    assert_eq!(setup.check(&timed), Err(SetupError::NoBackend(2)));
}

//! The memory of one engine.

use std::time::Duration;

use proptest::prelude::*;

use super::report;
use crate::backend::load::{LoadLearner, MAX_IN_FLIGHT_LEARNED_MIN};
use crate::proto::engine_metrics::EngineReport;
use crate::types::Micros;

const INTERVAL: Duration = Duration::from_millis(250);

fn learner() -> LoadLearner {
    LoadLearner::new(INTERVAL, 7, Micros(0))
}

fn with_counters(running: u32, tokens: u64) -> EngineReport {
    EngineReport {
        generation_tokens_total: Some(tokens),
        ..report(running, 0)
    }
}

#[test]
fn the_limit_is_a_quarter_above_the_busiest_moment_without_a_queue() {
    let mut learner = learner();
    assert_eq!(learner.max_in_flight(), None);
    for (running, waiting, limit) in [
        (0, 0, 64),
        (50, 0, 64),
        (100, 0, 125),
        (101, 0, 127),
        (256, 9, 127),
        (3, 0, 127),
    ] {
        learner.reported(&report(running, waiting));
        assert_eq!(learner.max_in_flight(), Some(limit), "{running} {waiting}");
    }
}

#[test]
fn an_engine_that_tells_only_one_of_the_counts_gives_no_limit() {
    for half in [
        EngineReport {
            waiting: None,
            ..report(500, 0)
        },
        EngineReport {
            running: None,
            ..report(0, 0)
        },
        EngineReport::default(),
    ] {
        let mut learner = learner();
        learner.reported(&half);
        assert_eq!(learner.max_in_flight(), None);
    }
}

#[test]
fn a_restart_forgets_what_was_learned() {
    let mut learner = learner();
    assert!(!learner.reported(&with_counters(200, 1000)));
    assert!(!learner.reported(&with_counters(10, 1000)));
    assert_eq!(learner.max_in_flight(), Some(250));
    // A counter that is missing for once hasn't fallen.
    assert!(!learner.reported(&report(10, 0)));
    assert!(learner.reported(&with_counters(80, 999)));
    assert_eq!(learner.max_in_flight(), Some(100));
    assert!(!learner.reported(&with_counters(80, 999)));
}

#[test]
fn a_refused_connection_forgets() {
    let mut learner = learner();
    learner.reported(&with_counters(200, 1000));
    learner.gone();
    assert!(!learner.reported(&with_counters(1, 5)));
    assert_eq!(learner.max_in_flight(), Some(MAX_IN_FLIGHT_LEARNED_MIN));
}

#[test]
fn an_engine_without_the_page_is_asked_less_and_less_until_it_has_one() {
    let mut learner = learner();
    let gap = |learner: &mut LoadLearner| {
        learner.begin(Micros(1_000_000));
        learner.due().since(Micros(1_000_000))
    };
    for _ in 0..100 {
        learner.absent();
    }
    assert!(gap(&mut learner) >= INTERVAL * 14, "16 times, less the jitter");
    assert!(gap(&mut learner) <= INTERVAL * 18);
    learner.reported(&report(0, 0));
    assert!(gap(&mut learner) <= INTERVAL.mul_f64(1.1));
}

proptest! {
    #[test]
    fn readings_are_spread_over_the_interval_and_jittered(seed: u64, begun in 0u64..1 << 40) {
        let start = Micros(begun);
        let mut learner = LoadLearner::new(INTERVAL, seed, start);
        prop_assert!(learner.due().since(start) <= INTERVAL);
        for _ in 0..20 {
            let begin = learner.due();
            learner.begin(begin);
            let gap = learner.due().since(begin);
            prop_assert!(gap >= INTERVAL.mul_f64(0.89) && gap <= INTERVAL.mul_f64(1.11), "{gap:?}");
        }
    }

    #[test]
    fn the_limit_never_falls_without_a_restart(
        reports in proptest::collection::vec((0u32.., 0u32..3), 1..50),
    ) {
        let mut learner = learner();
        let mut before = 0;
        for (running, waiting) in reports {
            prop_assert!(!learner.reported(&report(running, waiting)));
            let limit = learner.max_in_flight().expect("both counts are told");
            prop_assert!(limit >= before.max(MAX_IN_FLIGHT_LEARNED_MIN));
            before = limit;
        }
    }
}

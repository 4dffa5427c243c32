//! What the workers see.

use std::time::Duration;

use super::report;
use crate::backend::load::{EngineLoad, REPORT_AGE_MAX};
use crate::backend::{BackendConfig, BackendSet, MAX_IN_FLIGHT_UNKNOWN};
use crate::proto::engine_metrics::EngineReport;
use crate::types::Micros;

const THEN: Micros = Micros(5_000_000);

fn set(max_in_flight: Option<u32>) -> BackendSet {
    BackendSet::new(vec![BackendConfig {
        name: "a".to_owned(),
        addr: ([127, 0, 0, 1], 9).into(),
        weight: 1,
        max_in_flight,
        max_waiting: 16,
    }])
}

#[test]
fn a_report_older_than_a_second_is_unknown_and_unknown_is_not_saturated() {
    let set = set(None);
    let backend = &set.backends[0];
    assert!(!backend.snapshot_at(THEN).saturated(), "before any report");
    backend.stats.load.publish(&report(64, 16), THEN);
    let last_moment = THEN + REPORT_AGE_MAX;
    assert_eq!(backend.snapshot_at(last_moment).waiting, Some(16));
    assert!(backend.snapshot_at(last_moment).saturated());
    let later = last_moment + Duration::from_micros(1);
    assert_eq!(backend.snapshot_at(later).waiting, None);
    assert!(!backend.snapshot_at(later).saturated());
}

#[test]
fn what_the_engine_does_not_say_is_unknown_and_not_zero() {
    let load = EngineLoad::default();
    assert_eq!(load.snapshot(THEN), None);
    load.publish(
        &EngineReport {
            running: Some(0),
            ..EngineReport::default()
        },
        THEN,
    );
    let snapshot = load.snapshot(THEN).expect("young");
    assert_eq!(
        (snapshot.running, snapshot.waiting, snapshot.kv_usage_ratio),
        (Some(0), None, None)
    );
    assert_eq!((load.block_tokens(), load.capacity_tokens()), (None, None));
    assert_eq!(load.prefix_totals(), None);
}

#[test]
fn a_page_without_a_load_leaves_the_last_one_to_grow_old() {
    let load = EngineLoad::default();
    load.publish(&report(3, 1), THEN);
    let later = THEN + REPORT_AGE_MAX * 2;
    load.publish(&EngineReport::default(), later);
    assert_eq!(load.age(later), Some(REPORT_AGE_MAX * 2));
    assert_eq!(load.snapshot(later), None);
}

#[test]
fn the_limit_is_the_operators_then_the_reports_then_256() {
    let auto = set(None);
    assert_eq!(auto.backends[0].max_in_flight(), MAX_IN_FLIGHT_UNKNOWN);
    auto.backends[0].stats.load.set_max_in_flight(Some(80));
    assert_eq!(auto.backends[0].snapshot_at(THEN).max_in_flight, 80);
    let fixed = set(Some(3));
    fixed.backends[0].stats.load.set_max_in_flight(Some(80));
    assert_eq!(fixed.backends[0].max_in_flight(), 3);
}

use std::time::Duration;

use super::pool::Pool;
use crate::types::BackendState::{Healthy, Unhealthy};

/// Ten seconds in which every engine gives `answers` (its status and how many a step).
fn serve(pool: &mut Pool, answers: &[(u16, u64)]) {
    pool.run_with(Duration::from_secs(10), |pool| {
        for (index, (status, count)) in answers.iter().enumerate() {
            pool.answer(index, *status, *count);
        }
    });
}

#[test]
fn a_backend_whose_answers_are_5xx_is_ejected_while_the_others_are_well() {
    let mut pool = Pool::new(3);
    serve(&mut pool, &[(200, 1), (200, 1), (200, 1)]);
    assert_eq!(pool.state(0), Healthy);
    pool.run(31);
    let mut answers = 0;
    while pool.state(0) == Healthy {
        pool.answer(0, 500, 1);
        pool.answer(1, 200, 1);
        pool.step();
        answers += 1;
        assert!(answers <= 5, "the fifth 5xx ejects");
    }
    assert_eq!(answers, 5, "four 5xx eject nobody");
}

#[test]
fn a_pool_that_fails_alike_keeps_all_its_backends() {
    let mut pool = Pool::new(3);
    serve(&mut pool, &[(500, 1), (500, 1), (500, 1)]);
    assert!((0..3).all(|index| pool.state(index) == Healthy));
}

#[test]
fn half_of_its_answers_or_fewer_eject_nobody() {
    let mut pool = Pool::new(2);
    pool.run_with(Duration::from_secs(60), |pool| {
        pool.answer(0, 500, 1);
        pool.answer(0, 200, 1);
        pool.answer(1, 200, 1);
        assert_eq!(pool.state(0), Healthy);
    });
}

#[test]
fn a_clients_4xx_never_eject() {
    let mut pool = Pool::new(2);
    pool.run_with(Duration::from_secs(60), |pool| {
        pool.answer(0, 400, 100);
        pool.answer(1, 200, 1);
        assert_eq!(pool.state(0), Healthy);
    });
}

#[test]
fn requests_that_an_engine_breaks_off_count_like_5xx() {
    let mut pool = Pool::new(2);
    pool.run_with(Duration::from_secs(5), |pool| {
        pool.engines[0].counts.broken += 1;
        pool.answer(1, 200, 1);
    });
    assert_eq!(pool.state(0), Unhealthy);
}

#[test]
fn five_errors_spread_over_more_than_the_window_eject_nobody() {
    let mut pool = Pool::new(2);
    for _ in 0..20 {
        pool.answer(0, 500, 1);
        pool.run_with(Duration::from_secs(8), |pool| assert_eq!(pool.state(0), Healthy));
    }
}

#[test]
fn the_ejected_returns_on_trial_and_each_failed_trial_doubles_its_time() {
    let mut pool = Pool::new(2);
    serve(&mut pool, &[(500, 1), (200, 1)]);
    assert_eq!(pool.state(0), Unhealthy);
    let mut times = Vec::new();
    for _ in 0..3 {
        times.push(pool.until(0, Healthy, 700).as_secs());
        pool.answer(0, 500, 1);
        pool.until(0, Unhealthy, 1);
    }
    assert!((19..=30).contains(&times[0]), "{times:?}");
    assert_eq!(times[1..], [60, 120]);
    pool.until(0, Healthy, 241);
    pool.answer(0, 200, 1);
    pool.step();
    assert_eq!(pool.state(0), Healthy, "its trial passed");
    pool.answer(0, 500, 1);
    pool.step();
    assert_eq!(pool.state(0), Healthy, "one error is no rate");
}

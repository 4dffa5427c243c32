//! The batching rules.

use super::{Engine, EngineEvent, EngineRequest, RequestId, SubmitError};
use crate::engine::EngineConfig;
use crate::types::Micros;
use proptest::prelude::*;

fn engine(capacity_tokens: u64) -> Engine {
    Engine::new(EngineConfig::new(capacity_tokens, 16))
}

/// A prompt whose blocks are numbered from `first`.
fn request(first: u64, prompt_tokens: u32, output_tokens: u32) -> EngineRequest {
    EngineRequest {
        blocks: (first..first + u64::from(prompt_tokens.div_ceil(16))).collect(),
        prompt_tokens,
        output_tokens,
    }
}

/// Steps until the engine is idle; each event with its time.
fn run(engine: &mut Engine) -> Vec<(u64, EngineEvent)> {
    let mut log = Vec::new();
    let mut events = Vec::new();
    while let Some(at) = engine.next_step_at() {
        engine.step(at, &mut events);
        log.extend(events.drain(..).map(|event| (at.0, event)));
    }
    log
}

fn first_token(log: &[(u64, EngineEvent)], wanted: RequestId) -> (u64, u32) {
    log.iter()
        .find_map(|&(at, event)| match event {
            EngineEvent::FirstToken { id, cached_tokens } if id == wanted => Some((at, cached_tokens)),
            _ => None,
        })
        .unwrap()
}

#[test]
fn the_first_token_comes_at_the_end_of_the_prefill_and_the_others_one_a_step() {
    let mut engine = engine(1 << 20);
    let id = engine.submit(Micros(1000), request(0, 2000, 3)).unwrap();
    let log = run(&mut engine);
    assert_eq!(
        log,
        [
            (1000 + 110_000, EngineEvent::FirstToken { id, cached_tokens: 0 }),
            (1000 + 120_100, EngineEvent::Token { id }),
            (1000 + 130_200, EngineEvent::Token { id }),
            (1000 + 130_200, EngineEvent::Finished { id }),
        ]
    );
}

#[test]
fn a_long_prompt_is_prefilled_in_chunks() {
    let mut engine = engine(1 << 20);
    let id = engine.submit(Micros(0), request(0, 10_000, 1)).unwrap();
    // 8192 tokens, then 1808, 10 ms base each.
    assert_eq!(
        first_token(&run(&mut engine), id).0,
        10_000 + 409_600 + 10_000 + 90_400
    );
}

#[test]
fn requests_due_at_the_same_time_share_a_step() {
    let mut engine = engine(1 << 20);
    let ids: Vec<_> = (0..4)
        .map(|i| engine.submit(Micros(0), request(i * 1000, 100, 1)).unwrap())
        .collect();
    let log = run(&mut engine);
    assert!(ids.iter().all(|&id| first_token(&log, id).0 == 30_000));
}

#[test]
fn a_whole_hit_still_computes_one_token() {
    let mut engine = engine(1 << 20);
    engine.submit(Micros(0), request(0, 160, 1)).unwrap();
    run(&mut engine);
    let id = engine.submit(Micros(1_000_000), request(0, 160, 1)).unwrap();
    assert_eq!(first_token(&run(&mut engine), id), (1_000_000 + 10_050, 159));
}

#[test]
fn a_request_hits_blocks_that_an_earlier_one_still_computes() {
    let mut engine = engine(1 << 20);
    engine.submit(Micros(0), request(0, 1600, 1)).unwrap();
    let id = engine.submit(Micros(0), request(0, 1600, 1)).unwrap();
    assert_eq!(first_token(&run(&mut engine), id).1, 1599);
}

#[test]
fn a_request_that_does_not_fit_holds_back_those_behind_it() {
    let mut engine = engine(160);
    engine.submit(Micros(0), request(0, 96, 16)).unwrap();
    let large = engine.submit(Micros(0), request(100, 96, 16)).unwrap();
    let small = engine.submit(Micros(0), request(200, 16, 16)).unwrap();
    engine.step(Micros(0), &mut Vec::new());
    assert_eq!((engine.running(), engine.waiting()), (1, 2));
    let log = run(&mut engine);
    assert!(first_token(&log, large).0 <= first_token(&log, small).0);
}

#[test]
fn a_request_larger_than_the_engine_is_refused() {
    let refused = engine(160).submit(Micros(0), request(0, 160, 1));
    assert_eq!(
        refused,
        Err(SubmitError::TooLarge {
            need_blocks: 11,
            capacity_blocks: 10
        })
    );
}

#[test]
fn the_queue_is_bounded() {
    let mut engine = Engine::new(EngineConfig {
        waiting_max: 1,
        ..EngineConfig::new(160, 16)
    });
    engine.submit(Micros(0), request(0, 1, 1)).unwrap();
    assert_eq!(
        engine.submit(Micros(0), request(0, 1, 1)),
        Err(SubmitError::QueueFull { waiting: 1 })
    );
}

#[test]
fn an_abort_in_the_middle_of_a_step_frees_everything_and_ends_the_events() {
    let mut engine = engine(1 << 16);
    let running = engine.submit(Micros(0), request(0, 20_000, 5)).unwrap();
    let mut events = Vec::new();
    engine.step(Micros(0), &mut events);
    let waiting = engine.submit(Micros(1), request(5000, 100, 5)).unwrap();
    engine.abort(waiting);
    engine.abort(running);
    engine.abort(running);
    assert_eq!(engine.cache().free(), engine.cache().capacity());
    assert_eq!(
        (engine.running(), engine.waiting(), engine.stats().aborted_total),
        (0, 0, 2)
    );
    assert_eq!(run(&mut engine), []);
}

#[test]
fn an_engine_that_was_suspended_goes_on_from_now() {
    let mut engine = engine(1 << 20);
    engine.submit(Micros(0), request(0, 16, 2)).unwrap();
    let mut events = Vec::new();
    engine.step(Micros(0), &mut events);
    engine.step(Micros(5_000_000), &mut events);
    assert_eq!(engine.next_step_at(), Some(Micros(5_010_100)));
}

proptest! {
    #[test]
    fn every_request_ends_once_and_memory_comes_back(
        capacity in 20u64..200,
        requests in prop::collection::vec((0u64..4, 1u32..300, 1u32..40, 0u64..30_000, any::<bool>()), 1..120),
    ) {
        let mut engine = engine(capacity * 16);
        let mut now = Micros(0);
        let mut events = Vec::new();
        let mut expected = 0;
        let mut tokens_aborted = false;
        for (group, prompt_tokens, output_tokens, wait, abort) in requests {
            let submitted = engine.submit(now, request(group * 1000, prompt_tokens, output_tokens));
            if let Ok(id) = submitted {
                if abort {
                    tokens_aborted = true;
                    engine.abort(id);
                } else {
                    expected += 1;
                }
            }
            now = Micros(now.0 + wait);
            while let Some(at) = engine.next_step_at().filter(|&at| at <= now) {
                engine.step(at, &mut events);
                prop_assert!(engine.running() <= 64);
                prop_assert!(engine.cache().used() <= engine.cache().capacity());
            }
        }
        events.extend(run(&mut engine).into_iter().map(|(_, event)| event));
        let finished = events.iter().filter(|event| matches!(event, EngineEvent::Finished { .. })).count();
        prop_assert_eq!(finished, expected);
        prop_assert_eq!(engine.cache().used(), 0);
        let stats = engine.stats();
        prop_assert_eq!(stats.finished_total as usize, expected);
        prop_assert_eq!(stats.aborted_total > 0, tokens_aborted);
        let given = events.iter().filter(|event| !matches!(event, EngineEvent::Finished { .. })).count();
        prop_assert_eq!(stats.generation_tokens_total as usize, given);
    }
}

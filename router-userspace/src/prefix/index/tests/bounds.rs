//! Memory, restarts, queues.

use std::sync::atomic::{AtomicBool, Ordering};

use super::naive::{chained, writer};
use crate::prefix::index::{IndexConfig, IndexFeed, IndexWriter, OverlapScores, run};
use crate::types::{BackendId, Micros};

#[test]
fn unique_prompts_leave_memory_flat_at_the_bound() {
    const BYTES_MAX: usize = 8 << 20;
    let mut writer = IndexWriter::new(&IndexConfig {
        backends: 8,
        capacity_blocks: 1 << 20,
        bytes_max: BYTES_MAX,
    });
    let mut seen = 0;
    for prompt in 0..40_000u64 {
        let blocks: Vec<u64> = (prompt * 8..prompt * 8 + 8).map(|id| id * 7 + 1).collect();
        writer.insert(BackendId((prompt % 8) as u32), 0, &blocks, Micros(prompt));
        let (blocks, bound) = writer.blocks();
        assert!(blocks <= bound);
        seen = blocks;
        assert!(writer.bytes() <= BYTES_MAX, "{} bytes", writer.bytes());
    }
    assert_eq!(seen, writer.blocks().1);
}

#[test]
fn at_the_bound_a_small_mirror_takes_from_a_large_one() {
    let mut writer = IndexWriter::new(&IndexConfig {
        backends: 2,
        capacity_blocks: 1 << 20,
        bytes_max: 1 << 20,
    });
    let index = writer.index();
    for prompt in 0..10_000u64 {
        writer.insert(BackendId(0), 0, &[prompt * 2, prompt * 2 + 1], Micros(prompt));
    }
    for prompt in 10_000..20_000u64 {
        writer.insert(BackendId(1), 0, &[prompt * 2, prompt * 2 + 1], Micros(prompt));
    }
    let (held, other) = (index.fill(BackendId(0)).0, index.fill(BackendId(1)).0);
    assert!(held.abs_diff(other) <= 4, "{held} and {other}");
}

#[test]
fn a_backend_that_restarts_more_often_than_there_are_slots_stays_right() {
    let mut writer = writer(3, 100);
    let index = writer.index();
    let mut scores = OverlapScores::default();
    let prompt = chained(&[2; 30]);
    for round in 0..200 {
        writer.insert(
            BackendId(1),
            index.generation(BackendId(1)),
            &prompt,
            Micros(round),
        );
        index.overlap(&prompt, &mut scores);
        assert_eq!(scores.depth(BackendId(1)), 30);
        index.forget(BackendId(1));
        index.overlap(&prompt, &mut scores);
        assert_eq!(scores.depth(BackendId(1)), 0);
    }
}

#[test]
fn what_was_sent_before_a_restart_does_not_count_after_it() {
    let mut writer = writer(2, 100);
    let index = writer.index();
    let before = index.generation(BackendId(0));
    index.forget(BackendId(0));
    let prompt = chained(&[3; 5]);
    writer.insert(BackendId(0), before, &prompt, Micros(0));
    let mut scores = OverlapScores::default();
    index.overlap(&prompt, &mut scores);
    assert_eq!(scores.depth(BackendId(0)), 0);
}

#[test]
fn the_age_of_what_goes_next_is_known_once_a_mirror_is_full() {
    let mut writer = writer(1, 4);
    let index = writer.index();
    writer.insert(BackendId(0), 0, &[1, 2], Micros(10));
    assert_eq!(index.oldest_use(BackendId(0)), None);
    writer.insert(BackendId(0), 0, &[3, 4], Micros(20));
    assert_eq!(index.oldest_use(BackendId(0)), Some(Micros(10)));
    writer.insert(BackendId(0), 0, &[1, 2], Micros(30));
    assert_eq!(index.oldest_use(BackendId(0)), Some(Micros(20)));
}

#[test]
fn news_that_finds_the_queue_full_is_dropped_and_counted() {
    let (feed, news) = IndexFeed::queue(2);
    for _ in 0..5 {
        feed.sent(BackendId(0), 0, &[1, 2, 3], Micros(1));
    }
    assert_eq!(feed.dropped(), 3);
    drop(feed);
    let writer = writer(1, 10);
    let index = writer.index();
    run(writer, &news);
    let mut scores = OverlapScores::default();
    index.overlap(&[1, 2, 3, 4], &mut scores);
    assert_eq!(scores.depth(BackendId(0)), 3);
}

/// Backend 0 always holds the whole prompt; 1 comes and goes, and the table grows and is full of churn.
#[test]
fn readers_on_other_threads_never_see_more_than_was_sent() {
    let mut writer = writer(40, 64);
    let index = writer.index();
    let prompt = chained(&[5; 48]);
    let other = chained(&[6; 48]);
    writer.insert(BackendId(0), 0, &prompt, Micros(0));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut scores = OverlapScores::default();
                while !done.load(Ordering::Relaxed) {
                    index.overlap(&prompt, &mut scores);
                    assert_eq!(scores.depth(BackendId(2)), 0);
                    assert!((1..40).all(|id| scores.depth(BackendId(id)) <= 48));
                }
            });
        }
        for round in 0..400u64 {
            for backend in (0..40).filter(|&id| id != 2) {
                let sent = if backend == 0 || round % 2 == 0 {
                    &prompt
                } else {
                    &other
                };
                writer.insert(BackendId(backend), 0, sent, Micros(round));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let mut scores = OverlapScores::default();
    index.overlap(&prompt, &mut scores);
    assert_eq!(scores.depth(BackendId(0)), 48);
}

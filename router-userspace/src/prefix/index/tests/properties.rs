//! Equal to the naive twin, whatever happens.

use proptest::prelude::*;

use super::naive::{Naive, chained, writer};
use crate::prefix::index::OverlapScores;
use crate::types::{BackendId, Micros};

#[derive(Clone, Debug)]
enum Act {
    Insert(usize, Vec<u8>),
    Forget(usize),
    Capacity(usize, usize),
}

fn act(backends: usize) -> impl Strategy<Value = Act> {
    let path = prop::collection::vec(0u8..3, 0..40);
    prop_oneof![
        20 => (0..backends, path).prop_map(|(backend, path)| Act::Insert(backend, path)),
        1 => (0..backends).prop_map(Act::Forget),
        1 => (0..backends, 0usize..60).prop_map(|(backend, blocks)| Act::Capacity(backend, blocks)),
    ]
}

fn agree(backends: usize, acts: Vec<Act>, asked: &[u8]) -> Result<(), TestCaseError> {
    let mut writer = writer(backends, 50);
    let index = writer.index();
    let mut naive = Naive::new(backends, 50);
    let mut scores = OverlapScores::default();
    for (step, act) in acts.into_iter().enumerate() {
        let mut prompt = chained(asked);
        match act {
            Act::Insert(backend, path) => {
                prompt = chained(&path);
                let id = BackendId(backend as u32);
                writer.insert(id, index.generation(id), &prompt, Micros(step as u64));
                naive.insert(backend, &prompt);
            }
            Act::Forget(backend) => {
                index.forget(BackendId(backend as u32));
                naive.caches[backend].clear();
            }
            Act::Capacity(backend, blocks) => {
                writer.set_capacity(BackendId(backend as u32), blocks);
                naive.capacity[backend] = blocks;
                naive.caches[backend].truncate(blocks);
            }
        }
        for blocks in [&prompt, &chained(asked)] {
            index.overlap(blocks, &mut scores);
            for backend in 0..backends {
                let id = BackendId(backend as u32);
                prop_assert_eq!(
                    scores.depth(id),
                    naive.depth(backend, blocks),
                    "backend {}",
                    backend
                );
                let held = scores.holders().contains(&id);
                prop_assert_eq!(held, scores.depth(id) > 0);
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn few_backends_equal_the_naive_twin(
        acts in prop::collection::vec(act(4), 0..80),
        asked in prop::collection::vec(0u8..3, 0..40),
    ) {
        agree(4, acts, &asked)?;
    }

    #[test]
    fn more_than_64_backends_equal_the_naive_twin(
        acts in prop::collection::vec(act(150), 0..200),
        asked in prop::collection::vec(0u8..2, 0..12),
    ) {
        agree(150, acts, &asked)?;
    }
}

#[test]
fn a_prefix_held_by_all_of_1000_backends_is_found_at_each() {
    let mut writer = writer(1000, 50);
    let index = writer.index();
    let prompt = chained(&[1; 40]);
    for backend in 0..1000u32 {
        let depth = 1 + backend as usize % 40;
        writer.insert(BackendId(backend), 0, &prompt[..depth], Micros(0));
    }
    let mut scores = OverlapScores::default();
    index.overlap(&prompt, &mut scores);
    assert!((0..1000).all(|backend| scores.depth(BackendId(backend)) == 1 + backend % 40));
}

//! Every interleaving of a reader with the writer, by loom: the table's own source with loom's atomics.

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
mod mask {
    pub(super) use crate::prefix::index::mask::for_each_bit;
}
#[expect(
    dead_code,
    clippy::duplicate_mod,
    reason = "the same source with other atomics, of which the tests use a part"
)]
#[path = "../table.rs"]
mod table;

use loom::sync::Arc;
use loom::thread;
use table::Table;

fn slots(table: &Table, hash: u64) -> Vec<usize> {
    let mut words = vec![0; table.row_words()];
    // Each retry doubles the interleavings; one is enough to show that a retry is right.
    table.read_within(2, hash, &mut words);
    let mut slots = Vec::new();
    mask::for_each_bit(&words, |slot| slots.push(slot));
    slots
}

/// Both hashes share the only bucket. A reader that gave up sees nothing, which is allowed.
fn reader_sees(expected: &'static [&'static [usize]], work: fn(&Table, &mut table::Room)) {
    loom::model(move || {
        let (table, mut room) = Table::new(1, 1, 8);
        table.add(&mut room, 7, 3).unwrap();
        let table = Arc::new(table);
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let seen = slots(&table, 7);
                assert!(seen.is_empty() || expected.contains(&&seen[..]), "{seen:?}");
            })
        };
        work(&table, &mut room);
        reader.join().unwrap();
    });
}

#[test]
fn a_reader_sees_a_set_before_or_after_an_addition() {
    reader_sees(&[&[3], &[1, 3]], |table, room| {
        table.add(room, 7, 1).unwrap();
    });
}

#[test]
fn a_node_that_is_reused_for_another_hash_never_lends_it_its_set() {
    reader_sees(&[&[3]], |table, room| {
        table.remove(room, 7, 3);
        table.add(room, 8, 5).unwrap();
    });
}

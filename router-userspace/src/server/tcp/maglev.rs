//! Maglev hashing: which backend a key goes to.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::policy::Member;
use crate::types::Rng;

/// Slots of a listener's table; prime, and large against [`MEMBERS_MAX`], so that shares are even and a removal moves
/// few keys of the others.
pub(super) const TABLE_SLOTS: u32 = 65_537;

/// Backends of one table.
pub(super) const MEMBERS_MAX: usize = 1024;

/// Slots drawn for a key whose own member is passed over, before all are gone through.
const DRAWS_MAX: usize = 64;

const SEED_OFFSET: u64 = 0;
const SEED_SKIP: u64 = 1;

/// A table of slots, each owned by a member.
///
/// Members take turns in which each claims the next free slot of its own permutation of all slots; one with more
/// weight has more turns. Every node that knows the same names and weights has the same table, in whatever order it
/// lists them. Each member has at least one slot.
///
/// # Source
/// Eisenbud et al.: Maglev, a fast and reliable software network load balancer, NSDI 2016, section 3.4.
#[derive(Debug)]
pub(super) struct Maglev {
    /// Index of the owner of each slot.
    slots: Vec<u16>,
}

/// A member's permutation of the slots: `(offset + n * skip) % slots` for n = 0, 1, 2, …
struct Turn {
    owner: u16,
    next: u32,
    skip: u32,
    weight: u64,
    /// Turns that it has earned, in units of the largest weight.
    credit: u64,
}

impl Maglev {
    /// The table of `members`, at most [`MEMBERS_MAX`] of them.
    pub(super) fn new(members: &[Member<'_>]) -> Maglev {
        Maglev::with_slots(members, TABLE_SLOTS)
    }

    /// The same with another number of slots, which has to be prime.
    fn with_slots(members: &[Member<'_>], count: u32) -> Maglev {
        let weight_max = members.iter().map(|member| weight(member)).max().unwrap_or(1);
        let mut order: Vec<usize> = (0..members.len().min(MEMBERS_MAX)).collect();
        order.sort_unstable_by_key(|index| members[*index].name);
        let mut turns: Vec<Turn> = order
            .into_iter()
            .map(|index| {
                let name = members[index].name.as_bytes();
                let hash = |seed, below: u32| (xxh3_64_with_seed(name, seed) % u64::from(below)) as u32;
                Turn {
                    owner: u16::try_from(index).unwrap_or(u16::MAX),
                    next: hash(SEED_OFFSET, count),
                    skip: hash(SEED_SKIP, count - 1) + 1,
                    weight: weight(&members[index]),
                    // The first round is everyone's.
                    credit: weight_max,
                }
            })
            .collect();
        Maglev {
            slots: fill(&mut turns, weight_max, count),
        }
    }

    /// The owner of the key's slot, then the members to go to instead, each of them at least once.
    ///
    /// The next slots would not do: permutations are arithmetic, so that one member's slots may mostly lie before
    /// those of one other. Slots drawn by the key spread the keys of a member that is passed over by the shares of the
    /// others. All around it goes only where what is left has a small share.
    pub(super) fn walk(&self, key: u64) -> impl Iterator<Item = usize> {
        let count = self.slots.len();
        let mut rng = Rng::new(key);
        // Multiply-shift instead of a remainder: the high bits choose.
        let own = ((u128::from(key) * count as u128) >> 64) as usize;
        let drawn = (0..DRAWS_MAX).map(move |_| rng.below(count));
        let around = (own..count).chain(0..own);
        let places = std::iter::once(own).chain(drawn).chain(around);
        places.filter_map(|place| self.slots.get(place).map(|owner| usize::from(*owner)))
    }
}

fn weight(member: &Member<'_>) -> u64 {
    u64::from(member.weight.max(1))
}

fn fill(turns: &mut [Turn], weight_max: u64, count: u32) -> Vec<u16> {
    if turns.is_empty() {
        return Vec::new();
    }
    let mut slots: Vec<Option<u16>> = vec![None; count as usize];
    let mut left = count;
    while left > 0 {
        for turn in &mut *turns {
            if turn.credit >= weight_max && left > 0 {
                turn.credit -= weight_max;
                // Since the number of slots is prime, this comes by each of them.
                while slots[turn.next as usize].is_some() {
                    turn.step(count);
                }
                slots[turn.next as usize] = Some(turn.owner);
                turn.step(count);
                left -= 1;
            }
            turn.credit += turn.weight;
        }
    }
    slots.into_iter().flatten().collect()
}

impl Turn {
    fn step(&mut self, count: u32) {
        self.next = (self.next + self.skip) % count;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::types::Rng;

    fn names(count: usize, seed: u64) -> Vec<String> {
        (0..count)
            .map(|index| format!("10.{seed}.{}.{}:8000", index / 256, index % 256))
            .collect()
    }

    fn members<'a>(names: &'a [String], weights: &[u32]) -> Vec<Member<'a>> {
        let pairs = names.iter().zip(weights.iter().cycle());
        pairs
            .map(|(name, weight)| Member {
                name,
                weight: *weight,
            })
            .collect()
    }

    fn counts(table: &Maglev, members: usize) -> Vec<u64> {
        let mut counts = vec![0; members];
        for owner in &table.slots {
            counts[usize::from(*owner)] += 1;
        }
        counts
    }

    /// The pseudo-code of the paper, section 3.4, with whole permutations in memory; for equal weights.
    fn paper(names: &[String], slots: usize) -> Vec<u16> {
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by_key(|index| &names[*index]);
        let permutation = |index: &usize| -> Vec<usize> {
            let name = names[*index].as_bytes();
            let offset = xxh3_64_with_seed(name, SEED_OFFSET) as usize % slots;
            let skip = xxh3_64_with_seed(name, SEED_SKIP) as usize % (slots - 1) + 1;
            (0..slots).map(|j| (offset + j * skip) % slots).collect()
        };
        let permutations: Vec<Vec<usize>> = order.iter().map(permutation).collect();
        let mut next = vec![0; names.len()];
        let mut entry: Vec<Option<u16>> = vec![None; slots];
        let mut filled = 0;
        loop {
            for place in 0..names.len() {
                let mut candidate = permutations[place][next[place]];
                while entry[candidate].is_some() {
                    next[place] += 1;
                    candidate = permutations[place][next[place]];
                }
                entry[candidate] = Some(order[place] as u16);
                next[place] += 1;
                filled += 1;
                if filled == slots {
                    return entry.into_iter().flatten().collect();
                }
            }
        }
    }

    #[test]
    fn a_table_without_members_has_no_slots_and_one_member_has_them_all() {
        assert_eq!(Maglev::new(&[]).walk(u64::MAX).next(), None);
        let names = names(1, 0);
        let table = Maglev::new(&members(&names, &[7]));
        assert_eq!(counts(&table, 1), [u64::from(TABLE_SLOTS)]);
        assert!(table.walk(u64::MAX).all(|owner| owner == 0));
    }

    #[test]
    fn the_smallest_weight_among_as_many_members_as_there_may_be_has_a_slot() {
        let names = names(MEMBERS_MAX, 1);
        let mut weights = vec![1000; MEMBERS_MAX];
        weights[17] = 1;
        let counts = counts(&Maglev::new(&members(&names, &weights)), MEMBERS_MAX);
        assert!(counts.iter().all(|count| *count > 0));
        assert_eq!(counts[17], 1);
        let table = Maglev::new(&members(&names, &weights));
        assert_eq!(
            table.walk(0).find(|owner| *owner == 17),
            Some(17),
            "it is found however small it is"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..Default::default() })]

        #[test]
        fn equal_weights_give_the_table_of_the_paper(count in 1usize..40, seed in 0u64..200) {
            let names = names(count, seed);
            prop_assert_eq!(Maglev::with_slots(&members(&names, &[3]), 1031).slots, paper(&names, 1031));
        }

        #[test]
        fn shares_follow_weights(weights in proptest::collection::vec(1u32..=1000, 1..60), seed in 0u64..200) {
            let names = names(weights.len(), seed);
            let counts = counts(&Maglev::new(&members(&names, &weights)), weights.len());
            let total: u32 = weights.iter().sum();
            prop_assert_eq!(counts.iter().sum::<u64>(), u64::from(TABLE_SLOTS));
            for (count, weight) in counts.iter().zip(&weights) {
                let part = f64::from(*weight) / f64::from(total);
                let share = part * f64::from(TABLE_SLOTS);
                // Two rounds are cut off at most at the end, and one slot each is given in the first round.
                let slack = 2.0 + weights.len() as f64 * part.max(1.0 / weights.len() as f64) * 2.0;
                prop_assert!((*count as f64 - share).abs() <= slack, "{} for a share of {}", count, share);
            }
        }

        #[test]
        fn the_order_of_the_list_changes_nothing(count in 2usize..30, seed in 0u64..200) {
            let (forth, mut back) = (names(count, seed), names(count, seed));
            back.reverse();
            let weights: Vec<u32> = (1..=count as u32).collect();
            let reversed: Vec<u32> = weights.iter().rev().copied().collect();
            let (one, other) = (members(&forth, &weights), members(&back, &reversed));
            let (table, twin) = (Maglev::with_slots(&one, 4099), Maglev::with_slots(&other, 4099));
            for (a, b) in table.slots.iter().zip(&twin.slots) {
                prop_assert_eq!(one[usize::from(*a)].name, other[usize::from(*b)].name);
            }
        }

        #[test]
        fn a_member_passed_over_moves_its_own_keys_alone_and_spreads_them(
            count in 3usize..20, seed in 0u64..200, out in 0usize..20,
        ) {
            let (names, out) = (names(count, seed), out % count);
            let table = Maglev::new(&members(&names, &[1]));
            let mut rng = Rng::new(seed);
            let mut heirs: BTreeMap<usize, u32> = BTreeMap::new();
            let mut moved = 0;
            for _ in 0..40_000 {
                let key = rng.next_u64();
                let first = table.walk(key).next().expect("an owner");
                let second = table.walk(key).find(|owner| *owner != out).expect("another");
                if first == out {
                    moved += 1;
                    *heirs.entry(second).or_default() += 1;
                } else {
                    prop_assert_eq!(first, second);
                }
            }
            prop_assert_eq!(heirs.len(), count - 1);
            let most = heirs.values().max().copied().unwrap_or(0);
            let mean = f64::from(moved) / (count - 1) as f64;
            prop_assert!(f64::from(most) < mean * 1.2 + 40.0, "{} of {} to one of {}", most, moved, count - 1);
        }

        #[test]
        fn a_member_removed_from_the_list_disturbs_few_keys_of_the_others(
            count in 3usize..20, seed in 0u64..200, out in 0usize..20,
        ) {
            let (names, out) = (names(count, seed), out % count);
            let whole = Maglev::new(&members(&names, &[1]));
            let mut rest = names.clone();
            rest.remove(out);
            let smaller = Maglev::new(&members(&rest, &[1]));
            let kept = whole.slots.iter().zip(&smaller.slots).filter(|(before, _)| usize::from(**before) != out);
            let (mut all, mut moved) = (0, 0);
            for (before, after) in kept {
                all += 1;
                moved += u32::from(names[usize::from(*before)] != rest[usize::from(*after)]);
            }
            prop_assert!(moved * 10 < all, "{} of {} slots of the others moved", moved, all);
        }
    }
}

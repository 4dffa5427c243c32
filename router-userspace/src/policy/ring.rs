//! The ring of consistent hashing.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Member;

/// Points of a ring at most; with more weight each unit of it gets fewer.
pub const RING_POINTS_MAX: usize = 1 << 20;
/// A member's weight counts up to this.
pub const WEIGHT_MAX: u32 = 1000;

/// Points on a circle of 64-bit numbers, each owned by a member.
///
/// Points come from names under fixed seeds, so every node that knows the same names has the same ring, in
/// whatever order it lists them. A point's seed is its number, so that more weight only adds points.
#[derive(Debug)]
pub struct Ring {
    /// Sorted.
    points: Vec<u64>,
    /// Index of the member that owns the point of the same index.
    owners: Vec<u32>,
    /// Hash of each member's name.
    names: Vec<u64>,
}

impl Ring {
    /// A ring on which each member has `virtual_nodes` points for each unit of its weight.
    #[must_use]
    pub fn new(members: &[Member<'_>], virtual_nodes: u32) -> Ring {
        let units = |member: &Member<'_>| u64::from(member.weight.clamp(1, WEIGHT_MAX));
        let total: u64 = members.iter().map(units).sum();
        let points_max = RING_POINTS_MAX as u64 / total.max(1);
        let virtual_nodes = u64::from(virtual_nodes).min(points_max).max(1);
        let mut points: Vec<(u64, u32)> = Vec::new();
        for (owner, member) in members.iter().enumerate() {
            let owner = u32::try_from(owner).unwrap_or(u32::MAX);
            let numbers = 0..virtual_nodes * units(member);
            points.extend(numbers.map(|number| (xxh3_64_with_seed(member.name.as_bytes(), number), owner)));
        }
        // Two members at one point: the one whose name is smaller, whatever the order of the list.
        points.sort_unstable_by_key(|(point, owner)| (*point, members[*owner as usize].name));
        let (points, owners) = points.into_iter().unzip();
        let names = members
            .iter()
            .map(|member| xxh3_64_with_seed(member.name.as_bytes(), 0))
            .collect();
        Ring {
            points,
            owners,
            names,
        }
    }

    /// How well `member` suits `key`, without the ring: the highest rank is the same on every node.
    #[must_use]
    pub fn rank(&self, member: usize, key: u64) -> u64 {
        let name = self.names.get(member).copied().unwrap_or(0);
        xxh3_64_with_seed(&name.to_le_bytes(), key)
    }

    /// The owners of the points from `key` on, once around.
    pub fn walk(&self, key: u64) -> impl Iterator<Item = usize> {
        let start = self.points.partition_point(|point| *point < key);
        let (before, after) = self.owners.split_at(start);
        after.iter().chain(before).map(|owner| *owner as usize)
    }
}

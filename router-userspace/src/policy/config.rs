//! Which policy, and its settings.

use std::time::Duration;

use crate::prefix::BLOCK_BYTES;

/// A policy's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// [`super::RoundRobin`]
    RoundRobin,
    /// [`super::Random`]
    Random,
    /// [`super::LeastLoad`]
    LeastLoad,
    /// [`super::PowerOfTwo`]
    PowerOfTwo,
    /// [`super::ConsistentHash`]
    ConsistentHash,
    /// [`super::PrefixThreshold`]
    PrefixThreshold,
    /// [`super::PrefixScore`]
    PrefixScore,
    /// [`super::LeastCost`]
    LeastCost,
}

impl PolicyKind {
    /// All of them.
    pub const ALL: [PolicyKind; 8] = [
        PolicyKind::RoundRobin,
        PolicyKind::Random,
        PolicyKind::LeastLoad,
        PolicyKind::PowerOfTwo,
        PolicyKind::ConsistentHash,
        PolicyKind::PrefixThreshold,
        PolicyKind::PrefixScore,
        PolicyKind::LeastCost,
    ];

    /// Its name in the config, in metrics and in the simulator.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::RoundRobin => "round_robin",
            PolicyKind::Random => "random",
            PolicyKind::LeastLoad => "least_load",
            PolicyKind::PowerOfTwo => "power_of_two",
            PolicyKind::ConsistentHash => "consistent_hash",
            PolicyKind::PrefixThreshold => "prefix_threshold",
            PolicyKind::PrefixScore => "prefix_score",
            PolicyKind::LeastCost => "least_cost",
        }
    }

    /// The policy with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<PolicyKind> {
        PolicyKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it looks at prompts, so that bodies have to be read before it can choose.
    #[must_use]
    pub fn needs_key(self) -> bool {
        self == PolicyKind::ConsistentHash || self.needs_index()
    }

    /// Whether it asks who holds a prompt's prefix: it then needs a [`super::Fleet`].
    #[must_use]
    pub fn needs_index(self) -> bool {
        matches!(
            self,
            PolicyKind::PrefixThreshold | PolicyKind::PrefixScore | PolicyKind::LeastCost
        )
    }
}

/// The settings of the policies.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyConfig {
    /// Which one chooses.
    pub kind: PolicyKind,
    /// Points on the ring for each unit of a backend's weight, at least 1.
    pub virtual_nodes: u32,
    /// How far above the mean a backend's load may be for a key to stay with it, at least 1.
    pub load_factor: f64,
    /// Part of a prompt that has to be cached somewhere for [`super::PrefixThreshold`] to go there.
    pub prefix_share_min: f64,
    /// α of [`super::PrefixScore`].
    pub hit_weight: f64,
    /// The constants of [`super::LeastCost`].
    pub least_cost: LeastCostConfig,
    /// Bytes of text in a block of the prompt keys.
    pub block_bytes: u32,
    /// Tokens that a backend's cache holds, until it says so itself.
    pub capacity_tokens_assumed: u64,
    /// Memory of the prefix index.
    pub index_bytes_max: usize,
}

/// The constants of [`super::LeastCost`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeastCostConfig {
    /// λ: what computing a token costs other requests, in tokens.
    pub recompute: f64,
    /// μ: what it costs more where it evicts blocks that were used just now.
    pub evict: f64,
    /// τ: how fast that fades.
    pub memory: Duration,
    /// γ: what a request in flight costs, in tokens.
    pub in_flight_tokens: f64,
}

impl Default for LeastCostConfig {
    fn default() -> LeastCostConfig {
        LeastCostConfig {
            recompute: 2.0,
            evict: 2.0,
            memory: Duration::from_secs(60),
            in_flight_tokens: 50.0,
        }
    }
}

impl Default for PolicyConfig {
    fn default() -> PolicyConfig {
        PolicyConfig {
            kind: PolicyKind::LeastCost,
            virtual_nodes: 160,
            load_factor: 1.25,
            prefix_share_min: 0.3,
            hit_weight: 0.7,
            least_cost: LeastCostConfig::default(),
            block_bytes: BLOCK_BYTES as u32,
            capacity_tokens_assumed: 1_000_000,
            index_bytes_max: 512 << 20,
        }
    }
}

//! Which policy, and its settings.

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
}

impl PolicyKind {
    /// All of them.
    pub const ALL: [PolicyKind; 5] = [
        PolicyKind::RoundRobin,
        PolicyKind::Random,
        PolicyKind::LeastLoad,
        PolicyKind::PowerOfTwo,
        PolicyKind::ConsistentHash,
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
        self == PolicyKind::ConsistentHash
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
}

impl Default for PolicyConfig {
    fn default() -> PolicyConfig {
        PolicyConfig {
            kind: PolicyKind::ConsistentHash,
            virtual_nodes: 160,
            load_factor: 1.25,
        }
    }
}

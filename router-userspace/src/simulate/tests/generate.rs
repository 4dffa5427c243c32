//! Small traces, as the lines of a file.

use crate::simulate::Trace;
use crate::types::Rng;

/// Tokens of a block.
pub(super) const BLOCK_TOKENS: u64 = 64;

/// Groups of requests that share a prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) requests: u64,
    pub(super) groups: usize,
    /// Part of the requests that belong to group 0; the others are spread evenly.
    pub(super) hot: f64,
    /// Blocks of a group's prefix; 0 = nothing is shared.
    pub(super) prefix_blocks: u64,
    pub(super) own_blocks: u64,
    pub(super) output_tokens: u64,
    pub(super) gap_ms: f64,
}

impl Shape {
    /// The trace, with exponential gaps between its requests.
    pub(super) fn trace(self, seed: u64) -> Trace {
        Trace::read(self.lines(seed).as_bytes()).unwrap()
    }

    pub(super) fn lines(self, seed: u64) -> String {
        let mut rng = Rng::new(seed);
        let mut at_ms = 0.0;
        let mut lines = String::new();
        let groups = self.groups as u64;
        for request in 0..self.requests {
            at_ms += -self.gap_ms * (1.0 - rng.unit()).ln();
            let group = if rng.unit() < self.hot {
                0
            } else {
                rng.below(self.groups) as u64
            };
            let own = groups * self.prefix_blocks + request * self.own_blocks;
            let runs = [
                [group * self.prefix_blocks, self.prefix_blocks],
                [own, self.own_blocks],
            ];
            let input_tokens = (self.prefix_blocks + self.own_blocks) * BLOCK_TOKENS;
            lines += &format!(
                "{{\"timestamp\":{at_ms:.3},\"input_length\":{input_tokens},\"output_length\":{},\
                 \"hash_runs\":{runs:?},\"block_size\":{BLOCK_TOKENS}}}\n",
                self.output_tokens
            );
        }
        lines
    }
}

/// Sessions of `turns` turns, each of which repeats the one before it and adds `grow` blocks.
pub(super) fn sessions(count: u64, turns: u64, first_blocks: u64, grow: u64) -> Trace {
    let mut lines = String::new();
    let room = first_blocks + turns * grow;
    for session in 0..count {
        for turn in 0..turns {
            let blocks = first_blocks + turn * grow;
            lines += &format!(
                "{{\"session_id\":{session},\"session_start_ms\":{},\"think_ms\":{},\"input_length\":{},\
                 \"output_length\":20,\"hash_runs\":[[{},{blocks}]],\"block_size\":{BLOCK_TOKENS}}}\n",
                session * 10,
                turn.min(1) * 2000,
                blocks * BLOCK_TOKENS,
                session * room,
            );
        }
    }
    Trace::read(lines.as_bytes()).unwrap()
}

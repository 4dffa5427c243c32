//! How fast an engine is and how much it holds.

use std::time::Duration;

/// Sizes and costs of one engine.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineConfig {
    /// Tokens in a block of the cache, at least 1.
    pub block_tokens: u32,
    /// Blocks of KV memory, prompts and outputs together.
    pub capacity_blocks: usize,
    /// Requests that run at once.
    pub running_max: usize,
    /// Requests that wait; beyond it a request is refused.
    pub waiting_max: usize,
    /// Tokens that a step computes, prefill and decode together.
    pub step_tokens_max: u32,
    /// What a step costs whatever it computes.
    pub step: Duration,
    /// What one prefilled token adds to its step.
    pub prefill_token: Duration,
    /// What one decoding sequence adds to its step.
    pub decode_token: Duration,
    /// Tokens of context that double the cost of prefilling a token, by attention to all of them; `None` = context
    /// costs nothing.
    pub attention_tokens: Option<u32>,
}

/// `waiting_max` where the caller sets none.
const WAITING_MAX_DEFAULT: usize = 1 << 17;

impl EngineConfig {
    /// The reference engine: 10 ms a step, 20,000 prefill tokens/s, 0.1 ms a decoding sequence, 8192 tokens a
    /// step, 64 running.
    #[must_use]
    pub fn new(capacity_tokens: u64, block_tokens: u32) -> EngineConfig {
        let block_tokens = block_tokens.max(1);
        EngineConfig {
            block_tokens,
            capacity_blocks: usize::try_from(capacity_tokens / u64::from(block_tokens)).unwrap_or(usize::MAX),
            running_max: 64,
            waiting_max: WAITING_MAX_DEFAULT,
            step_tokens_max: 8192,
            step: Duration::from_millis(10),
            prefill_token: Duration::from_micros(50),
            decode_token: Duration::from_micros(100),
            attention_tokens: None,
        }
    }

    /// The same engine, `speed` times as fast in everything.
    #[must_use]
    pub fn with_speed(mut self, speed: f64) -> EngineConfig {
        for cost in [&mut self.step, &mut self.prefill_token, &mut self.decode_token] {
            *cost = Duration::try_from_secs_f64(cost.as_secs_f64() / speed).unwrap_or(*cost);
        }
        self
    }

    /// How many blocks `tokens` take; a partial last block counts as a block.
    #[must_use]
    pub fn blocks(&self, tokens: u32) -> usize {
        tokens.div_ceil(self.block_tokens) as usize
    }

    /// What attention adds for a chunk of `tokens` behind `context` tokens.
    #[must_use]
    pub fn attention_time(&self, context: u32, tokens: u32) -> Duration {
        let Some(doubling) = self.attention_tokens.filter(|&doubling| doubling > 0) else {
            return Duration::ZERO;
        };
        let seen = f64::from(context) + f64::from(tokens) / 2.0;
        self.prefill_token
            .mul_f64(f64::from(tokens) * seen / f64::from(doubling))
    }

    /// How long a step with this work takes.
    #[must_use]
    pub fn step_time(&self, prefill_tokens: u32, decoding: u32) -> Duration {
        self.step + self.prefill_token * prefill_tokens + self.decode_token * decoding
    }
}

#[cfg(test)]
mod tests {
    use super::EngineConfig;
    use std::time::Duration;

    #[test]
    fn a_step_costs_its_base_its_prefill_and_its_decodes() {
        let config = EngineConfig::new(1 << 20, 16);
        assert_eq!(config.step_time(0, 0), Duration::from_millis(10));
        assert_eq!(
            config.step_time(8192, 64),
            Duration::from_micros(10_000 + 409_600 + 6_400)
        );
        assert_eq!(
            config.with_speed(4.0).step_time(20_000, 0),
            Duration::from_micros(252_500)
        );
    }

    #[test]
    fn attention_to_a_long_context_costs_as_much_again() {
        let mut config = EngineConfig::new(1 << 20, 16);
        assert_eq!(config.attention_time(50_000, 1000), Duration::ZERO);
        config.attention_tokens = Some(50_000);
        assert_eq!(config.attention_time(49_500, 1000), Duration::from_millis(50));
    }

    #[test]
    fn a_partial_block_counts_as_a_block() {
        let config = EngineConfig::new(160, 16);
        assert_eq!(config.capacity_blocks, 10);
        assert_eq!([0, 1, 16, 17].map(|tokens| config.blocks(tokens)), [0, 1, 1, 2]);
    }
}

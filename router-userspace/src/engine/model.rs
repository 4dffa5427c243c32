//! Continuous batching with chunked prefill, one step at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::{BlockCache, EngineConfig};
use crate::types::Micros;

/// A request's name inside one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What an engine needs to know of a request.
#[derive(Clone, Debug)]
pub struct EngineRequest {
    /// Chained hash of each block of the prompt, a partial last one included.
    pub blocks: Arc<[u64]>,
    /// Tokens of the prompt; 0 counts as 1.
    pub prompt_tokens: u32,
    /// Tokens to generate; 0 counts as 1.
    pub output_tokens: u32,
}

/// What happened to a request in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineEvent {
    /// Its prefill ended and gave the first token.
    FirstToken {
        /// Which request.
        id: RequestId,
        /// Prompt tokens that came from the cache.
        cached_tokens: u32,
    },
    /// One more token.
    Token {
        /// Which request.
        id: RequestId,
    },
    /// The token just reported was its last; it's forgotten.
    Finished {
        /// Which request.
        id: RequestId,
    },
}

/// Why a request wasn't taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// It could never run.
    #[error("prompt and output need {need_blocks} blocks; the engine has {capacity_blocks}")]
    TooLarge {
        /// Blocks that it needs.
        need_blocks: usize,
        /// Blocks there are.
        capacity_blocks: usize,
    },
    /// `waiting_max` is reached.
    #[error("{waiting} requests wait already")]
    QueueFull {
        /// How many wait.
        waiting: usize,
    },
}

/// Counts since the engine began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Prompt tokens of admitted requests: what the prefix cache was asked for.
    pub prompt_tokens_total: u64,
    /// Those of them that it had.
    pub cached_tokens_total: u64,
    /// Tokens generated.
    pub generation_tokens_total: u64,
    /// Requests that generated all of their tokens.
    pub finished_total: u64,
    /// Requests that were aborted.
    pub aborted_total: u64,
    /// Steps computed.
    pub steps_total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    None,
    Prefill(u32),
    Decode,
}

#[derive(Debug)]
struct Running {
    id: RequestId,
    request: EngineRequest,
    cached_tokens: u32,
    /// Prompt tokens computed or cached; equal to the prompt's once it decodes.
    prefilled: u32,
    generated: u32,
    /// Its part of the step under way.
    work: Work,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// A step may begin from this time.
    Due(Micros),
    /// A step ends at this time.
    Busy(Micros),
}

/// One engine.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    cache: BlockCache,
    phase: Phase,
    running: Vec<Running>,
    waiting: VecDeque<(RequestId, EngineRequest)>,
    next_id: u64,
    slowdown: f64,
    stats: EngineStats,
}

impl Engine {
    /// An idle engine with an empty cache.
    #[must_use]
    pub fn new(config: EngineConfig) -> Engine {
        Engine {
            cache: BlockCache::new(config.capacity_blocks),
            phase: Phase::Idle,
            running: Vec::new(),
            waiting: VecDeque::new(),
            next_id: 0,
            slowdown: 1.0,
            stats: EngineStats::default(),
            config,
        }
    }

    /// Its sizes and costs.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Its counts.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        self.stats
    }

    /// Its block memory.
    #[must_use]
    pub fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// Requests that run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Requests that wait for admission.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The share of its blocks that running requests need, 0 to 1.
    #[must_use]
    pub fn kv_usage_ratio(&self) -> f64 {
        self.cache.used() as f64 / self.cache.capacity().max(1) as f64
    }

    /// Lends the engine another cache for its own, so that several engines can share one. What is running or waiting
    /// has to have been admitted with the cache that is in place when the engine steps.
    pub fn exchange_cache(&mut self, cache: &mut BlockCache) {
        std::mem::swap(&mut self.cache, cache);
    }

    /// Makes each step that begins from now on take `factor` times as long; 1 is normal.
    pub fn set_slowdown(&mut self, factor: f64) {
        self.slowdown = factor;
    }

    /// Queues a request. On an idle engine a step is due at `now`; all that is submitted before
    /// [`Engine::step`] is called may share it.
    ///
    /// # Errors
    /// The request could never run, or too many wait.
    pub fn submit(&mut self, now: Micros, mut request: EngineRequest) -> Result<RequestId, SubmitError> {
        request.prompt_tokens = request.prompt_tokens.max(1);
        request.output_tokens = request.output_tokens.max(1);
        let need_blocks = request.blocks.len() + self.config.blocks(request.output_tokens);
        let capacity_blocks = self.cache.capacity();
        if need_blocks > capacity_blocks {
            return Err(SubmitError::TooLarge {
                need_blocks,
                capacity_blocks,
            });
        }
        let waiting = self.waiting.len();
        if waiting >= self.config.waiting_max {
            return Err(SubmitError::QueueFull { waiting });
        }
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.waiting.push_back((id, request));
        if self.phase == Phase::Idle {
            self.phase = Phase::Due(now);
        }
        Ok(id)
    }

    /// Forgets a request and frees what it held; one that is unknown or has ended is ignored. The step under way
    /// takes as long as it would have.
    pub fn abort(&mut self, id: RequestId) {
        if let Some(at) = self.running.iter().position(|running| running.id == id) {
            let gone = self.running.remove(at);
            let computed = match gone.prefilled {
                prefilled if prefilled == gone.request.prompt_tokens => gone.request.blocks.len(),
                prefilled => (prefilled / self.config.block_tokens) as usize,
            };
            let outputs = self.config.blocks(gone.request.output_tokens);
            self.cache.abandon(&gone.request.blocks, computed, outputs);
        } else if let Some(at) = self.waiting.iter().position(|waiting| waiting.0 == id) {
            self.waiting.remove(at);
        } else {
            return;
        }
        self.stats.aborted_total += 1;
    }

    /// When [`Engine::step`] has something to do; `None` while the engine is idle.
    #[must_use]
    pub fn next_step_at(&self) -> Option<Micros> {
        match self.phase {
            Phase::Idle => None,
            Phase::Due(at) | Phase::Busy(at) => Some(at),
        }
    }

    /// Ends the step that is due by `now`, appends what it gave to `events`, and begins the next.
    ///
    /// The next step begins where the last one ended, so that a driver whose timer is a little late loses no
    /// speed; one that is late by more than a step's base cost (it was suspended) goes on from `now`.
    pub fn step(&mut self, now: Micros, events: &mut Vec<EngineEvent>) {
        match self.phase {
            Phase::Due(at) if at <= now => self.begin(now),
            Phase::Busy(ends) if ends <= now => {
                self.finish(events);
                let late = now.since(ends) > self.config.step;
                self.begin(if late { now } else { ends });
            }
            _ => {}
        }
    }

    /// Shares out the step's tokens: decodes first, then running prefills, then admission in order of arrival.
    fn begin(&mut self, at: Micros) {
        let mut budget = self.config.step_tokens_max;
        let mut decoding = 0;
        let mut prefill_tokens = 0;
        let mut attention = Duration::ZERO;
        for running in &mut self.running {
            running.work = Work::None;
            if running.prefilled == running.request.prompt_tokens && budget > 0 {
                running.work = Work::Decode;
                decoding += 1;
                budget -= 1;
            }
        }
        let prefills = self
            .running
            .iter_mut()
            .filter(|running| running.prefilled < running.request.prompt_tokens);
        for running in prefills {
            let chunk = budget.min(running.request.prompt_tokens - running.prefilled);
            running.work = Work::Prefill(chunk);
            attention += self.config.attention_time(running.prefilled, chunk);
            prefill_tokens += chunk;
            budget -= chunk;
        }
        while budget > 0 && self.running.len() < self.config.running_max {
            let Some(mut running) = self.admit() else { break };
            let chunk = budget.min(running.request.prompt_tokens - running.prefilled);
            running.work = Work::Prefill(chunk);
            attention += self.config.attention_time(running.prefilled, chunk);
            prefill_tokens += chunk;
            budget -= chunk;
            self.running.push(running);
        }
        if self.running.is_empty() {
            self.phase = Phase::Idle;
            return;
        }
        let time = self.config.step_time(prefill_tokens, decoding) + attention;
        let time = time.mul_f64(self.slowdown);
        self.stats.steps_total += 1;
        self.phase = Phase::Busy(at + time);
    }

    /// Takes the request that has waited longest if its blocks fit; those behind it never overtake.
    fn admit(&mut self) -> Option<Running> {
        let (_, request) = self.waiting.front()?;
        let outputs = self.config.blocks(request.output_tokens);
        let matched = self.cache.admit(&request.blocks, outputs)?;
        let (id, request) = self.waiting.pop_front()?;
        let matched_tokens = u32::try_from(matched)
            .unwrap_or(u32::MAX)
            .saturating_mul(self.config.block_tokens);
        // At least one token is computed: its logits give the first output token.
        let cached_tokens = matched_tokens.min(request.prompt_tokens - 1);
        self.stats.prompt_tokens_total += u64::from(request.prompt_tokens);
        self.stats.cached_tokens_total += u64::from(cached_tokens);
        Some(Running {
            id,
            request,
            cached_tokens,
            prefilled: cached_tokens,
            generated: 0,
            work: Work::None,
        })
    }

    fn finish(&mut self, events: &mut Vec<EngineEvent>) {
        let Engine {
            config,
            cache,
            running,
            stats,
            ..
        } = self;
        running.retain_mut(|running| {
            let id = running.id;
            match running.work {
                Work::None => return true,
                Work::Prefill(chunk) => {
                    running.prefilled += chunk;
                    if running.prefilled < running.request.prompt_tokens {
                        return true;
                    }
                    let cached_tokens = running.cached_tokens;
                    events.push(EngineEvent::FirstToken { id, cached_tokens });
                }
                Work::Decode => events.push(EngineEvent::Token { id }),
            }
            running.generated += 1;
            stats.generation_tokens_total += 1;
            if running.generated < running.request.output_tokens {
                return true;
            }
            cache.release(
                &running.request.blocks,
                config.blocks(running.request.output_tokens),
            );
            stats.finished_total += 1;
            events.push(EngineEvent::Finished { id });
            false
        });
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;

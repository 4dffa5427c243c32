//! What the cache-aware policies of all workers share: the prefix index and each backend's prefill work.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::heat::Heat;
use super::{BackendWork, PolicyConfig, RequestView, Ticket};
use crate::prefix::PromptKey;
use crate::prefix::index::{IndexConfig, IndexFeed, IndexNews, IndexWriter, OverlapScores, PrefixIndex, run};
use crate::types::{BackendId, Micros};

/// Prompts that wait for the index thread at most.
const NEWS_MAX: usize = 4096;
/// Bytes of text a token, to begin with: ASCII, and everything else.
const ASCII_BYTES_PER_TOKEN: f64 = 4.0;
const OTHER_BYTES_PER_TOKEN: f64 = 2.5;

/// The shared state. Clones share it.
#[derive(Clone, Debug)]
pub struct Fleet {
    index: PrefixIndex,
    feed: IndexFeed,
    work: Arc<[Arc<BackendWork>]>,
    pub(super) heat: Arc<Heat>,
    block_bytes: u32,
}

/// The index thread's work, to be run on a thread of its own: [`IndexTask::run`] ends when the last [`Fleet`] and
/// the last policy of it are gone.
#[derive(Debug)]
pub struct IndexTask {
    writer: IndexWriter,
    news: Receiver<IndexNews>,
}

impl IndexTask {
    /// Applies what the workers report.
    pub fn run(self) {
        run(self.writer, &self.news);
    }
}

/// A prompt measured in tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prompt {
    /// Tokens of the whole prompt, at least 1.
    pub(super) tokens: f64,
    /// Tokens of one of its blocks.
    pub(super) block_tokens: f64,
}

impl Prompt {
    /// The estimate for a key.
    pub(super) fn of(key: &PromptKey, block_bytes: u32) -> Prompt {
        let other = key.other_bytes.min(key.text_bytes) as f64;
        let text = key.text_bytes as f64;
        let tokens = (text - other) / ASCII_BYTES_PER_TOKEN + other / OTHER_BYTES_PER_TOKEN;
        let block_bytes = f64::from(block_bytes);
        Prompt {
            tokens: tokens.max(1.0),
            block_tokens: if text > 0.0 {
                tokens * block_bytes / text
            } else {
                block_bytes / ASCII_BYTES_PER_TOKEN
            },
        }
    }

    /// Tokens that are cached where `depth` leading blocks are; one is always computed.
    pub(super) fn cached(&self, depth: u32) -> f64 {
        (f64::from(depth) * self.block_tokens).min(self.tokens - 1.0)
    }
}

impl Fleet {
    /// Shared state for `backends` backends whose index is written on the spot, by whoever dispatches: for a
    /// simulation.
    #[must_use]
    pub fn direct(config: &PolicyConfig, backends: usize) -> Fleet {
        let writer = IndexWriter::new(&index_config(config, backends));
        let index = writer.index();
        Fleet::over(index, IndexFeed::direct(writer), backends, config.block_bytes)
    }

    /// Shared state whose index is written by the returned task.
    #[must_use]
    pub fn queued(config: &PolicyConfig, backends: usize) -> (Fleet, IndexTask) {
        let writer = IndexWriter::new(&index_config(config, backends));
        let index = writer.index();
        let (feed, news) = IndexFeed::queue(NEWS_MAX);
        let fleet = Fleet::over(index, feed, backends, config.block_bytes);
        (fleet, IndexTask { writer, news })
    }

    fn over(index: PrefixIndex, feed: IndexFeed, backends: usize, block_bytes: u32) -> Fleet {
        Fleet {
            index,
            feed,
            work: (0..backends).map(|_| Arc::default()).collect(),
            heat: Arc::default(),
            block_bytes,
        }
    }

    /// Forgets what `backend` holds and does, at once: it is down or has restarted.
    pub fn reset(&self, backend: BackendId) {
        self.index.forget(backend);
        if let Some(work) = self.work(backend) {
            work.reset();
        }
    }

    /// Says how many tokens `backend`'s cache holds.
    pub fn set_capacity(&self, backend: BackendId, tokens: u64) {
        let blocks = tokens as f64 / block_tokens(self.block_bytes);
        self.feed.capacity(backend, blocks as usize);
    }

    /// The index, for reading.
    #[must_use]
    pub fn index(&self) -> &PrefixIndex {
        &self.index
    }

    /// `backend`'s prefill work.
    #[must_use]
    pub fn work(&self, backend: BackendId) -> Option<&Arc<BackendWork>> {
        self.work.get(backend.0 as usize)
    }

    /// Prompts that the index missed because its queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.feed.dropped()
    }

    /// Notes a dispatch whose prompt lacks `uncached_tokens` at `backend`.
    pub(super) fn dispatch(
        &self,
        request: &RequestView<'_>,
        backend: BackendId,
        uncached_tokens: f64,
    ) -> Option<Ticket> {
        if let Some(key) = request.key {
            self.sent(backend, key, request.now);
        }
        let work = self.work(backend)?;
        Some(work.dispatch(uncached_tokens as u64, request.now))
    }

    fn sent(&self, backend: BackendId, key: &PromptKey, now: Micros) {
        if !key.blocks.is_empty() {
            let generation = self.index.generation(backend);
            self.feed.sent(backend, generation, &key.blocks, now);
        }
    }
}

/// A fleet as one worker's policy uses it.
#[derive(Debug)]
pub(super) struct Lookout {
    pub(super) fleet: Fleet,
    pub(super) scores: OverlapScores,
    /// What the last look found, for the dispatch that follows it.
    prompt: Option<Prompt>,
    /// What it looked at.
    seen: Seen,
}

/// Tells one prompt from another: its bytes and its last block.
type Seen = (u64, Option<u64>);

fn seen(request: &RequestView<'_>) -> Seen {
    let key = request.key;
    (
        key.map_or(0, |key| key.text_bytes),
        key.and_then(|key| key.blocks.last().copied()),
    )
}

impl Lookout {
    pub(super) fn new(fleet: Fleet) -> Lookout {
        Lookout {
            fleet,
            scores: OverlapScores::default(),
            prompt: None,
            seen: (0, None),
        }
    }

    /// Finds who holds how much of the prompt; `None` where there's no prompt to go by.
    pub(super) fn look(&mut self, request: &RequestView<'_>) -> Option<Prompt> {
        let key = request.key.filter(|key| key.text_bytes > 0);
        let blocks = key.map_or(&[][..], |key| &key.blocks);
        self.fleet.index.overlap(blocks, &mut self.scores);
        self.seen = seen(request);
        self.prompt = key.map(|key| Prompt::of(key, self.fleet.block_bytes));
        self.prompt
    }

    /// Notes the dispatch of a request; one that wasn't the last to be looked at is looked at again.
    pub(super) fn dispatch(&mut self, request: &RequestView<'_>, backend: BackendId) -> Option<Ticket> {
        if self.seen != seen(request) {
            self.look(request);
        }
        let uncached = self.prompt.map_or(1.0, |prompt| {
            prompt.tokens - prompt.cached(self.scores.depth(backend))
        });
        self.fleet.dispatch(request, backend, uncached)
    }
}

fn index_config(config: &PolicyConfig, backends: usize) -> IndexConfig {
    let blocks = config.capacity_tokens_assumed as f64 / block_tokens(config.block_bytes);
    IndexConfig {
        backends,
        capacity_blocks: blocks as usize,
        bytes_max: config.index_bytes_max,
    }
}

/// Tokens of a block of ASCII text.
fn block_tokens(block_bytes: u32) -> f64 {
    (f64::from(block_bytes) / ASCII_BYTES_PER_TOKEN).max(1.0)
}

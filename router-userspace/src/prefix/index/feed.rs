//! How news of dispatched prompts reaches the writer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::writer::IndexWriter;
use crate::types::{BackendId, Micros};

/// What the writer is told.
#[derive(Debug)]
pub enum IndexNews {
    /// A prompt was sent.
    Sent {
        /// To whom.
        backend: BackendId,
        /// Its generation then.
        generation: u32,
        /// Hash of each block.
        blocks: Box<[u64]>,
        /// When.
        at: Micros,
    },
    /// A backend's cache holds this many blocks.
    Capacity {
        /// Whose.
        backend: BackendId,
        /// Blocks.
        blocks: usize,
    },
}

/// Where to send news. Clones share the queue.
#[derive(Clone, Debug)]
pub enum IndexFeed {
    /// Applied on the spot: for one thread and virtual time.
    Direct(Arc<Mutex<IndexWriter>>),
    /// Queued for [`run`]; news that finds the queue full is dropped and counted.
    Queue {
        /// The queue.
        queue: SyncSender<IndexNews>,
        /// News dropped.
        dropped: Arc<AtomicU64>,
    },
}

impl IndexFeed {
    /// A feed that applies news on the spot.
    #[must_use]
    pub fn direct(writer: IndexWriter) -> IndexFeed {
        IndexFeed::Direct(Arc::new(Mutex::new(writer)))
    }

    /// A queue of at most `length` news and the end to give to [`run`].
    #[must_use]
    pub fn queue(length: usize) -> (IndexFeed, Receiver<IndexNews>) {
        let (queue, news) = sync_channel(length);
        let dropped = Arc::default();
        (IndexFeed::Queue { queue, dropped }, news)
    }

    /// Tells of a prompt. Never blocks on a queue.
    pub fn sent(&self, backend: BackendId, generation: u32, blocks: &[u64], at: Micros) {
        match self {
            IndexFeed::Direct(writer) => {
                let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
                writer.insert(backend, generation, blocks, at);
            }
            IndexFeed::Queue { .. } => self.queue_news(IndexNews::Sent {
                backend,
                generation,
                blocks: blocks.into(),
                at,
            }),
        }
    }

    /// Tells of a capacity. Never blocks on a queue.
    pub fn capacity(&self, backend: BackendId, blocks: usize) {
        match self {
            IndexFeed::Direct(writer) => {
                let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
                writer.set_capacity(backend, blocks);
            }
            IndexFeed::Queue { .. } => self.queue_news(IndexNews::Capacity { backend, blocks }),
        }
    }

    /// News dropped because the queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        match self {
            IndexFeed::Direct(_) => 0,
            IndexFeed::Queue { dropped, .. } => dropped.load(Ordering::Relaxed),
        }
    }

    fn queue_news(&self, news: IndexNews) {
        if let IndexFeed::Queue { queue, dropped } = self
            && queue.try_send(news).is_err()
        {
            dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Applies news until all feeds are gone: the index thread's whole work.
pub fn run(mut writer: IndexWriter, news: &Receiver<IndexNews>) {
    for news in news {
        match news {
            IndexNews::Sent {
                backend,
                generation,
                blocks,
                at,
            } => writer.insert(backend, generation, &blocks, at),
            IndexNews::Capacity { backend, blocks } => writer.set_capacity(backend, blocks),
        }
    }
}

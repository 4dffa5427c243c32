//! The scanner that turns a body into its key.

use super::fold;
use super::key::{Api, BLOCK_BYTES, PromptKey};
use super::walk::Walk;
use crate::proto::json::Scanner;

/// Reads a body as it arrives, in one pass.
///
/// Cost: linear in the bytes fed. Memory: 8 bytes for each block of text and about 4 KiB, whatever the body.
#[derive(Debug)]
pub struct KeyScanner {
    json: Scanner,
    walk: Walk,
    /// The body isn't JSON, nests too deep or isn't an object.
    failed: bool,
}

impl KeyScanner {
    /// A scanner for one body of `api`.
    #[must_use]
    pub fn new(api: Api) -> KeyScanner {
        KeyScanner {
            json: Scanner::new(),
            walk: Walk::new(api, BLOCK_BYTES),
            failed: false,
        }
    }

    /// The next bytes of the body, cut anywhere.
    pub fn feed(&mut self, bytes: &[u8]) {
        if !self.failed {
            self.failed = self.json.feed(bytes, &mut self.walk).is_err() || self.walk.refused;
        }
    }

    /// Whether the rest of the body can change the key no more: the object has ended, or was none.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.failed || self.json.is_complete()
    }

    /// The model, as far as is known: a later field of that name would replace it.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.walk.model.as_deref().filter(|_| !self.failed)
    }

    /// The key of what was fed; the body need not have been complete. Of a body that isn't a JSON object
    /// nothing is known: no affinity, no blocks.
    #[must_use]
    pub fn finish(self) -> PromptKey {
        if self.failed {
            return PromptKey::default();
        }
        fold::key(&self.walk, BLOCK_BYTES)
    }
}

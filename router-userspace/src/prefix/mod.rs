//! What a prompt is, for routing: its key and its chained block hashes.

mod key;

pub use key::{Api, KeyScanner, PromptKey};

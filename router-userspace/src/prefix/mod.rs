//! What a prompt is, for routing: its key and its chained block hashes.

pub mod index;
mod key;

pub use key::{Api, KeyScanner, PromptKey};

//! What a prompt is, for routing: its key and its chained block hashes.
//!
//! A body's bytes go through the JSON scanner to the *walk*, which knows the fields of each API and sends their
//! text to *chains* of blocks, one for each part of a prompt (tools, system field, messages …), since clients
//! send these in any order. At the end the chains are *folded* in template order behind a seed (model, LoRA,
//! salt …) into the final block hashes and the affinity key.
//!
//! Two bodies that render to the same prompt have the same key. Known exceptions, which cost a shared prefix and
//! nothing else: a message whose `content`, `reasoning_content` and `tool_calls` come in another order, members
//! of a tool in another order (templates render that order), a number in another spelling.

mod chain;
mod fields;
mod fold;
mod frame;
mod hash;
pub mod index;
mod key;
mod scan;
#[cfg(test)]
mod tests;
mod walk;

pub use key::{AFFINITY_BYTES, Api, BLOCK_BYTES, BLOCKS_MAX, MODEL_BYTES_MAX, PromptKey};
pub use scan::KeyScanner;

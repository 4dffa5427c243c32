//! The prompt key of a request body.

/// Bytes of prompt text in a block.
pub const BLOCK_BYTES: usize = 256;
/// Blocks that a key holds at most (4 MiB of text); text behind them is counted but has no block of its own.
pub const BLOCKS_MAX: usize = 16_384;
/// Bytes of `model` that a key holds; of a longer one only the hash enters the key.
pub const MODEL_BYTES_MAX: usize = 253;
/// Where there's no system text, the affinity key covers this much of the prompt, or the first message where
/// that's shorter: then a conversation keeps its key as it grows.
pub const AFFINITY_BYTES: usize = 1024;

/// An inference call whose body has a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/v1/chat/completions`
    ChatCompletions,
    /// `/v1/completions`
    Completions,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`
    Messages,
    /// `/generate`
    Generate,
}

impl Api {
    /// The API of a request target's path (without its query), `None` where it isn't an inference call.
    #[must_use]
    pub fn of_path(path: &[u8]) -> Option<Api> {
        match path {
            b"/v1/chat/completions" => Some(Api::ChatCompletions),
            b"/v1/completions" => Some(Api::Completions),
            b"/v1/responses" => Some(Api::Responses),
            b"/v1/messages" => Some(Api::Messages),
            b"/generate" => Some(Api::Generate),
            _ => None,
        }
    }
}

/// What routing needs from a request body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptKey {
    /// Chained hash at the end of the system part (model, tools, system text), or after the first bytes
    /// ([`AFFINITY_BYTES`]) where there's no system text; `None` where the body has no prompt that could be read.
    pub affinity: Option<u64>,
    /// Final hash of each full block of prompt text, from the front; block i's covers all before it. At most
    /// [`BLOCKS_MAX`]. Tools, system field and messages each begin a block of their own.
    pub blocks: Vec<u64>,
    /// Bytes of prompt text that were hashed. A token id counts 4, an image or the like 1024.
    pub text_bytes: u64,
    /// Those of them that aren't ASCII.
    pub other_bytes: u64,
    /// `model`, as the body spells it after unescaping; `None` beyond [`MODEL_BYTES_MAX`].
    pub model: Option<String>,
    /// Whether the body asks for a stream.
    pub stream: bool,
    /// The most tokens that the answer may have, by the last top-level field that says so.
    pub output_tokens_max: Option<u64>,
}

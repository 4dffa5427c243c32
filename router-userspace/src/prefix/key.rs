//! The prompt key of a request body.

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
    /// Chained hash at the end of the system part (model, tools, system text), or after the first bytes where
    /// there's no system text; `None` where the body has no prompt that could be read.
    pub affinity: Option<u64>,
    /// Final hash of each full block of prompt text, from the front; block i's covers all before it.
    pub blocks: Vec<u64>,
    /// Bytes of prompt text that were hashed.
    pub text_bytes: u64,
    /// `model`, as the body spells it after unescaping.
    pub model: Option<String>,
    /// Whether the body asks for a stream.
    pub stream: bool,
}

/// Reads a body as it arrives, in one pass.
#[derive(Debug)]
pub struct KeyScanner {
    api: Api,
}

impl KeyScanner {
    /// A scanner for one body of `api`.
    #[must_use]
    pub fn new(api: Api) -> KeyScanner {
        KeyScanner { api }
    }

    /// The next bytes of the body.
    pub fn feed(&mut self, _bytes: &[u8]) {
        let _ = self.api;
    }

    /// The key of what was fed; the body need not have been complete.
    #[must_use]
    pub fn finish(self) -> PromptKey {
        PromptKey::default()
    }
}

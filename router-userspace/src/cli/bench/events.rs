//! Reads an answer's body just far enough to time it: tokens, the end, the usage.

use memchr::{memchr, memmem};
use serde::Deserialize;

use crate::prefix::Api;

/// Bytes of one line of a stream that are kept while it's incomplete; the rest of a longer one is left out.
const LINE_BYTES_MAX: usize = 16 << 20;

/// What an answer says it used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub(super) prompt_tokens: u64,
    /// Those of them that came from the cache.
    pub(super) cached_tokens: u64,
    /// Tokens generated.
    pub(super) output_tokens: u64,
}

/// Follows one answer.
#[derive(Debug)]
pub(super) struct EventReader {
    api: Api,
    line: Vec<u8>,
    /// Token events so far.
    pub(super) tokens: u64,
    /// Whether the end mark of the API came.
    pub(super) ended: bool,
    /// Whether the stream carried an error.
    pub(super) error: bool,
    /// The usage, once it came.
    pub(super) usage: Option<Usage>,
}

impl EventReader {
    /// A reader at the start of a body.
    pub(super) fn new(api: Api) -> EventReader {
        EventReader {
            api,
            line: Vec::new(),
            tokens: 0,
            ended: false,
            error: false,
            usage: None,
        }
    }

    /// The next bytes of a stream; says how many token events they completed.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> u64 {
        let before = self.tokens;
        while let Some(end) = memchr(b'\n', bytes) {
            let (head, tail) = bytes.split_at(end);
            bytes = &tail[1..];
            if self.line.is_empty() {
                self.read_line(head);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                self.read_line(&line);
                line.clear();
                self.line = line;
            }
        }
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.tokens - before
    }

    /// The whole body of an answer that isn't a stream.
    pub(super) fn whole(&mut self, body: &[u8]) {
        self.read_usage(body);
        self.ended = true;
    }

    fn read_line(&mut self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data:") else {
            return;
        };
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            self.ended = true;
            return;
        }
        if is_token(self.api, data) {
            self.tokens += 1;
            return;
        }
        let end: &[u8] = match self.api {
            Api::Messages => b"\"message_stop\"",
            Api::Responses => b"\"response.completed\"",
            // These end by `[DONE]`.
            Api::ChatCompletions | Api::Completions | Api::Generate => b"\0",
        };
        self.ended |= memmem::find(data, end).is_some();
        self.error |= data.starts_with(b"{\"error\":") || memmem::find(data, b"\"type\":\"error\"").is_some();
        self.read_usage(data);
    }

    fn read_usage(&mut self, json: &[u8]) {
        let name: &[u8] = if self.api == Api::Generate {
            b"\"meta_info\":"
        } else {
            b"\"usage\":"
        };
        let Some(at) = memmem::find(json, name) else {
            return;
        };
        let mut value =
            serde_json::Deserializer::from_slice(&json[at + name.len()..]).into_iter::<Option<WireUsage>>();
        if let Some(Ok(Some(wire))) = value.next() {
            let usage = self.usage.get_or_insert_default();
            let new = wire.usage();
            // Anthropic sends it in parts: at the start, and at the end with what was generated.
            usage.prompt_tokens = usage.prompt_tokens.max(new.prompt_tokens);
            usage.cached_tokens = usage.cached_tokens.max(new.cached_tokens);
            usage.output_tokens = usage.output_tokens.max(new.output_tokens);
        }
    }
}

/// Whether an event carries generated text.
fn is_token(api: Api, data: &[u8]) -> bool {
    let non_empty = |name: &[u8]| {
        memmem::find(data, name).is_some_and(|at| data.get(at + name.len()).is_some_and(|&byte| byte != b'"'))
    };
    match api {
        Api::ChatCompletions => {
            non_empty(b"\"content\":\"")
                || non_empty(b"\"content\": \"")
                || non_empty(b"\"reasoning_content\":\"")
                || non_empty(b"\"reasoning\":\"")
                || memmem::find(data, b"\"tool_calls\":[{").is_some()
        }
        Api::Completions | Api::Generate => non_empty(b"\"text\":\"") || non_empty(b"\"text\": \""),
        Api::Responses => memmem::find(data, b".delta\"").is_some(),
        Api::Messages => memmem::find(data, b"\"content_block_delta\"").is_some(),
    }
}

/// The fields of all APIs; each uses some.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<WireDetails>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<WireDetails>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cached_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireDetails {
    cached_tokens: Option<u64>,
}

impl WireUsage {
    fn usage(&self) -> Usage {
        let read = self.cache_read_input_tokens.unwrap_or(0);
        let details = self
            .prompt_tokens_details
            .as_ref()
            .or(self.input_tokens_details.as_ref());
        let cached = details
            .and_then(|details| details.cached_tokens)
            .or(self.cached_tokens);
        // Anthropic's `input_tokens` leaves out what was read from the cache or written to it.
        let input = self
            .input_tokens
            .map(|tokens| tokens + read + self.cache_creation_input_tokens.unwrap_or(0));
        Usage {
            prompt_tokens: self.prompt_tokens.or(input).unwrap_or(0),
            cached_tokens: cached.unwrap_or(read),
            output_tokens: self.completion_tokens.or(self.output_tokens).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EventReader, Usage};
    use crate::prefix::Api;

    const CHAT: &str = concat!(
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\" a\"}}],\"usage\":null}\n\n",
        ": comment\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\" b\"}}]}\r\n\r\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n",
        "data: [DONE]\n\n",
    );

    #[test]
    fn a_stream_reads_the_same_split_at_every_byte() {
        for split in 0..CHAT.len() {
            let mut reader = EventReader::new(Api::ChatCompletions);
            let (head, tail) = CHAT.as_bytes().split_at(split);
            let tokens = reader.feed(head) + reader.feed(tail);
            assert_eq!((tokens, reader.ended, reader.error), (2, true, false));
            let usage = Usage {
                prompt_tokens: 10,
                cached_tokens: 8,
                output_tokens: 2,
            };
            assert_eq!(reader.usage, Some(usage));
        }
    }

    #[test]
    fn anthropic_usage_adds_what_was_cached_to_what_was_not() {
        let mut reader = EventReader::new(Api::Messages);
        reader.feed(b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":4,\"cache_read_input_tokens\":6,\"output_tokens\":0}}}\n\n");
        reader.feed(b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}\n\n");
        reader.feed(
            b"event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":5}}\n\n",
        );
        assert!(!reader.ended);
        reader.feed(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
        let usage = reader.usage.unwrap();
        assert_eq!(
            (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens),
            (10, 6, 5)
        );
        assert_eq!((reader.tokens, reader.ended), (1, true));
    }

    #[test]
    fn an_error_inside_a_stream_is_seen() {
        let mut reader = EventReader::new(Api::ChatCompletions);
        reader.feed(b"data: {\"error\":{\"message\":\"no\"}}\n\n");
        assert!(reader.error);
    }
}

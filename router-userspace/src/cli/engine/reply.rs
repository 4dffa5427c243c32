//! The answers of the simulated engine, in the shape of each API.
//!
//! What doesn't change from token to token is serialised once a request; a token costs one copy of about 200
//! bytes.

use serde_json::{Value, json};

use super::prompt::Prompt;
use crate::prefix::Api;

/// What a generated text is made of, each word one token.
const WORDS: [&str; 16] = [
    " the", " cat", " sat", " on", " a", " warm", " mat", " and", " read", " its", " old", " map", " of",
    " all", " the", " stars",
];

/// The shape of one answer.
#[derive(Debug)]
pub(super) struct Reply {
    api: Api,
    id: String,
    model: String,
    created: u64,
    include_usage: bool,
    prompt_tokens: u32,
    output_tokens: u32,
    seed: u64,
    token_head: Vec<u8>,
    token_tail: &'static [u8],
}

impl Reply {
    /// The shape of the answer to `prompt`; `number` makes its id.
    pub(super) fn new(api: Api, prompt: &Prompt, model: &str, number: u64, created: u64) -> Reply {
        let id = match api {
            Api::ChatCompletions => format!("chatcmpl-{number:016x}"),
            Api::Completions => format!("cmpl-{number:016x}"),
            Api::Responses => format!("resp_{number:016x}"),
            Api::Messages => format!("msg_{number:016x}"),
            Api::Generate => format!("{number:016x}"),
        };
        let name = json!(model);
        let (token_head, token_tail): (String, &'static [u8]) = match api {
            Api::ChatCompletions => (
                format!(
                    r#"data: {{"id":"{id}","object":"chat.completion.chunk","created":{created},"model":{name},"choices":[{{"index":0,"delta":{{"content":""#
                ),
                b"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
            ),
            Api::Completions => (
                format!(
                    r#"data: {{"id":"{id}","object":"text_completion","created":{created},"model":{name},"choices":[{{"index":0,"text":""#
                ),
                b"\",\"logprobs\":null,\"finish_reason\":null}]}\n\n",
            ),
            Api::Responses => (
                format!(
                    "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":0,\"item_id\":\"msg_{number:016x}\",\"output_index\":0,\"content_index\":0,\"logprobs\":[],\"delta\":\""
                ),
                b"\"}\n\n",
            ),
            Api::Messages => (
                "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"".to_owned(),
                b"\"}}\n\n",
            ),
            Api::Generate => ("data: {\"text\":\"".to_owned(), b"\"}\n\n"),
        };
        Reply {
            api,
            id,
            model: model.to_owned(),
            created,
            include_usage: prompt.include_usage,
            prompt_tokens: prompt.request.prompt_tokens,
            output_tokens: prompt.request.output_tokens,
            seed: prompt.seed,
            token_head: token_head.into_bytes(),
            token_tail,
        }
    }

    /// Tokens that will be generated.
    pub(super) fn output_tokens(&self) -> u32 {
        self.output_tokens
    }

    /// Appends one token's event.
    pub(super) fn token(&self, index: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.token_head);
        out.extend_from_slice(self.word(index).as_bytes());
        out.extend_from_slice(self.token_tail);
    }

    /// Appends what comes before the first token.
    pub(super) fn begin(&self, cached_tokens: u32, out: &mut Vec<u8>) {
        match self.api {
            Api::ChatCompletions => {
                let delta = json!({"role": "assistant", "content": ""});
                data(
                    out,
                    &self.chat_chunk(
                        &json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]),
                    ),
                );
            }
            Api::Completions | Api::Generate => {}
            Api::Responses => {
                let response = self.response("in_progress", &json!([]), &Value::Null);
                event(
                    out,
                    &json!({"type": "response.created", "sequence_number": 0, "response": response}),
                );
                let item = json!({"id": self.item_id(), "type": "message", "role": "assistant", "status": "in_progress", "content": []});
                event(
                    out,
                    &json!({"type": "response.output_item.added", "sequence_number": 0, "output_index": 0, "item": item}),
                );
                let part = json!({"type": "output_text", "text": "", "annotations": []});
                event(
                    out,
                    &json!({"type": "response.content_part.added", "sequence_number": 0, "item_id": self.item_id(), "output_index": 0, "content_index": 0, "part": part}),
                );
            }
            Api::Messages => {
                let mut message = self.message(cached_tokens, "");
                message["content"] = json!([]);
                message["stop_reason"] = Value::Null;
                message["usage"]["output_tokens"] = json!(0);
                event(out, &json!({"type": "message_start", "message": message}));
                let block = json!({"type": "text", "text": ""});
                event(
                    out,
                    &json!({"type": "content_block_start", "index": 0, "content_block": block}),
                );
            }
        }
    }

    /// Appends what comes after the last token.
    pub(super) fn end(&self, cached_tokens: u32, out: &mut Vec<u8>) {
        match self.api {
            Api::ChatCompletions => {
                let last = json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": "length"}]);
                data(out, &self.chat_chunk(&last));
                if self.include_usage {
                    let mut chunk = self.chat_chunk(&json!([]));
                    chunk["usage"] = self.usage(cached_tokens);
                    data(out, &chunk);
                }
                out.extend_from_slice(b"data: [DONE]\n\n");
            }
            Api::Completions => {
                let last = json!([{"index": 0, "text": "", "logprobs": null, "finish_reason": "length"}]);
                data(out, &self.completion(&last));
                if self.include_usage {
                    let mut chunk = self.completion(&json!([]));
                    chunk["usage"] = self.usage(cached_tokens);
                    data(out, &chunk);
                }
                out.extend_from_slice(b"data: [DONE]\n\n");
            }
            Api::Responses => self.end_response(cached_tokens, out),
            Api::Messages => {
                event(out, &json!({"type": "content_block_stop", "index": 0}));
                let usage = self.message(cached_tokens, "")["usage"].take();
                let delta = json!({"stop_reason": "max_tokens", "stop_sequence": null});
                event(
                    out,
                    &json!({"type": "message_delta", "delta": delta, "usage": usage}),
                );
                event(out, &json!({"type": "message_stop"}));
            }
            Api::Generate => {
                data(
                    out,
                    &json!({"text": "", "meta_info": self.meta_info(cached_tokens)}),
                );
                out.extend_from_slice(b"data: [DONE]\n\n");
            }
        }
    }

    /// The whole answer of a call that doesn't stream.
    pub(super) fn whole(&self, cached_tokens: u32) -> Value {
        let text = self.text();
        match self.api {
            Api::ChatCompletions => json!({
                "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
                "choices": [{
                    "index": 0, "message": {"role": "assistant", "content": text}, "logprobs": null, "finish_reason": "length",
                }],
                "usage": self.usage(cached_tokens),
            }),
            Api::Completions => {
                let mut answer = self.completion(
                    &json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": "length"}]),
                );
                answer["usage"] = self.usage(cached_tokens);
                answer
            }
            Api::Responses => self.response("completed", &self.output(&text), &self.usage(cached_tokens)),
            Api::Messages => self.message(cached_tokens, &text),
            Api::Generate => json!({"text": text, "meta_info": self.meta_info(cached_tokens)}),
        }
    }

    fn word(&self, index: u32) -> &'static str {
        // A stride that depends on the prompt: the same prompt gets the same text, another gets another.
        let at = self
            .seed
            .wrapping_add(u64::from(index).wrapping_mul(self.seed >> 32 | 1));
        WORDS[(at % WORDS.len() as u64) as usize]
    }

    fn text(&self) -> String {
        (0..self.output_tokens).map(|index| self.word(index)).collect()
    }

    fn item_id(&self) -> String {
        self.id.replace("resp_", "msg_")
    }

    fn chat_chunk(&self, choices: &Value) -> Value {
        json!({"id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model, "choices": choices})
    }

    fn completion(&self, choices: &Value) -> Value {
        json!({"id": self.id, "object": "text_completion", "created": self.created, "model": self.model, "choices": choices})
    }

    fn usage(&self, cached_tokens: u32) -> Value {
        let total = u64::from(self.prompt_tokens) + u64::from(self.output_tokens);
        match self.api {
            Api::Responses => json!({
                "input_tokens": self.prompt_tokens, "input_tokens_details": {"cached_tokens": cached_tokens},
                "output_tokens": self.output_tokens, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": total,
            }),
            _ => json!({
                "prompt_tokens": self.prompt_tokens, "completion_tokens": self.output_tokens, "total_tokens": total,
                "prompt_tokens_details": {"cached_tokens": cached_tokens},
            }),
        }
    }

    /// In this API `input_tokens` leaves out what was read from the cache.
    fn message(&self, cached_tokens: u32, text: &str) -> Value {
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model,
            "content": [{"type": "text", "text": text}], "stop_reason": "max_tokens", "stop_sequence": null,
            "usage": {
                "input_tokens": self.prompt_tokens - cached_tokens, "cache_read_input_tokens": cached_tokens,
                "cache_creation_input_tokens": 0, "output_tokens": self.output_tokens,
            },
        })
    }

    fn meta_info(&self, cached_tokens: u32) -> Value {
        json!({
            "id": self.id, "finish_reason": {"type": "length", "length": self.output_tokens},
            "prompt_tokens": self.prompt_tokens, "completion_tokens": self.output_tokens, "cached_tokens": cached_tokens,
        })
    }

    fn output(&self, text: &str) -> Value {
        json!([{
            "id": self.item_id(), "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }])
    }

    fn response(&self, status: &str, output: &Value, usage: &Value) -> Value {
        json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status, "model": self.model,
            "output": output, "usage": usage, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
            "error": null, "incomplete_details": null, "instructions": null, "metadata": {}, "temperature": 1.0, "top_p": 1.0,
        })
    }

    fn end_response(&self, cached_tokens: u32, out: &mut Vec<u8>) {
        let (text, item_id) = (self.text(), self.item_id());
        let place = json!({"sequence_number": 0, "item_id": item_id, "output_index": 0, "content_index": 0});
        let mut done = place.clone();
        done["type"] = json!("response.output_text.done");
        done["text"] = json!(text);
        done["logprobs"] = json!([]);
        event(out, &done);
        let mut part = place;
        part["type"] = json!("response.content_part.done");
        part["part"] = json!({"type": "output_text", "text": text, "annotations": []});
        event(out, &part);
        let output = self.output(&text);
        event(
            out,
            &json!({"type": "response.output_item.done", "sequence_number": 0, "output_index": 0, "item": output[0]}),
        );
        let response = self.response("completed", &output, &self.usage(cached_tokens));
        event(
            out,
            &json!({"type": "response.completed", "sequence_number": 0, "response": response}),
        );
    }
}

/// Appends an unnamed event.
fn data(out: &mut Vec<u8>, value: &Value) {
    out.extend_from_slice(format!("data: {value}\n\n").as_bytes());
}

/// Appends an event named after its `type`.
fn event(out: &mut Vec<u8>, value: &Value) {
    let name = value["type"].as_str().unwrap_or_default();
    out.extend_from_slice(format!("event: {name}\ndata: {value}\n\n").as_bytes());
}

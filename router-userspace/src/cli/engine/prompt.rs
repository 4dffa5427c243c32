//! What a request body asks of a simulated engine: its prompt as block hashes, and how much to generate.
//!
//! The prompt is rendered in template order (tools, system text, messages); every four bytes of it are a token.
//! Model and cache salt seed the hash chain and add no text, so that two models never share a block.

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::engine::EngineRequest;
use crate::prefix::Api;

/// Bytes of rendered text that make a token.
const TOKEN_BYTES: usize = 4;
/// Tokens that one request may generate.
const OUTPUT_TOKENS_MAX: u64 = 1 << 20;

/// One request, understood.
#[derive(Debug)]
pub(super) struct Prompt {
    /// What the model is to do.
    pub(super) request: EngineRequest,
    /// `model`, empty where the body has none.
    pub(super) model: String,
    /// Whether the answer is a stream.
    pub(super) stream: bool,
    /// Whether a stream's last chunk carries the usage.
    pub(super) include_usage: bool,
    /// Hash of the whole prompt: the same prompt gets the same text back.
    pub(super) seed: u64,
}

/// Reads a body; the error is a sentence for the client.
pub(super) fn read(api: Api, body: &[u8], block_tokens: u32, output_default: u32) -> Result<Prompt, String> {
    let body: Value =
        serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    if !body.is_object() {
        return Err("the body is not a JSON object".to_owned());
    }
    let text = render(api, &body)?;
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    let salt = body["cache_salt"].as_str().unwrap_or_default();
    let isolation = xxh3_64_with_seed(salt.as_bytes(), xxh3_64_with_seed(model.as_bytes(), 0));
    let block_bytes = block_tokens as usize * TOKEN_BYTES;
    let chain = |hash: &mut u64, block: &[u8]| {
        *hash = xxh3_64_with_seed(block, *hash);
        Some(*hash)
    };
    let blocks: Vec<u64> = text.chunks(block_bytes).scan(isolation, chain).collect();
    let prompt_tokens =
        u32::try_from(text.len().div_ceil(TOKEN_BYTES)).map_err(|_| "the prompt is too long")?;
    Ok(Prompt {
        seed: blocks.last().copied().unwrap_or(isolation),
        request: EngineRequest {
            blocks: blocks.into(),
            prompt_tokens,
            output_tokens: output_tokens(api, &body, output_default),
        },
        model,
        stream: body["stream"].as_bool().unwrap_or(false),
        include_usage: body["stream_options"]["include_usage"].as_bool().unwrap_or(false),
    })
}

/// The tokens of a text that isn't a request's body.
pub(super) fn tokens_of(text: &str) -> usize {
    text.len().div_ceil(TOKEN_BYTES)
}

fn output_tokens(api: Api, body: &Value, default: u32) -> u32 {
    let limit = match api {
        Api::ChatCompletions => {
            let newer = &body["max_completion_tokens"];
            if newer.is_null() {
                &body["max_tokens"]
            } else {
                newer
            }
        }
        Api::Completions | Api::Messages => &body["max_tokens"],
        Api::Responses => &body["max_output_tokens"],
        Api::Generate => &body["sampling_params"]["max_new_tokens"],
    };
    let tokens = limit.as_u64().unwrap_or(u64::from(default));
    tokens.clamp(1, OUTPUT_TOKENS_MAX) as u32
}

fn render(api: Api, body: &Value) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    if let Some(tools) = body["tools"].as_array().filter(|tools| !tools.is_empty()) {
        for tool in tools {
            text.extend_from_slice(tool.to_string().as_bytes());
            text.push(b'\n');
        }
    }
    let mut role = |role: &str, content: &Value| {
        text.extend_from_slice(b"<|");
        text.extend_from_slice(role.as_bytes());
        text.extend_from_slice(b"|>");
        content_text(content, &mut text);
    };
    match api {
        Api::ChatCompletions | Api::Messages => {
            let messages = body["messages"]
                .as_array()
                .ok_or("`messages` is missing or no array")?;
            if !body["system"].is_null() {
                role("system", &body["system"]);
            }
            for message in messages {
                role(message["role"].as_str().unwrap_or("user"), &message["content"]);
                if !message["tool_calls"].is_null() {
                    role("call", &Value::String(message["tool_calls"].to_string()));
                }
            }
        }
        Api::Responses => {
            if body["input"].is_null() {
                return Err("`input` is missing".to_owned());
            }
            if !body["instructions"].is_null() {
                role("system", &body["instructions"]);
            }
            match &body["input"] {
                Value::Array(items) => {
                    for item in items {
                        role(item["role"].as_str().unwrap_or("user"), &item["content"]);
                    }
                }
                input => role("user", input),
            }
        }
        Api::Completions => plain(&body["prompt"], "prompt", &mut text)?,
        Api::Generate if body["text"].is_null() => plain(&body["input_ids"], "text", &mut text)?,
        Api::Generate => plain(&body["text"], "text", &mut text)?,
    }
    Ok(text)
}

/// A prompt that no template touches: a text, token ids, or a list of either, of which the first counts.
fn plain(value: &Value, name: &str, text: &mut Vec<u8>) -> Result<(), String> {
    match value {
        Value::String(string) => text.extend_from_slice(string.as_bytes()),
        Value::Array(items) if items.first().is_some_and(Value::is_number) => {
            let ids = items.iter().map(|id| id.as_u64().unwrap_or(0) as u32);
            text.extend(ids.flat_map(u32::to_le_bytes));
        }
        Value::Array(items) if !items.is_empty() => return plain(&items[0], name, text),
        _ => return Err(format!("`{name}` is missing or of a wrong type")),
    }
    Ok(())
}

/// A message's content: a string, or parts, of which images and the like count by the hash of their data.
fn content_text(content: &Value, text: &mut Vec<u8>) {
    match content {
        Value::Null => {}
        Value::String(string) => text.extend_from_slice(string.as_bytes()),
        Value::Array(parts) => {
            for part in parts {
                content_text(part, text);
            }
        }
        part => {
            if let Some(string) = part["text"].as_str() {
                text.extend_from_slice(string.as_bytes());
            } else {
                let data = part.to_string();
                text.extend_from_slice(format!("{:016x}", xxh3_64_with_seed(data.as_bytes(), 0)).as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Prompt, read};
    use crate::prefix::Api;

    fn chat(body: &str) -> Prompt {
        read(Api::ChatCompletions, body.as_bytes(), 16, 64).unwrap()
    }

    #[test]
    fn prompts_with_the_same_beginning_have_the_same_first_blocks() {
        let system = "s".repeat(640);
        let body = |user: &str| {
            format!(
                r#"{{"model":"m","messages":[{{"role":"system","content":"{system}"}},{{"role":"user","content":"{user}"}}]}}"#
            )
        };
        let (a, b) = (chat(&body("one")), chat(&body("two")));
        assert_eq!(a.request.blocks[..10], b.request.blocks[..10]);
        assert_ne!(a.request.blocks[10], b.request.blocks[10]);
        assert_ne!(a.seed, b.seed);
    }

    #[test]
    fn another_model_or_salt_shares_nothing() {
        let messages = format!(
            r#""messages":[{{"role":"user","content":"{}"}}]"#,
            "x".repeat(200)
        );
        let first = chat(&format!(r#"{{"model":"a",{messages}}}"#)).request.blocks[0];
        assert_ne!(
            first,
            chat(&format!(r#"{{"model":"b",{messages}}}"#)).request.blocks[0]
        );
        let salted = format!(r#"{{"model":"a","cache_salt":"s",{messages}}}"#);
        assert_ne!(first, chat(&salted).request.blocks[0]);
    }

    #[test]
    fn each_api_names_its_own_output_limit() {
        let limit = |api, body: &str| read(api, body.as_bytes(), 16, 64).unwrap().request.output_tokens;
        assert_eq!(limit(Api::Completions, r#"{"prompt":"hi"}"#), 64);
        assert_eq!(limit(Api::Completions, r#"{"prompt":[1,2,3],"max_tokens":7}"#), 7);
        assert_eq!(
            limit(Api::Responses, r#"{"input":"hi","max_output_tokens":8}"#),
            8
        );
        assert_eq!(limit(Api::Messages, r#"{"messages":[],"max_tokens":0}"#), 1);
        assert_eq!(
            limit(
                Api::Generate,
                r#"{"text":"hi","sampling_params":{"max_new_tokens":9}}"#
            ),
            9
        );
        let both = r#"{"messages":[],"max_tokens":5,"max_completion_tokens":6}"#;
        assert_eq!(chat(both).request.output_tokens, 6);
    }

    #[test]
    fn a_body_without_a_prompt_is_an_error() {
        for (api, body) in [
            (Api::ChatCompletions, "{}"),
            (Api::Completions, r#"{"prompt":[]}"#),
            (Api::Responses, "{}"),
            (Api::Generate, "[1]"),
            (Api::Messages, "{"),
        ] {
            assert!(read(api, body.as_bytes(), 16, 64).is_err(), "{body}");
        }
    }
}

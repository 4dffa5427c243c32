//! The key computed from a tree, in the plainest way: all of a part's text in one buffer, all its marks in a
//! list, cut into blocks at the end.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::super::fields::label;
use super::super::{AFFINITY_BYTES, Api, BLOCK_BYTES, MODEL_BYTES_MAX, PromptKey};
use super::dom::Json;

const SEED: u64 = super::super::hash::SEED;
const BILLING: &str = "x-anthropic-billing-header";

fn mix(chain: u64, next: u64) -> u64 {
    xxh3_64_with_seed(&next.to_le_bytes(), chain)
}

fn digest(bytes: &[u8]) -> u64 {
    let chunks = bytes.chunks_exact(256);
    let rest = chunks.remainder();
    let chain = chunks.fold(SEED, |chain, chunk| mix(chain, xxh3_64(chunk)));
    mix(chain, xxh3_64(rest))
}

#[derive(Default, Clone)]
struct Part {
    text: Vec<u8>,
    marks: Vec<(usize, u64)>,
    labels: u64,
    other: u64,
    pending: Vec<u64>,
    messages: u64,
    touched: bool,
    system: bool,
}

impl Part {
    fn tick(&self) -> u64 {
        self.text.len() as u64 + self.labels
    }

    fn mark(&mut self, place: usize, ordinal: u64, label: u64, value: u64) {
        let offset = (place % BLOCK_BYTES) as u64;
        let bytes: Vec<u8> = [label, ordinal, offset, value]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        self.marks.push((place, xxh3_64(&bytes)));
        self.touched = true;
    }

    fn label(&mut self, label: u64) {
        self.mark(self.text.len(), self.labels, label, 0);
        self.labels += 1;
    }

    fn raw(&mut self, bytes: &[u8]) {
        if !self.pending.is_empty() {
            let folded = self.pending.iter().fold(0u64, |all, label| all * 64 + label);
            self.pending.clear();
            self.label(folded);
        }
        self.text.extend_from_slice(bytes);
        self.touched = true;
    }

    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.raw(text.as_bytes());
            self.other += text.bytes().filter(|byte| !byte.is_ascii()).count() as u64;
        }
    }

    fn labelled(&mut self, label: u64, inside: impl FnOnce(&mut Part)) {
        let (start, pending) = (self.tick(), self.pending.clone());
        if label != label::NONE {
            self.pending.push(label);
        }
        inside(self);
        if label == label::NONE {
        } else if self.tick() == start {
            self.pending = pending;
        } else if label != label::PART {
            self.label(label::END);
        }
    }

    /// Hash at a place, and the final hashes of the full blocks before it.
    fn hash(&self, start: u64, place: usize, marks: usize) -> (u64, Vec<u64>) {
        let sum = |block: usize| {
            self.marks[..marks]
                .iter()
                .filter(|(place, _)| place / BLOCK_BYTES == block)
                .fold(0u64, |sum, (_, mark)| sum.wrapping_add(*mark))
        };
        let full = place / BLOCK_BYTES;
        let (mut chain, mut blocks) = (start, Vec::new());
        for block in 0..full {
            let text = &self.text[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES];
            chain = mix(chain, xxh3_64(text).wrapping_add(sum(block)));
            blocks.push(chain);
        }
        let tail = xxh3_64(&self.text[full * BLOCK_BYTES..place]).wrapping_add(sum(full));
        (mix(chain, tail), blocks)
    }
}

fn canonical(value: &Json, top: bool, out: &mut Vec<u8>) {
    let quoted = |text: &str, out: &mut Vec<u8>| {
        out.push(0xff);
        out.extend_from_slice(text.as_bytes());
        out.push(0xff);
    };
    match value {
        Json::Text(text) => quoted(text, out),
        Json::Array(items) => {
            out.push(b'[');
            items.iter().for_each(|item| canonical(item, false, out));
            out.push(b']');
        }
        Json::Object(members) => {
            out.push(b'{');
            for (key, value) in members {
                if !(top && key == "cache_control") {
                    quoted(key, out);
                    canonical(value, false, out);
                }
            }
            out.push(b'}');
        }
        scalar => out.extend_from_slice(format!("{},", scalar.compact()).as_bytes()),
    }
}

fn canonical_into(value: &Json, label: u64, part: &mut Part) {
    if *value == Json::Null {
        return;
    }
    let mut bytes = Vec::new();
    canonical(value, true, &mut bytes);
    part.labelled(label, |part| part.raw(&bytes));
    // The 0xff quotes aren't text.
    part.other += bytes
        .iter()
        .filter(|byte| **byte >= 0x80 && **byte != 0xff)
        .count() as u64;
}

fn list(value: &Json, label: u64, part: &mut Part) {
    if let Json::Array(items) = value {
        part.labelled(label, |part| {
            items
                .iter()
                .for_each(|item| canonical_into(item, label::NONE, part));
        });
    }
}

fn media_data(value: &Json, is_data: bool, out: &mut Vec<u8>) {
    match value {
        Json::Text(text) if is_data => {
            out.extend_from_slice(text.as_bytes());
            if !out.is_empty() {
                out.push(0xff);
            }
        }
        Json::Array(items) => {
            // Behind a container the next item counts as data whatever the key of the array.
            let mut is_data = is_data;
            for item in items {
                media_data(item, is_data, out);
                is_data |= matches!(item, Json::Array(_) | Json::Object(_));
            }
        }
        Json::Object(members) => {
            for (key, value) in members {
                let named = ["url", "data", "file_data", "file_id", "file_url"].contains(&key.as_str());
                media_data(value, named, out);
            }
        }
        _ => {}
    }
}

fn media(value: &Json, part: &mut Part) {
    let mut data = Vec::new();
    media_data(value, true, &mut data);
    part.labelled(label::MEDIA, |part| {
        if !data.is_empty() {
            part.raw(&digest(&data).to_le_bytes().repeat(128));
        }
    });
}

fn content(value: &Json, label: u64, part: &mut Part) {
    match value {
        Json::Text(text) => part.labelled(label, |part| part.text(text)),
        Json::Array(items) => part.labelled(label, |part| {
            // `labelled` has only made labels pending, so the tick is still that of the start.
            let start = part.tick();
            for (index, item) in items.iter().enumerate() {
                let border = if part.tick() == start {
                    label::NONE
                } else {
                    label::PART
                };
                part.labelled(border, |part| content_part(item, index as u64 + 1, part));
            }
        }),
        _ => {}
    }
}

fn content_part(item: &Json, index: u64, part: &mut Part) {
    if let Json::Text(text) = item {
        part.text(text);
    }
    let Json::Object(members) = item else {
        return;
    };
    let (place, ordinal) = (part.text.len(), part.messages << 32 | index);
    for (key, value) in members {
        match (key.as_str(), value) {
            ("text", Json::Text(text)) if part.system && text.starts_with(BILLING) => {}
            ("text", Json::Text(text)) => part.text(text),
            ("thinking" | "reasoning", Json::Text(text)) => {
                part.labelled(label::REASONING, |part| part.text(text));
            }
            ("refusal", Json::Text(text)) => part.labelled(label::REFUSAL, |part| part.text(text)),
            ("name", Json::Text(text)) if !text.is_empty() => {
                part.mark(place, ordinal, label::NAME, digest(text.as_bytes()));
            }
            ("id" | "tool_use_id", Json::Text(text)) if !text.is_empty() => {
                part.mark(place, ordinal, label::CALL_ID, digest(text.as_bytes()));
            }
            ("input", value) => canonical_into(value, label::INPUT, part),
            ("content", value) => content(value, label::RESULT, part),
            ("image_url" | "input_audio" | "file" | "source", value) => media(value, part),
            _ => {}
        }
    }
}

fn message(members: &[(String, Json)], part: &mut Part) -> bool {
    part.messages += 1;
    part.pending.clear();
    let (place, ordinal) = (part.text.len(), part.messages);
    part.mark(place, ordinal, label::MESSAGE, 0);
    let mut system = false;
    for (key, value) in members {
        match (key.as_str(), value) {
            ("role" | "name" | "tool_call_id" | "call_id", Json::Text(text)) if !text.is_empty() => {
                let tag = match key.as_str() {
                    "role" => label::ROLE,
                    "name" => label::NAME,
                    _ => label::CALL_ID,
                };
                if tag == label::ROLE {
                    system = text == "system" || text == "developer";
                }
                part.mark(place, ordinal, tag, digest(text.as_bytes()));
            }
            ("content", value) => content(value, label::NONE, part),
            ("reasoning_content" | "reasoning", value) => content(value, label::REASONING, part),
            ("summary", value) => content(value, label::SUMMARY, part),
            ("tool_calls", value) => list(value, label::TOOL_CALLS, part),
            ("function_call", value) => canonical_into(value, label::TOOL_CALLS, part),
            ("arguments", Json::Text(text)) => part.labelled(label::ARGUMENTS, |part| part.text(text)),
            ("input", Json::Text(text)) => part.labelled(label::INPUT, |part| part.text(text)),
            ("output", value) => content(value, label::OUTPUT, part),
            ("refusal", Json::Text(text)) => part.labelled(label::REFUSAL, |part| part.text(text)),
            _ => {}
        }
    }
    system
}

/// Ends of the leading system messages and of the first other message, each as (text, marks) so far.
type Ends = (Option<(usize, usize)>, Option<(usize, usize)>);

fn messages(value: &Json, part: &mut Part) -> Ends {
    let lone = [Json::object(&[
        ("role", Json::text("user")),
        ("content", value.clone()),
    ])];
    let items = match value {
        Json::Array(items) => items.as_slice(),
        Json::Text(_) => &lone,
        _ => &[],
    };
    let (mut system_end, mut first_end) = (None, None);
    for item in items {
        let Json::Object(members) = item else {
            continue;
        };
        let system = message(members, part);
        let now = (part.text.len(), part.marks.len());
        if first_end.is_none() && !system {
            first_end = Some(now);
        } else if first_end.is_none() && !part.text.is_empty() {
            system_end = Some(now);
        }
    }
    (system_end, first_end)
}

fn prompt(value: &Json, body: &mut Part, ids: &mut Part) {
    let first = match value {
        Json::Array(items) => items.first(),
        other => Some(other),
    };
    let numbers = match (value, first) {
        (_, Some(Json::Text(text))) => return body.text(text),
        (_, Some(Json::Array(numbers))) | (Json::Array(numbers), Some(_)) => numbers,
        _ => return,
    };
    for number in numbers {
        if let Json::Number(id) = number {
            ids.raw(&(*id as u32).to_le_bytes());
        }
    }
}

fn seed_value(value: Option<&Json>) -> Option<u64> {
    let mut bytes = Vec::new();
    canonical(value.filter(|value| **value != Json::Null)?, true, &mut bytes);
    let empty: [&[u8]; 3] = [b"\xff\xff", b"[]", b"{}"];
    (!empty.contains(&bytes.as_slice())).then(|| digest(&bytes))
}

/// The key of `body`, but for `output_tokens_max`.
pub(super) fn key(api: Api, body: &Json) -> PromptKey {
    let Json::Object(members) = body else {
        return PromptKey::default();
    };
    let field = |name: &str| {
        members
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    };
    let mut parts: [Part; 5] = std::array::from_fn(|_| Part::default());
    parts[1].system = true;
    let (mut system_end, mut first_end) = (None, None);
    let chat = |name: &str, body: &mut Part| field(name).map_or((None, None), |value| messages(value, body));
    let [tools, system, images, text, ids] = &mut parts;
    if !matches!(api, Api::Completions | Api::Generate)
        && let Some(value) = field("tools")
    {
        list(value, label::NONE, tools);
    }
    match api {
        Api::ChatCompletions => (system_end, first_end) = chat("messages", text),
        Api::Responses => {
            field("instructions")
                .into_iter()
                .for_each(|value| content(value, label::NONE, system));
            (system_end, first_end) = chat("input", text);
        }
        Api::Messages => {
            field("system")
                .into_iter()
                .for_each(|value| content(value, label::NONE, system));
            (system_end, first_end) = chat("messages", text);
        }
        Api::Completions => field("prompt")
            .into_iter()
            .for_each(|value| prompt(value, text, ids)),
        Api::Generate => {
            field("text")
                .into_iter()
                .for_each(|value| prompt(value, text, &mut Part::default()));
            field("input_ids")
                .into_iter()
                .for_each(|value| prompt(value, &mut Part::default(), ids));
            field("image_data")
                .into_iter()
                .for_each(|value| media(value, images));
        }
    }
    let seeds = [
        "model",
        "lora_path",
        "cache_salt",
        "extra_key",
        "chat_template",
        "chat_template_kwargs",
        "documents",
        "mm_processor_kwargs",
    ];
    let mut chain = SEED;
    for (index, name) in seeds.iter().enumerate() {
        if let Some(value) = seed_value(field(name)) {
            chain = mix(mix(chain, index as u64), value);
        }
    }
    let mut key = PromptKey::default();
    let (mut system_hash, mut starts) = (None, [0; 5]);
    for (slot, part) in parts.iter().enumerate() {
        if slot == 2
            && let Some(previous) = seed_value(field("previous_response_id"))
        {
            chain = mix(chain, previous);
        }
        starts[slot] = chain;
        if part.touched {
            let (end, blocks) = part.hash(chain, part.text.len(), part.marks.len());
            chain = mix(end, slot as u64);
            key.blocks.extend(blocks);
            key.text_bytes += part.text.len() as u64;
            key.other_bytes += part.other;
            if slot == 1 && !part.text.is_empty() {
                system_hash = Some(chain);
            }
        }
    }
    let at = |slot: usize, (place, marks): (usize, usize)| parts[slot].hash(starts[slot], place, marks);
    key.affinity = system_end.map(|end| at(3, end).0).or(system_hash).or_else(|| {
        let slot = [3, 4, 2, 0].into_iter().find(|slot| parts[*slot].touched)?;
        let whole = (parts[slot].text.len(), parts[slot].marks.len());
        let (end, blocks) = at(slot, first_end.filter(|_| slot == 3).unwrap_or(whole));
        Some(
            blocks
                .get(AFFINITY_BYTES / BLOCK_BYTES - 1)
                .copied()
                .unwrap_or(end),
        )
    });
    key.model = match field("model") {
        Some(Json::Text(model)) if !model.is_empty() && model.len() <= MODEL_BYTES_MAX => Some(model.clone()),
        _ => None,
    };
    key.stream = field("stream") == Some(&Json::Bool(true));
    key
}

//! Which fields of which API make the prompt.
//!
//! Whatever isn't named here never enters a key: request ids, `user`, sampling parameters, cache marks. Neither
//! do fields that only touch the end of a prompt, behind its last full block (`suffix`, `thinking`,
//! `add_generation_prompt`, `continue_final_message`).

use super::key::Api;

/// A part of the prompt with a chain of its own, in the order in which they are chained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Tools,
    /// The system field of APIs that have one.
    System,
    /// Images beside a text prompt.
    Media,
    /// Messages or prompt text.
    Body,
    /// A prompt of token ids.
    Ids,
}

/// Number of [`Slot`]s.
pub(super) const SLOTS: usize = 5;

/// A field that isn't text but separates caches; in the order in which they are mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seed {
    Model,
    Lora,
    CacheSalt,
    ExtraKey,
    ChatTemplate,
    ChatTemplateKwargs,
    Documents,
    MediaKwargs,
    /// State kept at an engine: mixed behind the system part, since it changes with every turn.
    PreviousResponse,
}

/// Number of [`Seed`]s.
pub(super) const SEEDS: usize = 9;

/// What a labelled piece of a message or part is. The numbers enter the hashes.
pub(super) mod label {
    pub(crate) const NONE: u64 = 0;
    pub(crate) const MESSAGE: u64 = 1;
    pub(crate) const ROLE: u64 = 2;
    pub(crate) const NAME: u64 = 3;
    pub(crate) const CALL_ID: u64 = 4;
    pub(crate) const REASONING: u64 = 5;
    pub(crate) const SUMMARY: u64 = 6;
    pub(crate) const TOOL_CALLS: u64 = 7;
    pub(crate) const ARGUMENTS: u64 = 8;
    pub(crate) const OUTPUT: u64 = 9;
    pub(crate) const REFUSAL: u64 = 10;
    pub(crate) const INPUT: u64 = 11;
    pub(crate) const RESULT: u64 = 12;
    pub(crate) const MEDIA: u64 = 13;
    pub(crate) const END: u64 = 14;
    /// Before the first piece of a second or later part.
    pub(crate) const PART: u64 = 15;
}

/// What the next value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    Skip,
    /// The body itself.
    Root,
    Stream,
    OutputMax,
    Seed(Seed),
    /// An array of canonical values.
    List(u64),
    /// A canonical value.
    Canonical(u64),
    /// Messages, or a string that stands for one user message.
    Messages,
    Message,
    /// Text, or an array of parts.
    Content(u64),
    Part,
    /// A string.
    Text(u64),
    /// A string of the system field's parts, dropped where it is billing noise.
    SystemText,
    /// A short string that marks its message or part.
    Tag(u64),
    Media,
    /// Text, token ids, or an array of either of which the first counts.
    Prompt,
    /// An item of a prompt's array.
    PromptItem,
    Id,
}

/// The value of a top-level field, and the chain it goes to.
pub(super) fn top(api: Api, key: &[u8]) -> (Want, Option<Slot>) {
    let seed = match key {
        b"model" => Some(Seed::Model),
        b"lora_path" => Some(Seed::Lora),
        b"cache_salt" => Some(Seed::CacheSalt),
        b"extra_key" => Some(Seed::ExtraKey),
        b"chat_template" => Some(Seed::ChatTemplate),
        b"chat_template_kwargs" => Some(Seed::ChatTemplateKwargs),
        b"documents" => Some(Seed::Documents),
        b"mm_processor_kwargs" => Some(Seed::MediaKwargs),
        b"previous_response_id" => Some(Seed::PreviousResponse),
        _ => None,
    };
    if let Some(seed) = seed {
        return (Want::Seed(seed), None);
    }
    match (api, key) {
        (_, b"stream") => (Want::Stream, None),
        (_, b"max_tokens" | b"max_completion_tokens" | b"max_output_tokens") => (Want::OutputMax, None),
        (Api::ChatCompletions | Api::Responses | Api::Messages, b"tools") => {
            (Want::List(label::NONE), Some(Slot::Tools))
        }
        (Api::Responses, b"instructions") | (Api::Messages, b"system") => {
            (Want::Content(label::NONE), Some(Slot::System))
        }
        (Api::ChatCompletions | Api::Messages, b"messages") | (Api::Responses, b"input") => {
            (Want::Messages, Some(Slot::Body))
        }
        (Api::Completions, b"prompt") | (Api::Generate, b"text") => (Want::Prompt, Some(Slot::Body)),
        (Api::Generate, b"input_ids") => (Want::Prompt, Some(Slot::Ids)),
        (Api::Generate, b"image_data") => (Want::Media, Some(Slot::Media)),
        _ => (Want::Skip, None),
    }
}

/// The value of a message's field.
pub(super) fn message(key: &[u8]) -> Want {
    match key {
        b"role" => Want::Tag(label::ROLE),
        b"name" => Want::Tag(label::NAME),
        b"tool_call_id" | b"call_id" => Want::Tag(label::CALL_ID),
        b"content" => Want::Content(label::NONE),
        b"reasoning_content" | b"reasoning" => Want::Content(label::REASONING),
        b"summary" => Want::Content(label::SUMMARY),
        b"tool_calls" => Want::List(label::TOOL_CALLS),
        b"function_call" => Want::Canonical(label::TOOL_CALLS),
        b"arguments" => Want::Text(label::ARGUMENTS),
        b"input" => Want::Text(label::INPUT),
        b"output" => Want::Content(label::OUTPUT),
        b"refusal" => Want::Text(label::REFUSAL),
        _ => Want::Skip,
    }
}

/// The value of a content part's field.
pub(super) fn part(slot: Slot, key: &[u8]) -> Want {
    match key {
        b"text" if slot == Slot::System => Want::SystemText,
        b"text" => Want::Text(label::NONE),
        b"thinking" | b"reasoning" => Want::Text(label::REASONING),
        b"refusal" => Want::Text(label::REFUSAL),
        b"name" => Want::Tag(label::NAME),
        b"id" | b"tool_use_id" => Want::Tag(label::CALL_ID),
        b"input" => Want::Canonical(label::INPUT),
        b"content" => Want::Content(label::RESULT),
        b"image_url" | b"input_audio" | b"audio_url" | b"video_url" | b"file" | b"source" | b"image"
        | b"audio" | b"video" | b"image_embeds" | b"file_data" | b"file_id" | b"file_url" => Want::Media,
        _ => Want::Skip,
    }
}

/// Whether a string under this key, inside an image or the like, is its data.
pub(super) fn media_data(key: &[u8]) -> bool {
    matches!(key, b"url" | b"data" | b"file_data" | b"file_id" | b"file_url")
}

//! Bodies as clients send them.

use super::super::{Api, BLOCK_BYTES, BLOCKS_MAX, MODEL_BYTES_MAX, PromptKey};
use super::dom::Json;
use super::key;

fn chat(body: &str) -> PromptKey {
    key(Api::ChatCompletions, body.as_bytes())
}

fn messages(body: &str) -> PromptKey {
    key(Api::Messages, body.as_bytes())
}

/// What routing compares: hashes and the amount of text.
fn prompt(key: &PromptKey) -> (Option<u64>, &[u64], u64) {
    (key.affinity, &key.blocks, key.text_bytes)
}

fn same(left: &PromptKey, right: &PromptKey) {
    assert!(left.affinity.is_some());
    assert_eq!(prompt(left), prompt(right));
}

fn long(word: &str) -> String {
    word.repeat(600 / word.len())
}

#[test]
fn a_chat_body_has_the_same_key_however_its_client_spells_it() {
    let httpx = r#"{"messages":[{"role":"system","content":"あなたは親切です😀"},{"role":"user","content":"a/b"}],"model":"m","stream":true,"max_tokens":5}"#;
    let requests = r#"{"model": "m", "max_tokens": 5, "stream": true, "messages": [{"role": "system", "content": "\u3042\u306a\u305f\u306f\u89aa\u5207\u3067\u3059\ud83d\ude00"}, {"role": "user", "content": "a\/b"}]}"#;
    let content_first = r#"{"model":"m","stream":true,"max_tokens":5,"messages":[{"content":"あなたは親切です😀","role":"system"},{"content":"a/b","role":"user"}]}"#;
    let parts = r#"{"model":"m","stream":true,"max_tokens":5,"messages":[
        {"role":"system","content":[{"type":"text","text":"あなたは親切です😀"}]},
        {"role":"user","content":[{"text":"a/b","type":"text"}],"tool_calls":null,"name":null,"function_call":null}]}"#;
    let key = chat(httpx);
    assert_eq!(key, chat(requests));
    assert_eq!(key, chat(content_first));
    assert_eq!(key, chat(parts));
    assert_eq!(key.model.as_deref(), Some("m"));
    assert_eq!((key.stream, key.output_tokens_max), (true, Some(5)));
    assert_eq!((key.text_bytes, key.other_bytes), (31, 28));
}

#[test]
fn null_empty_and_missing_content_are_the_same() {
    let body = |content: &str| {
        format!(
            r#"{{"messages":[{{"role":"user","content":"x"}},{{"role":"assistant"{content},"tool_calls":[{{"id":"1"}}]}}]}}"#
        )
    };
    let key = chat(&body(""));
    for content in [
        r#","content":null"#,
        r#","content":"""#,
        r#","content":[]"#,
        r#","content":[{"type":"text","text":""}]"#,
    ] {
        same(&key, &chat(&body(content)));
    }
}

#[test]
fn per_request_noise_never_enters_the_key() {
    let body =
        |noise: &str| format!(r#"{{"model":"m"{noise},"messages":[{{"role":"user","content":"x"}}]}}"#);
    let key = chat(&body(""));
    let noises = [
        r#","user":"u1""#,
        r#","seed":7"#,
        r#","temperature":0.5e-1"#,
        r#","top_p":1"#,
        r#","request_id":"r-1""#,
        r#","stream":true,"stream_options":{"include_usage":true}"#,
        r#","stop":["a"]"#,
        r#","n":1"#,
        r#","metadata":{"messages":[{"role":"user","content":"noise"}]}"#,
        r#","max_completion_tokens":9"#,
        r#","response_format":{"type":"json_object"}"#,
        r#","rid":"x""#,
        r#","prompt_cache_key":"p""#,
        r#","add_generation_prompt":true"#,
        r#","cache_salt":"","lora_path":null,"chat_template_kwargs":{}"#,
        r#","tools":[],"documents":null"#,
        r#","logit_bias":{"model":1}"#,
        r#","prompt":"other API","system":"s""#,
    ];
    for noise in noises {
        same(&key, &chat(&body(noise)));
    }
}

#[test]
fn what_separates_caches_separates_keys() {
    let body = |model: &str, more: &str, system: &str, role: &str, text: &str| {
        chat(&format!(
            r#"{{"model":"{model}"{more},"messages":[{{"role":"system","content":"{system}"}},{{"role":"{role}","content":"{text}"}}]}}"#
        ))
    };
    let (s, text) = (long("s"), long("t"));
    let base = body("m", "", &s, "user", &text);
    let others = [
        body("n", "", &s, "user", &text),
        body("m", r#","cache_salt":"a""#, &s, "user", &text),
        body("m", r#","extra_key":"a""#, &s, "user", &text),
        body("m", r#","lora_path":"l""#, &s, "user", &text),
        body(
            "m",
            r#","tools":[{"type":"function","function":{"name":"f"}}]"#,
            &s,
            "user",
            &text,
        ),
        body("m", r#","chat_template":"t""#, &s, "user", &text),
        body(
            "m",
            r#","chat_template_kwargs":{"enable_thinking":false}"#,
            &s,
            "user",
            &text,
        ),
        body("m", r#","documents":[{"text":"d"}]"#, &s, "user", &text),
        body("m", "", &long("z"), "user", &text),
    ];
    for (index, other) in others.iter().enumerate() {
        assert_ne!(base.affinity, other.affinity, "{index}");
        assert!(
            base.blocks.iter().all(|block| !other.blocks.contains(block)),
            "{index}"
        );
    }
    for same_system in [
        body("m", "", &s, "user", &long("u")),
        body("m", "", &s, "tool", &text),
    ] {
        assert_eq!(base.affinity, same_system.affinity);
        assert_eq!(base.blocks[..2], same_system.blocks[..2]);
        assert_ne!(base.blocks[2..], same_system.blocks[2..]);
    }
}

#[test]
fn text_can_not_move_between_fields_roles_or_parts_unseen() {
    let bodies = [
        r#"{"messages":[{"role":"user","content":"ab"}]}"#,
        r#"{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}"#,
        r#"{"messages":[{"role":"user","content":["a","b"]}]}"#,
        r#"{"messages":[{"role":"user","reasoning_content":"a","content":"b"}]}"#,
        r#"{"messages":[{"role":"user","reasoning_content":"ab"}]}"#,
        r#"{"messages":[{"role":"user","content":"ab","name":"n"}]}"#,
        r#"{"messages":[{"role":"user","content":"ab","tool_call_id":"n"}]}"#,
        r#"{"messages":[{"role":"user","content":"ab"},{}]}"#,
        r#"{"messages":[{"role":"assistant","content":"ab"}]}"#,
        r#"{"messages":[{"role":"assistant","tool_calls":["ab"]}]}"#,
        r#"{"messages":[{"role":"assistant","tool_calls":["a","b"]}]}"#,
        r#"{"messages":[{"role":"assistant","tool_calls":[["a","b"]]}]}"#,
        r#"{"messages":[{"role":"assistant","tool_calls":[{"a":"b"}]}]}"#,
        r#"{"messages":[{"role":"assistant","tool_calls":[1,2]}]}"#,
        r#"{"messages":[{"role":"assistant","tool_calls":[12]}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"ab"}}]}]}"#,
    ];
    // More text in a last message fills the block whose hash shows the difference.
    let last = format!(r#",{{"role":"user","content":"{}"}}]}}"#, long("f"));
    let keys: Vec<u64> = bodies
        .iter()
        .map(|body| {
            *chat(&(body.strip_suffix("]}").unwrap().to_owned() + &last))
                .blocks
                .last()
                .unwrap()
        })
        .collect();
    for (index, key) in keys.iter().enumerate() {
        assert!(!keys[..index].contains(key), "{}", bodies[index]);
    }
}

fn claude_code(billing: &str, turns: usize, model_first: bool) -> String {
    let system = long("You are an agent. ");
    let turn = |index: usize| {
        let marker = if index + 1 == turns {
            r#","cache_control":{"type":"ephemeral"}"#
        } else {
            ""
        };
        format!(
            r#"{{"role":"user","content":[{{"type":"text","text":"{}{index}"{marker}}}]}},{{"role":"assistant","content":[{{"type":"thinking","thinking":"hm","signature":"s"}},{{"type":"tool_use","id":"t{index}","name":"Bash","input":{{"command":"ls"}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{index}","content":[{{"type":"text","text":"{}"}}]}}]}}"#,
            long("do it "),
            long("file ")
        )
    };
    let turns: Vec<String> = (0..turns).map(turn).collect();
    let fields = [
        format!(r#""max_tokens":32000,"messages":[{}]"#, turns.join(",")),
        r#""model":"m","metadata":{"user_id":"u_1"},"stream":true,"thinking":{"type":"enabled","budget_tokens":31999}"#.to_owned(),
        format!(
            r#""system":[{{"type":"text","text":"x-anthropic-billing-header: cch={billing};"}},{{"type":"text","text":"{system}","cache_control":{{"type":"ephemeral","ttl":"1h"}}}}]"#
        ),
        r#""tools":[{"name":"Bash","description":"Runs","input_schema":{"type":"object","properties":{"command":{"type":"string"}}},"cache_control":{"type":"ephemeral"}}]"#.to_owned(),
    ];
    let order = if model_first { [1, 3, 2, 0] } else { [0, 1, 2, 3] };
    let fields: Vec<&str> = order.iter().map(|field| fields[*field].as_str()).collect();
    format!("{{{}}}", fields.join(","))
}

#[test]
fn claude_code_turns_share_their_key_and_their_leading_blocks() {
    let first = messages(&claude_code("11111", 1, false));
    let third = messages(&claude_code("22222", 3, true));
    assert!(first.blocks.len() >= 6);
    assert_eq!(first.affinity, third.affinity);
    assert_eq!(first.blocks[..], third.blocks[..first.blocks.len()]);
    assert_eq!(third, messages(&claude_code("33333", 3, false)));
    let without = claude_code("1", 1, false).replace(
        r#"{"type":"text","text":"x-anthropic-billing-header: cch=1;"},"#,
        "",
    );
    assert!(!without.contains("billing"));
    same(&first, &messages(&without));
}

#[test]
fn only_a_whole_billing_header_is_dropped() {
    let system = |text: &str| {
        messages(&format!(
            r#"{{"system":[{{"type":"text","text":"{text}"}}],"messages":[{{"role":"user","content":"x"}}]}}"#
        ))
        .text_bytes
    };
    assert_eq!(system("x-anthropic-billing-header"), 1);
    assert_eq!(system("x-anthropic-billing-heade"), 26);
    assert_eq!(system("x-anthropic-billing-heade!"), 27);
    assert_eq!(system(" x-anthropic-billing-header"), 28);
}

#[test]
fn a_conversation_without_system_text_keeps_its_affinity_as_it_grows() {
    let turn = |more: &str| {
        chat(&format!(
            r#"{{"messages":[{{"role":"user","content":"hello"}}{more}]}}"#
        ))
    };
    let later = turn(r#",{"role":"assistant","content":"hi"},{"role":"user","content":"go on"}"#);
    assert_eq!(turn("").affinity, later.affinity);
    assert_ne!(
        chat(r#"{"messages":[{"role":"user","content":"hallo"}]}"#).affinity,
        later.affinity
    );
    let text = "t".repeat(4000);
    let completion = |text: &str| key(Api::Completions, format!(r#"{{"prompt":"{text}"}}"#).as_bytes());
    assert_eq!(
        completion(&text).affinity,
        completion(&format!("{text} and more")).affinity
    );
    assert_ne!(
        completion(&text).affinity,
        completion(&format!("a{text}")).affinity
    );
}

#[test]
fn a_responses_string_is_one_user_message_and_a_previous_response_spares_the_affinity() {
    let body = |input: &str, more: &str| {
        key(
            Api::Responses,
            format!(r#"{{"model":"m","input":{input},"instructions":"be kind"{more}}}"#).as_bytes(),
        )
    };
    let text = long("hello ");
    let string = body(&format!("\"{text}\""), "");
    let items = body(
        &format!(
            r#"[{{"type":"message","id":"i","role":"user","content":[{{"type":"input_text","text":"{text}"}}]}}]"#
        ),
        "",
    );
    same(&string, &items);
    let follows = body(&format!("\"{text}\""), r#","previous_response_id":"resp_1""#);
    assert_eq!(string.affinity, follows.affinity);
    assert_ne!(string.blocks, follows.blocks);
}

#[test]
fn images_count_by_their_data_and_take_room() {
    let body = |image: &str| {
        chat(&format!(
            r#"{{"messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{image}}},{{"type":"text","text":"what"}}]}}]}}"#
        ))
    };
    let data = "QUJD".repeat(50_000);
    let key = body(&format!(r#"{{"url":"data:image/png;base64,{data}"}}"#));
    same(
        &key,
        &body(&format!(
            r#"{{"detail":"high","url":"data:image\/png;base64,{data}"}}"#
        )),
    );
    same(&key, &body(&format!("\"data:image/png;base64,{data}\"")));
    assert_eq!((key.text_bytes, key.blocks.len()), (1028, 4));
    assert_ne!(
        key.blocks,
        body(&format!(r#"{{"url":"data:image/png;base64,{data}QQ=="}}"#)).blocks
    );
    let generate = |image: &str| {
        super::key(
            Api::Generate,
            format!(r#"{{"text":"x","image_data":"{image}"}}"#).as_bytes(),
        )
    };
    assert_ne!(generate("a").affinity, generate("b").affinity);
}

#[test]
fn token_ids_are_hashed_and_the_first_of_several_prompts_counts() {
    let completion = |prompt: &str| {
        key(
            Api::Completions,
            format!(r#"{{"model":"m","prompt":{prompt}}}"#).as_bytes(),
        )
    };
    let ids: Vec<String> = (1000..1100).map(|id: u32| id.to_string()).collect();
    let ids = format!("[{}]", ids.join(", "));
    let key = completion(&ids);
    assert_eq!((key.text_bytes, key.blocks.len()), (400, 1));
    same(&key, &completion(&format!("[{ids},[1,2]]")));
    let generate = super::key(
        Api::Generate,
        format!(r#"{{"model":"m","input_ids":{ids}}}"#).as_bytes(),
    );
    same(&key, &generate);
    assert_ne!(key.affinity, completion(&ids.replace("1050", "1051")).affinity);
    assert_ne!(completion("[1, 23]").affinity, completion("[12, 3]").affinity);
    same(&completion("\"x\""), &completion(r#"["x","y"]"#));
    same(
        &completion("\"x\""),
        &super::key(Api::Generate, br#"{"model":"m","text":"x","rid":"r1"}"#),
    );
}

#[test]
fn of_a_top_level_field_that_comes_twice_the_last_counts() {
    let twice = chat(
        r#"{"model":"a","model":"b","messages":[{"role":"system","content":"s"}],"stream":true,"stream":false,"messages":[{"role":"user","content":"x"}]}"#,
    );
    assert_eq!(
        twice,
        chat(r#"{"model":"b","messages":[{"role":"user","content":"x"}]}"#)
    );
    assert_eq!(
        chat(r#"{"messages":[{"role":"user","content":"x"}],"messages":null}"#).affinity,
        None
    );
}

#[test]
fn what_is_not_a_json_object_with_a_prompt_has_no_key() {
    let deep = format!(
        r#"{{"messages":[{{"role":"user","content":"x"}}],"a":{}{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    let bodies = [
        "",
        " ",
        "null",
        "[]",
        r#"["messages"]"#,
        "\"messages\"",
        "{}",
        r#"{"model":"m"}"#,
        "not json",
        "12",
        r#"{"messages":[{"role":"user","content":"x"}],}"#,
        r#"{"messages":[{"role":"user","content":"x"}]} x"#,
        r#"{'messages':[]}"#,
        deep.as_str(),
        r#"{"messages":[]}"#,
        r#"{"messages":"#,
    ];
    for body in bodies {
        let key = chat(body);
        assert_eq!(
            (key.affinity, key.blocks.len(), key.text_bytes),
            (None, 0, 0),
            "{body}"
        );
    }
}

#[test]
fn a_cut_body_has_the_key_of_what_was_seen() {
    let text = "0123456789".repeat(500);
    let whole = format!(
        r#"{{"model":"m","messages":[{{"role":"system","content":"s"}},{{"role":"user","content":"{text}"}}]}}"#
    );
    let key = chat(&whole);
    for cut in [200, 1000, 3000, whole.len() - 4] {
        let seen = chat(&whole[..cut]);
        assert_eq!(seen.affinity, key.affinity);
        assert_eq!(seen.blocks.len(), seen.text_bytes as usize / BLOCK_BYTES);
        assert_eq!(seen.blocks[..], key.blocks[..seen.blocks.len()]);
    }
}

#[test]
fn blocks_and_model_are_bounded() {
    let text = "x".repeat((BLOCKS_MAX + 9) * BLOCK_BYTES);
    let key = chat(&format!(
        r#"{{"messages":[{{"content":"{text}","role":"user"}}]}}"#
    ));
    assert_eq!(
        (key.blocks.len(), key.text_bytes),
        (BLOCKS_MAX, text.len() as u64)
    );
    let model =
        |bytes: usize| chat(&Json::object(&[("model", Json::Text("m".repeat(bytes)))]).compact()).model;
    assert_eq!(model(MODEL_BYTES_MAX).unwrap().len(), MODEL_BYTES_MAX);
    assert_eq!(model(MODEL_BYTES_MAX + 1), None);
}

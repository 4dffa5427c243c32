//! Random bodies of each API, as clients might send them and as nobody should.

use proptest::prelude::*;
use proptest::sample::select;

use super::super::Api;
use super::dom::Json;

fn text() -> impl Strategy<Value = Json> {
    prop_oneof![
        Just(String::new()),
        "[a-c]{1,8}",
        "[ -~\n\tあ漢😀é]{1,40}",
        ("[ -~\n]{1,20}", 1..80usize).prop_map(|(piece, times)| piece.repeat(times)),
        Just("x".repeat(256)),
        Just("x-anthropic-billing-header: cc_version=1; cch=5f".to_owned()),
        Just("x-anthropic-bill".to_owned()),
    ]
    .prop_map(Json::Text)
}

fn object(members: Vec<(&'static str, BoxedStrategy<Json>)>) -> BoxedStrategy<Json> {
    let count = members.len();
    let members: Vec<_> = members
        .into_iter()
        .map(|(key, value)| value.prop_map(move |value| (key.to_owned(), value)))
        .collect();
    (members, proptest::collection::vec(0..2u8, count))
        .prop_map(|(members, taken)| {
            let taken = members.into_iter().zip(taken).filter(|(_, taken)| *taken == 1);
            taken.map(|(member, _)| member).collect::<Vec<_>>()
        })
        .prop_shuffle()
        .prop_map(Json::Object)
        .boxed()
}

fn anything() -> BoxedStrategy<Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        any::<i64>().prop_map(Json::Number),
        text(),
    ];
    let key = prop_oneof![
        Just("cache_control".to_owned()),
        Just("url".to_owned()),
        Just("role".to_owned()),
        "[a-zé]{0,40}",
    ];
    leaf.prop_recursive(3, 12, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            proptest::collection::vec((key.clone(), inner), 0..4).prop_map(Json::Object),
        ]
    })
    .boxed()
}

fn array(item: BoxedStrategy<Json>, most: usize) -> BoxedStrategy<Json> {
    proptest::collection::vec(item, 0..=most)
        .prop_map(Json::Array)
        .boxed()
}

fn part(depth: u32) -> BoxedStrategy<Json> {
    let nested = if depth == 0 {
        text().boxed()
    } else {
        content(depth - 1)
    };
    let image = object(vec![
        ("url", text().boxed()),
        ("data", text().boxed()),
        ("detail", text().boxed()),
    ]);
    let members = object(vec![
        ("type", text().boxed()),
        ("text", text().boxed()),
        ("thinking", text().boxed()),
        ("id", text().boxed()),
        ("name", text().boxed()),
        ("input", anything()),
        ("content", nested),
        ("image_url", prop_oneof![image, anything()].boxed()),
        ("cache_control", anything()),
    ]);
    let plain = text().prop_map(|text| Json::object(&[("type", Json::text("text")), ("text", text)]));
    prop_oneof![3 => plain, 3 => members, 1 => anything()].boxed()
}

fn content(depth: u32) -> BoxedStrategy<Json> {
    prop_oneof![4 => text(), 4 => array(part(depth), 4), 1 => anything()].boxed()
}

fn message() -> BoxedStrategy<Json> {
    let role = select(vec!["system", "developer", "user", "assistant", "tool"]).prop_map(Json::text);
    let plain = (role.clone(), content(1))
        .prop_map(|(role, content)| Json::object(&[("role", role), ("content", content)]));
    let members = object(vec![
        ("role", role.boxed()),
        ("content", content(1)),
        ("reasoning_content", content(0)),
        ("summary", content(0)),
        ("tool_calls", array(anything(), 3)),
        ("function_call", anything()),
        ("tool_call_id", text().boxed()),
        ("name", text().boxed()),
        ("arguments", text().boxed()),
        ("output", content(0)),
        ("refusal", text().boxed()),
        ("status", anything()),
    ]);
    prop_oneof![5 => plain, 3 => members, 1 => anything()].boxed()
}

fn prompt() -> BoxedStrategy<Json> {
    let ids = array((0..200_000i64).prop_map(Json::Number).boxed(), 200);
    prop_oneof![
        text(),
        ids.clone(),
        array(text().boxed(), 3),
        array(ids, 3),
        Just(Json::Null)
    ]
    .boxed()
}

/// The fields of `api` that make its prompt.
fn prompt_fields(api: Api) -> Vec<(&'static str, BoxedStrategy<Json>)> {
    let messages = || prop_oneof![8 => array(message(), 6), 1 => text(), 1 => anything()].boxed();
    let tools = || prop_oneof![4 => array(anything(), 3), 1 => anything()].boxed();
    match api {
        Api::ChatCompletions => vec![("messages", messages()), ("tools", tools())],
        Api::Completions => vec![("prompt", prompt())],
        Api::Responses => vec![
            ("input", messages()),
            ("instructions", content(0)),
            ("tools", tools()),
            ("previous_response_id", text().boxed()),
        ],
        Api::Messages => vec![
            ("messages", messages()),
            ("system", content(0)),
            ("tools", tools()),
        ],
        Api::Generate => vec![
            (
                "text",
                prop_oneof![text().boxed(), array(text().boxed(), 3)].boxed(),
            ),
            (
                "input_ids",
                array((0..9999i64).prop_map(Json::Number).boxed(), 100),
            ),
            (
                "image_data",
                prop_oneof![text().boxed(), array(text().boxed(), 3)].boxed(),
            ),
        ],
    }
}

pub(super) fn api() -> impl Strategy<Value = Api> {
    select(vec![
        Api::ChatCompletions,
        Api::Completions,
        Api::Responses,
        Api::Messages,
        Api::Generate,
    ])
}

/// A body for each API, with noise among its fields and sometimes a field twice.
pub(super) fn body() -> impl Strategy<Value = (Api, Json)> {
    api().prop_flat_map(|api| {
        let mut fields = prompt_fields(api);
        fields.extend(prompt_fields(api));
        fields.extend([
            ("model", text().boxed()),
            ("lora_path", text().boxed()),
            ("cache_salt", text().boxed()),
            ("chat_template_kwargs", anything()),
            ("documents", anything()),
            ("stream", any::<bool>().prop_map(Json::Bool).boxed()),
            ("temperature", anything()),
            ("metadata", anything()),
        ]);
        object(fields).prop_map(move |body| (api, body))
    })
}

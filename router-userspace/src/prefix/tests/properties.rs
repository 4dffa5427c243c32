//! What holds for every body.

use proptest::prelude::*;

use super::super::{Api, KeyScanner};
use super::dom::Json;
use super::generate::{api, body};
use super::{key, oracle};

proptest! {
    #[test]
    fn the_key_is_that_of_the_naive_twin((api, body) in body(), spelling in any::<u64>()) {
        prop_assert_eq!(key(api, body.compact().as_bytes()), oracle::key(api, &body));
        prop_assert_eq!(key(api, body.spelt(spelling).as_bytes()), oracle::key(api, &body));
        let read_back: Json = serde_json::from_str(&body.spelt(spelling)).unwrap();
        prop_assert_eq!(read_back, body);
    }

    #[test]
    fn any_split_gives_the_same_key((api, body) in body(), spelling in any::<u64>(), cuts in proptest::collection::vec(1..300usize, 1..20)) {
        let text = body.spelt(spelling).into_bytes();
        let mut scanner = KeyScanner::new(api);
        let (mut rest, mut cuts) = (text.as_slice(), cuts.iter().cycle());
        while !rest.is_empty() {
            let (read, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
            scanner.feed(read);
            rest = later;
        }
        prop_assert_eq!(scanner.finish(), key(api, &text));
        let mut scanner = KeyScanner::new(api);
        text.iter().for_each(|byte| scanner.feed(&[*byte]));
        prop_assert_eq!(scanner.finish(), key(api, &text));
    }

    #[test]
    fn the_order_of_top_level_fields_does_not_matter((api, body) in body(), turn in 0..20usize) {
        let Json::Object(mut members) = body else { unreachable!() };
        // With a field twice the order does matter: the last counts.
        let mut seen = std::collections::HashSet::new();
        members.retain(|(key, _)| seen.insert(key.clone()));
        let expected = key(api, Json::Object(members.clone()).compact().as_bytes());
        let turn = turn % members.len().max(1);
        members.rotate_left(turn);
        prop_assert_eq!(key(api, Json::Object(members.clone()).compact().as_bytes()), expected.clone());
        members.reverse();
        prop_assert_eq!(key(api, Json::Object(members).compact().as_bytes()), expected);
    }

    #[test]
    fn arbitrary_bytes_and_cut_bodies_never_panic((api, body) in body(), cut in any::<prop::sample::Index>(), wrong in proptest::collection::vec(any::<u8>(), 0..8)) {
        let mut text = body.compact().into_bytes();
        text.truncate(cut.index(text.len() + 1));
        let cut_key = key(api, &text);
        prop_assert!(cut_key.blocks.len() as u64 * 256 <= cut_key.text_bytes);
        text.extend(wrong);
        key(api, &text);
    }

    #[test]
    fn bytes_without_any_structure_never_panic(api in api(), bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        key(api, &bytes);
    }

    #[test]
    fn a_common_front_of_messages_is_a_common_front_of_blocks((_, body) in body(), (_, more) in body()) {
        let list = |body: &Json| match body {
            Json::Object(members) => members.iter().find_map(|(key, value)| match (key.as_str(), value) {
                ("messages" | "input", Json::Array(items)) => Some(items.clone()),
                _ => None,
            }).unwrap_or_default(),
            _ => Vec::new(),
        };
        let (mut items, more) = (list(&body), list(&more));
        let chat = |items: &[Json]| {
            let body = Json::object(&[("model", Json::text("m")), ("messages", Json::Array(items.to_vec()))]);
            key(Api::ChatCompletions, body.compact().as_bytes())
        };
        let front = chat(&items);
        items.extend(more);
        let longer = chat(&items);
        prop_assert_eq!(&longer.blocks[..front.blocks.len()], &front.blocks[..]);
    }
}

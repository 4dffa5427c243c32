//! Tests of the scanner against serde_json.

use proptest::prelude::*;

use super::{Container, DEPTH_MAX, Fault, Scanner, Sink, StringRole};

/// Writes compact JSON back from the tokens.
#[derive(Default)]
struct Rewrite {
    out: String,
    text: Vec<u8>,
    role: Option<StringRole>,
}

impl Rewrite {
    fn comma(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with(['[', '{', ':']) {
            self.out.push(',');
        }
    }
}

impl Sink for Rewrite {
    fn begin(&mut self, container: Container) {
        self.comma();
        self.out
            .push(if container == Container::Object { '{' } else { '[' });
    }
    fn end(&mut self, container: Container) {
        self.out
            .push(if container == Container::Object { '}' } else { ']' });
    }
    fn string_begin(&mut self, role: StringRole) {
        self.comma();
        self.role = Some(role);
    }
    fn string_text(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }
    fn string_end(&mut self) {
        let text = String::from_utf8_lossy(&std::mem::take(&mut self.text)).into_owned();
        self.out.push_str(&serde_json::to_string(&text).unwrap());
        if self.role.take() == Some(StringRole::Key) {
            self.out.push(':');
        }
    }
    fn scalar_text(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }
    fn scalar_end(&mut self) {
        self.comma();
        let text = String::from_utf8(std::mem::take(&mut self.text)).unwrap();
        self.out.push_str(&text);
    }
}

fn rewrite(reads: &[&[u8]]) -> Result<(String, bool), Fault> {
    let mut scanner = Scanner::new();
    let mut sink = Rewrite::default();
    for read in reads {
        scanner.feed(read, &mut sink)?;
    }
    if !sink.text.is_empty() && scanner.is_complete() {
        sink.scalar_end();
    }
    Ok((sink.out, scanner.is_complete()))
}

fn whole(text: &[u8]) -> Option<String> {
    rewrite(&[text])
        .ok()
        .filter(|(_, complete)| *complete)
        .map(|(out, _)| out)
}

#[test]
fn every_split_of_a_text_gives_the_same_tokens() {
    let text = r#" { "a\u3042\ud83d\ude00é" : [ 1 , -0.5e+10, true,false , null, "", {}, [] ] , "b\"\\\/\b\f\n\r\t":"\ud83dx\udc00" } "#
        .as_bytes();
    let expected = rewrite(&[text]).unwrap();
    assert!(expected.1);
    for first in 0..=text.len() {
        for second in first..=text.len() {
            let reads = [&text[..first], &text[first..second], &text[second..]];
            assert_eq!(rewrite(&reads).unwrap(), expected, "split at {first}, {second}");
        }
    }
}

#[test]
fn what_is_not_json_is_refused_where_it_stops_being_json() {
    let cases = [
        ("{", None),
        ("", None),
        ("[1,]", Some(3)),
        ("{\"a\":1,}", Some(7)),
        ("{a:1}", Some(1)),
        ("[01]", Some(2)),
        ("[1.]", Some(3)),
        ("[-]", Some(2)),
        ("[1}", Some(2)),
        ("nul", None),
        ("nulk", Some(1)),
        ("\"\n\"", Some(1)),
        ("\"\\x\"", Some(2)),
        ("\"\\u12g4\"", Some(5)),
        ("{} {}", Some(3)),
        ("[NaN]", Some(1)),
    ];
    for (text, at) in cases {
        match at {
            None => assert!(!rewrite(&[text.as_bytes()]).unwrap().1, "{text}"),
            Some(at) => assert_eq!(rewrite(&[text.as_bytes()]), Err(Fault::Syntax { at }), "{text}"),
        }
    }
}

#[test]
fn nesting_is_taken_up_to_the_bound_and_refused_beyond() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(whole(nested(DEPTH_MAX).as_bytes()).is_some());
    assert_eq!(
        rewrite(&[nested(DEPTH_MAX + 1).as_bytes()]),
        Err(Fault::TooDeep { at: DEPTH_MAX as u64 })
    );
}

fn json_like() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just(","),
        Just(":"),
        Just("\""),
        Just("\"a\""),
        Just("\"k\":"),
        Just("1"),
        Just("-"),
        Just("0.5"),
        Just("e3"),
        Just("true"),
        Just("nul"),
        Just("l"),
        Just(" "),
        Just("\\u30"),
        Just("42"),
        Just("\\n"),
        Just("あ"),
    ];
    proptest::collection::vec(token, 0..12).prop_map(|tokens| tokens.concat().into_bytes())
}

proptest! {
    #[test]
    fn the_same_texts_are_json_as_for_serde_json(text in json_like()) {
        let expected = serde_json::from_slice::<serde_json::Value>(&text);
        // A number beyond f64 is JSON all the same; the scanner passes its digits on.
        let too_large = expected.as_ref().is_err_and(|error| error.to_string().starts_with("number out of range"));
        prop_assume!(!too_large);
        prop_assert_eq!(whole(&text).is_some(), expected.is_ok(), "{}", String::from_utf8_lossy(&text));
        if let (Some(ours), Ok(theirs)) = (whole(&text), expected) {
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&ours).unwrap(), theirs);
        }
    }

    #[test]
    fn strings_decode_as_in_serde_json(text in "\\PC{0,300}|[\\x00-\\x40あ😀]{0,300}", ascii in any::<bool>()) {
        let mut spelt = serde_json::to_string(&text).unwrap();
        if ascii {
            spelt = spelt.chars().map(|c| if c.is_ascii() { c.to_string() } else {
                c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04X}")).collect()
            }).collect();
        }
        prop_assert_eq!(whole(spelt.as_bytes()).unwrap(), serde_json::to_string(&text).unwrap());
    }

    #[test]
    fn arbitrary_bytes_never_panic(reads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 0..8)) {
        let reads: Vec<&[u8]> = reads.iter().map(Vec::as_slice).collect();
        let split = rewrite(&reads);
        prop_assert_eq!(split, rewrite(&[&reads.concat()]));
    }
}

//! Heads against what RFC 9112 says, at every split, and against a naive reader.

use proptest::prelude::*;

use super::*;

const LIMITS: HeadLimits = HeadLimits {
    bytes_max: 4096,
    fields_max: 16,
};

fn request(text: &str) -> Result<(RequestHead, usize), HeadError> {
    parse_request(text.as_bytes(), LIMITS).map(|head| head.expect("a whole head"))
}

fn response(text: &str) -> ResponseHead {
    parse_response(text.as_bytes(), LIMITS)
        .expect("well formed")
        .expect("a whole head")
        .0
}

fn forwarded_request(text: &str, body: BodyKind) -> String {
    let (head, _) = request(text).expect("well formed");
    let mut out = Vec::new();
    write_request_head(
        &head,
        RequestForward {
            body,
            upgrade: None,
            host_default: "engine:1",
        },
        &mut out,
    );
    String::from_utf8(out).expect("text")
}

#[test]
fn a_request_head_is_the_same_at_every_split() {
    let text = "\r\nPOST /v1/x?a=b HTTP/1.1\r\nHost: h\r\nX-Empty:\r\nA:  b \t\r\n\r\nbody";
    let whole = request(text).expect("well formed");
    let head_end = text.len() - "body".len();
    for end in 0..text.len() {
        let part = parse_request(&text.as_bytes()[..end], LIMITS).expect("no error in any part");
        assert_eq!(part.is_some(), end >= head_end, "at {end}");
    }
    assert_eq!(whole.1, head_end);
    assert_eq!(whole.0.method(), b"POST");
    assert_eq!(whole.0.path(), b"/v1/x");
    let fields: Vec<_> = whole.0.fields.iter().collect();
    assert_eq!(
        fields,
        [(&b"Host"[..], &b"h"[..]), (b"X-Empty", b""), (b"A", b"b")]
    );
}

#[test]
fn heads_that_two_readers_could_take_in_two_ways_are_refused() {
    for text in [
        "GET / HTTP/1.1\nHost: h\n\n\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nA: \0\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / http/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: h\r\n\r\n",
        "GET /\r\nHost: h\r\n\r\n",
        "G ET / HTTP/1.1\r\nHost: h\r\n\r\n",
        ": v\r\n\r\n",
    ] {
        assert!(matches!(request(text), Err(HeadError::Malformed(_))), "{text:?}");
    }
}

#[test]
fn a_head_over_a_limit_is_refused_before_its_end_and_one_at_the_limit_passes() {
    let filler = "x".repeat(LIMITS.bytes_max - "GET / HTTP/1.1\r\nA: \r\n\r\n".len());
    let at_limit = format!("GET / HTTP/1.1\r\nA: {filler}\r\n\r\n");
    assert_eq!(at_limit.len(), LIMITS.bytes_max);
    assert!(request(&at_limit).is_ok());
    let over = format!("GET / HTTP/1.1\r\nA: xxxx{filler}");
    assert!(matches!(
        parse_request(over.as_bytes(), LIMITS),
        Err(HeadError::TooLong)
    ));
    let fields = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(count));
    assert!(request(&fields(LIMITS.fields_max)).is_ok());
    assert!(matches!(
        request(&fields(LIMITS.fields_max + 1)),
        Err(HeadError::TooManyFields)
    ));
}

#[test]
fn the_framing_of_a_request_is_the_rfcs_or_an_error() {
    let kind = |version: &str, fields: &str| {
        let (head, _) =
            request(&format!("POST / HTTP/{version}\r\nHost: h\r\n{fields}\r\n")).expect("a head");
        request_body(&head).ok()
    };
    assert_eq!(kind("1.1", ""), Some(BodyKind::None));
    assert_eq!(kind("1.1", "Content-Length: 0\r\n"), Some(BodyKind::Length(0)));
    assert_eq!(
        kind("1.1", "content-length:  12 \r\n"),
        Some(BodyKind::Length(12))
    );
    assert_eq!(
        kind("1.1", "Transfer-Encoding: Chunked\r\n"),
        Some(BodyKind::Chunked)
    );
    for fields in [
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length: \r\n",
        "Content-Length: 9223372036854775808\r\n",
        "Content-Length: 99999999999999999999999\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: \r\n",
    ] {
        assert_eq!(kind("1.1", fields), None, "{fields:?}");
    }
    assert_eq!(kind("1.0", "Transfer-Encoding: chunked\r\n"), None);
}

#[test]
fn the_framing_of_a_response_depends_on_method_and_status() {
    let kind = |method: &str, status: u16, fields: &str| {
        let head = response(&format!("HTTP/1.1 {status} X\r\n{fields}\r\n"));
        response_body(&head, method.as_bytes()).ok()
    };
    assert_eq!(kind("GET", 200, ""), Some(BodyKind::Close));
    assert_eq!(
        kind("GET", 200, "Content-Length: 3\r\n"),
        Some(BodyKind::Length(3))
    );
    assert_eq!(kind("HEAD", 200, "Content-Length: 3\r\n"), Some(BodyKind::None));
    assert_eq!(kind("GET", 204, ""), Some(BodyKind::None));
    assert_eq!(kind("GET", 304, "Content-Length: 3\r\n"), Some(BodyKind::None));
    assert_eq!(
        kind("GET", 200, "Transfer-Encoding: chunked\r\n"),
        Some(BodyKind::Chunked)
    );
    assert_eq!(
        kind("GET", 200, "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"),
        None
    );
    assert_eq!(
        kind("HEAD", 200, "Content-Length: 3\r\nContent-Length: 4\r\n"),
        None
    );
}

#[test]
fn what_isnt_http_is_seen_at_its_first_bytes() {
    assert!(parse_response(b"SSH-2.0", LIMITS).is_err());
    assert!(parse_response(b"HTTP", LIMITS).expect("may still be").is_none());
    assert!(parse_response(b"HTTP/1.1 20 OK\r\n\r\n", LIMITS).is_err());
}

#[test]
fn the_hops_own_fields_stay_behind_and_all_others_keep_their_bytes() {
    let out = forwarded_request(
        "GET /a%2Fb?x=%7B HTTP/1.1\r\nHost: h\r\nConnection: close, X-Hop\r\nX-Hop: s\r\nKeep-Alive: 1\r\nTE: gzip\r\n\
         Expect: 100-continue\r\nX-One:  two  words \r\nX-One: again\r\nContent-Length: 9\r\n\r\n",
        BodyKind::Length(9),
    );
    assert_eq!(
        out,
        "GET /a%2Fb?x=%7B HTTP/1.1\r\nHost: h\r\nX-One: two  words\r\nX-One: again\r\nContent-Length: 9\r\n\r\n"
    );
}

#[test]
fn an_absolute_target_becomes_origin_form_and_names_the_host() {
    let out = |target: &str| {
        let text = format!("GET {target} HTTP/1.1\r\nHost: other\r\n\r\n");
        forwarded_request(&text, BodyKind::None)
    };
    assert_eq!(out("http://h:1/a?b"), "GET /a?b HTTP/1.1\r\nHost: h:1\r\n\r\n");
    assert_eq!(out("HTTP://h"), "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(
        out("http://h?q=http://x"),
        "GET /?q=http://x HTTP/1.1\r\nHost: h\r\n\r\n"
    );
    assert_eq!(
        out("/a?u=http://x/y"),
        "GET /a?u=http://x/y HTTP/1.1\r\nHost: other\r\n\r\n"
    );
    let options = forwarded_request("OPTIONS http://h HTTP/1.1\r\nHost: h\r\n\r\n", BodyKind::None);
    assert!(options.starts_with("OPTIONS * HTTP/1.1\r\n"), "{options}");
}

/// Reads fields as plainly as can be.
fn naive_fields(text: &str) -> Vec<(String, String)> {
    let lines = text.split("\r\n").skip(1).filter(|line| !line.is_empty());
    lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
        .collect()
}

proptest! {
    #[test]
    fn fields_are_those_that_a_naive_reader_finds(
        fields in prop::collection::vec(("[A-Za-z0-9!#$%&'*+.^_`|~-]{1,12}", "[ \t]{0,2}[!-~][ -~]{0,20}[ \t]{0,2}"), 0..12)
    ) {
        let mut text = "GET / HTTP/1.1\r\n".to_owned();
        for (name, value) in &fields {
            text.push_str(&format!("{name}:{value}\r\n"));
        }
        text.push_str("\r\n");
        let (head, length) = request(&text).expect("well formed");
        prop_assert_eq!(length, text.len());
        let found: Vec<(String, String)> = head
            .fields
            .iter()
            .map(|(name, value)| {
                (String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(value).into_owned())
            })
            .collect();
        prop_assert_eq!(found, naive_fields(&text));
    }

    #[test]
    fn no_bytes_make_a_parser_panic_or_a_forwarded_head_malformed(
        bytes in prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b':'), Just(b' '), any::<u8>()], 0..200)
    ) {
        let mut text = b"POST / HTTP/1.1\r\nHost: h\r\nX: ".to_vec();
        text.extend_from_slice(&bytes);
        text.extend_from_slice(b"\r\n\r\n");
        let _ = parse_response(&bytes, LIMITS);
        if let Ok(Some((head, _))) = parse_request(&text, LIMITS)
            && let Ok(body) = request_body(&head)
        {
            let mut out = Vec::new();
            write_request_head(&head, RequestForward { body, upgrade: None, host_default: "e" }, &mut out);
            let again = parse_request(&out, HeadLimits { bytes_max: 1 << 20, fields_max: 64 });
            let (again, length) = again.expect("what is forwarded is well formed").expect("and whole");
            prop_assert_eq!(length, out.len());
            prop_assert_eq!(request_body(&again), Ok(body));
        }
    }
}

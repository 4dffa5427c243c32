//! What the tests here send and find.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use warmpath_tests::{Client, Gate, Message, Router, Upstream};

pub(crate) const GET: &[u8] = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n";
pub(crate) const POST: &[u8] =
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";
pub(crate) const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A generation call with a prompt.
pub(crate) fn completion(max_tokens: u32, stream: bool) -> Vec<u8> {
    let body =
        format!(r#"{{"model":"m","prompt":"once upon a time","max_tokens":{max_tokens},"stream":{stream}}}"#);
    format!(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Streams two chunks, the second when the gate is opened; answers a GET at once.
pub(crate) fn gated(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |conn| {
        while let Some(request) = conn.request()? {
            if request.head.method() == "GET" {
                conn.answer("200 OK", "", b"ok")?;
                continue;
            }
            conn.send(CHUNKED)?;
            conn.send_chunk(b"one")?;
            gate.pass()?;
            conn.send_if_open(b"3\r\ntwo\r\n0\r\n\r\n");
        }
        Ok(())
    })
}

/// Sends one GET on a connection of its own.
#[track_caller]
pub(crate) fn get(router: &Router) -> Message {
    let mut client = Client::connect(router.address());
    client.send(GET);
    client.response("GET")
}

/// Checks that `response` is an error of the router's own with this status, whose message has `word`.
#[track_caller]
pub(crate) fn assert_own_error(response: &Message, status: u16, word: &str) {
    let text = String::from_utf8_lossy(&response.body);
    assert_eq!(response.status(), status, "{text}");
    assert_eq!(response.head.one("content-type"), Some("application/json"));
    let error: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let message = error["error"]["message"].as_str().expect("a message");
    assert!(message.contains(word), "{message:?} doesn't say {word:?}");
    assert!(error["error"]["type"].is_string(), "{error}");
}

/// An address on which nobody listens.
pub(crate) fn unused_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address")
}

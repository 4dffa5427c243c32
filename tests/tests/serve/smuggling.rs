//! Requests on whose end two readers could disagree: a 400 and a close, and nothing behind them is a
//! request.

use warmpath_tests::{Client, Datapath, Router, Upstream, for_each_datapath};

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";

/// An engine that takes whatever comes and answers what is complete.
fn lenient() -> Upstream {
    Upstream::start(|conn| {
        while let Some(head) = conn.head()? {
            if conn.body_as_far_as_it_comes(&head)?.cut.is_some() {
                return Ok(());
            }
            conn.send_if_open(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
        Ok(())
    })
}

/// Sends each request on a connection of its own with another one right behind it.
fn all_refused(datapath: Datapath, table: &[(&str, String)]) {
    let upstream = lenient();
    let router = Router::start(datapath, &[&upstream]);
    for (claim, raw) in table {
        let mut client = Client::connect(router.address());
        client.send_if_open(format!("{raw}{SMUGGLED}").as_bytes());
        let response = client.response("POST");
        // RFC 9112 6.1 has a 501 for codings that aren't understood.
        let refused =
            response.status() == 400 || (response.status() == 501 && raw.contains("Transfer-Encoding"));
        assert!(refused, "{claim}: {}", response.head.start);
        assert!(
            response.head.connection_has("close"),
            "{claim}: the close isn't announced"
        );
        client.expect_close();
        let smuggled = upstream.targets().iter().any(|target| target == "/smuggled");
        assert!(!smuggled, "{claim}: a second request came out of one");
    }
    router.assert_idle();
}

/// A request with these field lines, each with its CRLF, and this body.
fn post(fields: &str, body: &str) -> String {
    format!("POST /v1/echo HTTP/1.1\r\nHost: x\r\n{fields}\r\n{body}")
}

#[test]
fn ambiguous_lengths_are_refused() {
    let table = [
        (
            "both length fields",
            post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        ),
        (
            "both length fields, the other order",
            post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
        ),
        (
            "differing lengths",
            post("Content-Length: 0\r\nContent-Length: 5\r\n", ""),
        ),
        (
            "a list of differing lengths",
            post("Content-Length: 0, 5\r\n", ""),
        ),
        ("a signed length", post("Content-Length: +5\r\n", "hello")),
        ("a negative length", post("Content-Length: -1\r\n", "")),
        ("a hexadecimal length", post("Content-Length: 0x5\r\n", "hello")),
        ("an empty length", post("Content-Length:\r\n", "")),
        (
            "a length with a blank inside",
            post("Content-Length: 1 0\r\n", ""),
        ),
        (
            "a length that wraps 64 bits",
            post("Content-Length: 18446744073709551616\r\n", ""),
        ),
        (
            "an unknown coding",
            post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
        ),
        (
            "chunked twice",
            post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"),
        ),
        (
            "chunked twice in two fields",
            post(
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                "0\r\n\r\n",
            ),
        ),
        (
            "chunked not last",
            post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
        ),
        (
            "a quoted coding",
            post("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"),
        ),
        (
            "a vertical tab before the coding",
            post("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"),
        ),
        (
            "a coding in HTTP/1.0",
            "POST /v1/echo HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        ),
    ];
    for_each_datapath(|datapath| all_refused(datapath, &table));
}

#[test]
fn malformed_heads_are_refused() {
    let table = [
        ("a blank before the colon", post("Content-Length : 0\r\n", "")),
        (
            "a folded field",
            post("X-Fold: a\r\n b\r\nContent-Length: 0\r\n", ""),
        ),
        (
            "a fold as the first field line",
            "GET / HTTP/1.1\r\n Host: x\r\n\r\n".to_owned(),
        ),
        (
            "a bare CR in a value",
            post("X-A: a\rb\r\nContent-Length: 0\r\n", ""),
        ),
        (
            "a bare CR as a line end",
            "GET / HTTP/1.1\rHost: x\r\r".to_owned() + "\n\r\n\r\n",
        ),
        ("bare LF line ends", "GET / HTTP/1.1\nHost: x\n\n".to_owned()),
        (
            "a bare LF behind a field",
            post("X-A: a\nContent-Length: 0\r\n", ""),
        ),
        ("NUL in a value", post("X-A: a\0b\r\nContent-Length: 0\r\n", "")),
        ("a field without a name", post(": a\r\nContent-Length: 0\r\n", "")),
        ("a field without a colon", post("Content-Length\r\n", "")),
        ("a blank in a field's name", post("Content Length: 0\r\n", "")),
        ("no Host", "GET / HTTP/1.1\r\n\r\n".to_owned()),
        (
            "two Hosts",
            "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n".to_owned(),
        ),
        (
            "a Host with a path",
            "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n".to_owned(),
        ),
        ("lower-case http", "GET / http/1.1\r\nHost: x\r\n\r\n".to_owned()),
        (
            "a target with a blank",
            "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        ),
        (
            "a method that isn't a token",
            "G(T / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        ),
        ("no target", "GET HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
    ];
    for_each_datapath(|datapath| all_refused(datapath, &table));
}

#[test]
fn bad_chunk_lines_are_refused() {
    let body = |body: &str| post("Transfer-Encoding: chunked\r\n", body);
    let table = [
        ("a 0x prefix", body("0x5\r\nhello\r\n0\r\n\r\n")),
        ("a sign", body("+5\r\nhello\r\n0\r\n\r\n")),
        ("a blank before the size", body(" 5\r\nhello\r\n0\r\n\r\n")),
        ("an underscore", body("1_0\r\nhello\r\n0\r\n\r\n")),
        ("no size", body("\r\nhello\r\n0\r\n\r\n")),
        ("only an extension", body(";a\r\nhello\r\n0\r\n\r\n")),
        (
            "a size that wraps 64 bits",
            body("10000000000000005\r\nhello\r\n0\r\n\r\n"),
        ),
        ("a line that ends with LF", body("5\nhello\r\n0\r\n\r\n")),
        ("a line that ends with CR", body("5\rhello\r\n0\r\n\r\n")),
        ("a bare LF in an extension", body("5;a\nb\r\nhello\r\n0\r\n\r\n")),
        ("data longer than its size", body("5\r\nhelloXX0\r\n\r\n")),
        ("data that ends with LF", body("5\r\nhello\n0\r\n\r\n")),
        ("a last chunk that ends with LF", body("5\r\nhello\r\n0\n\n")),
        ("a trailer that ends with LF", body("0\r\nX-A: b\n\r\n\r\n")),
    ];
    for_each_datapath(|datapath| all_refused(datapath, &table));
}

#[test]
fn two_equal_lengths_are_refused_or_forwarded_as_one() {
    for_each_datapath(|datapath| {
        let upstream = lenient();
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello").as_bytes());
        let response = client.response("POST");
        if response.status() == 400 {
            client.expect_close();
        } else {
            assert_eq!(response.status(), 200);
            assert_eq!(upstream.heads()[0].all("content-length"), ["5"]);
        }
    });
}

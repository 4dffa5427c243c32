//! Upstreams that break HTTP: a 502 where nothing was sent yet, a cut where something was.

use warmpath_tests::{Client, Framing, Gate, Random, Router, Upstream, for_each_datapath};

const GET: &[u8] = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn a_broken_head_is_a_502_in_the_shape_of_the_api() {
    let table: &[(&str, &[u8])] = &[
        ("not HTTP", b"SSH-2.0-OpenSSH_9.9\r\nhello\r\n\r\n"),
        (
            "a status of two digits",
            b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
        ),
        (
            "a status of letters",
            b"HTTP/1.1 2OO OK\r\nContent-Length: 0\r\n\r\n",
        ),
        ("HTTP/2.0", b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n"),
        (
            "differing lengths",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        ),
        (
            "a signed length",
            b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
        ),
        (
            "a length that wraps 64 bits",
            b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551618\r\n\r\nok",
        ),
        (
            "both length fields",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        ),
        (
            "chunked twice",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "an unknown coding",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "a blank before the colon",
            b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
        ),
        (
            "NUL in a value",
            b"HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 2\r\n\r\nok",
        ),
        (
            "a bare CR in a value",
            b"HTTP/1.1 200 OK\r\nX-A: a\rb\r\nContent-Length: 2\r\n\r\nok",
        ),
        ("an end inside the head", b"HTTP/1.1 200 OK\r\nContent-Le"),
        ("an end before the head", b""),
    ];
    for_each_datapath(|datapath| {
        for (claim, raw) in table {
            let raw = *raw;
            let upstream = Upstream::start(move |conn| {
                conn.expect_request()?;
                conn.send(raw)
            });
            let router = Router::start(datapath, &[&upstream]);
            let mut client = Client::connect(router.address());
            client.send(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}");
            let response = client.response("POST");
            assert_eq!(response.status(), 502, "{claim}");
            let error: serde_json::Value = serde_json::from_slice(&response.body).expect("JSON");
            assert!(error["error"]["message"].is_string(), "{claim}: {error}");
            assert_eq!(
                upstream.connections(),
                1,
                "{claim}: a POST that was read was sent again"
            );
            router.assert_idle();
        }
    });
}

#[test]
fn a_broken_chunk_line_after_the_head_cuts_the_response() {
    let table: &[(&str, &[u8])] = &[
        ("a 0x prefix", b"0x5\r\nworld\r\n0\r\n\r\n"),
        ("no size", b"\r\nworld\r\n0\r\n\r\n"),
        (
            "a size that wraps 64 bits",
            b"10000000000000005\r\nworld\r\n0\r\n\r\n",
        ),
        ("data longer than its size", b"5\r\nworldXX0\r\n\r\n"),
        ("a line that ends with LF", b"5\nworld\r\n0\r\n\r\n"),
    ];
    for_each_datapath(|datapath| {
        for (claim, raw) in table {
            let (raw, gate) = (*raw, Gate::new());
            let upstream = Upstream::start({
                let gate = gate.clone();
                move |conn| {
                    conn.expect_request()?;
                    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")?;
                    gate.pass()?;
                    conn.send(raw)?;
                    conn.closed()?;
                    Ok(())
                }
            });
            let router = Router::start(datapath, &[&upstream]);
            let mut client = Client::connect(router.address());
            client.send(GET);
            assert_eq!(client.head().response_framing("GET").unwrap(), Framing::Chunked);
            assert_eq!(client.chunks(5), b"hello", "{claim}");
            gate.open();
            let rest = client.rest_of_cut_body(Framing::Chunked);
            assert!(rest.cut.is_some(), "{claim}: a broken body has a clean end");
            router.assert_idle();
        }
    });
}

#[test]
fn bytes_behind_a_response_reach_nobody_and_end_its_connection() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            while conn.request()?.is_some() {
                if conn.index() == 0 {
                    conn.send(
                        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL",
                    )?;
                } else {
                    conn.answer("200 OK", "", b"good")?;
                }
            }
            Ok(())
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(GET);
        assert_eq!(client.response("GET").body, b"ok");
        for _ in 0..6 {
            let mut client = Client::connect(router.address());
            client.send(GET);
            assert_eq!(client.response("GET").body, b"good");
        }
        router.assert_idle();
    });
}

#[test]
fn a_head_over_the_limit_is_a_502_and_a_large_one_below_it_passes() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            while let Some(request) = conn.request()? {
                let len: usize = request.head.target().trim_start_matches("/v1/").parse()?;
                let fields = format!("X-Big: {}\r\n", "b".repeat(len));
                conn.answer("200 OK", &fields, b"ok")?;
            }
            Ok(())
        });
        let router = Router::start(datapath, &[&upstream]);
        for (len, status) in [(32_000, 200), (200_000, 502)] {
            let mut client = Client::connect(router.address());
            client.send(format!("GET /v1/{len} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
            let response = client.response("GET");
            assert_eq!(response.status(), status, "{len}");
            if status == 200 {
                assert_eq!(response.head.one("x-big").map(str::len), Some(len));
            }
        }
        router.assert_idle();
    });
}

#[test]
fn random_bytes_from_an_upstream_never_end_the_router() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            let Some(request) = conn.request()? else {
                return Ok(());
            };
            let seed: u64 = request.head.target().trim_start_matches("/v1/").parse()?;
            let mut random = Random::new(seed);
            if seed.is_multiple_of(2) {
                conn.send_if_open(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
            }
            let len = random.up_to(300);
            conn.send_if_open(&random.bytes(len));
            Ok(())
        });
        let router = Router::start(datapath, &[&upstream]);
        for seed in 0..50 {
            let mut client = Client::connect(router.address());
            client
                .send(format!("POST /v1/{seed} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").as_bytes());
            let response = client.response_or_cut("POST");
            assert!(
                response.status() == 502 || response.cut.is_some(),
                "seed {seed}: {response:?}"
            );
        }
        router.assert_idle();
    });
}

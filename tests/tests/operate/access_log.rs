//! The access log: a line for each request, however it ended.

use std::fs;

use serde_json::Value;
use warmpath_tests::{
    Client, Datapath, Gate, Router, RouterOptions, TempFile, Upstream, for_each_datapath_at_once, wait_until,
};

use crate::requests::{CHUNKED, POST, get, unused_address};

/// Every line so far, once there are `count`; each must be whole JSON.
#[track_caller]
fn lines(file: &TempFile, count: usize) -> Vec<Value> {
    let mut text = String::new();
    wait_until("the lines are written", || {
        text = fs::read_to_string(file.path()).unwrap_or_default();
        text.lines().count() >= count && text.ends_with('\n')
    });
    assert_eq!(text.lines().count(), count, "{text}");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn logging(datapath: Datapath, upstreams: &[&Upstream], file: &TempFile, more: &str) -> RouterOptions {
    let path = file.path().display();
    RouterOptions::new(datapath, upstreams)
        .paths("inference")
        .config(&format!("access_log = \"{path}\"\n{more}"))
        .arguments(&["--workers", "1"])
}

#[track_caller]
fn assert_line(line: &Value, want: &[(&str, Value)]) {
    for (key, value) in want {
        assert_eq!(&line[*key], value, "{key} in {line}");
    }
    for key in ["time_unix_ms", "total_ms", "bytes", "retries", "status"] {
        assert!(line[key].is_number(), "{key} in {line}");
    }
    assert!(
        line["client"]
            .as_str()
            .is_some_and(|text| text.starts_with("127.0.0.1:"))
    );
}

/// Answers by the target: short, long, chunked, cut, or never.
fn engine(never: &Gate) -> Upstream {
    let never = never.clone();
    Upstream::start(move |conn| {
        while let Some(request) = conn.request()? {
            match request.head.target().split('?').next().unwrap_or_default() {
                "/v1/models" => conn.answer("200 OK", "", b"models")?,
                "/v1/embeddings" => conn.answer("200 OK", "", &[b'x'; 300_000])?,
                "/v1/chat/completions" => {
                    conn.send(CHUNKED)?;
                    conn.send(b"5\r\nhello\r\n0\r\n\r\n")?;
                }
                "/v1/completions" => {
                    conn.send(CHUNKED)?;
                    return conn.send(b"5\r\nhello\r\n");
                }
                _ => {
                    never.open();
                    conn.closed()?;
                    return Ok(());
                }
            }
        }
        Ok(())
    })
}

fn ask(router: &Router, request: &str) -> Client {
    let mut client = Client::connect(router.address());
    client.send(request.as_bytes());
    client
}

fn post(target: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: x\r\nX-Request-Id: r-7\r\nContent-Length: 2\r\n\r\n{{}}")
}

#[test]
fn each_way_a_request_can_end_is_a_whole_line_with_its_figures() {
    for_each_datapath_at_once(|datapath| {
        let (asked, file) = (Gate::new(), TempFile::name("log"));
        let upstream = engine(&asked);
        let name = upstream.address().to_string();
        let router = logging(datapath, &[&upstream], &file, "[timeouts]\nbody_idle = \"200ms\"").start();
        // By one worker, one after the other, each line waited for: the order of ends is the order of lines.
        let mut count = 0;
        let mut next = || {
            count += 1;
            lines(&file, count).pop().expect("a line")
        };
        get(&router);
        let answered = |path: &str, bytes: u64, by: &str| {
            vec![
                ("path", path.into()),
                ("status", 200.into()),
                ("bytes", bytes.into()),
                ("backend", name.as_str().into()),
                ("datapath", by.into()),
                ("retries", 0.into()),
            ]
        };
        let line = next();
        assert_line(&line, &answered("/v1/models", 6, "worker"));
        assert!(
            line["first_byte_ms"].is_number() && line["request_id"].is_null(),
            "{line}"
        );
        ask(&router, &post("/v1/embeddings?key=secret")).response("POST");
        let line = next();
        assert_line(
            &line,
            &answered(
                "/v1/embeddings",
                300_000,
                line["datapath"].as_str().unwrap_or_default(),
            ),
        );
        assert_eq!(
            (&line["request_id"], &line["method"]),
            (&"r-7".into(), &"POST".into())
        );
        ask(&router, &post("/v1/chat/completions")).response("POST");
        let line = next();
        // As chunked: a line of 3 bytes, 7 of data, 5 of the end.
        assert_line(
            &line,
            &answered(
                "/v1/chat/completions",
                15,
                line["datapath"].as_str().unwrap_or_default(),
            ),
        );
        assert!(
            ask(&router, &post("/v1/completions"))
                .response_or_cut("POST")
                .cut
                .is_some()
        );
        let line = next();
        assert_line(
            &line,
            &answered(
                "/v1/completions",
                10,
                line["datapath"].as_str().unwrap_or_default(),
            ),
        );
        let refused = |status: u16, path: &str| {
            vec![
                ("status", status.into()),
                ("path", path.into()),
                ("backend", "".into()),
                ("datapath", "none".into()),
            ]
        };
        ask(&router, &post("/flush_cache")).response("POST");
        assert_line(&next(), &refused(403, "/flush_cache"));
        ask(&router, "GET /v1/models HTTP/1.1\r\n\r\n").response("GET");
        assert_line(&next(), &refused(400, "/v1/models"));
        ask(&router, "nonsense\r\n\r\n").response("GET");
        assert_line(&next(), &refused(400, ""));
        ask(&router, &post("/v1/messages")[..post("/v1/messages").len() - 1]).response("POST");
        assert_line(&next(), &refused(408, "/v1/messages"));
        let client = ask(&router, &post("/v1/rerank"));
        asked.pass().expect("the engine is asked");
        drop(client);
        let line = next();
        assert_line(
            &line,
            &[
                ("status", 0.into()),
                ("bytes", 0.into()),
                ("backend", name.as_str().into()),
            ],
        );
        assert!(line["first_byte_ms"].is_null(), "{line}");
        router.assert_idle();
    });
}

#[test]
fn a_retry_is_counted_in_its_line() {
    for_each_datapath_at_once(|datapath| {
        let file = TempFile::name("log");
        let router = logging(datapath, &[], &file, "[health]\nenabled = false")
            .backend(unused_address())
            .backend(unused_address())
            .start();
        let mut client = Client::connect(router.address());
        client.send(POST);
        assert_eq!(client.response("POST").status(), 502);
        let line = lines(&file, 1).remove(0);
        assert_line(&line, &[("status", 502.into()), ("retries", 1.into())]);
        assert!(line["first_byte_ms"].is_null(), "{line}");
    });
}

#[test]
fn a_full_disk_costs_the_log_and_nothing_else() {
    for_each_datapath_at_once(|datapath| {
        let upstream = Upstream::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood");
        let router = RouterOptions::new(datapath, &[&upstream])
            .config("access_log = \"/dev/full\"")
            .start();
        for _ in 0..50 {
            assert_eq!(get(&router).body, b"good");
        }
        wait_until("the failures are counted", || {
            router.metric("warmpath_access_log_write_failures_total") >= 1.0
        });
        assert_eq!(get(&router).body, b"good");
        let warnings = router
            .log()
            .lines()
            .filter(|line| line.contains("access log"))
            .count();
        assert_eq!(warnings, 1, "{}", router.log());
        router.assert_idle();
    });
}

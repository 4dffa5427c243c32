//! The engines over real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use super::{EngineArgs, start};

/// Within this every condition of these tests must come true.
const DEADLINE: Duration = Duration::from_secs(30);

/// `count` small engines, ten times as fast as the model.
fn args(count: u16) -> EngineArgs {
    EngineArgs {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        count,
        capacity_tokens: 1 << 16,
        block_tokens: 16,
        speed: 10.0,
        model: Vec::new(),
        output_tokens: 4,
        fault: Vec::new(),
    }
}

/// Runs a test beside the engines it started.
fn with_engines(args: &EngineArgs, test: impl AsyncFnOnce(Vec<SocketAddr>)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        let addrs = start(args).await.unwrap();
        tokio::time::timeout(DEADLINE, test(addrs))
            .await
            .expect("the deadline passed");
    });
}

async fn send(addr: SocketAddr, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Status and the rest of an answer.
async fn call(addr: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut answer = String::new();
    send(addr, method, path, body)
        .await
        .read_to_string(&mut answer)
        .await
        .unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

async fn metric(addr: SocketAddr, name: &str) -> f64 {
    let (_, page) = call(addr, "GET", "/metrics", "").await;
    let line = page.lines().find(|line| line.starts_with(name)).expect(name);
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

async fn until_metric(addr: SocketAddr, name: &str, value: f64) {
    while metric(addr, name).await != value {
        tokio::task::yield_now().await;
    }
}

const ABORTED: &str =
    "vllm:request_success_total{engine=\"0\",model_name=\"simulated\",finished_reason=\"abort\"";

fn chat(output_tokens: u32, stream: bool) -> String {
    let content = "hello ".repeat(100);
    format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"{content}"}}],"max_tokens":{output_tokens},"stream":{stream},"stream_options":{{"include_usage":true}}}}"#
    )
}

#[test]
fn a_client_that_disconnects_aborts_its_request() {
    with_engines(&args(1), async |addrs| {
        for (stream, aborted) in [(true, 1.0), (false, 2.0)] {
            let connection = send(addrs[0], "POST", "/v1/chat/completions", &chat(50_000, stream)).await;
            until_metric(addrs[0], "vllm:num_requests_running", 1.0).await;
            drop(connection);
            until_metric(addrs[0], ABORTED, aborted).await;
            assert_eq!(metric(addrs[0], "vllm:num_requests_running").await, 0.0);
            assert_eq!(metric(addrs[0], "vllm:kv_cache_usage_perc").await, 0.0);
        }
    });
}

#[test]
fn a_frozen_engine_is_healthy_and_produces_nothing_until_it_thaws() {
    with_engines(&args(1), async |addrs| {
        assert_eq!(
            call(addrs[0], "POST", "/fault", r#"{"kind":"frozen"}"#).await.0,
            200
        );
        let mut waiting = send(addrs[0], "POST", "/v1/chat/completions", &chat(3, true)).await;
        until_metric(addrs[0], "vllm:num_requests_waiting", 1.0).await;
        assert_eq!(call(addrs[0], "GET", "/health", "").await.0, 200);
        assert_eq!(metric(addrs[0], "vllm:generation_tokens_total").await, 0.0);
        call(addrs[0], "POST", "/fault", r#"{"kind":"none"}"#).await;
        let mut answer = String::new();
        waiting.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("data: [DONE]"), "{answer}");
    });
}

#[test]
fn an_engine_that_was_down_comes_back_on_its_port_with_an_empty_cache() {
    with_engines(&args(2), async |addrs| {
        call(addrs[0], "POST", "/v1/chat/completions", &chat(2, false)).await;
        assert!(metric(addrs[0], "vllm:prefix_cache_queries_total").await > 0.0);
        let mut cut = send(addrs[0], "POST", "/v1/chat/completions", &chat(50_000, true)).await;
        until_metric(addrs[0], "vllm:num_requests_running", 1.0).await;
        call(addrs[1], "POST", "/fault", r#"{"kind":"down","engine":0}"#).await;
        let mut answer = String::new();
        let _ = cut.read_to_string(&mut answer).await;
        assert!(!answer.contains("[DONE]"));
        while TcpStream::connect(addrs[0]).await.is_ok() {
            tokio::task::yield_now().await;
        }
        call(addrs[1], "POST", "/fault", r#"{"kind":"none","engine":0}"#).await;
        while TcpStream::connect(addrs[0]).await.is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(metric(addrs[0], "vllm:prefix_cache_queries_total").await, 0.0);
    });
}

#[test]
fn usage_counts_the_prompt_and_what_of_it_was_cached() {
    with_engines(&args(1), async |addrs| {
        let (_, cold) = call(addrs[0], "POST", "/v1/chat/completions", &chat(2, true)).await;
        // 608 bytes of rendered prompt.
        assert!(
            cold.contains(r#""prompt_tokens":152,"prompt_tokens_details":{"cached_tokens":0}"#),
            "{cold}"
        );
        let (_, warm) = call(addrs[0], "POST", "/v1/chat/completions", &chat(2, false)).await;
        assert!(
            warm.contains(r#""prompt_tokens_details":{"cached_tokens":151}"#),
            "{warm}"
        );
    });
}

#[test]
fn requests_that_cannot_be_served_are_refused_with_a_reason() {
    let args = EngineArgs {
        model: vec!["m".to_owned()],
        ..args(1)
    };
    with_engines(&args, async |addrs| {
        for (method, path, body, status) in [
            ("POST", "/v1/chat/completions", "{", 400),
            ("POST", "/v1/chat/completions", r#"{"model":"m"}"#, 400),
            (
                "POST",
                "/v1/chat/completions",
                r#"{"model":"other","messages":[]}"#,
                404,
            ),
            (
                "POST",
                "/v1/completions",
                r#"{"model":"m","prompt":"x","max_tokens":100000}"#,
                400,
            ),
            ("GET", "/v1/completions", "", 405),
            ("GET", "/nowhere", "", 404),
            ("POST", "/fault", r#"{"kind":"fire"}"#, 400),
            ("POST", "/fault", r#"{"kind":"slow","engine":7}"#, 400),
        ] {
            let (got, answer) = call(addrs[0], method, path, body).await;
            assert_eq!(got, status, "{method} {path} {body}");
            assert!(answer.contains(r#"{"error":{"#), "{answer}");
        }
        let (_, models) = call(addrs[0], "GET", "/v1/models", "").await;
        assert!(models.contains(r#""id":"m""#));
    });
}

#[test]
fn a_body_over_the_limit_is_refused_before_it_is_read() {
    with_engines(&args(1), async |addrs| {
        let mut stream = TcpStream::connect(addrs[0]).await.unwrap();
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
            (64 << 20) + 1
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 413");
    });
}

#[test]
fn a_fault_flag_that_is_nonsense_is_an_error() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for json in ["nonsense", r#"{"kind":"slow","engine":1}"#] {
        let args = EngineArgs {
            fault: vec![json.to_owned()],
            ..args(1)
        };
        assert!(
            LocalSet::new().block_on(&runtime, start(&args)).is_err(),
            "{json}"
        );
    }
}

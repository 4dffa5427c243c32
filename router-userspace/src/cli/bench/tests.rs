//! The load generator against simulated engines.

use std::time::Duration;

use clap::Parser;
use indicatif::ProgressBar;
use serde_json::Value;
use tokio::task::LocalSet;

use super::{BenchArgs, drive};
use crate::cli::engine::{self, EngineArgs};

/// Within this every run of these tests must end.
const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Bench {
    #[command(flatten)]
    args: BenchArgs,
}

#[derive(Parser)]
struct Engines {
    #[command(flatten)]
    args: EngineArgs,
}

fn bench_args(target: &str, flags: &str) -> BenchArgs {
    let flags = ["bench", "--target", target]
        .into_iter()
        .chain(flags.split_whitespace());
    Bench::try_parse_from(flags).unwrap().args
}

/// The figures of a short run with these flags against one engine with those.
fn figures(engine_flags: &str, bench_flags: &str) -> Value {
    let engine_flags = format!("engine --listen 127.0.0.1:0 --speed 20 {engine_flags}");
    let engines = Engines::try_parse_from(engine_flags.split_whitespace())
        .unwrap()
        .args;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        let addrs = engine::start(&engines).await.unwrap();
        let flags = format!("--prefix-tokens 400 --unique-tokens 20 --output-tokens 5 {bench_flags}");
        let args = bench_args(&format!("http://{}", addrs[0]), &flags);
        let run = drive(&args, ProgressBar::hidden(), std::future::pending());
        tokio::time::timeout(DEADLINE, run)
            .await
            .expect("the deadline passed")
            .unwrap()
            .json
    })
}

fn hit_ratio(figures: &Value) -> f64 {
    figures["hit_ratio"].as_f64().unwrap()
}

#[test]
fn shared_prefixes_hit_the_cache_over_every_api() {
    for api in ["chat", "completions", "responses", "messages", "generate"] {
        for stream in ["", "--no-stream"] {
            let figures = figures(
                "",
                &format!("--requests 40 --concurrency 4 --groups 4 --api {api} {stream}"),
            );
            assert_eq!(figures["errors"], 0, "{figures}");
            assert_eq!(figures["succeeded"], 40, "{figures}");
            assert_eq!(figures["output_tokens"], 200, "{figures}");
            assert!(hit_ratio(&figures) > 0.7, "{api} {stream} {figures}");
            assert_eq!(figures["ttft_p50_ms"].is_null(), !stream.is_empty(), "{figures}");
        }
    }
}

#[test]
fn unique_requests_never_hit_the_cache() {
    let figures = figures("", "--requests 30 --workload unique");
    assert_eq!((&figures["errors"], hit_ratio(&figures)), (&Value::from(0), 0.0));
}

#[test]
fn the_turns_of_a_conversation_hit_what_came_before() {
    let figures = figures(
        "",
        "--requests 32 --concurrency 1 --workload unique --turns 4 --sessions 2",
    );
    assert_eq!(figures["errors"], 0);
    assert!(hit_ratio(&figures) > 0.5, "{figures}");
}

#[test]
fn an_open_loop_sends_all_of_its_requests() {
    let figures = figures("", "--requests 50 --rate 500");
    assert_eq!(
        (&figures["succeeded"], &figures["errors"]),
        (&Value::from(50), &Value::from(0))
    );
    assert!(figures["concurrency"].is_null());
}

#[test]
fn errors_are_counted_by_kind() {
    for (fault, kind) in [
        (r#"{"kind":"status","status":429,"count":3}"#, "status_429"),
        (r#"{"kind":"cut","count":3}"#, "cut_stream"),
    ] {
        let figures = figures(&format!("--fault {fault}"), "--requests 20 --concurrency 2");
        assert_eq!(figures["errors_by_kind"][kind], 3, "{figures}");
        assert_eq!(
            (&figures["errors"], &figures["succeeded"]),
            (&Value::from(3), &Value::from(17))
        );
    }
}

#[test]
fn a_frozen_engine_is_a_timeout() {
    let figures = figures(r#"--fault {"kind":"frozen"}"#, "--requests 2 --timeout 0.1");
    assert_eq!(figures["errors_by_kind"]["timeout"], 2, "{figures}");
}

#[test]
fn connections_are_kept() {
    let figures = figures("", "--requests 40 --concurrency 4");
    assert_eq!(figures["connections"], 4);
}

#[test]
fn a_stop_gives_the_figures_so_far() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let engines = Engines::parse_from(["engine", "--listen", "127.0.0.1:0", "--speed", "20"]).args;
    LocalSet::new().block_on(&runtime, async {
        let addrs = engine::start(&engines).await.unwrap();
        let args = bench_args(&format!("http://{}", addrs[0]), "--duration 1000");
        let bar = ProgressBar::hidden();
        let seen = bar.clone();
        let some_answered = async move {
            while seen.message().is_empty() || seen.message().starts_with("0 ") {
                tokio::task::yield_now().await;
            }
        };
        let report = drive(&args, bar, some_answered);
        let report = tokio::time::timeout(DEADLINE, report)
            .await
            .expect("the deadline passed")
            .unwrap();
        assert_eq!(report.json["stopped_early"], true);
        assert!(report.json["succeeded"].as_u64().unwrap() > 0);
        assert!(report.table.contains("stopped early"));
    });
}

#[test]
fn a_target_that_refuses_is_an_error_that_names_it() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let args = bench_args(&url, "");
    let result = LocalSet::new().block_on(
        &runtime,
        drive(&args, ProgressBar::hidden(), std::future::pending()),
    );
    assert!(result.unwrap_err().to_string().contains(&url));
}

//! The load reader of `serve` against these engines.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use super::{EngineArgs, start};
use crate::backend::{Backend, BackendConfig, BackendSet, LoadConfig, ScrapeOutcome, watch_load};
use crate::types::{LoadSnapshot, now};

const DEADLINE: Duration = Duration::from_secs(30);
const MAX_WAITING: u32 = 2;
/// Requests that an engine runs at once.
const RUNNING_MAX: u32 = 64;

/// Runs a test beside two engines and a reader of their load.
fn with_read_engines(test: impl AsyncFnOnce(Vec<Arc<Backend>>)) {
    let args = EngineArgs {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        count: 2,
        capacity_tokens: 1 << 16,
        block_tokens: 32,
        speed: 1.0,
        model: Vec::new(),
        output_tokens: 4,
        fault: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        let addrs = start(&args).await.unwrap();
        let config = |addr: &SocketAddr| BackendConfig {
            name: addr.to_string(),
            addr: *addr,
            weight: 1,
            max_in_flight: None,
            max_waiting: MAX_WAITING,
        };
        let set = Arc::new(BackendSet::new(addrs.iter().map(config).collect()));
        let often = LoadConfig {
            interval: Duration::from_millis(10),
            ..LoadConfig::default()
        };
        tokio::task::spawn_local(watch_load(Arc::clone(&set), often));
        tokio::time::timeout(DEADLINE, test(set.backends.clone()))
            .await
            .expect("the deadline passed");
    });
}

async fn send(addr: SocketAddr, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn call(addr: SocketAddr, path: &str, body: &str) {
    let mut answer = String::new();
    let mut stream = send(addr, path, body).await;
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// Requests that run until their clients leave.
async fn occupy(addr: SocketAddr, count: u32) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for number in 0..count {
        let body = format!(r#"{{"model":"m","prompt":"{number}","max_tokens":900,"stream":true}}"#);
        streams.push(send(addr, "/v1/completions", &body).await);
    }
    streams
}

async fn until(backend: &Backend, holds: impl Fn(LoadSnapshot) -> bool) {
    loop {
        if backend.stats.load.snapshot(now()).is_some_and(&holds) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn an_engine_is_known_by_its_page_and_its_neighbour_by_its_own() {
    with_read_engines(async |backends| {
        let load = &backends[0].stats.load;
        until(&backends[0], |load| load.running == Some(0)).await;
        assert_eq!(load.block_tokens(), Some(32));
        assert_eq!(load.capacity_tokens(), Some(1 << 16));
        assert_eq!(backends[0].max_in_flight(), 64);
        let clients = occupy(backends[0].config.addr, 3).await;
        until(&backends[0], |load| {
            load.running == Some(3) && load.kv_usage_ratio > Some(0.0)
        })
        .await;
        until(&backends[1], |load| load.running == Some(0)).await;
        drop(clients);
        until(&backends[0], |load| load.running == Some(0)).await;
        let (queries, hits) = load.prefix_totals().expect("told");
        assert!(queries > 0 && hits == 0, "{queries} {hits}");
    });
}

#[test]
fn a_full_engine_is_saturated_by_its_queue_and_its_limit_is_what_it_ran_without_one() {
    with_read_engines(async |backends| {
        let engine = &backends[0];
        let mut clients = occupy(engine.config.addr, RUNNING_MAX).await;
        until(engine, |load| {
            load.running == Some(RUNNING_MAX) && load.waiting == Some(0)
        })
        .await;
        assert_eq!(engine.max_in_flight(), RUNNING_MAX + RUNNING_MAX / 4);
        clients.extend(occupy(engine.config.addr, MAX_WAITING).await);
        until(engine, |load| load.waiting == Some(MAX_WAITING)).await;
        assert!(engine.snapshot().saturated());
        assert!(!backends[1].snapshot().saturated());
        drop(clients);
        until(engine, |load| load.waiting == Some(0)).await;
        assert!(!engine.snapshot().saturated());
    });
}

#[test]
fn a_restarted_engine_begins_anew() {
    with_read_engines(async |backends| {
        let (engine, other) = (&backends[0], backends[1].config.addr);
        let clients = occupy(engine.config.addr, RUNNING_MAX).await;
        until(engine, |load| {
            load.running == Some(RUNNING_MAX) && load.waiting == Some(0)
        })
        .await;
        call(other, "/fault", r#"{"kind":"down","engine":0}"#).await;
        drop(clients);
        while engine.stats.load.age(now()) < Some(Duration::from_secs(1)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(
            engine.stats.load.snapshot(now()),
            None,
            "a dead engine isn't idle"
        );
        call(other, "/fault", r#"{"kind":"none","engine":0}"#).await;
        until(engine, |load| load.running == Some(0)).await;
        assert_eq!(engine.max_in_flight(), 64);
        assert!(engine.stats.load.scrapes_total[ScrapeOutcome::Failed as usize].load(Ordering::Relaxed) > 0);
    });
}

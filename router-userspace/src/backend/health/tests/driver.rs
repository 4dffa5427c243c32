//! The driver against engines on real sockets.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::backend::health::{HealthConfig, ProbeOutcome};
use crate::backend::{BackendConfig, BackendSet, watch_health};
use crate::types::BackendState::{self, Healthy, Stalled, Unhealthy};
use crate::types::Micros;

/// An engine that answers every request with one status and closes.
struct Engine {
    addr: SocketAddr,
    status: Arc<AtomicU16>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    fn start() -> Engine {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        let (status, stop) = (Arc::new(AtomicU16::new(200)), Arc::new(AtomicBool::new(false)));
        let (answer, ended) = (Arc::clone(&status), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                let mut reader = BufReader::new(stream.try_clone().expect("clone"));
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                    line.clear();
                }
                let status = answer.load(Ordering::SeqCst);
                let page = "vllm:generation_tokens_total{engine=\"0\"} 7\n";
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{page}",
                    page.len()
                );
            }
        });
        Engine {
            addr,
            status,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = std::net::TcpStream::connect(self.addr);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn quick() -> HealthConfig {
    HealthConfig {
        interval: Duration::from_millis(20),
        stall_silence_min: Duration::from_millis(500),
        ..HealthConfig::default()
    }
}

async fn until(set: &BackendSet, index: usize, state: BackendState) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while set.backends[index].state() != state {
        assert!(
            Instant::now() < deadline,
            "backend {index} isn't {state:?} within 20 s"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn set_of(engines: &[&Engine]) -> Arc<BackendSet> {
    let config = |engine: &&Engine| BackendConfig {
        name: engine.addr.to_string(),
        addr: engine.addr,
        weight: 1,
        max_in_flight: None,
        max_waiting: 16,
    };
    Arc::new(BackendSet::new(engines.iter().map(config).collect()))
}

fn in_runtime(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("runtime").block_on(test);
}

#[test]
fn real_engines_are_ejected_for_failing_and_refusing_and_return() {
    let (sick, well) = (Engine::start(), Engine::start());
    let set = set_of(&[&sick, &well]);
    in_runtime(async {
        let driver = tokio::spawn(watch_health(Arc::clone(&set), quick()));
        sick.status.store(503, Ordering::SeqCst);
        until(&set, 0, Unhealthy).await;
        sick.status.store(404, Ordering::SeqCst);
        until(&set, 0, Healthy).await;
        let outcomes = |outcome| set.backends[0].stats.probes_total[outcome as usize].load(Ordering::SeqCst);
        assert!(outcomes(ProbeOutcome::Failed) >= 3);
        assert!(
            outcomes(ProbeOutcome::Passed) >= 2,
            "an engine without the path isn't lost"
        );
        drop(sick);
        until(&set, 0, Unhealthy).await;
        assert!(outcomes(ProbeOutcome::Refused) >= 1);
        assert_eq!(set.backends[1].state(), Healthy);
        driver.abort();
    });
}

#[test]
fn a_real_engine_that_answers_probes_but_no_request_is_stalled_until_a_byte_comes() {
    let (frozen, well) = (Engine::start(), Engine::start());
    let set = set_of(&[&frozen, &well]);
    in_runtime(async {
        let driver = tokio::spawn(watch_health(Arc::clone(&set), quick()));
        let charge = set.backends[0].charge();
        until(&set, 0, Stalled).await;
        charge.backend().note_bytes(1, crate::types::now().max(Micros(1)));
        until(&set, 0, Healthy).await;
        driver.abort();
    });
}

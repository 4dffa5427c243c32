//! The reader against pages on real sockets.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::backend::load::{LoadConfig, ScrapeOutcome, watch_load};
use crate::backend::{Backend, BackendConfig, BackendSet};
use crate::types::{BackendState, now};

const BUSY: &str = "vllm:num_requests_running 7\nvllm:num_requests_waiting 20\n";

/// An answer with this head, up to its length, and this body.
fn answer(head: &str, body: &str) -> String {
    format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// A page that answers with what it is told to, on kept connections.
struct Page {
    addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    answer: Mutex<String>,
    /// What the page of loads answers.
    loads: Mutex<String>,
    loads_asked: AtomicUsize,
    connections: AtomicUsize,
    stop: AtomicBool,
}

impl Page {
    fn start(answer: String) -> Page {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            answer: Mutex::new(answer),
            loads: Mutex::new(self::answer("404 Not Found", "")),
            loads_asked: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        // One connection at a time: the reader has no more.
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.stop.load(Ordering::SeqCst) {
                    return;
                }
                serving.connections.fetch_add(1, Ordering::SeqCst);
                let mut stream = stream.expect("a connection");
                let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
                let (mut line, mut asked_for_loads) = (String::new(), false);
                loop {
                    asked_for_loads |= line.starts_with("GET /v1/loads");
                    line.clear();
                    match reader.read_line(&mut line) {
                        Ok(0) | Err(_) => break,
                        Ok(2) => {
                            let place = if std::mem::take(&mut asked_for_loads) {
                                serving.loads_asked.fetch_add(1, Ordering::SeqCst);
                                &serving.loads
                            } else {
                                &serving.answer
                            };
                            let answer = place.lock().expect("unpoisoned").clone();
                            let written = stream.write_all(answer.as_bytes());
                            if written.is_err() || answer.contains("connection: close") {
                                break;
                            }
                        }
                        Ok(_) => {}
                    }
                }
            }
        });
        Page {
            addr,
            shared,
            thread: Some(thread),
        }
    }

    fn set(&self, answer: String) {
        *self.shared.answer.lock().expect("unpoisoned") = answer;
    }
}

impl Page {
    fn loads_asked(&self) -> usize {
        self.shared.loads_asked.load(Ordering::SeqCst)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let _ = std::net::TcpStream::connect(self.addr);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Runs `test` beside a reader of `page`, which ends before the page does.
fn beside_a_reader(page: &Page, timeout: Duration, test: impl AsyncFnOnce(Arc<Backend>)) {
    let set = Arc::new(BackendSet::new(vec![BackendConfig {
        name: "a".to_owned(),
        addr: page.addr,
        weight: 1,
        max_in_flight: None,
        max_waiting: 16,
    }]));
    let config = LoadConfig {
        interval: Duration::from_millis(10),
        timeout,
        ..LoadConfig::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let reader = tokio::spawn(watch_load(Arc::clone(&set), config));
        test(Arc::clone(&set.backends[0])).await;
        assert_eq!(
            set.backends[0].state(),
            BackendState::Healthy,
            "no reading ejects"
        );
        reader.abort();
    });
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "not in 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn count(backend: &Backend, outcome: ScrapeOutcome) -> u64 {
    backend.stats.load.scrapes_total[outcome as usize].load(Ordering::SeqCst)
}

const PATIENT: Duration = Duration::from_secs(10);

#[test]
fn a_busy_engine_is_saturated_and_is_asked_on_one_connection() {
    let page = Page::start(answer("200 OK", BUSY));
    beside_a_reader(&page, PATIENT, async |backend| {
        until("ten reports", || count(&backend, ScrapeOutcome::Reported) >= 10).await;
        until("saturation", || backend.snapshot().saturated()).await;
        assert_eq!(page.shared.connections.load(Ordering::SeqCst), 1);
        assert_eq!(page.loads_asked(), 0, "vLLM has no such page");
    });
}

#[test]
fn an_engine_that_closes_behind_each_answer_is_read_all_the_same() {
    let page = Page::start(answer("200 OK\r\nconnection: close", BUSY));
    beside_a_reader(&page, PATIENT, async |backend| {
        until("ten reports", || count(&backend, ScrapeOutcome::Reported) >= 10).await;
        for failure in [ScrapeOutcome::Failed, ScrapeOutcome::TimedOut] {
            assert_eq!(count(&backend, failure), 0);
        }
    });
}

#[test]
fn an_answer_without_a_load_is_no_load_and_no_fault() {
    for (head, body) in [("404 Not Found", BUSY), ("200 OK", "up 1\n"), ("200 OK", "")] {
        let page = Page::start(answer(head, body));
        beside_a_reader(&page, PATIENT, async |backend| {
            until("an answer", || count(&backend, ScrapeOutcome::Absent) >= 1).await;
            assert_eq!(backend.stats.load.snapshot(now()), None);
            page.set(answer("200 OK", BUSY));
            until("a report", || backend.stats.load.snapshot(now()).is_some()).await;
        });
    }
}

#[test]
fn an_answer_that_never_ends_costs_its_timeout_and_the_next_is_read() {
    let page = Page::start(format!("HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n{BUSY}"));
    beside_a_reader(&page, Duration::from_millis(20), async |backend| {
        until("a timeout", || count(&backend, ScrapeOutcome::TimedOut) >= 1).await;
        assert_eq!(backend.stats.load.snapshot(now()), None);
        page.set(answer("200 OK", BUSY));
        until("a report", || backend.stats.load.snapshot(now()).is_some()).await;
    });
}

#[test]
fn a_restart_shows_in_the_counters() {
    let page = Page::start(answer("200 OK", "vllm:generation_tokens_total 1000\n"));
    beside_a_reader(&page, PATIENT, async |backend| {
        until("a page", || count(&backend, ScrapeOutcome::Absent) >= 1).await;
        page.set(answer("200 OK", "vllm:generation_tokens_total 10\n"));
        let restarts = || backend.stats.load.restarts_total.load(Ordering::SeqCst);
        until("a restart", || restarts() == 1).await;
    });
}

const SGLANG: &str = "sglang:num_running_reqs 7\nsglang:num_queue_reqs 1\nsglang:page_size 64\n";
const LOADS: &str =
    r#"{"loads":[{"num_running_reqs":9,"num_waiting_reqs":2,"num_waiting_uncached_tokens":300}]}"#;

#[test]
fn the_page_of_loads_is_put_over_the_metrics_of_sglang_or_stands_for_them() {
    for (head, metrics, block) in [("200 OK", SGLANG, Some(64)), ("404 Not Found", "", None)] {
        let page = Page::start(answer(head, metrics));
        *page.shared.loads.lock().expect("unpoisoned") = answer("200 OK", LOADS);
        beside_a_reader(&page, PATIENT, async |backend| {
            let load = || backend.stats.load.snapshot(now());
            until("its load", || {
                load().is_some_and(|load| {
                    (load.running, load.waiting, load.waiting_uncached_tokens)
                        == (Some(9), Some(2), Some(300))
                })
            })
            .await;
            assert_eq!(backend.stats.load.block_tokens(), block);
        });
    }
}

#[test]
fn an_sglang_without_the_page_of_loads_is_asked_for_it_once() {
    let page = Page::start(answer("200 OK", SGLANG));
    beside_a_reader(&page, PATIENT, async |backend| {
        until("ten reports", || count(&backend, ScrapeOutcome::Reported) >= 10).await;
        assert_eq!(page.loads_asked(), 1);
    });
}

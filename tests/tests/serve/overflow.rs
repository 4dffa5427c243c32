//! Saturated engines: their requests overflow to the next best, and where there's none they are a 429.

use std::path::PathBuf;

use warmpath_tests::{Client, Gate, Message, Router, RouterOptions, Upstream, for_each_datapath, wait_until};

/// Requests of one prompt, which belong to one engine.
const POST: &[u8] =
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 27\r\n\r\n{\"prompt\":\"the same words\"}";
/// The router's default.
const MAX_WAITING: u32 = 16;

/// Under this policy even a prompt shorter than a block has a home.
const BY_KEY: &[&str] = &["--policy", "consistent_hash"];

/// An engine that answers with its name.
fn named(name: &'static str) -> Upstream {
    Upstream::start(move |conn| {
        while conn.request()?.is_some() {
            conn.answer("200 OK", "", name.as_bytes())?;
        }
        Ok(())
    })
}

fn report(upstream: &Upstream, waiting: u32) {
    upstream.set_metrics(format!(
        "vllm:num_requests_running{{engine=\"0\"}} 4\nvllm:num_requests_waiting{{engine=\"0\"}} {waiting}\n"
    ));
}

fn ask(client: &mut Client) -> Message {
    client.send(POST);
    client.response("POST")
}

fn assert_turned_away(response: &Message) {
    assert_eq!(response.status(), 429);
    let wait: u32 = response
        .head
        .one("retry-after")
        .expect("a time to wait")
        .parse()
        .expect("seconds");
    assert!((1..=60).contains(&wait), "{wait} s");
    let error: serde_json::Value = serde_json::from_slice(&response.body).expect("JSON");
    assert_eq!(error["error"]["code"], "saturated", "{error}");
}

#[test]
fn the_requests_of_an_engine_with_a_queue_overflow_until_the_queue_is_gone() {
    for_each_datapath(|datapath| {
        let engines = [("first", named("first")), ("second", named("second"))];
        engines.iter().for_each(|(_, engine)| report(engine, 0));
        let router = RouterOptions::new(datapath, &[&engines[0].1, &engines[1].1])
            .arguments(BY_KEY)
            .start();
        let mut client = Client::connect(router.address());
        let home = ask(&mut client).body;
        let (home, other) = if home == b"first" {
            (&engines[0], &engines[1])
        } else {
            (&engines[1], &engines[0])
        };
        let mut answers = |name: &str| ask(&mut client).body == name.as_bytes();
        assert!(answers(home.0), "equal prompts have one home");
        report(&home.1, MAX_WAITING);
        wait_until("a request overflows", || answers(other.0));
        assert!(router.metric_with("warmpath_decisions_total", "reason=\"overflow\"") >= 1.0);
        report(&home.1, MAX_WAITING - 1);
        wait_until("they are home again", || answers(home.0));
        router.assert_idle();
    });
}

#[test]
fn where_every_engine_has_a_queue_a_request_is_a_429_that_says_when_to_come_again() {
    for_each_datapath(|datapath| {
        let (first, second) = (named("first"), named("second"));
        report(&first, MAX_WAITING);
        report(&second, 1000);
        let router = Router::start(datapath, &[&first, &second]);
        let mut client = Client::connect(router.address());
        let mut last = ask(&mut client);
        wait_until("a request is turned away", || {
            last = ask(&mut client);
            last.status() == 429
        });
        assert_turned_away(&last);
        assert!(router.metric_with("warmpath_decisions_total", "reason=\"all_saturated\"") >= 1.0);
        report(&second, 0);
        wait_until("one has room again", || ask(&mut client).body == b"second");
        router.assert_idle();
    });
}

#[test]
fn what_an_engine_reports_is_on_the_admin_pages() {
    for_each_datapath(|datapath| {
        let (telling, silent) = (named("telling"), named("silent"));
        telling.set_metrics(
            "sglang:num_running_reqs 100\nsglang:num_queue_reqs 0\nsglang:token_usage 0.5\n\
             sglang:page_size 64\nsglang:num_pages 10\n",
        );
        let router = Router::start(datapath, &[&telling, &silent]);
        let telling = format!("backend=\"{}\"", telling.address());
        let silent = format!("backend=\"{}\"", silent.address());
        wait_until("its load is known", || {
            router.metric_with("warmpath_backend_load_known", &telling) == 1.0
        });
        // A page later: reports may be late by a second at any moment.
        wait_until("its load is shown", || {
            router.metrics().sum("warmpath_backend_engine_running", &telling) == Some(100.0)
        });
        for (name, label, value) in [
            ("warmpath_backend_max_in_flight", &telling, 125.0),
            ("warmpath_backend_capacity_tokens", &telling, 640.0),
            ("warmpath_backend_load_known", &silent, 0.0),
            ("warmpath_backend_max_in_flight", &silent, 256.0),
        ] {
            assert_eq!(router.metric_with(name, label), value, "{name} {label}");
        }
        assert_eq!(
            router.metrics().sum("warmpath_backend_engine_running", &silent),
            None,
            "unknown isn't zero"
        );
        let page: serde_json::Value = serde_json::from_str(&router.admin_get("/backends")).expect("JSON");
        assert_eq!(page["backends"][0]["max_in_flight_source"], "learned", "{page}");
        assert_eq!(page["backends"][0]["engine"]["block_tokens"], 64, "{page}");
        assert_eq!(page["backends"][1]["max_in_flight_source"], "default", "{page}");
        assert!(page["backends"][1]["engine"]["running"].is_null(), "{page}");
    });
}

/// A file that is removed again.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("warmpath-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("a place for the file");
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_request_above_the_limit_of_its_engine_overflows_and_above_all_limits_is_a_429() {
    for_each_datapath(|datapath| {
        let (arrived, finish) = (Gate::new(), Gate::new());
        let holding = || {
            let (arrived, finish) = (arrived.clone(), finish.clone());
            Upstream::start(move |conn| {
                while conn.request()?.is_some() {
                    arrived.open();
                    finish.pass()?;
                    conn.answer("200 OK", "", b"done")?;
                }
                Ok(())
            })
        };
        let engines = [holding(), holding()];
        let backend = |engine: &Upstream| {
            format!(
                "[[backend]]\naddr = \"{}\"\nmax_in_flight = 1\n",
                engine.address()
            )
        };
        let file = File::new(
            &format!("limits-{}.toml", datapath.name()),
            &format!("{}{}", backend(&engines[0]), backend(&engines[1])),
        );
        let config = file.0.to_str().expect("a plain path");
        let router = RouterOptions::new(datapath, &[])
            .arguments(&["--config", config])
            .arguments(BY_KEY)
            .start();
        let mut held = Vec::new();
        for _ in 0..2 {
            let mut client = Client::connect(router.address());
            client.send(POST);
            arrived.pass().expect("the request arrives");
            held.push(client);
        }
        let asked = |engine: &Upstream| engine.heads().len();
        assert_eq!((asked(&engines[0]), asked(&engines[1])), (1, 1));
        assert_eq!(
            router.metric_with("warmpath_decisions_total", "reason=\"overflow\""),
            1.0
        );
        let mut third = Client::connect(router.address());
        assert_turned_away(&ask(&mut third));
        finish.open();
        finish.open();
        for client in &mut held {
            assert_eq!(client.response("POST").body, b"done");
        }
        router.assert_idle();
        finish.open();
        assert_eq!(ask(&mut third).body, b"done", "there is room again");
        router.assert_idle();
    });
}

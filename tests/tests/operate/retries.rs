//! Retries by the operator's keys.

use std::collections::HashSet;

use warmpath_tests::{Client, Datapath, RouterOptions, Upstream, for_each_datapath_at_once};

use crate::requests::{GET, POST, assert_own_error, unused_address};

const RESPONSES: &[u8] = b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";

fn good() -> Upstream {
    Upstream::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
}

fn busy() -> Upstream {
    Upstream::answering(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy")
}

fn throttled() -> Upstream {
    Upstream::answering(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nslow")
}

/// Reads a whole request and closes without an answer.
fn dying() -> Upstream {
    Upstream::start(|conn| {
        conn.request()?;
        Ok(())
    })
}

/// One worker, each backend in turn, no health checks that would change the turns.
fn in_turn(datapath: Datapath, upstreams: &[&Upstream], retry: &str) -> RouterOptions {
    RouterOptions::new(datapath, upstreams)
        .config(&format!("[health]\nenabled = false\n[retry]\n{retry}"))
        .arguments(&["--policy", "round_robin", "--workers", "1"])
}

#[test]
fn a_refusal_of_a_listed_status_is_tried_elsewhere_and_still_counts_against_its_engine() {
    for_each_datapath_at_once(|datapath| {
        let (busy, throttled, good) = (busy(), throttled(), good());
        let retry = "statuses = [429, 503]\nbudget_percent = 100\nbudget_floor = 1000";
        let router = in_turn(datapath, &[&busy, &throttled, &good], retry).start();
        let mut client = Client::connect(router.address());
        for _ in 0..6 {
            client.send(POST);
            let response = client.response("POST");
            assert_eq!((response.status(), response.body), (200, b"good".to_vec()));
        }
        let page = router.json("/backends");
        let asked = |upstream: &Upstream| upstream.heads().len() as u64;
        assert!(asked(&busy) >= 2 && asked(&throttled) >= 2);
        assert_eq!(page["backends"][0]["answers_total"]["5xx"], asked(&busy));
        assert_eq!(page["backends"][1]["answers_total"]["4xx"], asked(&throttled));
        assert_eq!(page["backends"][2]["answers_total"]["2xx_3xx"], 6);
        let retries = asked(&busy) + asked(&throttled);
        assert_eq!(router.metric("warmpath_retries_total"), retries as f64);
        router.assert_idle();
    });
}

#[test]
fn the_last_refusal_reaches_the_client_as_the_engine_gave_it() {
    for_each_datapath_at_once(|datapath| {
        let (first, second) = (throttled(), throttled());
        let router = in_turn(datapath, &[&first, &second], "statuses = [429]").start();
        let mut client = Client::connect(router.address());
        client.send(POST);
        let response = client.response("POST");
        assert_eq!((response.status(), response.body.as_slice()), (429, &b"slow"[..]));
        assert_eq!(response.head.one("retry-after"), Some("7"));
        assert_eq!((first.heads().len(), second.heads().len()), (1, 1));
        router.assert_idle();
    });
}

#[test]
fn a_refusal_is_passed_on_where_every_other_backend_is_unfit() {
    for_each_datapath_at_once(|datapath| {
        let busy = busy();
        let router = RouterOptions::new(datapath, &[&busy])
            .backend(unused_address())
            .config("[retry]\nstatuses = [503]")
            .start();
        warmpath_tests::wait_until("the other is ejected", || {
            router.json("/backends")["backends"][1]["state"] == "unhealthy"
        });
        let mut client = Client::connect(router.address());
        client.send(POST);
        let response = client.response("POST");
        assert_eq!((response.status(), response.body.as_slice()), (503, &b"busy"[..]));
        assert_eq!(busy.heads().len(), 1);
        router.assert_idle();
    });
}

#[test]
fn a_status_that_isnt_listed_passes() {
    for_each_datapath_at_once(|datapath| {
        let (busy, good) = (busy(), good());
        let router = in_turn(datapath, &[&busy, &good], "statuses = [429]").start();
        let mut client = Client::connect(router.address());
        let mut statuses = HashSet::new();
        for _ in 0..2 {
            client.send(POST);
            statuses.insert(client.response("POST").status());
        }
        assert_eq!(statuses, HashSet::from([200, 503]));
        assert_eq!(router.metric("warmpath_retries_total"), 0.0);
    });
}

#[test]
fn by_retry_generation_a_generation_call_is_repeated_once_and_one_that_leaves_state_never() {
    for_each_datapath_at_once(|datapath| {
        let upstreams = [dying(), dying(), dying()];
        let all: Vec<&Upstream> = upstreams.iter().collect();
        let router = in_turn(datapath, &all, "generation = true").start();
        let asked = || {
            upstreams
                .iter()
                .map(|upstream| upstream.heads().len())
                .sum::<usize>()
        };
        let mut client = Client::connect(router.address());
        client.send(RESPONSES);
        assert_own_error(&client.response("POST"), 502, "backend");
        assert_eq!(asked(), 1);
        client.send(POST);
        assert_own_error(&client.response("POST"), 502, "backend");
        assert_eq!(asked(), 3, "not once and once more");
        router.assert_idle();
    });
}

#[test]
fn by_retry_generation_another_engine_answers_for_one_that_died() {
    for_each_datapath_at_once(|datapath| {
        let (dead, good) = (dying(), good());
        let router = in_turn(datapath, &[&dead, &good], "generation = true").start();
        let mut client = Client::connect(router.address());
        for _ in 0..4 {
            client.send(POST);
            assert_eq!(client.response("POST").body, b"good");
        }
        assert!(!dead.heads().is_empty());
        router.assert_idle();
    });
}

#[test]
fn once_an_engine_has_sent_a_byte_no_request_is_repeated_whatever_its_method() {
    for_each_datapath_at_once(|datapath| {
        for answer in ["HTTP/1.1 200 OK\r\nContent-Le", "nonsense\r\n\r\n"] {
            let half = || {
                Upstream::start(move |conn| {
                    conn.request()?;
                    conn.send(answer.as_bytes())
                })
            };
            let (first, second) = (half(), half());
            let router = in_turn(datapath, &[&first, &second], "generation = true").start();
            for (round, request) in [GET, POST].into_iter().enumerate() {
                let mut client = Client::connect(router.address());
                client.send(request);
                assert_own_error(&client.response("POST"), 502, "backend");
                assert_eq!(
                    first.heads().len() + second.heads().len(),
                    round + 1,
                    "{answer:?}"
                );
            }
            router.assert_idle();
        }
    });
}

#[test]
fn an_empty_budget_lets_a_request_fail_and_says_so_in_the_metrics() {
    for_each_datapath_at_once(|datapath| {
        let good = good();
        let router = in_turn(datapath, &[&good], "budget_percent = 0\nbudget_floor = 2")
            .backend(unused_address())
            .start();
        let mut client = Client::connect(router.address());
        let mut failed = 0;
        for _ in 0..10 {
            client.send(POST);
            let response = client.response("POST");
            if response.status() != 200 {
                assert_own_error(&response, 502, "no connection");
                failed += 1;
            }
        }
        assert_eq!(router.metric("warmpath_retries_total"), 2.0);
        assert!(failed >= 2, "{failed}");
        assert_eq!(router.metric("warmpath_retries_denied_total"), f64::from(failed));
        router.assert_idle();
    });
}

#[test]
fn each_try_goes_to_a_backend_that_wasnt_tried_and_there_are_at_most_tries_max() {
    for_each_datapath_at_once(|datapath| {
        let mut options = in_turn(datapath, &[], "tries_max = 3");
        for _ in 0..5 {
            options = options.backend(unused_address());
        }
        let router = options.start();
        let mut client = Client::connect(router.address());
        for round in 1..=2 {
            client.send(POST);
            assert_own_error(&client.response("POST"), 502, "no connection");
            let page = router.json("/explain?n=3");
            let decisions = page["decisions"].as_array().expect("a list");
            let tries: Vec<_> = decisions.iter().map(|d| d["try_number"].as_u64()).collect();
            assert_eq!(tries, [Some(3), Some(2), Some(1)]);
            let backends: HashSet<_> = decisions.iter().map(|d| d["backend"].as_str()).collect();
            assert_eq!(backends.len(), 3, "{page}");
            let failures = router.count("warmpath_backend_connect_failures_total", "");
            assert_eq!(failures, f64::from(3 * round));
        }
        router.assert_idle();
    });
}

//! The admin pages after traffic.

use std::collections::HashSet;

use warmpath_tests::{Client, Framing, Gate, Router, RouterOptions, for_each_datapath, wait_until};

use crate::requests::{POST, completion, gated, get};

#[test]
fn flows_are_counted_by_path_while_they_last() {
    for_each_datapath(|datapath| {
        let gate = Gate::new();
        let upstream = gated(&gate);
        let router = Router::start(datapath, &[&upstream]);
        let path = format!("path=\"{}\"", datapath.name());
        let mut clients: Vec<Client> = (0..5).map(|_| Client::connect(router.address())).collect();
        for client in &mut clients {
            client.send(POST);
            client.head();
            assert_eq!(client.chunks(3), b"one");
        }
        wait_until("all are carried", || router.count("warmpath_flows", &path) == 5.0);
        assert_eq!(router.json("/backends")["backends"][0]["in_flight"], 5);
        // Some end and some are left.
        drop(clients.split_off(3));
        wait_until("two are gone", || {
            router.metric_with("warmpath_flows", &path) == 3.0
        });
        for _ in 0..5 {
            gate.open();
        }
        for client in &mut clients {
            assert_eq!(client.body(Framing::Chunked), b"two");
        }
        wait_until("none is left", || {
            router.metric_with("warmpath_flows", &path) == 0.0
        });
        router.assert_idle();
    });
}

#[test]
fn explain_tells_the_last_decisions_newest_first() {
    for_each_datapath(|datapath| {
        let gate = Gate::new();
        let (first, second) = (gated(&gate), gated(&gate));
        let router = RouterOptions::new(datapath, &[&first, &second])
            .arguments(&["--policy", "least_load"])
            .start();
        let names: HashSet<String> = [&first, &second].map(|u| u.address().to_string()).into();
        for _ in 0..3 {
            get(&router);
        }
        gate.open();
        let mut client = Client::connect(router.address());
        client.send(&completion(1, true));
        client.response("POST");
        let page = router.json("/explain?n=2");
        assert_eq!(page["policy"], "least_load");
        assert_eq!(page["backends"].as_array().map(Vec::len), Some(2));
        let decisions = page["decisions"].as_array().expect("a list");
        assert_eq!(decisions.len(), 2);
        assert_eq!(decisions[0]["path"], "/v1/completions");
        assert_eq!(decisions[1]["path"], "/v1/models");
        assert_eq!(decisions[0]["prompt_bytes"], "once upon a time".len());
        for decision in decisions {
            assert!(names.contains(decision["backend"].as_str().expect("a name")));
            assert!(
                decision["reason"]
                    .as_str()
                    .is_some_and(|reason| !reason.is_empty())
            );
            assert_eq!(decision["try_number"], 1);
            assert_eq!(decision["in_flight"].as_array().map(Vec::len), Some(2));
            assert!(decision["time_unix_ms"].is_u64());
        }
        assert_eq!(
            router.json("/explain")["decisions"].as_array().map(Vec::len),
            Some(4)
        );
    });
}

#[test]
fn backends_tells_each_ones_counts() {
    for_each_datapath(|datapath| {
        let gate = Gate::new();
        let upstream = gated(&gate);
        let router = Router::start(datapath, &[&upstream]);
        for _ in 0..4 {
            get(&router);
        }
        router.assert_idle();
        let page = router.json("/backends");
        assert_eq!(page["health_ignored"], false);
        let backend = &page["backends"][0];
        assert_eq!(backend["name"], upstream.address().to_string());
        assert_eq!(backend["state"], "healthy");
        assert_eq!(backend["requests_total"], 4);
        assert_eq!(backend["answers_total"]["2xx_3xx"], 4);
        assert_eq!(backend["in_flight"], 0);
        assert!(backend["bytes_total"].as_u64() > Some(0));
        assert!(backend["last_byte_age_ms"].is_u64());
    });
}

#[test]
fn the_metrics_page_declares_each_family_once_and_ends_as_it_should() {
    for_each_datapath(|datapath| {
        let gate = Gate::new();
        let upstream = gated(&gate);
        let router = Router::start(datapath, &[&upstream]);
        gate.open();
        let mut client = Client::connect(router.address());
        client.send(POST);
        client.response("POST");
        let text = router.admin_get("/metrics");
        assert!(text.ends_with("# EOF\n"));
        let mut families = HashSet::new();
        let mut samples = HashSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let name = rest.split(' ').next().unwrap_or_default();
                assert!(name.starts_with("warmpath_"), "{line}");
                assert!(families.insert(name.to_owned()), "{name} is declared twice");
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').expect("a sample");
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(samples.insert(name.to_owned()), "{name} is there twice");
            }
        }
        assert!(families.len() > 20, "{text}");
    });
}

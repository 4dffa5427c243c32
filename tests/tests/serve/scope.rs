//! Which paths pass, and the limits on a head.

use warmpath_tests::{Client, PROBE_ANSWER, Router, RouterOptions, Upstream, for_each_datapath};

fn good() -> Upstream {
    Upstream::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
}

fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes()
}

#[test]
fn engine_control_is_refused_by_default_and_the_error_names_the_key() {
    for_each_datapath(|datapath| {
        let upstream = good();
        let router = RouterOptions::new(datapath, &[&upstream])
            .paths("inference")
            .start();
        for target in [
            "/flush_cache",
            "/v1/load_lora_adapter",
            "/start_profile",
            "/sleep",
            "//flush_cache",
            "/v1/../flush_cache",
            "/%66lush_cache",
        ] {
            let mut client = Client::connect(router.address());
            client.send(&get(target));
            let response = client.response("GET");
            assert!(
                matches!(response.status(), 400 | 403 | 404),
                "{target}: {}",
                response.status()
            );
            if target == "/flush_cache" {
                assert_eq!(response.status(), 403);
                assert!(
                    String::from_utf8_lossy(&response.body).contains("paths"),
                    "the key isn't named"
                );
            }
        }
        assert_eq!(upstream.targets(), Vec::<String>::new());
        let mut client = Client::connect(router.address());
        for target in [
            "/v1/models",
            "/v1/chat/completions",
            "/generate",
            "/tokenize",
            "/v1/messages",
        ] {
            client.send(&get(target));
            assert_eq!(client.response("GET").body, b"good", "{target}");
        }
        router.assert_idle();
    });
}

#[test]
fn health_and_metrics_on_the_public_listener_are_never_an_engines() {
    for_each_datapath(|datapath| {
        for paths in ["inference", "all"] {
            let upstream = good();
            let router = RouterOptions::new(datapath, &[&upstream]).paths(paths).start();
            let mut client = Client::connect(router.address());
            for target in ["/health", "/metrics"] {
                client.send(&get(target));
                let response = client.response("GET");
                assert_ne!(response.body, PROBE_ANSWER, "{target} is the engine's");
            }
        }
    });
}

#[test]
fn a_head_over_its_limits_is_refused_and_a_large_one_below_them_passes() {
    for_each_datapath(|datapath| {
        let upstream = good();
        let router = Router::start(datapath, &[&upstream]);
        let many = |count: usize| (0..count).map(|i| format!("X-{i}: v\r\n")).collect::<String>();
        for (claim, fields, status) in [
            (
                "32 kB in a field",
                format!("X-Big: {}\r\n", "b".repeat(32_000)),
                200,
            ),
            ("200 fields", many(200), 200),
            (
                "128 kB in a field",
                format!("X-Big: {}\r\n", "b".repeat(128_000)),
                431,
            ),
            ("300 fields", many(300), 431),
        ] {
            let mut client = Client::connect(router.address());
            client.send_if_open(format!("GET /v1/models HTTP/1.1\r\nHost: x\r\n{fields}\r\n").as_bytes());
            assert_eq!(client.response("GET").status(), status, "{claim}");
            if status == 431 {
                client.drain_to_close();
            }
        }
        router.assert_idle();
    });
}

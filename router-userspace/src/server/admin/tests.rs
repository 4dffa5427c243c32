use std::io::{Read, Write};

use http_body_util::BodyExt;
use hyper::http::request::Parts;
use hyper::{Request, StatusCode};
use tokio::sync::watch;

use super::pages::answer;
use super::*;
use crate::backend::{BackendConfig, register_metrics};
use crate::server::StopPhase;
use crate::telemetry::DecisionRecord;
use crate::types::{BackendState, now};

struct Fixture {
    state: Arc<AdminState>,
    phase: watch::Sender<StopPhase>,
}

fn fixture() -> Fixture {
    let config = |port| BackendConfig {
        name: format!("engine-{port}"),
        addr: ([127, 0, 0, 1], port).into(),
        weight: 1,
        max_in_flight: None,
        max_waiting: 16,
    };
    let backends = Arc::new(BackendSet::new(vec![config(1), config(2)]));
    let mut metrics = Metrics::new();
    register_metrics(metrics.registry_mut(), Arc::clone(&backends));
    let decisions = Arc::new(DecisionLog::default());
    for number in 0..30 {
        decisions.push(DecisionRecord {
            time_unix_ms: number,
            path: "/v1/<script>".to_owned(),
            backend: "engine-1".to_owned(),
            reason: "affinity",
            policy: "consistent_hash",
            try_number: 1,
            prompt_bytes: 9,
            in_flight: vec![1, 0],
        });
    }
    let (phase, stop) = watch::channel(StopPhase::Running);
    let state = Arc::new(AdminState {
        backends,
        tcp: Vec::new(),
        metrics: Arc::new(metrics),
        decisions,
        policy: "consistent_hash",
        stop,
        started: now(),
    });
    Fixture { state, phase }
}

fn open() -> Guard {
    Guard {
        scope: Scope::Full,
        token: None,
        loopback: true,
    }
}

fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Parts {
    let mut builder = Request::builder().method(method).uri(target);
    for (name, value) in fields {
        builder = builder.header(*name, *value);
    }
    builder.body(()).expect("a request").into_parts().0
}

fn get(fixture: &Fixture, target: &str) -> (StatusCode, String) {
    let page = answer(
        &fixture.state,
        &open(),
        &request("GET", target, &[("host", "127.0.0.1:9180")]),
    );
    let status = page.status();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("runtime");
    let body = runtime.block_on(page.into_body().collect()).expect("in memory");
    (
        status,
        String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8"),
    )
}

#[test]
fn metrics_show_the_router_and_each_backend() {
    let (status, page) = get(&fixture(), "/metrics");
    assert_eq!(status, StatusCode::OK);
    assert!(page.contains("warmpath_connections 0"), "{page}");
    assert!(
        page.contains("warmpath_backend_in_flight{backend=\"engine-2\"}"),
        "{page}"
    );
}

#[test]
fn ready_needs_one_fit_backend_and_ends_with_draining() {
    let fixture = fixture();
    assert_eq!(get(&fixture, "/readyz").0, StatusCode::OK);
    fixture.state.backends.backends[0].set_health(BackendState::Unhealthy, false);
    assert_eq!(get(&fixture, "/readyz").0, StatusCode::OK);
    // Health is ignored now and both get requests, but neither is fit.
    fixture
        .state
        .backends
        .backends
        .iter()
        .for_each(|b| b.set_health(BackendState::Stalled, true));
    let none = (StatusCode::SERVICE_UNAVAILABLE, "no healthy backend\n".to_owned());
    assert_eq!(get(&fixture, "/readyz"), none);
    fixture
        .state
        .backends
        .backends
        .iter()
        .for_each(|b| b.set_health(BackendState::Healthy, false));
    fixture.phase.send_replace(StopPhase::Drain);
    assert_eq!(
        get(&fixture, "/readyz"),
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned())
    );
    assert_eq!(get(&fixture, "/healthz").0, StatusCode::OK);
}

#[test]
fn backends_and_explain_are_json() {
    let fixture = fixture();
    let (status, page) = get(&fixture, "/backends");
    let page: serde_json::Value = serde_json::from_str(&page).expect("JSON");
    assert_eq!(status, StatusCode::OK);
    assert_eq!(page["backends"][1]["name"], "engine-2");
    assert_eq!(page["backends"][1]["state"], "healthy");
    assert_eq!(page["backends"][1]["answers_total"]["5xx"], 0);
    for (target, count) in [("/explain", 20), ("/explain?n=3", 3), ("/explain?x=1&n=1000", 30)] {
        let (status, page) = get(&fixture, target);
        assert_eq!(status, StatusCode::OK, "{target}");
        let page: serde_json::Value = serde_json::from_str(&page).expect("JSON");
        assert_eq!(
            page["decisions"].as_array().map(Vec::len),
            Some(count),
            "{target}"
        );
        assert_eq!(page["decisions"][0]["time_unix_ms"], 29, "newest first");
    }
    for target in ["/explain?n=0", "/explain?n=1001", "/explain?n=x"] {
        assert_eq!(get(&fixture, target).0, StatusCode::BAD_REQUEST, "{target}");
    }
}

#[test]
fn the_page_for_people_shows_backends_and_escapes_what_clients_sent() {
    let fixture = fixture();
    fixture
        .state
        .backends
        .health_ignored
        .store(true, std::sync::atomic::Ordering::Relaxed);
    fixture.state.backends.backends[0].set_health(BackendState::Stalled, true);
    let (status, page) = get(&fixture, "/");
    assert_eq!(status, StatusCode::OK);
    assert!(
        page.contains("engine-1") && page.contains("stalled, ignored"),
        "{page}"
    );
    assert!(page.contains("health is ignored"), "{page}");
    assert!(!page.contains("<script>"), "{page}");
}

#[test]
fn a_rebound_name_is_refused_on_loopback_and_addresses_are_not() {
    let fixture = fixture();
    let status = |fields: &[(&str, &str)], target: &str| {
        answer(&fixture.state, &open(), &request("GET", target, fields)).status()
    };
    for host in [
        "127.0.0.1:9180",
        "localhost",
        "LOCALHOST:1",
        "[::1]:9180",
        "[::1]",
        "10.0.0.1",
    ] {
        assert_eq!(status(&[("host", host)], "/healthz"), StatusCode::OK, "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:9180",
        "localhost.evil.example",
        "",
        "127.0.0.1.evil.example",
    ] {
        assert_eq!(
            status(&[("host", host)], "/healthz"),
            StatusCode::FORBIDDEN,
            "{host}"
        );
    }
    assert_eq!(status(&[], "/healthz"), StatusCode::BAD_REQUEST);
    let both = [("host", "localhost"), ("host", "evil.example")];
    assert_eq!(status(&both, "/healthz"), StatusCode::BAD_REQUEST);
    let absolute = "http://evil.example/healthz";
    assert_eq!(status(&[("host", "localhost")], absolute), StatusCode::FORBIDDEN);
}

#[test]
fn a_token_is_asked_for_before_anything_else() {
    let fixture = fixture();
    let token = Some(AdminToken::new("0123456789abcdef").expect("a token"));
    let guard = Guard {
        scope: Scope::Full,
        token,
        loopback: false,
    };
    for target in ["/", "/metrics", "/healthz", "/nothing"] {
        let page = answer(
            &fixture.state,
            &guard,
            &request("GET", target, &[("host", "router.example")]),
        );
        assert_eq!(page.status(), StatusCode::UNAUTHORIZED, "{target}");
        assert_eq!(page.headers()["www-authenticate"], "Bearer");
    }
    let fields = [
        ("host", "router.example"),
        ("authorization", "Bearer 0123456789abcdef"),
    ];
    assert_eq!(
        answer(&fixture.state, &guard, &request("GET", "/", &fields)).status(),
        StatusCode::OK
    );
}

#[test]
fn nothing_can_be_posted() {
    let fixture = fixture();
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        let page = answer(
            &fixture.state,
            &open(),
            &request(method, "/backends", &[("host", "localhost")]),
        );
        assert_eq!(page.status(), StatusCode::METHOD_NOT_ALLOWED, "{method}");
        assert_eq!(page.headers()["allow"], "GET, HEAD");
    }
}

#[test]
fn the_read_only_listener_shows_metrics_and_health_alone() {
    let fixture = fixture();
    let guard = Guard {
        scope: Scope::ReadOnly,
        token: None,
        loopback: false,
    };
    let status = |target| {
        answer(
            &fixture.state,
            &guard,
            &request("GET", target, &[("host", "router.example")]),
        )
        .status()
    };
    assert_eq!(status("/metrics"), StatusCode::OK);
    assert_eq!(status("/healthz"), StatusCode::OK);
    for target in ["/", "/readyz", "/backends", "/explain"] {
        assert_eq!(status(target), StatusCode::NOT_FOUND, "{target}");
    }
}

/// Runs `client` on a blocking thread against a real listener.
fn with_listener(client: impl FnOnce(std::net::SocketAddr) + Send + 'static) {
    let fixture = fixture();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    runtime.block_on(async {
        let listener = bind_admin(([127, 0, 0, 1], 0).into()).expect("a port");
        let addr = listener.local_addr().expect("bound");
        let listener = tokio::net::TcpListener::from_std(listener).expect("registered");
        let server = tokio::spawn(serve_admin(listener, Arc::clone(&fixture.state), open()));
        tokio::task::spawn_blocking(move || client(addr))
            .await
            .expect("the client's claims hold");
        server.abort();
    });
}

fn exchange(addr: std::net::SocketAddr, request: &str) -> String {
    let mut stream = std::net::TcpStream::connect(addr).expect("connected");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read to its end");
    answer
}

#[test]
fn real_connections_get_pages_and_oversized_heads_are_refused() {
    with_listener(|addr| {
        let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let answer = exchange(addr, request);
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"),
            "{answer}"
        );
        let head = exchange(addr, &request.replace("GET", "HEAD"));
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
        let post =
            "POST /backends HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert!(exchange(addr, post).starts_with("HTTP/1.1 405 "));
        let long = "x".repeat(ADMIN_HEAD_BYTES_MAX);
        let mut stream = std::net::TcpStream::connect(addr).expect("connected");
        let _ = write!(stream, "GET / HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n");
        let mut answer = Vec::new();
        // The unread rest of the head may reset the connection; what counts is that no page came.
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    });
}

#[test]
fn a_connection_beyond_the_bound_is_closed_at_once_and_room_returns() {
    with_listener(|addr| {
        let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let mut held = Vec::new();
        for _ in 0..ADMIN_CONNECTIONS_MAX {
            let mut stream = std::net::TcpStream::connect(addr).expect("connected");
            stream.write_all(request.as_bytes()).expect("sent");
            let mut first = [0; 12];
            stream.read_exact(&mut first).expect("answered");
            held.push(stream);
        }
        let mut surplus = std::net::TcpStream::connect(addr).expect("connected");
        let mut byte = [0; 1];
        assert!(
            !matches!(surplus.read(&mut byte), Ok(1..)),
            "closed without an answer"
        );
        drop(held);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            let mut stream = std::net::TcpStream::connect(addr).expect("connected");
            let sent = stream.write_all(request.as_bytes());
            if sent.is_ok() && stream.read_exact(&mut byte).is_ok() {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "room didn't return");
        }
    });
}

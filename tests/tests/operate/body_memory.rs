//! The memory that request bodies may take together.

use warmpath_tests::{Client, Router, RouterOptions, Upstream, for_each_datapath_at_once, wait_until};

use crate::requests::{assert_own_error, get};

const BODY: usize = 120_000;
const HALF: usize = BODY / 2;

/// Room for two bodies of [`BODY`] bytes and not for three.
fn config(wait: &str) -> String {
    format!(
        "[limits]\nbody_buffers_total_bytes = 262144\nbody_buffer_bytes = 131072\n[timeouts]\nbody_buffer_wait = \"{wait}\""
    )
}

/// Answers with the length of the request's body.
fn measuring() -> Upstream {
    Upstream::start(|conn| {
        while let Some(request) = conn.request()? {
            conn.answer("200 OK", "", request.body.len().to_string().as_bytes())?;
        }
        Ok(())
    })
}

/// A client that has sent half of its body.
fn half_sent(router: &Router) -> Client {
    let mut client = Client::connect(router.address());
    client.send(
        format!("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {BODY}\r\n\r\n").as_bytes(),
    );
    client.send(&[b' '; HALF]);
    client
}

/// Two clients with unfinished bodies, which fill the memory.
fn full(router: &Router) -> (Client, Client) {
    let clients = (half_sent(router), half_sent(router));
    wait_until("both bodies are held", || {
        router.metric("warmpath_body_buffer_bytes") >= 2.0 * HALF as f64
    });
    clients
}

#[test]
fn where_the_memory_stays_full_a_body_is_refused_and_what_needs_none_is_served() {
    for_each_datapath_at_once(|datapath| {
        let upstream = measuring();
        let router = RouterOptions::new(datapath, &[&upstream])
            .config(&config("300ms"))
            .start();
        let mut holders = full(&router);
        let mut third = half_sent(&router);
        assert_own_error(&third.response("POST"), 503, "limits.body_buffers_total_bytes");
        assert!(router.metric("warmpath_body_waits_total") >= 1.0);
        assert_eq!(get(&router).status(), 200);
        for client in [&mut holders.0, &mut holders.1] {
            client.send(&[b' '; BODY - HALF]);
            assert_eq!(client.response("POST").body, BODY.to_string().as_bytes());
        }
        assert_eq!(
            upstream
                .targets()
                .iter()
                .filter(|t| *t == "/v1/completions")
                .count(),
            2
        );
        router.assert_idle();
    });
}

#[test]
fn a_body_waits_for_memory_and_goes_on_when_another_frees_it() {
    for_each_datapath_at_once(|datapath| {
        let upstream = measuring();
        let router = RouterOptions::new(datapath, &[&upstream])
            .config(&config("20s"))
            .start();
        let (mut first, second) = full(&router);
        let mut third = half_sent(&router);
        wait_until("the third waits", || {
            router.metric("warmpath_body_waits_total") >= 1.0
        });
        first.send(&[b' '; BODY - HALF]);
        assert_eq!(first.response("POST").body, BODY.to_string().as_bytes());
        third.send(&[b' '; BODY - HALF]);
        assert_eq!(third.response("POST").body, BODY.to_string().as_bytes());
        // One that leaves in mid-body frees its part too.
        drop(second);
        router.assert_idle();
    });
}

#[test]
fn a_body_as_large_as_the_whole_memory_doesnt_wait_for_itself() {
    for_each_datapath_at_once(|datapath| {
        let upstream = measuring();
        let router = RouterOptions::new(datapath, &[&upstream])
            .config("[limits]\nbody_buffers_total_bytes = 100000\nbody_buffer_bytes = 100000\n[timeouts]\nbody_buffer_wait = \"100ms\"")
            .start();
        for length in [99_999_usize, 100_000, 100_001, 1_000_000] {
            let mut client = Client::connect(router.address());
            client.send(
                format!("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n")
                    .as_bytes(),
            );
            client.send_if_open(&vec![b' '; length]);
            let response = client.response("POST");
            assert_eq!(
                String::from_utf8_lossy(&response.body),
                length.to_string(),
                "{length}"
            );
        }
        router.assert_idle();
    });
}

//! The cap on client connections.

use warmpath_tests::{Client, Datapath, RouterOptions, Upstream, for_each_datapath_at_once, wait_until};

use crate::requests::{GET, assert_own_error, get};

const CAP: usize = 3;

fn good() -> Upstream {
    Upstream::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
}

#[test]
fn beyond_the_cap_a_client_gets_a_503_and_a_seat_frees_when_one_leaves() {
    for_each_datapath_at_once(|datapath| {
        let upstream = good();
        let router = RouterOptions::new(datapath, &[&upstream])
            .config(&format!("[limits]\nconnections_max = {CAP}"))
            .start();
        let mut seated: Vec<Client> = (0..CAP)
            .map(|_| {
                let mut client = Client::connect(router.address());
                client.send(GET);
                assert_eq!(client.response("GET").body, b"good");
                client
            })
            .collect();
        for _ in 0..3 {
            // Told at once, without having sent anything.
            let mut client = Client::connect(router.address());
            let response = client.response("GET");
            assert_own_error(&response, 503, "limits.connections_max");
            assert!(response.head.connection_has("close"));
            assert!(response.head.one("retry-after").is_some());
            client.expect_close();
        }
        assert_eq!(router.metric("warmpath_connections_refused_total"), 3.0);
        assert_eq!(router.metric("warmpath_connections"), CAP as f64);
        for client in &mut seated {
            client.send(GET);
            assert_eq!(client.response("GET").body, b"good");
        }
        seated.pop();
        wait_until("the seat is free", || get(&router).status() == 200);
        drop(seated);
        router.assert_idle();
        wait_until("all seats are free", || {
            router.metric("warmpath_connections") == 0.0
        });
    });
}

#[test]
fn a_small_limit_of_open_files_lowers_the_cap_and_stalls_nobody() {
    for_each_datapath_at_once(|datapath| {
        let upstream = good();
        let router = RouterOptions::new(datapath, &[&upstream])
            .prefix(&["prlimit", "--nofile=400:400"])
            .start();
        let clients: Vec<Client> = (0..80)
            .map(|_| {
                let mut client = Client::connect(router.address());
                client.send_if_open(GET);
                client
            })
            .collect();
        let mut served = 0;
        let mut kept = Vec::new();
        for mut client in clients {
            let response = client.response("GET");
            if response.status() == 200 {
                served += 1;
                // Keeps its seat.
                kept.push(client);
            } else {
                assert_own_error(&response, 503, "limits.connections_max");
            }
        }
        // (400 - 256) / 4, what each needs at most.
        assert_eq!(served, 36);
    });
}

#[test]
fn too_small_a_limit_of_open_files_is_one_line_with_the_remedy() {
    let upstream = good();
    let ended = RouterOptions::new(Datapath::Copy, &[&upstream])
        .prefix(&["prlimit", "--nofile=64:64"])
        .end();
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.log.contains("RLIMIT_NOFILE") && ended.log.trim_end().lines().count() == 1,
        "{}",
        ended.log
    );
}

#[test]
fn each_of_many_clients_refused_at_once_is_told_so() {
    const MANY: usize = 300;
    for_each_datapath_at_once(|datapath| {
        let upstream = good();
        let router = RouterOptions::new(datapath, &[&upstream])
            .config("[limits]\nconnections_max = 1")
            .start();
        let mut seated = Client::connect(router.address());
        seated.send(GET);
        assert_eq!(seated.response("GET").body, b"good");
        // None of them leaves before the last has come.
        let mut refused: Vec<Client> = (0..MANY)
            .map(|_| {
                let mut client = Client::connect(router.address());
                client.send_if_open(GET);
                client
            })
            .collect();
        for client in &mut refused {
            assert_own_error(&client.response("GET"), 503, "limits.connections_max");
        }
        assert_eq!(router.metric("warmpath_connections_refused_total"), MANY as f64);
        seated.send(GET);
        assert_eq!(seated.response("GET").body, b"good");
        drop((seated, refused));
        wait_until("the seat is free", || get(&router).status() == 200);
    });
}

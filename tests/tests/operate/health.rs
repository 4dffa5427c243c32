//! Health with simulated engines and their faults.

use serde_json::Value;
use warmpath_tests::{
    Client, Datapath, Engines, Router, RouterOptions, for_each_datapath_at_once, wait_until,
};

use crate::requests::completion;

fn router(datapath: Datapath, engines: &Engines, health: &str) -> Router {
    let mut options = RouterOptions::new(datapath, &[]);
    for address in engines.addresses() {
        options = options.backend(address);
    }
    options
        .config(&format!("[health]\ninterval = \"200ms\"\n{health}"))
        .arguments(&["--policy", "round_robin", "--workers", "1"])
        .start()
}

fn backend(router: &Router, index: usize) -> Value {
    router.json("/backends")["backends"][index].clone()
}

fn requests(router: &Router, index: usize) -> u64 {
    backend(router, index)["requests_total"]
        .as_u64()
        .expect("a count")
}

/// Waits until health has looked several times more at a backend.
fn wait_for_looks(router: &Router, index: usize) {
    let passed = || {
        backend(router, index)["probes_total"]["passed"]
            .as_u64()
            .expect("a count")
    };
    let before = passed();
    wait_until("health looks again", || passed() >= before + 4);
}

#[track_caller]
fn call(router: &Router) -> u16 {
    let mut client = Client::connect(router.address());
    client.send(&completion(1, false));
    client.response("POST").status()
}

#[test]
fn a_frozen_engine_gets_no_new_requests_until_it_moves_again() {
    for_each_datapath_at_once(|datapath| {
        let engines = Engines::start(2, &["--speed", "100"]);
        engines.fault(0, r#"{"kind":"frozen"}"#);
        let router = router(
            datapath,
            &engines,
            "stall_silence_min = \"600ms\"\nrecent_byte = \"600ms\"\neject_time = \"300s\"\neject_time_max = \"300s\"",
        );
        // Two in turn: one of them hangs at the frozen engine, whose /health answers.
        let mut clients: Vec<Client> = (0..2).map(|_| Client::connect(router.address())).collect();
        for client in &mut clients {
            client.send(&completion(2, true));
        }
        wait_until("it is stalled", || backend(&router, 0)["state"] == "stalled");
        let before = requests(&router, 0);
        for _ in 0..6 {
            assert_eq!(call(&router), 200);
        }
        assert_eq!(requests(&router, 0), before, "a stalled engine was asked");
        assert_eq!(backend(&router, 0)["probes_total"]["failed"], 0);
        assert_eq!(backend(&router, 1)["state"], "healthy");
        engines.fault(0, r#"{"kind":"none"}"#);
        for client in &mut clients {
            assert_eq!(client.response("POST").status(), 200);
        }
        wait_until("it is back", || backend(&router, 0)["state"] == "healthy");
        wait_until("it is asked again", || {
            assert_eq!(call(&router), 200);
            requests(&router, 0) > before
        });
        router.assert_idle();
    });
}

#[test]
fn an_engine_whose_answers_are_mostly_5xx_is_ejected_and_comes_back_by_a_trial() {
    for_each_datapath_at_once(|datapath| {
        let engines = Engines::start(2, &["--speed", "100"]);
        engines.fault(0, r#"{"kind":"status","status":500}"#);
        let router = router(datapath, &engines, "eject_time = \"1s\"\neject_time_max = \"1s\"");
        for _ in 0..4 {
            call(&router);
        }
        wait_for_looks(&router, 0);
        assert_eq!(backend(&router, 0)["state"], "healthy", "too few to judge by");
        for _ in 0..16 {
            call(&router);
        }
        wait_until("it is ejected", || backend(&router, 0)["state"] == "unhealthy");
        engines.fault(0, r#"{"kind":"none"}"#);
        wait_until("it is back", || {
            assert_eq!(call(&router), 200);
            backend(&router, 0)["state"] == "healthy" && backend(&router, 0)["answers_total"]["2xx_3xx"] != 0
        });
        router.assert_idle();
    });
}

#[test]
fn a_clients_4xx_never_eject() {
    for_each_datapath_at_once(|datapath| {
        let engines = Engines::start(2, &["--speed", "100"]);
        engines.fault(0, r#"{"kind":"status","status":429}"#);
        let router = router(datapath, &engines, "");
        for _ in 0..40 {
            call(&router);
        }
        assert_eq!(backend(&router, 0)["answers_total"]["4xx"], 20);
        wait_for_looks(&router, 0);
        assert_eq!(backend(&router, 0)["state"], "healthy");
        assert_eq!(router.metric("warmpath_health_ignored"), 0.0);
    });
}

#[test]
fn half_of_a_pool_may_be_ejected_and_beyond_it_health_is_ignored() {
    for_each_datapath_at_once(|datapath| {
        let engines = Engines::start(4, &["--speed", "100"]);
        let router = router(datapath, &engines, "");
        let verdict = |index: usize| backend(&router, index)["verdict"].clone();
        for index in 0..2 {
            engines.fault(index, r#"{"kind":"down"}"#);
        }
        wait_until("both are ejected", || {
            (0..2).all(|index| backend(&router, index)["state"] == "unhealthy")
        });
        assert_eq!(router.metric("warmpath_health_ignored"), 0.0);
        let before = (requests(&router, 0), requests(&router, 1));
        for _ in 0..8 {
            assert_eq!(call(&router), 200);
        }
        assert_eq!((requests(&router, 0), requests(&router, 1)), before);
        engines.fault(2, r#"{"kind":"down","for_ms":3000}"#);
        wait_until("health is ignored", || {
            router.metric("warmpath_health_ignored") == 1.0
        });
        assert_eq!(verdict(2), "unhealthy");
        assert_eq!(
            backend(&router, 2)["state"],
            "healthy",
            "more than half is ejected"
        );
        // A refused connection is tried elsewhere, up to three tries: the fourth engine answers most.
        wait_until("requests still reach the last one", || call(&router) == 200);
        wait_until("health is heeded again", || {
            router.metric("warmpath_health_ignored") == 0.0
        });
        assert_eq!(backend(&router, 0)["state"], "unhealthy");
        router.assert_idle();
    });
}

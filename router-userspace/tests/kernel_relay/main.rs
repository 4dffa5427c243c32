//! The kernel path over real loopback sockets, driven by a small relay that is its executable documentation.
//!
//! Skipped with the reason where the programs can't be loaded; `WARMPATH_REQUIRE_KERNEL=1` makes that a failure.

mod peers;
mod relay;

use std::collections::HashMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use peers::{Client, Plan, Server};
use relay::{News, Relay, Report};
use router_userspace::datapath::kernel::{FLOW_BYTES_MIN, Kernel, Limits};
use router_userspace::types::BackendId;

/// Longer than any test needs, also on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(120);

fn load(limits: Limits) -> Option<Kernel> {
    match Kernel::load(limits) {
        Ok(kernel) => Some(kernel),
        Err(refusal) if std::env::var_os("WARMPATH_REQUIRE_KERNEL").is_some_and(|value| value == "1") => {
            panic!("WARMPATH_REQUIRE_KERNEL=1: {refusal}")
        }
        Err(refusal) => {
            eprintln!("skipped: {refusal}");
            None
        }
    }
}

/// The least memory for a flow, so that slow readers meet the bound.
fn tight() -> Limits {
    Limits {
        flow_bytes_max: FLOW_BYTES_MIN,
        ..Limits::default()
    }
}

fn counters(kernel: &Kernel) -> HashMap<&'static str, u64> {
    kernel.counters().into_iter().collect()
}

/// Runs `clients` connections of `responses` responses each through one relay and checks every byte.
fn run(kernel: &Kernel, plan: Plan, clients: u64, responses: u64, news: News) -> Report {
    let server = Server::start(plan);
    let relay = Relay::start(kernel.clone(), server.addr(), news);
    let (done, results) = mpsc::channel();
    for index in 0..clients {
        let (done, addr) = (done.clone(), relay.addr());
        std::thread::spawn(move || {
            let mut client = Client::connect(addr, plan);
            let result = (0..responses).try_for_each(|turn| client.exchange(index * 1_000_000 + turn));
            done.send(result).expect("the test waits");
        });
    }
    let end = Instant::now() + DEADLINE;
    for _ in 0..clients {
        let left = end.saturating_duration_since(Instant::now());
        match results.recv_timeout(left) {
            Ok(result) => result.expect("every response is exact"),
            Err(_) => panic!("stalled: {:?} {:?}", relay.dump(), kernel.counters()),
        }
    }
    let report = relay.stop();
    assert_eq!(kernel.in_flight(BackendId(0)), 0, "in-flight comes back to zero");
    assert_eq!(kernel.connections(), (0, 0), "no slot is left");
    report
}

fn assert_carried(kernel: &Kernel, report: &Report, ratio: f64) {
    let carried = kernel.redirected_bytes() as f64 / report.body_bytes as f64;
    eprintln!(
        "carried {:.1} % of {} bytes; {:?}",
        carried * 100.0,
        report.body_bytes,
        kernel.counters()
    );
    assert!(
        carried >= ratio,
        "the kernel carried {:.1} %: {report:?} {:?}",
        carried * 100.0,
        kernel.counters()
    );
    assert_eq!(
        kernel.redirected_bytes(),
        report.carried_bytes,
        "both sides count the same"
    );
}

#[test]
fn paced_streams_are_exact_and_nearly_all_kernel_carried_over_reused_connections() {
    let Some(kernel) = load(Limits::default()) else {
        return;
    };
    let report = run(&kernel, Plan::paced(), 8, 12, News::Ring);
    assert_carried(&kernel, &report, 0.95);
    assert!(
        report.upstreams_opened <= 8,
        "upstream connections are reused: {report:?}"
    );
}

#[test]
fn slow_readers_make_flows_spill_and_stay_exact() {
    let Some(kernel) = load(tight()) else {
        return;
    };
    let report = run(&kernel, Plan::flood_of_slow_readers(), 4, 3, News::Ring);
    let counters = counters(&kernel);
    eprintln!("{report:?} {counters:?}");
    assert!(counters["pass_spill"] > 0, "the bound was reached: {counters:?}");
    assert!(kernel.redirected_bytes() > 0);
}

#[test]
fn any_split_of_extensions_and_trailers_is_followed() {
    let Some(kernel) = load(Limits::default()) else {
        return;
    };
    let report = run(&kernel, Plan::shredded(), 4, 6, News::Ring);
    assert!(counters(&kernel)["framed_slow"] > 0);
    assert_carried(&kernel, &report, 0.5);
}

/// Enough to fill the ring even where most responses are finished by userspace.
const ROUNDS_MAX: u32 = 40;

#[test]
fn a_full_ring_strands_nobody() {
    let Some(kernel) = load(Limits::default()) else {
        return;
    };
    // How many responses end in the kernel depends on how busy the machine is; until the ring overflows and then
    // once more, now with every event lost.
    let full = (0..ROUNDS_MAX).find(|_| {
        run(&kernel, Plan::tiny(), 8, 200, News::SweepOnly);
        counters(&kernel)["events_lost"] > 0
    });
    assert!(full.is_some(), "the ring was never full: {:?}", kernel.counters());
    let report = run(&kernel, Plan::tiny(), 8, 50, News::SweepOnly);
    assert!(report.carried_bytes > 0, "{report:?}");
}

#[test]
fn flows_beyond_the_bound_of_all_together_go_by_copy() {
    let two = Limits {
        flow_bytes_max: FLOW_BYTES_MIN,
        total_bytes_max: 2 * FLOW_BYTES_MIN,
        ..Limits::default()
    };
    let Some(kernel) = load(two) else { return };
    let report = run(&kernel, Plan::paced(), 6, 3, News::Ring);
    assert!(report.no_room > 0 && report.carried_bytes > 0, "{report:?}");
}

/// `WARMPATH_SOAK_S=600 cargo test --release --test kernel_relay -- --ignored soak`.
#[test]
#[ignore = "runs for minutes"]
fn soak_of_every_plan_with_new_seeds() {
    let seconds = std::env::var("WARMPATH_SOAK_S")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(60);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut total = Report::default();
    for round in 0u64.. {
        if Instant::now() >= end {
            break;
        }
        for plan in [
            Plan::paced(),
            Plan::flood_of_slow_readers(),
            Plan::shredded(),
            Plan::tiny(),
            Plan::flood(),
        ] {
            let Some(kernel) = load(tight()) else { return };
            let news = if round % 4 == 3 {
                News::SweepOnly
            } else {
                News::Ring
            };
            let report = run(&kernel, plan.with_seeds(round << 32), 8, 20, news);
            assert_eq!(report.malformed, 0, "{report:?}");
            assert_eq!(
                kernel.redirected_bytes(),
                report.carried_bytes,
                "both sides count the same"
            );
            total.add(&report);
        }
        eprintln!("round {round}: {total:?}");
    }
}

#[test]
fn a_client_that_leaves_ends_its_upstream_and_leaves_nothing_behind() {
    let Some(kernel) = load(Limits::default()) else {
        return;
    };
    let plan = Plan::endless();
    let server = Server::start(plan);
    let relay = Relay::start(kernel.clone(), server.addr(), News::Ring);
    for turn in 0..8 {
        let mut client = Client::connect(relay.addr(), plan);
        client.ask(turn).expect("a request");
        let streamed = kernel.redirected_bytes();
        peers::until(DEADLINE, "the kernel streams", || {
            client.swallow().is_ok() && kernel.redirected_bytes() > streamed
        });
        drop(client);
        peers::until(DEADLINE, "the upstream is told", || {
            server.cut_short() == turn + 1
        });
    }
    peers::until(DEADLINE, "in-flight comes back", || {
        kernel.in_flight(BackendId(0)) == 0
    });
    relay.stop();
    assert_eq!(kernel.connections(), (0, 0));
}

#[test]
fn a_cut_upstream_is_a_cut_response_with_every_byte_before_the_cut() {
    let Some(kernel) = load(Limits::default()) else {
        return;
    };
    let plan = Plan::cut();
    let server = Server::start(plan);
    let relay = Relay::start(kernel.clone(), server.addr(), News::Ring);
    for turn in 0..12 {
        let mut client = Client::connect(relay.addr(), plan);
        let received = client.receive_until_cut(turn).expect("a cut response");
        assert_eq!(received, plan.body_bytes_before_cut(turn), "response {turn}");
    }
    assert!(kernel.redirected_bytes() > 0);
    relay.stop();
    assert_eq!(
        (kernel.in_flight(BackendId(0)), kernel.connections()),
        (0, (0, 0))
    );
}

#[test]
fn bytes_behind_the_end_never_reach_a_client_and_condemn_the_upstream() {
    let Some(kernel) = load(Limits::default()) else {
        return;
    };
    let report = run(&kernel, Plan::excess(), 2, 30, News::Ring);
    assert!(report.carried_bytes > 0, "{report:?}");
    // Excess in the segment of the end is always seen; excess behind it may come after the next request, when it
    // can't be told from an answer.
    assert!(report.condemned >= 30, "{report:?}");
}

#[test]
fn malformed_framing_is_handed_to_userspace_at_the_byte_where_it_goes_wrong() {
    let Some(kernel) = load(Limits::default()) else {
        return;
    };
    let plan = Plan::malformed();
    let server = Server::start(plan);
    let relay = Relay::start(kernel.clone(), server.addr(), News::Ring);
    for turn in 0..12 {
        let mut client = Client::connect(relay.addr(), plan);
        client.receive_until_cut(turn).expect("a cut response");
    }
    assert!(counters(&kernel)["pass_framing"] > 0, "{:?}", kernel.counters());
    let report = relay.stop();
    assert_eq!(report.malformed, 12, "{report:?}");
    assert_eq!(
        (kernel.in_flight(BackendId(0)), kernel.connections()),
        (0, (0, 0))
    );
}

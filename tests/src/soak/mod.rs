//! The soak: the real router between many clients and engines that misbehave in every way, for a while.
//!
//! A case is known by the soak's seed and its number ([`case`]); its number stands in the request's target, so
//! that client and engine agree on what is sent and on what goes wrong. A whole answer has to be the engine's
//! byte for byte; a cut one has to look cut; and when all clients are gone, nothing may be left in the router.

mod answer;
mod case;
mod client;
mod counts;
mod engine;
mod judge;
mod live;
mod pressure;
mod reader;
mod tunnel;
mod watch;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::options::RouterOptions;
use crate::random::Random;
use crate::router::{Datapath, Router};
use client::Target;
use engine::Engine;
use live::{Phase, Shared};
use pressure::Pressure;
use watch::{SAMPLE_INTERVAL, Watch};

const ENGINES: usize = 4;
/// One client in so many speaks to an engine directly: what this host does without a router.
const DIRECT_EVERY: usize = 12;
/// How often an engine dies and comes back.
const RESTART_INTERVAL: Duration = Duration::from_secs(3);
/// How long clients send without a pause.
const RUSH: Duration = Duration::from_millis(4500);
/// How long what they have begun takes to end.
const SETTLE: Duration = Duration::from_millis(1000);
/// How long delays are measured.
const CALM: Duration = Duration::from_millis(2500);
/// Of the requests, the share that may meet a kept connection that died under them.
const UNEXPLAINED_SHARE_MAX: f64 = 0.02;

/// How to soak.
#[derive(Clone, Debug)]
pub struct SoakOptions {
    /// Who carries streams.
    pub datapath: Datapath,
    /// The seed of everything that is drawn.
    pub seed: u64,
    /// How long clients send.
    pub duration: Duration,
    /// Client connections at a time.
    pub clients: usize,
    /// Busy threads beside it.
    pub pressure: usize,
    /// The longest that anything may stand still.
    pub stall_max: Duration,
    /// How often to say how it goes.
    pub progress: Option<Duration>,
}

/// The router's configuration: every bound small, so that it is met.
const CONFIG: &str = r#"
[policy]
name = "power_of_two"
[limits]
body_buffer_bytes = "64KiB"
body_buffers_total_bytes = "512KiB"
short_answer_bytes_max = "2KiB"
relay_queue_max = 2
idle_upstreams_max = 4
kernel_flow_bytes_max = "64KiB"
kernel_flows_bytes_max = "1MiB"
kernel_events_bytes = "4KiB"
[timeouts]
stream_idle = "2s"
client_write = "3s"
upstream_idle = "1s"
[retry]
statuses = [429, 503]
generation = true
budget_percent = 100
budget_floor = 1000
[health]
enabled = false
"#;

/// Runs a soak and gives its figures in words.
///
/// # Errors
/// What went wrong, with the seed and the cases.
///
/// # Panics
/// Where the router doesn't start or its pages can't be read.
pub fn soak(options: &SoakOptions) -> Result<String> {
    let shared = Arc::new(Shared::new(options.seed, options.stall_max));
    let engines = (0..ENGINES)
        .map(|_| Engine::start(&shared))
        .collect::<Result<Vec<_>>>()?;
    let mut router = RouterOptions::new(options.datapath, &[]).config(CONFIG);
    for engine in &engines {
        router = router.backend(engine.address());
    }
    let router = router.start();
    let watch = Watch::new(&router);
    let pressure = (options.pressure > 0).then(|| Pressure::start(options.pressure, options.seed));
    drive(options, &shared, &router, &engines, &watch);
    drop(pressure);
    let mut failures = shared.failures();
    failures.extend(watch.nothing_left(&router));
    failures.extend(unexplained(&shared));
    let flat = watch.flat();
    failures.extend(flat.as_ref().err().cloned());
    if router.log().contains("panicked") {
        failures.push("a thread of the router panicked".to_owned());
    }
    let report = format!(
        "{}\n{}\n{}\n{}",
        shared.counts,
        shared.counts.stalls(),
        flat.unwrap_or_default(),
        paths(&router)
    );
    drop(router);
    if failures.is_empty() {
        return Ok(report);
    }
    bail!(
        "the soak over {} with --seed {} failed:\n{}\n{report}",
        options.datapath.name(),
        options.seed,
        failures.join("\n")
    )
}

/// Runs the clients until the time is over or something went wrong.
fn drive(options: &SoakOptions, shared: &Shared, router: &Router, engines: &[Engine], watch: &Watch) {
    let started = Instant::now();
    thread::scope(|scope| {
        for index in 0..options.clients {
            let direct = index % DIRECT_EVERY == DIRECT_EVERY - 1;
            let address = if direct {
                engines[0].address()
            } else {
                router.address()
            };
            let target = Target { address, direct };
            let seed = options.seed.wrapping_mul(31).wrapping_add(index as u64);
            scope.spawn(move || client::run(shared, target, seed));
        }
        let mut random = Random::new(options.seed);
        let mut restart_at = started + RESTART_INTERVAL;
        let mut say_at = options.progress.map(|interval| started + interval);
        while started.elapsed() < options.duration && !shared.stopped() {
            thread::sleep(SAMPLE_INTERVAL);
            watch.sample();
            shared.set_phase(phase(started.elapsed()));
            let now = Instant::now();
            if now >= restart_at {
                restart_at = now + RESTART_INTERVAL;
                // The first one never dies: it is the one that is spoken to directly.
                engines[1 + random.up_to(engines.len() - 2)].restart();
                shared.counts.restarts.one();
            }
            if let (Some(at), Some(interval)) = (say_at, options.progress)
                && now >= at
            {
                say_at = Some(now + interval);
                println!(
                    "{:4} s  {}; {}",
                    started.elapsed().as_secs(),
                    shared.counts,
                    watch.now()
                );
            }
        }
        shared.stop();
    });
}

/// The phase at this time of the soak. Rush and calm take turns: clients that send without a pause find the faults,
/// calm ones tell of delays.
fn phase(at: Duration) -> Phase {
    let in_cycle = at.as_millis() % (RUSH + SETTLE + CALM).as_millis();
    if in_cycle < RUSH.as_millis() {
        Phase::Rush
    } else if in_cycle < (RUSH + SETTLE).as_millis() {
        Phase::Settle
    } else {
        Phase::Calm
    }
}

/// Requests that failed for no reason that their case knows of are few.
fn unexplained(shared: &Shared) -> Option<String> {
    let (unexplained, requests) = (shared.counts.own_unexplained.get(), shared.counts.requests.get());
    let share = unexplained as f64 / requests.max(1) as f64;
    (share > UNEXPLAINED_SHARE_MAX)
        .then(|| format!("{unexplained} of {requests} requests were answered by the router without a cause"))
}

/// Who carried what.
fn paths(router: &Router) -> String {
    let page = router.metrics();
    let value = |name: &str, label: &str| page.sum(name, label).unwrap_or(0.0);
    let flows: Vec<String> = ["kernel", "copy", "worker"]
        .iter()
        .map(|path| {
            let label = format!("path=\"{path}\"");
            format!(
                "{path} {} streams {:.0} MB",
                value("warmpath_flows_started_total", &label),
                value("warmpath_flow_bytes_total", &label) / 1e6
            )
        })
        .collect();
    let events: Vec<String> = [
        "streamed",
        "redirected",
        "ended",
        "pass_unread",
        "pass_taken_back",
        "events_lost",
    ]
    .iter()
    .map(|event| {
        let label = format!("event=\"{event}\"");
        format!("{event} {}", value("warmpath_kernel_events_total", &label))
    })
    .collect();
    let own: Vec<String> = [
        "bad_gateway",
        "gateway_timeout",
        "no_backend",
        "overloaded",
        "saturated",
        "bad_request",
    ]
    .iter()
    .map(|reason| {
        let label = format!("reason=\"{reason}\"");
        format!("{reason} {}", value("warmpath_own_errors_total", &label))
    })
    .collect();
    format!(
        "{}; kernel: {}\nthe router's own answers: {}\n{} spills, {} full relay queues, {} waits for body memory, {} retries, {} retries denied",
        flows.join(", "),
        events.join(", "),
        own.join(", "),
        value("warmpath_kernel_spills_total", ""),
        value("warmpath_relay_queue_full_total", ""),
        value("warmpath_body_waits_total", ""),
        value("warmpath_retries_total", ""),
        value("warmpath_retries_denied_total", "")
    )
}

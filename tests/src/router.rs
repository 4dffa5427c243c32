//! A running `warmpath serve`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;

use crate::binary;
use crate::gate::wait_until;
use crate::metrics::MetricsPage;
use crate::upstream::Upstream;
use crate::wire::DEADLINE;

/// The exit code of `warmpath` where a demanded kernel feature is absent.
const EXIT_NO_KERNEL: i32 = 69;
/// Lines of the log that a failing test prints.
const TAIL_LINES: usize = 40;
/// Gauges that are 0 while nothing is served.
const IDLE_AT_ZERO: &[&str] = &[
    "warmpath_backend_in_flight",
    "warmpath_flows",
    "warmpath_body_buffer_bytes",
];

/// Who carries streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    /// Userspace.
    Copy,
    /// The kernel.
    Kernel,
}

impl Datapath {
    /// Its name on the command line and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Datapath::Copy => "copy",
            Datapath::Kernel => "kernel",
        }
    }
}

/// Runs a test over both datapaths, one after the other. Where this host has no kernel datapath, that
/// half is skipped with its reason, or a failure with `WARMPATH_REQUIRE_KERNEL=1`.
///
/// # Panics
/// Where the test does, or the kernel datapath is required and isn't there.
pub fn for_each_datapath(test: impl Fn(Datapath)) {
    println!("datapath: copy");
    test(Datapath::Copy);
    match no_kernel() {
        None => {
            println!("datapath: kernel");
            test(Datapath::Kernel);
        }
        Some(why) => {
            let required = std::env::var("WARMPATH_REQUIRE_KERNEL").is_ok_and(|value| value == "1");
            assert!(
                !required,
                "WARMPATH_REQUIRE_KERNEL=1, but no kernel datapath: {why}"
            );
            println!("datapath: kernel skipped: {why}");
        }
    }
}

/// Why this host has no kernel datapath; asked once by starting a router that demands it.
fn no_kernel() -> Option<&'static str> {
    static WHY: OnceLock<Option<String>> = OnceLock::new();
    WHY.get_or_init(|| {
        RouterOptions::new(Datapath::Kernel, &[])
            .backend("127.0.0.1:9")
            .launch()
            .err()
    })
    .as_deref()
}

/// How to start a router.
#[derive(Clone, Debug)]
pub struct RouterOptions {
    datapath: Datapath,
    backends: Vec<String>,
    paths: &'static str,
    arguments: Vec<String>,
    ready: &'static str,
}

impl RouterOptions {
    /// A router before `upstreams`, which passes every path.
    #[must_use]
    pub fn new(datapath: Datapath, upstreams: &[&Upstream]) -> RouterOptions {
        RouterOptions {
            datapath,
            backends: upstreams
                .iter()
                .map(|upstream| upstream.address().to_string())
                .collect(),
            paths: "all",
            arguments: Vec::new(),
            ready: "listening on http://",
        }
    }

    /// Another backend, by its address.
    #[must_use]
    pub fn backend(mut self, address: impl ToString) -> RouterOptions {
        self.backends.push(address.to_string());
        self
    }

    /// Which paths pass: `all` or `inference`.
    #[must_use]
    pub fn paths(mut self, paths: &'static str) -> RouterOptions {
        self.paths = paths;
        self
    }

    /// More words of the command line.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> RouterOptions {
        self.arguments
            .extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    /// What stands in its log before the address where clients connect, once it listens.
    #[must_use]
    pub fn ready(mut self, marker: &'static str) -> RouterOptions {
        self.ready = marker;
        self
    }

    /// Starts it and waits until it listens.
    ///
    /// # Panics
    /// Where it doesn't.
    #[must_use]
    #[track_caller]
    pub fn start(self) -> Router {
        self.launch()
            .unwrap_or_else(|why| panic!("no kernel datapath: {why}; use for_each_datapath"))
    }

    /// Starts it. The error is why the host has no kernel datapath.
    #[track_caller]
    fn launch(self) -> Result<Router, String> {
        let mut command = Command::new(binary::warmpath());
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.args(["--datapath", self.datapath.name(), "--paths", self.paths]);
        for backend in &self.backends {
            command.args(["--backend", &format!("http://{backend}")]);
        }
        command.args(&self.arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("warmpath starts");
        let log = Log::follow(&mut child);
        let mut router = Router {
            child,
            log,
            datapath: self.datapath,
            address: ([127, 0, 0, 1], 0).into(),
            admin: ([127, 0, 0, 1], 0).into(),
        };
        let listening = router.log.wait_for(self.ready);
        let admin = router.log.wait_for("admin on http://");
        if let (Some(listening), Some(admin)) = (listening, admin) {
            let address = |url: &str| url.trim_end_matches('/').parse().expect("an address");
            (router.address, router.admin) = (address(&listening), address(&admin));
            return Ok(router);
        }
        let status = router.child.wait().expect("a status");
        assert_eq!(
            status.code(),
            Some(EXIT_NO_KERNEL),
            "warmpath ended:\n{}",
            router.log.tail()
        );
        Err(router
            .log
            .tail()
            .lines()
            .last()
            .unwrap_or("no reason given")
            .to_owned())
    }
}

/// A running router, killed on drop. A failing test prints the end of its log.
#[derive(Debug)]
pub struct Router {
    child: Child,
    log: Log,
    datapath: Datapath,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Router {
    /// Starts a router before `upstreams`, which passes every path.
    ///
    /// # Panics
    /// Where it doesn't start.
    #[must_use]
    #[track_caller]
    pub fn start(datapath: Datapath, upstreams: &[&Upstream]) -> Router {
        RouterOptions::new(datapath, upstreams).start()
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its admin address.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Its pid, for tests of signals.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its metrics page.
    ///
    /// # Panics
    /// Where it can't be had.
    #[must_use]
    #[track_caller]
    pub fn metrics(&self) -> MetricsPage {
        MetricsPage::new(self.admin_get("/metrics"))
    }

    /// The sum of a metric's samples.
    ///
    /// # Panics
    /// Where there's no such metric.
    #[must_use]
    #[track_caller]
    pub fn metric(&self, name: &str) -> f64 {
        self.metric_with(name, "")
    }

    /// The sum of those samples of a metric whose labels hold `label`, as in `path="kernel"`.
    ///
    /// # Panics
    /// Where there's none.
    #[must_use]
    #[track_caller]
    pub fn metric_with(&self, name: &str, label: &str) -> f64 {
        let page = self.metrics();
        page.sum(name, label)
            .unwrap_or_else(|| panic!("no {name}{{{label}}} in\n{}", page.text()))
    }

    /// The body of an admin page.
    ///
    /// # Panics
    /// Where it can't be had.
    #[must_use]
    #[track_caller]
    pub fn admin_get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).expect("the admin address answers");
        stream
            .set_read_timeout(Some(DEADLINE))
            .expect("takes its options");
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.admin).expect("takes a request");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answers in time");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert_eq!(head.split(' ').nth(1), Some("200"), "{path}: {head}");
        body.to_owned()
    }

    /// Waits until nothing is in flight: no charge on any backend, no flow, no held body. Every test
    /// that has ended its requests should find this.
    ///
    /// # Panics
    /// Where something stays in flight.
    #[track_caller]
    pub fn assert_idle(&self) {
        // Has to be there, unlike a family of labels that nothing was counted under yet.
        let _ = self.metric("warmpath_backend_in_flight");
        for name in IDLE_AT_ZERO {
            wait_until(&format!("{name} is 0"), || {
                // A family without samples hasn't counted anything yet.
                self.metrics().sum(name, "").unwrap_or(0.0) == 0.0
            });
        }
    }

    /// Checks that on the kernel datapath the kernel carried at least `share` of the streamed bytes.
    ///
    /// # Panics
    /// Where it carried less, or nothing was streamed.
    #[track_caller]
    pub fn assert_carried(&self, share: f64) {
        if self.datapath == Datapath::Copy {
            return;
        }
        let page = self.metrics();
        let bytes = |label: &str| page.sum("warmpath_flow_bytes_total", label).unwrap_or(0.0);
        let (kernel, all) = (bytes("path=\"kernel\""), bytes(""));
        assert!(
            all > 0.0 && kernel >= share * all,
            "the kernel carried {kernel} of {all} streamed bytes"
        );
    }

    /// What it has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.text()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- warmpath serve\n{}", self.log.tail());
        }
    }
}

/// The log of a child, followed by a thread.
#[derive(Clone, Debug, Default)]
struct Log {
    inner: Arc<(Mutex<Lines>, Condvar)>,
}

#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    ended: bool,
}

impl Log {
    fn follow(child: &mut Child) -> Log {
        let log = Log::default();
        let stderr = child.stderr.take().expect("is piped");
        let writer = log.clone();
        thread::spawn(move || {
            let (lines, changed) = &*writer.inner;
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .lines
                    .push(line);
                changed.notify_all();
            }
            lines.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
            changed.notify_all();
        });
        log
    }

    /// What follows `marker` in the first line that has it, up to a blank. None where the log ended.
    #[track_caller]
    fn wait_for(&self, marker: &str) -> Option<String> {
        let found = |lines: &Lines| {
            let rest = lines.lines.iter().find_map(|line| line.split_once(marker))?.1;
            Some(rest.split_whitespace().next().unwrap_or_default().to_owned())
        };
        let (lines, changed) = &*self.inner;
        let guard = lines.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, timeout) = changed
            .wait_timeout_while(guard, DEADLINE, |lines| !lines.ended && found(lines).is_none())
            .unwrap_or_else(PoisonError::into_inner);
        let result = found(&guard);
        drop(guard);
        assert!(!timeout.timed_out(), "no {marker:?} in\n{}", self.tail());
        result
    }

    fn text(&self) -> String {
        let (lines, _) = &*self.inner;
        lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .lines
            .join("\n")
    }

    fn tail(&self) -> String {
        let text = self.text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

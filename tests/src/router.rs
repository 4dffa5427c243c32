//! A running `warmpath serve`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;

use crate::files::TempFile;
use crate::gate::wait_until;
use crate::log::Log;
use crate::metrics::MetricsPage;
use crate::options::{Ended, RouterOptions};
use crate::upstream::Upstream;
use crate::wire::DEADLINE;

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
    /// Whatever the router chooses.
    Auto,
}

impl Datapath {
    /// Its name on the command line and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Datapath::Copy => "copy",
            Datapath::Kernel => "kernel",
            Datapath::Auto => "auto",
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
    if has_kernel() {
        println!("datapath: kernel");
        test(Datapath::Kernel);
    }
}

/// The same at the same time, for tests that mostly wait.
///
/// # Panics
/// Where the test does, or the kernel datapath is required and isn't there.
pub fn for_each_datapath_at_once(test: impl Fn(Datapath) + Sync) {
    let kernel = has_kernel();
    thread::scope(|scope| {
        let other = kernel.then(|| scope.spawn(|| test(Datapath::Kernel)));
        test(Datapath::Copy);
        if let Some(Err(panic)) = other.map(thread::ScopedJoinHandle::join) {
            eprintln!("datapath: kernel");
            std::panic::resume_unwind(panic);
        }
    });
}

/// Whether this host has the kernel datapath; says why not.
///
/// # Panics
/// Where it's required and isn't there.
#[must_use]
pub fn has_kernel() -> bool {
    if let Some(why) = no_kernel() {
        skip(&format!("no kernel datapath: {why}"));
    }
    no_kernel().is_none()
}

/// Says why a test, or a part of it, isn't run here.
///
/// # Panics
/// Where `WARMPATH_REQUIRE_KERNEL=1` asks for everything.
pub fn skip(why: &str) {
    let required = std::env::var("WARMPATH_REQUIRE_KERNEL").is_ok_and(|value| value == "1");
    assert!(!required, "WARMPATH_REQUIRE_KERNEL=1, but {why}");
    println!("skipped: {why}");
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

/// A running router, killed on drop. A failing test prints the end of its log.
#[derive(Debug)]
pub struct Router {
    child: Child,
    log: Log,
    datapath: Datapath,
    address: SocketAddr,
    admin: SocketAddr,
    _config: Option<TempFile>,
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

    /// Starts a command that listens.
    #[track_caller]
    pub(crate) fn spawn(datapath: Datapath, mut command: Command, config: Option<TempFile>) -> Router {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let log = Log::follow(child.stderr.take().expect("is piped"));
        Router {
            child,
            log,
            datapath,
            address: ([127, 0, 0, 1], 0).into(),
            admin: ([127, 0, 0, 1], 0).into(),
            _config: config,
        }
    }

    /// Waits until it listens, which its log says by `ready` before the address; false where it ended.
    #[track_caller]
    pub(crate) fn listens(&mut self, ready: &str) -> bool {
        let listening = self.log.wait_for(ready);
        let admin = self.log.wait_for("admin on http://");
        let (Some(listening), Some(admin)) = (listening, admin) else {
            return false;
        };
        let address = |url: &str| url.trim_end_matches('/').parse().expect("an address");
        (self.address, self.admin) = (address(&listening), address(&admin));
        true
    }

    /// Waits until it ends, with all of its log.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        let code = self.wait_exit();
        self.log.wait_for_end();
        Ended {
            code,
            log: self.log.text(),
        }
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

    /// Sends it a signal.
    ///
    /// # Panics
    /// Where it's gone.
    #[track_caller]
    pub fn signal(&self, signal: i32) {
        let pid = libc::pid_t::try_from(self.child.id()).expect("a pid");
        // SAFETY: no pointers; the child isn't reaped, so that the pid is still its own.
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0, "the router is gone");
    }

    /// Waits until it ends; gives its exit code, None where a signal ended it.
    ///
    /// # Panics
    /// Where it doesn't end.
    #[track_caller]
    pub fn wait_exit(&mut self) -> Option<i32> {
        let mut status = None;
        wait_until("the router ends", || {
            status = self.child.try_wait().expect("a status");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }

    /// An admin page as JSON.
    ///
    /// # Panics
    /// Where it can't be had or isn't JSON.
    #[must_use]
    #[track_caller]
    pub fn json(&self, path: &str) -> serde_json::Value {
        serde_json::from_str(&self.admin_get(path)).expect("JSON")
    }

    /// A gauge or counter's sum, 0 where nothing was counted under it yet.
    ///
    /// # Panics
    /// Where the page can't be had.
    #[must_use]
    #[track_caller]
    pub fn count(&self, name: &str, label: &str) -> f64 {
        self.metrics().sum(name, label).unwrap_or(0.0)
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
        if self.datapath != Datapath::Kernel {
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

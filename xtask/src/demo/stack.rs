//! Four simulated engines with the router before them.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::workload::{ENGINES, engine_arguments};
use crate::process::Service;

/// The exit code of `warmpath` where a demanded kernel feature is absent.
const EXIT_NO_KERNEL: i32 = 69;

/// A running stack, ended on drop.
#[derive(Debug)]
pub(super) struct Stack {
    router: Service,
    engines: Service,
    /// The router's URL.
    pub(super) base: String,
    /// The router's admin URL.
    pub(super) admin: String,
}

/// What came of starting one.
#[derive(Debug)]
pub(super) enum Started {
    /// It runs.
    Running(Box<Stack>),
    /// The router was asked for the kernel path and this host has none; why.
    NoKernel(String),
}

impl Stack {
    /// Starts engines with cold caches and a router with this policy before them.
    ///
    /// # Errors
    /// Where something doesn't start.
    pub(super) fn start(warmpath: &Path, policy: &str, datapath: &str, logs: &Path) -> Result<Started> {
        let mut command = Command::new(warmpath);
        let mut engines = Service::start(
            "warmpath engine",
            command.args(engine_arguments()),
            &logs.join("engine.log"),
        )?;
        let mut serve = Command::new(warmpath);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        serve.args(["--policy", policy, "--datapath", datapath]);
        for index in 0..ENGINES {
            let engine = engines.wait_for_line(&format!("engine {index} listening on "))?;
            serve.args(["--backend", &engine]);
        }
        let mut router = Service::start("warmpath serve", &mut serve, &logs.join("serve.log"))?;
        // The router's own line begins with it: an engine's has its index before.
        let base = match router.wait_for_line_or_end("listening on ")? {
            Ok(base) => base,
            Err(ended) if ended.code == Some(EXIT_NO_KERNEL) => {
                return Ok(Started::NoKernel(ended.last_line));
            }
            Err(_) => bail!("warmpath serve didn't start\n{}", router.tail()),
        };
        let admin = router.wait_for_line("admin on ")?;
        Ok(Started::Running(Box::new(Stack {
            router,
            engines,
            base,
            admin,
        })))
    }

    /// An error where a part has ended.
    ///
    /// # Errors
    /// Exactly then.
    pub(super) fn must_be_running(&mut self) -> Result<()> {
        self.engines.must_be_running()?;
        self.router.must_be_running()
    }

    /// The ends of its logs.
    pub(super) fn tails(&self) -> String {
        format!("{}\n{}", self.engines.tail(), self.router.tail())
    }

    /// Leaves it running; gives the command that stops it.
    pub(super) fn leave_running(self) -> String {
        let stop = format!("kill {} {}", self.router.id(), self.engines.id());
        self.router.leave_running();
        self.engines.leave_running();
        stop
    }
}

//! The kit's upstream with `warmpath serve` before it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::Datapath;
use crate::process::{Service, free_port};

/// The exit code of `warmpath` where a demanded kernel feature is absent.
const EXIT_NO_KERNEL: i32 = 69;

/// A running pair.
pub(crate) struct Rig {
    router: Service,
    upstream: Service,
    base: String,
    admin: String,
    direct: String,
}

/// What came of starting one.
pub(crate) enum Started {
    /// Both run.
    Running(Box<Rig>),
    /// The router refused, since this host has no kernel datapath; why.
    NoKernel(String),
}

impl Rig {
    /// Starts both, with their logs in `logs`.
    ///
    /// # Errors
    /// Where one of them doesn't get ready.
    pub(crate) fn start(kit: &Path, warmpath: &Path, datapath: Datapath, logs: &Path) -> Result<Started> {
        let port = free_port()?;
        let mut mock = Command::new("python3");
        mock.arg(kit.join("mock_upstream.py"))
            .args(["--port", &port.to_string()])
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let mut upstream = Service::start("upstream", &mut mock, &logs.join("upstream.log"))?;
        upstream.wait_for_line("on 127.0.0.1:")?;
        let direct = format!("http://127.0.0.1:{port}");

        let mut serve = Command::new(warmpath);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        serve.args(["--backend", &direct, "--paths", "all"]);
        serve.args(["--datapath", datapath.name()]);
        let mut router = Service::start("warmpath serve", &mut serve, &logs.join("serve.log"))?;
        let base = match router.wait_for_line_or_end("listening on ")? {
            Ok(base) => base,
            Err(ended) if ended.code == Some(EXIT_NO_KERNEL) => {
                return Ok(Started::NoKernel(ended.last_line));
            }
            Err(_) => bail!("warmpath serve didn't start\n{}", router.tail()),
        };
        let admin = router.wait_for_line("admin on ").context("admin address")?;
        Ok(Started::Running(Box::new(Rig {
            router,
            upstream,
            base,
            admin,
            direct,
        })))
    }

    /// The router's address as a URL.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The router's admin address as a URL.
    pub(crate) fn admin(&self) -> &str {
        &self.admin
    }

    /// The upstream's address as a URL.
    pub(crate) fn direct(&self) -> &str {
        &self.direct
    }

    /// An error where one of them has ended.
    ///
    /// # Errors
    /// Exactly then.
    pub(crate) fn must_be_running(&mut self) -> Result<()> {
        self.upstream.must_be_running()?;
        self.router.must_be_running()
    }

    /// The ends of both logs.
    pub(crate) fn tails(&self) -> String {
        format!("{}\n{}", self.upstream.tail(), self.router.tail())
    }
}

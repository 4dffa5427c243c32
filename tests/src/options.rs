//! How a router is started, and how one ends that can't serve.

use std::process::Command;

use crate::binary;
use crate::files::TempFile;
use crate::router::{Datapath, Router};
use crate::upstream::Upstream;

/// The exit code of `warmpath` where a demanded kernel feature is absent.
const EXIT_NO_KERNEL: i32 = 69;

/// What the log of a router says before the address of its first listener.
pub(crate) const READY: &str = "listening on http://";

/// How to start a router.
#[derive(Clone, Debug)]
pub struct RouterOptions {
    datapath: Datapath,
    backends: Vec<String>,
    paths: &'static str,
    arguments: Vec<String>,
    config: String,
    prefix: Vec<String>,
    prepare: Option<fn(&mut Command)>,
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
            config: String::new(),
            prefix: Vec::new(),
            prepare: None,
            ready: READY,
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

    /// More of a configuration file, below which the words of the command line stand.
    #[must_use]
    pub fn config(mut self, toml: &str) -> RouterOptions {
        self.config.push_str(toml);
        self.config.push('\n');
        self
    }

    /// Words before the binary: the command that runs it, as another user for one.
    #[must_use]
    pub fn prefix(mut self, words: &[&str]) -> RouterOptions {
        self.prefix.extend(words.iter().map(|&word| word.to_owned()));
        self
    }

    /// What stands in its log before the address where clients connect, once it listens.
    #[must_use]
    pub fn ready(mut self, marker: &'static str) -> RouterOptions {
        self.ready = marker;
        self
    }

    /// Something done to the command before it starts.
    #[must_use]
    pub fn prepare(mut self, prepare: fn(&mut Command)) -> RouterOptions {
        self.prepare = Some(prepare);
        self
    }

    /// Starts it and waits until it ends by itself, as it does where it can't serve.
    ///
    /// # Panics
    /// Where it doesn't end.
    #[must_use]
    #[track_caller]
    pub fn end(self) -> Ended {
        self.spawn().end()
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
    pub(crate) fn launch(self) -> Result<Router, String> {
        let ready = self.ready;
        let mut router = self.spawn();
        if router.listens(ready) {
            return Ok(router);
        }
        let ended = router.end();
        assert_eq!(ended.code, Some(EXIT_NO_KERNEL), "warmpath ended:\n{}", ended.log);
        Err(ended.log.lines().last().unwrap_or("no reason given").to_owned())
    }

    #[track_caller]
    fn spawn(self) -> Router {
        let words = self.prefix.iter().map(String::as_str);
        let mut words = words.chain(binary::warmpath().to_str());
        let mut command = Command::new(words.next().expect("a command"));
        command.args(words);
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.args(["--datapath", self.datapath.name(), "--paths", self.paths]);
        for backend in &self.backends {
            command.args(["--backend", &format!("http://{backend}")]);
        }
        let config = (!self.config.is_empty()).then(|| TempFile::with("toml", &self.config));
        if let Some(file) = &config {
            command.arg("--config").arg(file.path());
        }
        command.args(&self.arguments);
        if let Some(prepare) = self.prepare {
            prepare(&mut command);
        }
        Router::spawn(self.datapath, command, config)
    }
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code; None where a signal ended it.
    pub code: Option<i32>,
    /// What it said.
    pub log: String,
}

/// Runs `warmpath` with these words until it ends.
///
/// # Panics
/// Where it doesn't end.
#[must_use]
#[track_caller]
pub fn run(words: &[&str]) -> Ended {
    let mut command = Command::new(binary::warmpath());
    command.args(words);
    Router::spawn(Datapath::Copy, command, None).end()
}

//! `warmpath serve`: builds everything the configuration names and serves until stopped.

mod control;

use std::path::PathBuf;
use std::sync::Arc;

use super::config::{Config, Flags, Loaded, Origin, load, resolve_by_system};
use super::{Exit, complain};
use crate::backend::BackendSet;
use crate::server::{self, RunError, Running, TcpService};
use crate::telemetry::{AccessLog, AccessLogTarget, DecisionLog, Metrics, init_log};
use control::{Control, Parts};

/// The arguments of `warmpath serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file; `warmpath check --example` prints one with every key.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

pub(super) fn run(args: &Args) -> Exit {
    if args.config.is_none() && args.flags.backend.is_empty() {
        complain(
            "warmpath serve: no backend; give --backend http://HOST:PORT once for each engine, or --config FILE",
        );
        return Exit::Usage;
    }
    match load(args.config.as_deref(), &args.flags, &resolve_by_system) {
        Ok(loaded) if loaded.config.backends.is_empty() && loaded.config.tcp.is_empty() => {
            let file = args
                .config
                .as_deref()
                .unwrap_or_else(|| "warmpath serve".as_ref());
            complain(&format!(
                "{}: backend: none given; add a [[backend]] section, or give --backend http://HOST:PORT",
                file.display()
            ));
            Exit::Usage
        }
        Ok(loaded) => serve(loaded),
        Err(faults) => {
            for fault in faults {
                complain(&fault.to_string());
            }
            Exit::Usage
        }
    }
}

fn serve(loaded: Loaded) -> Exit {
    init_log(loaded.config.log.level, loaded.config.log.format);
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let Loaded { config, origin, .. } = loaded;
    match start(config) {
        Ok(()) => Exit::Done,
        Err(failure) => {
            let place = match &origin {
                Origin::File(name) => name,
                Origin::Flag => "warmpath serve",
            };
            complain(&format!("{place}: {failure}"));
            failure.exit()
        }
    }
}

/// Why serving didn't begin or didn't go on.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("access_log = {path:?}: can't be opened ({source}); choose another file, or \"off\"")]
    AccessLog { path: String, source: std::io::Error },
    #[error(transparent)]
    Control(#[from] control::StartError),
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Failure {
    fn exit(&self) -> Exit {
        match self {
            Failure::Run(RunError::KernelAbsent(_)) => Exit::KernelAbsent,
            _ => Exit::Failed,
        }
    }
}

fn start(config: Config) -> Result<(), Failure> {
    let access_log = config.access_log.as_ref().map(open_access_log).transpose()?;
    let backends = Arc::new(BackendSet::new(config.backends));
    let tcp: Vec<Arc<TcpService>> = config
        .tcp
        .into_iter()
        .map(|listener| Arc::new(TcpService::new(listener)))
        .collect();
    let metrics = Metrics::new();
    let decisions = Arc::new(DecisionLog::default());
    let control = Control::prepare(Parts {
        admin: config.admin,
        health: config.health,
        load: config.load,
        backends: Arc::clone(&backends),
        metrics,
        decisions: Arc::clone(&decisions),
        access_log: access_log.clone(),
        policy: config.policy.kind.name(),
        tcp: tcp.clone(),
    })?;
    let (metrics, stop) = (control.metrics(), control.stop());
    let parts = Running {
        backends,
        policy: config.policy,
        metrics,
        decisions,
        access_log,
        tcp,
    };
    let server = server::start(config.server, parts)?;
    let control = control.start()?;
    let done = server::run(server, stop);
    control.finish();
    done.map_err(Failure::from)
}

fn open_access_log(target: &AccessLogTarget) -> Result<Arc<AccessLog>, Failure> {
    AccessLog::start(target).map(Arc::new).map_err(|source| {
        let path = match target {
            AccessLogTarget::Stdout => "-".to_owned(),
            AccessLogTarget::File(path) => path.display().to_string(),
        };
        Failure::AccessLog { path, source }
    })
}

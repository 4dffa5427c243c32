//! Where the router's own words go: standard error, for people or for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// The least severe level that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// What stops serving.
    Error,
    /// What an operator should look at.
    Warn,
    /// What changes: start, stop, a backend's state.
    Info,
    /// Each request.
    Debug,
    /// Each step of it.
    Trace,
}

impl LogLevel {
    /// The word for it in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Begins logging to standard error. The environment variable `WARMPATH_LOG`, in the form of tracing's
/// `EnvFilter`, overrides `level`. A second call changes nothing.
pub fn init_log(level: LogLevel, format: LogFormat) {
    let filter = EnvFilter::try_from_env("WARMPATH_LOG").unwrap_or_else(|_| EnvFilter::new(level.as_str()));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let done = match format {
        LogFormat::Text => builder
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // The only failure is a logger that is already there, as in tests.
    let _ = done;
}

//! The settings of `serve`: a TOML file and flags over it, read once into a checked type.
//!
//! The table is walked by hand instead of derived, because a derived reader stops at the first fault and an
//! operator wants them all. `example.toml` holds every key with its default; a test keeps the two equal.

mod check;
mod endpoint;
mod fault;
mod flags;
mod section;
mod sections;
mod suggest;
mod tcp;
mod value;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use endpoint::{Resolve, resolve_by_system};
pub use fault::{Fault, Origin};
pub use flags::Flags;

use crate::backend::{BackendConfig, HealthConfig, LoadConfig};
use crate::policy::PolicyConfig;
use crate::server::{AdminToken, ServerConfig, TcpConfig};
use crate::telemetry::{AccessLogTarget, LogFormat, LogLevel};
use section::Reading;

/// The file that documents every key, each at its default.
pub const EXAMPLE: &str = include_str!("example.toml");

/// Bytes of a configuration file; a larger one is refused.
pub const FILE_BYTES_MAX: u64 = 4 << 20;

/// Backends that may be configured.
pub const BACKENDS_MAX: usize = 4096;

/// Everything that `serve` may be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The proxy itself.
    pub server: ServerConfig,
    /// The engines.
    pub backends: Vec<BackendConfig>,
    /// The L4 listeners.
    pub tcp: Vec<TcpConfig>,
    /// How one is chosen.
    pub policy: PolicyConfig,
    /// When one is unfit.
    pub health: HealthConfig,
    /// How the engines' own load is read.
    pub load: LoadConfig,
    /// The admin listeners.
    pub admin: AdminSettings,
    /// The log.
    pub log: LogSettings,
    /// One line for each request; `None` = none.
    pub access_log: Option<AccessLogTarget>,
}

/// Where the admin pages are.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminSettings {
    /// The whole admin interface; `None` = none.
    pub listen: Option<SocketAddr>,
    /// Only `/metrics` and `/healthz`; `None` = none.
    pub metrics: Option<SocketAddr>,
    /// The file with the token that the admin interface asks for.
    pub token_file: Option<PathBuf>,
    /// The token in it.
    pub token: Option<AdminToken>,
}

/// What is logged and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The least severe level that is written.
    pub level: LogLevel,
    /// For people or for machines.
    pub format: LogFormat,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            server: ServerConfig::default(),
            backends: Vec::new(),
            tcp: Vec::new(),
            policy: PolicyConfig::default(),
            health: HealthConfig::default(),
            load: LoadConfig::default(),
            admin: AdminSettings {
                listen: Some(SocketAddr::from(([127, 0, 0, 1], 9180))),
                metrics: None,
                token_file: None,
                token: None,
            },
            log: LogSettings {
                level: LogLevel::Info,
                format: LogFormat::Text,
            },
            access_log: None,
        }
    }
}

/// Good settings, and what is odd about them.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Things that work but are hardly meant.
    pub warnings: Vec<Fault>,
    /// Where the settings came from, for messages about what fails later.
    pub origin: Origin,
}

/// Reads `file`, where given, and puts `flags` over it.
///
/// # Errors
/// Every fault of the file and the flags, in the order of the example file.
pub fn load(file: Option<&Path>, flags: &Flags, resolve: Resolve<'_>) -> Result<Loaded, Vec<Fault>> {
    let Some(path) = file else {
        return read(None, flags, resolve);
    };
    let name = path.display().to_string();
    let unreadable = |reason: String, remedy: &str| {
        vec![Fault {
            origin: Origin::File(name.clone()),
            key: String::new(),
            value: None,
            reason,
            remedy: remedy.to_owned(),
        }]
    };
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|error| unreadable(format!("can't be read ({error})"), "check --config"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let reason = format!("over the {FILE_BYTES_MAX} bytes that a configuration may have");
        return Err(unreadable(reason, "check --config"));
    }
    // The name without its directories is what an operator reads best; the path was on the command line.
    let short = path
        .file_name()
        .map_or_else(|| name.clone(), |n| n.to_string_lossy().into_owned());
    read(Some((&short, &text)), flags, resolve)
}

/// Reads the text of a file called `name`, where given, and puts `flags` over it.
///
/// # Errors
/// As [`load`].
pub fn read(file: Option<(&str, &str)>, flags: &Flags, resolve: Resolve<'_>) -> Result<Loaded, Vec<Fault>> {
    let mut reading = Reading::default();
    let mut config = Config::default();
    let mut origin = Origin::Flag;
    if let Some((name, text)) = file {
        name.clone_into(&mut reading.file);
        origin = Origin::File(name.to_owned());
        let table = parse(name, text)?;
        sections::read(&mut reading, table, &mut config, resolve);
    }
    flags.apply(&mut reading, &mut config, resolve);
    let warnings = check::whole(&mut reading, &mut config, flags);
    if reading.faults.is_empty() {
        Ok(Loaded {
            config,
            warnings,
            origin,
        })
    } else {
        Err(reading.faults)
    }
}

/// The table of a file, or each place where it isn't TOML. Keys aren't looked at then: they'd be misread.
fn parse(name: &str, text: &str) -> Result<toml::Table, Vec<Fault>> {
    let (_, errors) = toml::de::DeTable::parse_recoverable(text);
    if errors.is_empty()
        && let Ok(table) = text.parse::<toml::Table>()
    {
        return Ok(table);
    }
    let fault = |error: &toml::de::Error| {
        let before = error
            .span()
            .and_then(|span| text.get(..span.start))
            .unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let message = error.message().lines().collect::<Vec<_>>().join(" ");
        Fault {
            origin: Origin::File(name.to_owned()),
            key: String::new(),
            value: None,
            reason: format!("line {line}, column {column}: not TOML: {message}"),
            remedy: String::new(),
        }
    };
    let mut faults: Vec<Fault> = errors.iter().map(fault).collect();
    if faults.is_empty()
        && let Err(error) = text.parse::<toml::Table>()
    {
        faults.push(fault(&error));
    }
    Err(faults)
}

/// Every key that the reader knows, as `limits.head_bytes_max` or `backend[].addr`.
fn known_keys() -> BTreeSet<String> {
    static KEYS: OnceLock<BTreeSet<String>> = OnceLock::new();
    let gather = || {
        let mut reading = Reading::default();
        let one = |table| toml::Value::Array(vec![toml::Value::Table(table)]);
        // No key that its section doesn't know: to name its right place would take this very set.
        let backend = |key: &str| toml::Table::from_iter([(key.to_owned(), toml::Value::Boolean(false))]);
        let tcp = toml::Table::from_iter([("backend".to_owned(), one(backend("addr")))]);
        let table = toml::Table::from_iter([
            ("backend".to_owned(), one(backend("url"))),
            ("tcp".to_owned(), one(tcp)),
        ]);
        let resolve = |_: &str, _: u16| Ok(Vec::new());
        sections::read(&mut reading, table, &mut Config::default(), &resolve);
        reading.keys
    };
    KEYS.get_or_init(gather).clone()
}

#[cfg(test)]
mod tests;

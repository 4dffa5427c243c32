//! The flags of `serve` that change settings; each overrides its key in the file.

use toml::Value;

use super::Config;
use super::endpoint::{Resolve, url};
use super::section::Reading;
use super::sections::{datapath, paths, policy_name, workers};
use super::value::{listen_addr, listen_addr_or_off};
use crate::backend::{BackendConfig, MAX_WAITING_DEFAULT};

/// Flags over the file. They are strings here so that their faults are reported together with the file's.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Where clients connect, IP:PORT; repeat for more. Replaces `listen` of the file [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// An engine, http://HOST:PORT; repeat for more. Replaces the backends of the file
    #[arg(long, value_name = "URL")]
    pub backend: Vec<String>,
    /// least_cost, consistent_hash, prefix_threshold, prefix_score, least_load, power_of_two, round_robin or random [default: least_cost]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Who carries streams: auto, kernel (exit 69 where it can't) or copy [default: auto]
    #[arg(long, value_name = "auto|kernel|copy")]
    pub datapath: Option<String>,
    /// The admin address, IP:PORT or off [default: 127.0.0.1:9180]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// A read-only listener with /metrics and /healthz, IP:PORT or off [default: off]
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<String>,
    /// Which request paths pass to the engines: inference or all [default: inference]
    #[arg(long, value_name = "inference|all")]
    pub paths: Option<String>,
    /// Worker threads; 0 = one a core [default: 0]
    #[arg(long, value_name = "N")]
    pub workers: Option<String>,
}

impl Flags {
    /// Whether no flag was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let lists = self.listen.is_empty() && self.backend.is_empty();
        let single = [
            &self.policy,
            &self.datapath,
            &self.admin,
            &self.metrics,
            &self.paths,
            &self.workers,
        ];
        lists && single.iter().all(|flag| flag.is_none())
    }

    /// Puts the flags over `config`.
    pub(super) fn apply(&self, reading: &mut Reading, config: &mut Config, resolve: Resolve<'_>) {
        if !self.listen.is_empty() {
            config.server.listen = each(reading, "--listen", &self.listen, listen_addr);
        }
        if !self.backend.is_empty() {
            let read = |value: &Value| url(resolve)(value);
            config.backends = each(reading, "--backend", &self.backend, read)
                .into_iter()
                .map(|place| BackendConfig {
                    name: place.authority,
                    addr: place.addr,
                    weight: 1,
                    max_in_flight: None,
                    max_waiting: MAX_WAITING_DEFAULT,
                })
                .collect();
        }
        if let Some(kind) = reading.flag("--policy", self.policy.as_ref(), policy_name) {
            config.policy.kind = kind;
        }
        if let Some(mode) = reading.flag("--datapath", self.datapath.as_ref(), datapath) {
            config.server.datapath = mode;
        }
        if let Some(addr) = reading.flag("--admin", self.admin.as_ref(), listen_addr_or_off) {
            config.admin.listen = addr;
        }
        if let Some(addr) = reading.flag("--metrics", self.metrics.as_ref(), listen_addr_or_off) {
            config.admin.metrics = addr;
        }
        if let Some(scope) = reading.flag("--paths", self.paths.as_ref(), paths) {
            config.server.paths = scope;
        }
        if let Some(count) = reading.flag("--workers", self.workers.as_ref(), workers) {
            config.server.workers = count;
        }
    }
}

fn each<T>(
    reading: &mut Reading,
    flag: &str,
    given: &[String],
    read: impl Fn(&Value) -> Result<T, super::fault::Complaint>,
) -> Vec<T> {
    given
        .iter()
        .filter_map(|one| reading.flag(flag, Some(one), &read))
        .collect()
}

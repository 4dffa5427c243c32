//! `warmpath check`: is this configuration good?

use std::net::SocketAddr;
use std::path::PathBuf;

use super::config::{EXAMPLE, Flags, Loaded, load, resolve_by_system};
use super::{Exit, complain, print};
use crate::server::TcpConfig;

/// The arguments of `warmpath check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file; every fault in it is reported at once, and the exit code is 64 where there is one.
    #[arg(long, value_name = "FILE", required_unless_present = "example")]
    config: Option<PathBuf>,
    /// Prints a file with every key, documented and at its default.
    #[arg(long, conflicts_with = "config")]
    example: bool,
}

pub(super) fn run(args: &Args) -> Exit {
    if args.example {
        print(EXAMPLE.trim_end());
        return Exit::Done;
    }
    match load(args.config.as_deref(), &Flags::default(), &resolve_by_system) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                complain(&format!("warning: {warning}"));
            }
            if loaded.config.backends.is_empty() && loaded.config.tcp.is_empty() {
                complain(
                    "warning: no backend; add a [[backend]] section, or give serve --backend http://HOST:PORT",
                );
            }
            print(&summary(&loaded));
            Exit::Done
        }
        Err(faults) => {
            for fault in faults {
                complain(&fault.to_string());
            }
            Exit::Usage
        }
    }
}

fn summary(loaded: &Loaded) -> String {
    let config = &loaded.config;
    let count = config.backends.len();
    let plural = if count == 1 { "" } else { "s" };
    let listen = match &config.server.listen[..] {
        [] => "nowhere (no backend)".to_owned(),
        listen => addresses(listen),
    };
    let tcp: Vec<String> = config.tcp.iter().map(tcp_summary).collect();
    let admin = config
        .admin
        .listen
        .map_or("off".to_owned(), |addr| addr.to_string());
    format!(
        "ok: {count} backend{plural}, policy {}, listen {listen}, admin {admin}{}",
        config.policy.kind.name(),
        tcp.concat(),
    )
}

fn tcp_summary(tcp: &TcpConfig) -> String {
    let (count, hash, listen) = (tcp.backends.len(), tcp.hash.as_str(), addresses(&tcp.listen));
    let plural = if count == 1 { "" } else { "s" };
    format!(
        "\n    tcp {}: {count} backend{plural} by {hash}, listen {listen}",
        tcp.name
    )
}

fn addresses(list: &[SocketAddr]) -> String {
    let list: Vec<String> = list.iter().map(ToString::to_string).collect();
    list.join(" ")
}

//! `warmpath engine`: simulated engines that answer over HTTP, paced by the engine model in real time.

mod body;
mod fault;
mod histogram;
mod host;
mod listen;
mod page;
mod prompt;
mod reply;
mod routes;

use std::cell::Cell;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;
use tokio::task::LocalSet;

use crate::engine::EngineConfig;
use fault::Fault;
use host::Host;

/// The model's name where none is given.
const MODEL_DEFAULT: &str = "simulated";

/// Run simulated inference engines: OpenAI and Anthropic APIs, prefix cache, metrics, faults on demand.
///
/// Each prints `engine <index> listening on http://<address>` once it does. Timing follows the engine model:
/// 10 ms a step, 20,000 prefill tokens/s, 0.1 ms a decoding sequence, 64 running requests; four bytes of rendered
/// prompt are a token, and a request generates as many tokens as it allows.
///
/// POST /fault takes {"kind": ...} and, where they apply, "engine" (another one's index), "for_ms", "count",
/// "rate" (0 to 1):
///   frozen       nothing is produced, /health answers
///   health_slow  /health answers after "delay_ms" (15000)
///   status       generation calls are answered with "status" (503)
///   cut          streams end without their end after "after_chunks" tokens (3)
///   slow         steps take "factor" times as long (2)
///   down         connections are cut and refused, the cache is lost
///   none         all is well again
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct EngineArgs {
    /// Address of the first engine; the others take the ports after it. Port 0: each takes any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000")]
    pub listen: SocketAddr,
    /// How many engines.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub count: u16,
    /// KV memory of each, in tokens.
    #[arg(long, value_name = "C", default_value_t = 262_144, value_parser = clap::value_parser!(u64).range(1..=1 << 36))]
    pub capacity_tokens: u64,
    /// Tokens in a block of KV memory.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub block_tokens: u32,
    /// How many times as fast as the model prefill and decode are.
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = positive)]
    pub speed: f64,
    /// A model that is served, others being a 404; may be repeated. Without it every name is accepted.
    #[arg(long, value_name = "NAME")]
    pub model: Vec<String>,
    /// Tokens to generate where a request sets no limit.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub output_tokens: u32,
    /// A fault from the start, as POST /fault takes it; "engine" chooses one, else all; may be repeated.
    #[arg(long, value_name = "JSON", value_parser = fault_json)]
    pub fault: Vec<String>,
}

/// A fault that parses, kept as its text.
fn fault_json(text: &str) -> Result<String, String> {
    Fault::parse(text.as_bytes()).map(|_| text.to_owned())
}

/// A number above 0 and below a million.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number < 1e6 => Ok(number),
        _ => Err("must be a number above 0 and below 1000000".to_owned()),
    }
}

/// All engines of one process.
#[derive(Debug)]
struct Fleet {
    hosts: Vec<Rc<Host>>,
    models: Vec<String>,
    output_tokens: u32,
    number: Cell<u64>,
}

impl Fleet {
    /// The name in metrics and in answers to requests without one.
    fn first_model(&self) -> &str {
        self.models.first().map_or(MODEL_DEFAULT, String::as_str)
    }

    fn models(&self) -> impl Iterator<Item = &str> {
        let default = self.models.is_empty().then_some(MODEL_DEFAULT);
        self.models.iter().map(String::as_str).chain(default)
    }

    fn serves(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|name| name == model)
    }

    /// The number of the next answer, which its id shows.
    fn next_number(&self) -> u64 {
        self.number.replace(self.number.get() + 1)
    }
}

/// Binds and starts the engines on the current `LocalSet`; they run until it ends.
///
/// # Errors
/// A fault doesn't parse or names no engine, or an address can't be bound.
pub async fn start(args: &EngineArgs) -> anyhow::Result<Vec<SocketAddr>> {
    let mut listeners = Vec::new();
    for index in 0..args.count {
        let mut addr = args.listen;
        if addr.port() != 0 {
            let port = addr
                .port()
                .checked_add(index)
                .context("--count: the ports end at 65535")?;
            addr.set_port(port);
        }
        let listener = TcpListener::bind(addr)
            .await
            .with_context(|| format!("cannot listen on {addr}"))?;
        listeners.push((listener.local_addr()?, listener));
    }
    let config = EngineConfig::new(args.capacity_tokens, args.block_tokens).with_speed(args.speed);
    let hosts = (0..listeners.len())
        .map(|index| Host::new(index, config.clone()))
        .collect();
    let fleet = Rc::new(Fleet {
        hosts,
        models: args.model.clone(),
        output_tokens: args.output_tokens,
        number: Cell::new(0),
    });
    for json in &args.fault {
        let fault = Fault::parse(json.as_bytes()).map_err(anyhow::Error::msg)?;
        let chosen = |host: &&Rc<Host>| fault.engine.is_none_or(|engine| engine == host.index);
        let hosts: Vec<_> = fleet.hosts.iter().filter(chosen).collect();
        anyhow::ensure!(
            !hosts.is_empty(),
            "fault: no engine {:?}; there are {}",
            fault.engine,
            fleet.hosts.len()
        );
        for host in hosts {
            host.set_fault(fault.clone());
        }
    }
    let mut addrs = Vec::new();
    for (host, (addr, listener)) in fleet.hosts.iter().zip(listeners) {
        addrs.push(addr);
        tokio::task::spawn_local(Rc::clone(host).drive());
        tokio::task::spawn_local(listen::serve(Rc::clone(&fleet), Rc::clone(host), listener, addr));
    }
    Ok(addrs)
}

/// Runs the engines until SIGINT or SIGTERM.
///
/// # Errors
/// As [`start`]; or the runtime can't be made.
pub fn run(args: &EngineArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, async {
        let addrs = start(args).await?;
        let mut out = std::io::stdout();
        for (index, addr) in addrs.iter().enumerate() {
            writeln!(out, "engine {index} listening on http://{addr}")?;
        }
        out.flush()?;
        super::stopped().await?;
        Ok(ExitCode::SUCCESS)
    })
}

#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod tests;

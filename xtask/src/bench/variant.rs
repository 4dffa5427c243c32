//! Everything that runs during the bench: the source, the proxies, and which of their processes count.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::peers::{HAPROXY, NGINX, fill, kernel, version};
use super::veth::{Net, Side};
use crate::process::{Service, free_port};
use crate::workspace;

/// How long a proxy may take to listen.
const LISTENS: Duration = Duration::from_secs(10);
/// Ports of the source.
const BACKENDS: usize = 2;

/// One way from the source to the sink.
#[derive(Debug)]
pub(super) struct Variant {
    /// Its name.
    pub(super) name: &'static str,
    /// Where the sink connects.
    pub(super) target: SocketAddr,
    /// The proxy's processes.
    pub(super) processes: Vec<u32>,
    /// Whether the proxy has real-time scheduling that it didn't take itself.
    pub(super) aided: bool,
    /// Whether it carries streams otherwise only; requests through it are like those of its sibling.
    pub(super) streams_only: bool,
    _service: Option<Service>,
}

/// What the measurement runs on.
#[derive(Debug)]
pub(super) struct Bed {
    /// The variants, `direct` first.
    pub(super) variants: Vec<Variant>,
    /// Where they run.
    pub(super) net: Net,
    /// The program of both ends.
    pub(super) flows: PathBuf,
    /// The source's processes.
    pub(super) source: Vec<u32>,
    backends: Vec<SocketAddr>,
    versions: Vec<String>,
    threads: usize,
    _source: Service,
}

/// Warmpath's variants: name, datapath, the relays' priority.
const WARMPATH: [(&str, &str, &str); 3] = [
    ("warmpath copy", "copy", "auto"),
    ("warmpath copy normal", "copy", "normal"),
    ("warmpath kernel", "kernel", "auto"),
];

impl Bed {
    /// Starts the source and a proxy for each variant that is wanted (all where `wanted` is empty).
    ///
    /// # Errors
    /// Where one that is installed doesn't start.
    pub(super) fn start(net: Net, folder: &Path, threads: usize, wanted: &[String]) -> Result<Bed> {
        let flows = workspace::target().join("release/flows");
        let mut command = net.command(Side::Source, &flows);
        command.args(["source", "--count", &BACKENDS.to_string()]);
        command.args(["--listen", &SocketAddr::new(net.source(), 0).to_string()]);
        let mut source = Service::start("source", &mut command, &folder.join("source.log"))?;
        source.wait_for_line("listening on ")?;
        let backends = listening(&folder.join("source.log"), BACKENDS)?;
        let mut bed = Bed {
            variants: vec![Variant {
                name: "direct",
                target: backends[0],
                processes: Vec::new(),
                aided: false,
                streams_only: false,
                _service: None,
            }],
            source: processes(source.id()),
            net,
            flows,
            backends,
            versions: Vec::new(),
            threads,
            _source: source,
        };
        let want = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
        for (name, datapath, priority) in WARMPATH {
            if want(name) {
                bed.warmpath(name, datapath, priority, folder)?;
            }
        }
        for (aided, names) in [
            (false, ["haproxy http", "haproxy tcp", "nginx"]),
            (true, ["haproxy http fifo", "haproxy tcp fifo", "nginx fifo"]),
        ] {
            if want(names[0]) || want(names[1]) {
                bed.haproxy([names[0], names[1]], aided, folder)?;
            }
            if want(names[2]) {
                bed.nginx(names[2], aided, folder)?;
            }
        }
        bed.variants
            .retain(|variant| variant.name == "direct" || want(variant.name));
        Ok(bed)
    }

    fn warmpath(&mut self, name: &'static str, datapath: &str, priority: &str, folder: &Path) -> Result<()> {
        let backends: String = self
            .backends
            .iter()
            .map(|addr| format!("[[backend]]\nurl = \"http://{addr}\"\nmax_in_flight = 100000\n"))
            .collect();
        // The prompt key is computed for every request, as in production.
        let text = format!(
            "listen = \"{}:0\"\nadmin = \"off\"\nworkers = {}\ndatapath = \"{datapath}\"\n\
             relay_priority = \"{priority}\"\n[policy]\nname = \"consistent_hash\"\n[health]\nenabled = false\n{backends}",
            self.net.proxy(),
            self.threads
        );
        let stem = name.replace([' ', ','], "-");
        let file = folder.join(format!("{stem}.toml"));
        fs::write(&file, text).with_context(|| file.display().to_string())?;
        let mut command = self.net.command(Side::Proxy, workspace::warmpath("release"));
        command.arg("serve").arg("--config").arg(&file);
        let mut service = Service::start(name, &mut command, &folder.join(format!("{stem}.log")))?;
        let target = match service.wait_for_line_or_end("listening on http://")? {
            Ok(addr) => addr.parse().with_context(|| addr.clone())?,
            Err(ended) if datapath == "kernel" => {
                println!("{name} is left out: {}", ended.last_line);
                return Ok(());
            }
            Err(_) => bail!("{name} didn't start\n{}", service.tail()),
        };
        self.variants.push(Variant {
            name,
            target,
            processes: processes(service.id()),
            aided: false,
            streams_only: datapath == "kernel" || priority == "normal",
            _service: Some(service),
        });
        Ok(())
    }

    fn values(&self, folder: &Path, http: SocketAddr, tcp: SocketAddr) -> Vec<(&'static str, String)> {
        vec![
            ("THREADS", self.threads.to_string()),
            ("DIR", folder.display().to_string()),
            ("HTTP_LISTEN", http.to_string()),
            ("TCP_LISTEN", tcp.to_string()),
            ("BACKEND_0", self.backends[0].to_string()),
            ("BACKEND_1", self.backends[1].to_string()),
        ]
    }

    fn haproxy(&mut self, names: [&'static str; 2], aided: bool, folder: &Path) -> Result<()> {
        if !self.installed("haproxy") {
            return Ok(());
        }
        let (folder, log) = own_folder(folder, names[0])?;
        let (http, tcp) = (self.free_addr()?, self.free_addr()?);
        let file = fill(HAPROXY, &self.values(&folder, http, tcp), &folder, "haproxy.cfg")?;
        let mut command = self.aid("haproxy", aided);
        command.arg("-db").arg("-f").arg(file);
        let mut service = Service::start(names[0], &mut command, &log)?;
        wait_listening(&mut service, http)?;
        wait_listening(&mut service, tcp)?;
        let processes = processes(service.id());
        let mut service = Some(service);
        for (name, target) in names.into_iter().zip([http, tcp]) {
            self.variants.push(Variant {
                name,
                target,
                processes: processes.clone(),
                aided,
                streams_only: false,
                _service: service.take(),
            });
        }
        Ok(())
    }

    fn nginx(&mut self, name: &'static str, aided: bool, folder: &Path) -> Result<()> {
        if !self.installed("nginx") {
            return Ok(());
        }
        let (folder, log) = own_folder(folder, name)?;
        let listen = self.free_addr()?;
        let file = fill(
            NGINX,
            &self.values(&folder, listen, listen),
            &folder,
            "nginx.conf",
        )?;
        let mut command = self.aid("nginx", aided);
        command.arg("-c").arg(file);
        let mut service = Service::start(name, &mut command, &log)?;
        wait_listening(&mut service, listen)?;
        self.variants.push(Variant {
            name,
            target: listen,
            processes: processes(service.id()),
            aided,
            streams_only: false,
            _service: Some(service),
        });
        Ok(())
    }

    /// `program`, under SCHED_FIFO 1 where it is to be aided.
    fn aid(&self, program: &str, aided: bool) -> Command {
        if !aided {
            return self.net.command(Side::Proxy, program);
        }
        let mut command = self.net.command(Side::Proxy, "chrt");
        command.args(["--fifo", "1", program]);
        command
    }

    /// A port free on this host is free in a namespace of the bench's own too.
    fn free_addr(&self) -> Result<SocketAddr> {
        Ok(SocketAddr::new(self.net.proxy(), free_port()?))
    }

    fn installed(&mut self, program: &str) -> bool {
        let Some(version) = version(program) else {
            println!("{program} is left out: it isn't installed (apt-get install {program})");
            return false;
        };
        if !self.versions.contains(&version) {
            self.versions.push(version);
        }
        true
    }

    /// The caption of the whole run.
    pub(super) fn describe(&self, rounds: u32, measure_ms: u64) -> String {
        format!(
            "cargo xtask bench datapath: {rounds} rounds of {measure_ms} ms, variants interleaved, {}.\n\
             Linux {}, {} cores, {} threads a proxy (Warmpath: as many workers, and a relay each). {}.\n\
             CPU is that of the proxy, source, sink and the kernel's threads by their run times, less the direct \
             run's of the same round; in parentheses the whole system's by /proc/stat, less the direct run's, which \
             other work on the host disturbs. With paced streams source and sink run under SCHED_FIFO 2. Median over the rounds [least..most].",
            self.net.describe(),
            kernel(),
            thread::available_parallelism().map_or(0, std::num::NonZero::get),
            self.threads,
            self.versions.join("; "),
        )
    }

    /// The host and the peers, for the figures.
    pub(super) fn host_json(&self) -> Value {
        json!({
            "net": self.net.describe(),
            "kernel": kernel(),
            "cores": thread::available_parallelism().map_or(0, std::num::NonZero::get),
            "threads": self.threads,
            "peers": self.versions,
        })
    }
}

fn own_folder(folder: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
    let stem = name.replace([' ', ','], "-");
    let own = folder.join(&stem);
    fs::create_dir_all(&own).with_context(|| own.display().to_string())?;
    Ok((own, folder.join(format!("{stem}.log"))))
}

fn wait_listening(service: &mut Service, addr: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + LISTENS;
    // As the service's own namespace tells it: a listening socket has the state 0A.
    let socket = format!(":{:04X} 00000000:0000 0A", addr.port());
    let table = format!("/proc/{}/net/tcp", service.id());
    while !fs::read_to_string(&table).is_ok_and(|text| text.contains(&socket)) {
        service.must_be_running()?;
        ensure!(Instant::now() < deadline, "nothing listens on {addr}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn listening(log: &Path, count: usize) -> Result<Vec<SocketAddr>> {
    let deadline = Instant::now() + LISTENS;
    loop {
        let text = fs::read_to_string(log).with_context(|| log.display().to_string())?;
        let found: Vec<SocketAddr> = text
            .lines()
            .filter_map(|line| line.strip_prefix("listening on ")?.parse().ok())
            .collect();
        if found.len() == count {
            return Ok(found);
        }
        ensure!(
            Instant::now() < deadline,
            "the source listens on {} ports",
            found.len()
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// The processes of a group.
fn processes(group: i32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // Behind the name: state, ppid, pgrp.
            let found = text
                .rsplit(')')
                .next()
                .and_then(|rest| rest.split_whitespace().nth(2)?.parse::<i32>().ok());
            found == Some(group)
        })
        .collect()
}

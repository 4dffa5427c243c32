//! Loading the programs, or saying exactly why not.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use aya::maps::{MapData, PerCpuArray, RingBuf, SockMap};
use aya::programs::SkSkb;
use aya::{Ebpf, EbpfLoader, VerifierLogLevel};
use router_common::map::{
    BACKENDS_MAX, CLIENTS_MAX, EVENTS_BYTES, FLOWS_MAX, LAYOUT, LAYOUT_MARK, RELAYS_MAX,
};

use super::memory::Table;
use super::slots::Places;
use super::{Inner, btf};

/// The oldest kernel on which the path is allowed to run.
pub const KERNEL_MIN: (u32, u32) = (6, 8);
/// The least value of [`Limits::flow_bytes_max`]: one skb of 64 KiB has to fit with room to spare, else nothing is
/// ever redirected.
pub const FLOW_BYTES_MIN: u64 = 128 * 1024;

/// Bounds on the kernel memory that redirected bytes take. They count payload; tiny segments cost several times
/// theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that one flow may have redirected and unacknowledged; raised to [`FLOW_BYTES_MIN`]. Default 256 KiB.
    pub flow_bytes_max: u64,
    /// The same for all flows together: beyond `total / flow` flows at a time none is armed. Default 1 GiB.
    pub total_bytes_max: u64,
    /// Bytes of one relay's event ring, raised to a power of two and a page; what doesn't fit is found by the sweep.
    /// Default 64 KiB.
    pub events_bytes: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            flow_bytes_max: 256 * 1024,
            total_bytes_max: 1024 * 1024 * 1024,
            events_bytes: EVENTS_BYTES,
        }
    }
}

#[cfg(warmpath_bpf)]
static OBJECT: Option<&[u8]> = Some(aya::include_bytes_aligned!(env!("WARMPATH_BPF_OBJECT_PATH")));
#[cfg(not(warmpath_bpf))]
static OBJECT: Option<&[u8]> = None;

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Why the kernel path isn't available; each says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The binary holds no programs.
    #[error("built without the BPF programs; run `cargo xtask build`, which installs their toolchain")]
    NotBuilt,
    /// The programs that the binary holds were built from other sources.
    #[error("the BPF programs in this binary are from other sources; run `cargo xtask build`")]
    StaleObject,
    /// The kernel is older than [`KERNEL_MIN`].
    #[error("kernel {found} is older than {}.{}; use a newer kernel, or --datapath copy", KERNEL_MIN.0, KERNEL_MIN.1)]
    OldKernel {
        /// What `uname -r` says.
        found: String,
    },
    /// Capabilities are missing.
    #[error(
        "missing {missing}; run as root, or `setcap cap_bpf,cap_net_admin,cap_perfmon+ep` the binary, or give the \
         service AmbientCapabilities=CAP_BPF CAP_NET_ADMIN CAP_PERFMON"
    )]
    MissingCapability {
        /// Their names.
        missing: String,
    },
    /// The kernel's type data can't be read or lacks what the programs need.
    #[error("no kernel type data at {BTF_PATH} ({reason}); the kernel needs CONFIG_DEBUG_INFO_BTF=y")]
    NoBtf {
        /// What went wrong.
        reason: String,
    },
    /// The kernel refused the programs or maps.
    #[error("the kernel refused the programs: {0}")]
    Load(String),
}

const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

fn refused(error: impl std::error::Error) -> Refusal {
    // The chain matters: the outer errors of aya say only which call it was.
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    Refusal::Load(text)
}

/// Whether this process could load the programs, without loading them.
///
/// # Errors
/// The first reason why not.
pub fn probe() -> Result<(), Refusal> {
    check_layout(OBJECT.ok_or(Refusal::NotBuilt)?)?;
    check_kernel(&fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default())?;
    check_capabilities(&fs::read_to_string("/proc/self/status").unwrap_or_default())?;
    bytes_acked_offset().map(|_| ())
}

/// Whether the object was built from the sources that this binary was built from, as far as they share memory.
fn check_layout(object: &[u8]) -> Result<(), Refusal> {
    let mark = LAYOUT_MARK.to_le_bytes();
    let found = memchr::memmem::find(object, &mark).and_then(|at| object.get(at + 8..at + 16));
    if found == Some(LAYOUT.to_le_bytes().as_slice()) {
        return Ok(());
    }
    Err(Refusal::StaleObject)
}

fn check_kernel(release: &str) -> Result<(), Refusal> {
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.trim().parse::<u32>().ok());
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < KERNEL_MIN {
        return Err(Refusal::OldKernel {
            found: release.trim().to_owned(),
        });
    }
    Ok(())
}

fn check_capabilities(status: &str) -> Result<(), Refusal> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .unwrap_or(0);
    let has = |bit: u32| effective >> bit & 1 == 1;
    let admin = has(CAP_SYS_ADMIN);
    let needed = [
        ("CAP_BPF", has(CAP_BPF) || admin),
        ("CAP_NET_ADMIN", has(CAP_NET_ADMIN)),
        ("CAP_PERFMON", has(CAP_PERFMON) || admin),
    ];
    let missing: Vec<&str> = needed
        .iter()
        .filter(|(_, there)| !there)
        .map(|(name, _)| *name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Refusal::MissingCapability {
        missing: missing.join(", "),
    })
}

fn bytes_acked_offset() -> Result<u64, Refusal> {
    let data = fs::read(BTF_PATH).map_err(|error| Refusal::NoBtf {
        reason: error.to_string(),
    })?;
    btf::member_offset(&data, "tcp_sock", "bytes_acked").ok_or_else(|| Refusal::NoBtf {
        reason: "it has no tcp_sock.bytes_acked".to_owned(),
    })
}

/// Loads and attaches everything.
pub(super) fn load(limits: Limits) -> Result<Inner, Refusal> {
    probe()?;
    let object = OBJECT.ok_or(Refusal::NotBuilt)?;
    let offset = bytes_acked_offset()?;
    let limit = limits.flow_bytes_max.max(FLOW_BYTES_MIN);
    let mut loader = EbpfLoader::new();
    let rings: Vec<String> = (0..RELAYS_MAX).map(|relay| format!("EVENTS_{relay}")).collect();
    let ring_bytes = limits.events_bytes.max(page_bytes()).next_power_of_two();
    for ring in &rings {
        loader.map_max_entries(ring, ring_bytes);
    }
    let mut ebpf = loader
        // Without this the verifier writes megabytes of log for each load.
        .verifier_log_level(VerifierLogLevel::STATS)
        .override_global("FLOW_BYTES_MAX", &limit, true)
        .override_global("BYTES_ACKED_OFFSET", &offset, true)
        .load(object)
        .map_err(refused)?;
    let upstreams = SockMap::try_from(take(&mut ebpf, "UPSTREAMS")?).map_err(refused)?;
    let program: &mut SkSkb = ebpf
        .program_mut("response")
        .ok_or_else(|| Refusal::Load("the object has no program `response`".to_owned()))?
        .try_into()
        .map_err(refused)?;
    program.load().map_err(refused)?;
    program.attach(upstreams.fd()).map_err(refused)?;
    let clients = SockMap::try_from(take(&mut ebpf, "CLIENTS")?).map_err(refused)?;
    let rings = rings
        .iter()
        .map(|ring| {
            RingBuf::try_from(take(&mut ebpf, ring)?)
                .map(Some)
                .map_err(refused)
        })
        .collect::<Result<Vec<_>, Refusal>>()?;
    Ok(Inner {
        flows: table(&mut ebpf, "FLOWS", FLOWS_MAX)?,
        backends: table(&mut ebpf, "BACKENDS", BACKENDS_MAX)?,
        counters: PerCpuArray::try_from(take(&mut ebpf, "COUNTERS")?).map_err(refused)?,
        upstreams: Mutex::new(upstreams),
        clients: Mutex::new(clients),
        rings: Mutex::new(rings),
        flow_places: Places::new(FLOWS_MAX),
        client_places: Places::new(CLIENTS_MAX),
        flow_bytes_max: limit,
        armed: AtomicU64::new(0),
        armed_max: (limits.total_bytes_max / limit).max(1),
        _programs: Mutex::new(ebpf),
    })
}

fn page_bytes() -> u32 {
    // SAFETY: no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u32::try_from(bytes).unwrap_or(EVENTS_BYTES)
}

fn take(ebpf: &mut Ebpf, name: &str) -> Result<aya::maps::Map, Refusal> {
    ebpf.take_map(name)
        .ok_or_else(|| Refusal::Load(format!("the object has no map `{name}`")))
}

fn table<T>(ebpf: &mut Ebpf, name: &str, length: u32) -> Result<Table<T>, Refusal> {
    let aya::maps::Map::Array(map) = take(ebpf, name)? else {
        return Err(Refusal::Load(format!("map `{name}` is not an array")));
    };
    map_table(&map, length).map_err(refused)
}

fn map_table<T>(map: &MapData, length: u32) -> std::io::Result<Table<T>> {
    use std::os::fd::AsFd;
    // The mapping holds the map alive by itself.
    Table::new(map.fd().as_fd(), length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_another_layout_are_refused() {
        let object = |layout: u64| [&b"ELF"[..], &LAYOUT_MARK.to_le_bytes(), &layout.to_le_bytes()].concat();
        assert!(check_layout(&object(LAYOUT)).is_ok());
        assert!(matches!(
            check_layout(&object(LAYOUT ^ 1)),
            Err(Refusal::StaleObject)
        ));
        assert!(matches!(check_layout(b"ELF"), Err(Refusal::StaleObject)));
    }

    #[test]
    fn kernels_below_the_floor_are_refused_by_name() {
        assert!(check_kernel("6.8.0-45-generic\n").is_ok());
        assert!(check_kernel("6.18.44").is_ok());
        assert!(check_kernel("7.0").is_ok());
        for old in ["6.1.0-18-amd64", "5.15.0", "", "garbage"] {
            assert!(
                matches!(check_kernel(old), Err(Refusal::OldKernel { .. })),
                "{old}"
            );
        }
    }

    #[test]
    fn missing_capabilities_are_named() {
        let status = |bits: u64| format!("Name:\tx\nCapEff:\t{bits:016x}\n");
        let all = 1 << CAP_BPF | 1 << CAP_NET_ADMIN | 1 << CAP_PERFMON;
        assert!(check_capabilities(&status(all)).is_ok());
        assert!(check_capabilities(&status(1 << CAP_SYS_ADMIN | 1 << CAP_NET_ADMIN)).is_ok());
        let Err(Refusal::MissingCapability { missing }) = check_capabilities(&status(1 << CAP_BPF)) else {
            panic!("accepted");
        };
        assert_eq!(missing, "CAP_NET_ADMIN, CAP_PERFMON");
    }
}

//! CPU time: of the whole system, of processes, and of the kernel's own threads.

use std::fs;
use std::time::Duration;

/// `PF_KTHREAD` (Linux include/linux/sched.h).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// CPU time used up to one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// By everything on this host, from /proc/stat; counted by the tick.
    pub system: Duration,
    /// By the named processes; counted at each switch.
    pub processes: Duration,
    /// By this process.
    pub own: Duration,
    /// By the kernel's threads, its workers among them.
    pub kernel_threads: Duration,
}

impl Reading {
    /// Reads now. About 10 µs a process of the host.
    #[must_use]
    pub fn now(processes: &[u32]) -> Reading {
        Reading {
            system: system(),
            processes: processes.iter().map(|pid| process(*pid)).sum(),
            own: own(),
            kernel_threads: kernel_threads().into_iter().map(process).sum(),
        }
    }

    /// What was used since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Reading) -> Reading {
        Reading {
            system: self.system.saturating_sub(earlier.system),
            processes: self.processes.saturating_sub(earlier.processes),
            own: self.own.saturating_sub(earlier.own),
            kernel_threads: self.kernel_threads.saturating_sub(earlier.kernel_threads),
        }
    }
}

/// Resident memory of processes together, in bytes.
#[must_use]
pub fn resident_bytes(processes: &[u32]) -> u64 {
    let pages = |pid: &u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    // SAFETY: no pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    processes.iter().filter_map(pages).sum::<u64>() * page.cast_unsigned()
}

fn system() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<u64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|at| fields.get(*at)).sum();
    // SAFETY: no pointers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1).cast_unsigned();
    Duration::from_micros(busy * 1_000_000 / ticks)
}

fn own() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(
        time.tv_sec.cast_unsigned(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// The threads of a process, from their run times.
fn process(pid: u32) -> Duration {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Duration::ZERO;
    };
    threads
        .flatten()
        .filter_map(|thread| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok()
        })
        .map(Duration::from_nanos)
        .sum()
}

fn kernel_threads() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // Behind the name, which may hold anything: state, ppid, pgrp, session, tty, tpgid, flags.
            let flags = text
                .rsplit(')')
                .next()
                .and_then(|rest| rest.split_whitespace().nth(6)?.parse::<u64>().ok());
            flags.is_some_and(|flags| flags & KERNEL_THREAD != 0)
        })
        .collect()
}

//! A relay's place among the threads of its core, and the guard that keeps it from taking all of it.
//!
//! A relay that waits behind a busy worker delays tokens by a whole time slice; a real-time thread goes at once. But
//! a real-time thread never yields to an ordinary one, so that a relay which has much to do steps down by itself.

use std::io;
use std::time::Duration;

use crate::types::Micros;

/// The least real-time priority: before every ordinary thread, behind every other real-time one.
const FIFO_PRIORITY: i32 = 1;
/// The shortest slice that the kernel grants; a thread with a short one is chosen sooner.
const SLICE: Duration = Duration::from_micros(100);
/// The guard's window.
const WINDOW: Duration = Duration::from_millis(10);
/// CPU time in one window beyond which a real-time relay steps down.
const WINDOW_CPU_MAX: Duration = Duration::from_millis(5);
/// Between two looks at the thread's CPU clock.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// What the operator allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayPriority {
    /// The best that the host grants.
    Auto,
    /// Like any thread.
    Normal,
}

impl RelayPriority {
    /// The word for it in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            RelayPriority::Auto => "auto",
            RelayPriority::Normal => "normal",
        }
    }
}

/// What the host granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulingClass {
    /// SCHED_FIFO, with the guard.
    Fifo,
    /// SCHED_OTHER with a slice of 100 µs.
    Slice,
    /// SCHED_OTHER.
    Normal,
}

impl SchedulingClass {
    /// The value of the label `class`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            SchedulingClass::Fifo => "fifo",
            SchedulingClass::Slice => "slice",
            SchedulingClass::Normal => "normal",
        }
    }
}

/// Takes the best scheduling for the calling thread that `priority` and the host allow.
pub(super) fn claim(priority: RelayPriority) -> SchedulingClass {
    // Timers to the microsecond: the drain's first look is after 100 of them.
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    if priority == RelayPriority::Normal {
        SchedulingClass::Normal
    } else if set_fifo(true).is_ok() {
        SchedulingClass::Fifo
    } else if set_slice().is_ok_and(|granted| granted) {
        SchedulingClass::Slice
    } else {
        SchedulingClass::Normal
    }
}

/// Before all ordinary threads, or back among them.
pub(super) fn set_fifo(fifo: bool) -> io::Result<()> {
    let (policy, priority) = if fifo {
        (libc::SCHED_FIFO, FIFO_PRIORITY)
    } else {
        (libc::SCHED_OTHER, 0)
    };
    let parameter = libc::sched_param {
        sched_priority: priority,
    };
    // Once set, an unprivileged thread can't clear the flag, so that it stays on.
    let policy = policy | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `parameter` lives through the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `struct sched_attr` in its first version.
///
/// # Source
/// Linux include/uapi/linux/sched/types.h.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks for a slice of [`SLICE`]; `false` = the kernel (before 6.12) has no such thing and has ignored it.
fn set_slice() -> io::Result<bool> {
    let size = u32::try_from(size_of::<SchedAttr>()).unwrap_or(0);
    let nanos = u64::try_from(SLICE.as_nanos()).unwrap_or(0);
    let wanted = SchedAttr {
        size,
        runtime: nanos,
        ..SchedAttr::default()
    };
    // SAFETY: `wanted` is a sched_attr of the size that it says; 0 is the calling thread.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut granted = SchedAttr::default();
    // SAFETY: `granted` is a sched_attr of `size` bytes for the call to fill.
    if unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut granted, size, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(granted.runtime == nanos)
}

/// CPU time that the calling thread has used. A system call.
pub(super) fn thread_cpu() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// What a relay is to change about its scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    None,
    /// It has run too long: step down.
    StepDown,
    /// It has slept: go before the others again.
    StepUp,
}

/// Watches how much of a window a real-time relay runs.
///
/// Windows follow one another, so that at most twice [`WINDOW_CPU_MAX`] are used in one stretch. A relay that has
/// stepped down goes up at the end of a window in which it slept for at least half.
#[derive(Debug)]
pub(super) struct Guard {
    window_from: Micros,
    window_cpu: Duration,
    looked_at: Micros,
    down: bool,
}

impl Guard {
    pub(super) fn new(at: Micros, cpu: Duration) -> Guard {
        Guard {
            window_from: at,
            window_cpu: cpu,
            looked_at: at,
            down: false,
        }
    }

    /// To be called in every turn of the loop; `cpu` reads the thread's clock, once a millisecond at most.
    pub(super) fn turn(&mut self, at: Micros, cpu: impl FnOnce() -> Duration) -> Change {
        if at.since(self.looked_at) < LOOK_INTERVAL {
            return Change::None;
        }
        self.looked_at = at;
        let cpu = cpu();
        let ran = cpu.saturating_sub(self.window_cpu);
        let over = at.since(self.window_from) >= WINDOW;
        // A window that a long sleep or a long turn has stretched is judged by its own length.
        let allowed = WINDOW_CPU_MAX.max(at.since(self.window_from) / 2);
        if over {
            self.window_from = at;
            self.window_cpu = cpu;
        }
        match (self.down, ran > allowed) {
            (false, true) => {
                self.down = true;
                Change::StepDown
            }
            (true, false) if over => {
                self.down = false;
                Change::StepUp
            }
            _ => Change::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(from: Micros, millis: u64) -> Micros {
        from + Duration::from_millis(millis)
    }

    /// Turns of one millisecond each, of which it runs `share` percent.
    fn run(guard: &mut Guard, from: u64, turns: u64, cpu: &mut Duration, share: u32) -> Vec<(u64, Change)> {
        let mut changes = Vec::new();
        for turn in from + 1..=from + turns {
            *cpu += Duration::from_millis(1) * share / 100;
            let change = guard.turn(after(Micros(0), turn), || *cpu);
            if change != Change::None {
                changes.push((turn, change));
            }
        }
        changes
    }

    #[test]
    fn a_relay_that_runs_on_steps_down_before_its_window_ends_and_stays_down() {
        let mut cpu = Duration::ZERO;
        let mut guard = Guard::new(Micros(0), cpu);
        assert_eq!(run(&mut guard, 0, 1000, &mut cpu, 100), [(6, Change::StepDown)]);
    }

    #[test]
    fn a_relay_that_sleeps_half_of_the_time_never_steps_down() {
        let mut cpu = Duration::ZERO;
        let mut guard = Guard::new(Micros(0), cpu);
        assert!(run(&mut guard, 0, 1000, &mut cpu, 50).is_empty());
    }

    #[test]
    fn a_relay_that_has_slept_for_half_a_window_goes_up_again() {
        let mut cpu = Duration::ZERO;
        let mut guard = Guard::new(Micros(0), cpu);
        run(&mut guard, 0, 20, &mut cpu, 100);
        let changes = run(&mut guard, 20, 30, &mut cpu, 20);
        assert_eq!(changes, [(30, Change::StepUp)]);
    }

    #[test]
    fn a_sleep_longer_than_a_window_is_a_sleep() {
        let mut cpu = Duration::ZERO;
        let mut guard = Guard::new(Micros(0), cpu);
        run(&mut guard, 0, 8, &mut cpu, 100);
        cpu += Duration::from_millis(1);
        assert_eq!(guard.turn(after(Micros(0), 5000), || cpu), Change::StepUp);
    }

    #[test]
    fn the_clock_is_read_once_a_millisecond_at_most() {
        let mut guard = Guard::new(Micros(0), Duration::ZERO);
        for at in 0..999 {
            assert_eq!(guard.turn(Micros(at), || unreachable!("too early")), Change::None);
        }
    }
}

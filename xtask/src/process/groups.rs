//! Process groups that end with xtask.

use std::io;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::{POLL, own_group};

/// Children alive at once; a demo needs eight.
const GROUPS_MAX: usize = 64;
/// How long a group may take to stop by itself before it's killed.
const STOP: Duration = Duration::from_secs(3);

/// The groups alive, 0 where free. A signal handler reads it, so that it holds no lock.
static GROUPS: [AtomicI32; GROUPS_MAX] = [const { AtomicI32::new(0) }; GROUPS_MAX];

/// A child with its process group, ended on drop.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    id: i32,
    slot: usize,
}

impl Group {
    /// Starts `command` as the leader of a new group.
    ///
    /// # Errors
    /// Where it can't start, or [`GROUPS_MAX`] are alive.
    pub(crate) fn spawn(command: &mut Command) -> Result<Group> {
        let free = |slot: &AtomicI32| {
            // -1 holds the slot until the id is known; the handler passes over it.
            slot.compare_exchange(0, -1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let Some(slot) = GROUPS.iter().position(free) else {
            bail!("{GROUPS_MAX} children are running")
        };
        match own_group(command).spawn() {
            Ok(child) => {
                let id = child.id().cast_signed();
                GROUPS[slot].store(id, Ordering::Release);
                Ok(Group { child, id, slot })
            }
            Err(error) => {
                GROUPS[slot].store(0, Ordering::Release);
                Err(error).context("can't start")
            }
        }
    }

    /// The leader.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The leader's pid, which is the group's id.
    pub(crate) fn id(&self) -> i32 {
        self.id
    }

    /// Lets the group live on when xtask ends.
    pub(crate) fn leave_running(self) {
        GROUPS[self.slot].store(0, Ordering::Release);
        std::mem::forget(self);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if running(&mut self.child) {
            signal_group(self.id, libc::SIGTERM);
            let deadline = Instant::now() + STOP;
            while running(&mut self.child) && Instant::now() < deadline {
                thread::sleep(POLL);
            }
        }
        // What the leader left behind, and the leader where it didn't stop.
        signal_group(self.id, libc::SIGKILL);
        // Nothing is left to be done about a child that can't be awaited.
        let _ = self.child.wait();
        GROUPS[self.slot].store(0, Ordering::Release);
    }
}

fn signal_group(id: i32, signal: libc::c_int) {
    // SAFETY: kill has no memory effects. The id is a group that this process made; where all of it is
    // gone the call fails with ESRCH, which is what's wanted.
    unsafe { libc::kill(-id, signal) };
}

/// On SIGINT, SIGTERM and SIGHUP: ends every group and then xtask.
///
/// # Errors
/// Where the kernel refuses the handler.
pub(crate) fn end_children_on_signals() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only reads atomics and calls kill and _exit, all async-signal-safe.
        let before = unsafe { libc::signal(signal, on_signal as *const () as libc::sighandler_t) };
        if before == libc::SIG_ERR {
            return Err(io::Error::last_os_error()).context("signal handler");
        }
    }
    Ok(())
}

extern "C" fn on_signal(signal: libc::c_int) {
    for slot in &GROUPS {
        let id = slot.load(Ordering::Acquire);
        if id > 0 {
            signal_group(id, libc::SIGKILL);
        }
    }
    // SAFETY: _exit is async-signal-safe and doesn't return.
    unsafe { libc::_exit(128 + signal) }
}

//! Network namespaces, so that a host can die without a word.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, bail};

/// A network namespace; it's gone with the last thread, process and socket in it.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

impl Namespace {
    /// A namespace with nothing but its loopback.
    ///
    /// # Errors
    /// Where it isn't permitted, or `ip` of iproute2 isn't there.
    pub fn new() -> Result<Namespace> {
        // A thread of its own, since it moves there for good.
        let made = thread::spawn(|| {
            // SAFETY: no pointers; only this thread is moved.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error()).context("unshare(CLONE_NEWNET)");
            }
            ip(&["link", "set", "lo", "up"])?;
            let file = File::open("/proc/thread-self/ns/net").context("/proc/thread-self/ns/net")?;
            Ok(Namespace { file })
        });
        made.join().unwrap_or_else(|_| bail!("the thread panicked"))
    }

    /// Runs `act` inside; the threads and processes that it starts stay there.
    ///
    /// # Panics
    /// Where `act` does, or the namespace can't be entered.
    pub fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            // SAFETY: the descriptor is open; only this thread is moved.
            let moved = unsafe { libc::setns(self.file.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(moved, 0, "setns: {}", io::Error::last_os_error());
            act()
        };
        thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }
}

/// Two hosts and the cable between them.
#[derive(Debug)]
pub struct TwoHosts {
    /// The host at this end.
    pub near: Namespace,
    /// The host at the other end.
    pub far: Namespace,
}

/// The address of the far host.
pub const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2));

impl TwoHosts {
    /// Two namespaces joined by a veth pair.
    ///
    /// # Errors
    /// Where it isn't permitted, or `ip` of iproute2 isn't there.
    pub fn new() -> Result<TwoHosts> {
        let (near, far) = (Namespace::new()?, Namespace::new()?);
        let place = format!("/proc/{}/fd/{}", std::process::id(), far.file.as_raw_fd());
        near.run(|| {
            ip(&[
                "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", &place,
            ])?;
            ip(&["address", "add", "10.99.0.1/24", "dev", "near"])?;
            ip(&["link", "set", "near", "up"])
        })?;
        far.run(|| {
            ip(&["address", "add", &format!("{FAR}/24"), "dev", "far"])?;
            ip(&["link", "set", "far", "up"])
        })?;
        Ok(TwoHosts { near, far })
    }

    /// Takes the far host's link down: nothing reaches it and nothing comes from it, no RST either.
    ///
    /// # Panics
    /// Where it can't be done.
    pub fn cut(&self) {
        self.far
            .run(|| ip(&["link", "set", "far", "down"]))
            .expect("the link goes down");
    }
}

fn ip(words: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(words).output().context("ip (iproute2)")?;
    if !output.status.success() {
        bail!(
            "ip {}: {}",
            words.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

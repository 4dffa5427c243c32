//! Hosts that refuse the router something.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use warmpath_tests::{Datapath, Router, RouterOptions, Upstream, has_kernel, skip};

use crate::requests::get;

/// Runs what follows as nobody, whose one capability is to pass through closed folders to the binary.
const AS_NOBODY: &[&str] = &[
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all,+dac_read_search",
    "--ambient-caps=-all,+dac_read_search",
    "--bounding-set=-all,+dac_read_search",
    "--no-new-privs",
];

/// Whether another user can be had.
fn can_be_nobody() -> bool {
    let (program, words) = AS_NOBODY.split_first().expect("a program");
    match Command::new(program).args(words).arg("true").output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            skip(&format!(
                "setpriv: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ));
            false
        }
        Err(error) => {
            skip(&format!("setpriv: {error}"));
            false
        }
    }
}

fn good() -> Upstream {
    Upstream::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
}

#[test]
fn without_its_capabilities_the_kernel_datapath_is_one_line_that_names_them_and_exit_69() {
    if !has_kernel() || !can_be_nobody() {
        return;
    }
    let options = RouterOptions::new(Datapath::Kernel, &[]).backend("127.0.0.1:9");
    let ended = options.prefix(AS_NOBODY).end();
    assert_eq!(ended.code, Some(69), "{}", ended.log);
    assert_eq!(ended.log.lines().count(), 1, "{}", ended.log);
    assert!(ended.log.contains("missing CAP_BPF"), "{}", ended.log);
    assert!(ended.log.contains("setcap"), "no remedy: {}", ended.log);
}

#[test]
fn without_capabilities_the_other_datapaths_serve() {
    if !can_be_nobody() {
        return;
    }
    for datapath in [Datapath::Copy, Datapath::Auto] {
        let upstream = good();
        let options = RouterOptions::new(datapath, &[&upstream]);
        let router: Router = options.prefix(AS_NOBODY).start();
        assert_eq!(get(&router).body, b"good");
        router.assert_idle();
    }
}

/// Installs a filter by which `io_uring_setup` fails with EPERM, as in a container's seccomp profile.
fn refuse_io_uring(command: &mut Command) {
    // SAFETY: between fork and exec only system calls are made, on memory of this function's own stack.
    unsafe { command.pre_exec(filter_io_uring) };
}

fn filter_io_uring() -> io::Result<()> {
    let code = |word: u32| u16::try_from(word).unwrap_or(0);
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let number = u32::try_from(libc::SYS_io_uring_setup).unwrap_or(0);
    let errno = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap_or(0);
    let mut filter = [
        // The number of the system call is the first word of `struct seccomp_data`.
        step(code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS), 0, 0),
        step(code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K), 1, number),
        step(code(libc::BPF_RET | libc::BPF_K), 0, errno),
        step(code(libc::BPF_RET | libc::BPF_K), 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: plain numbers.
    let privileges = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: `program` and the filter it points to live through the call.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    if privileges != 0 || set != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[test]
fn a_host_that_refuses_io_uring_is_one_line_with_the_remedy() {
    for datapath in [Datapath::Copy, Datapath::Auto] {
        let options = RouterOptions::new(datapath, &[]).backend("127.0.0.1:9");
        let ended = options.prepare(refuse_io_uring).end();
        assert_eq!(ended.code, Some(1), "{}", ended.log);
        assert_eq!(ended.log.lines().count(), 1, "{}", ended.log);
        assert!(ended.log.contains("io_uring"), "{}", ended.log);
        assert!(
            ended.log.contains("kernel.io_uring_disabled") && ended.log.contains("seccomp"),
            "no remedy: {}",
            ended.log
        );
    }
}

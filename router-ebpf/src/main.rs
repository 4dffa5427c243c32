//! The BPF programs: glue around router-common, which holds whatever can be tested on the host.
//!
//! One program, `response`, the verdict of every upstream connection in `UPSTREAMS`: it passes bytes to userspace
//! or redirects them to the client's socket, and follows the framing of the message to know where it ends.
//!
//! - [`response`](mod@response): the verdict, state by state;
//! - [`frame`]: the framing over the bytes of one skb;
//! - [`window`]: how far the client is behind;
//! - [`flow`], [`count`], [`maps`], [`atomic`]: the entry of a connection, counters, maps, atomic operations.
//!
//! Off the BPF target this crate is an empty program, so that workspace-wide commands work on the host.
#![cfg_attr(
    target_arch = "bpf",
    no_std,
    no_main,
    feature(core_intrinsics),
    allow(internal_features)
)]

#[cfg(target_arch = "bpf")]
mod atomic;
#[cfg(target_arch = "bpf")]
mod count;
#[cfg(target_arch = "bpf")]
mod flow;
#[cfg(target_arch = "bpf")]
mod frame;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod response;
#[cfg(target_arch = "bpf")]
mod window;

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Never reached: the verifier refuses a program in which it could be.
    loop {}
}

// Some of the helpers are open to GPL-compatible programs only.
#[cfg(target_arch = "bpf")]
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(target_arch = "bpf"))]
fn main() {}

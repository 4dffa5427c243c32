//! The relay: a thread with level-triggered epoll, one receive and one send a turn, and no runtime.

mod carried;
mod event_loop;
mod hop;
mod hop_turns;
mod kernel_side;
mod poll;
mod scheduling;
mod thread;
mod tunnel;

pub(crate) use carried::dechunk;
pub use scheduling::{RelayPriority, SchedulingClass};
pub use thread::{KernelRelay, Relay, RelayConfig, RelayHandle};

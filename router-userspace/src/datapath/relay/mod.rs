//! The relay: a thread with level-triggered epoll, one receive and one send a turn, and no runtime.

mod carried;
mod event_loop;
mod kernel_side;
mod poll;
mod thread;

pub(crate) use carried::dechunk;
pub use thread::{KernelRelay, Relay, RelayConfig, RelayHandle};

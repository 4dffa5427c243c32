//! The copying relay: a thread with level-triggered epoll, one receive and one send a turn, and no runtime.

mod carried;
mod relay;

pub(crate) use carried::dechunk;
pub use relay::{Relay, RelayConfig, RelayHandle};

//! What carries streams: flows, and the relay threads that own them until their end.
//!
//! A worker hands a [`Flow`] over once the response's head has been written to the client. The relay moves the
//! body, watches the client for its departure, and gives both connections back in a [`FlowEnd`] with the message
//! complete or with the reason why it isn't. It copies, or arms the kernel path ([`kernel`]) behind itself: the
//! same framing decides in both, and a flow may change between them at any byte.

mod flow;
pub mod kernel;
mod relay;

pub use flow::{Flow, FlowEnd, FlowKind, Outcome, TunnelTerms};
pub(crate) use relay::dechunk;
pub use relay::{KernelRelay, Relay, RelayConfig, RelayHandle, RelayPriority, SchedulingClass};

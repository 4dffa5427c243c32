//! What carries streams: flows, and the relay threads that own them until their end.
//!
//! A worker hands a [`Flow`] over once the response's head has been written to the client. The relay moves the
//! body, watches the client for its departure, and gives both connections back in a [`FlowEnd`] with the message
//! complete or with the reason why it isn't.

mod copy;
mod flow;

pub(crate) use copy::dechunk;
pub use copy::{Relay, RelayConfig, RelayHandle};
pub use flow::{Flow, FlowEnd, FlowKind, Outcome};

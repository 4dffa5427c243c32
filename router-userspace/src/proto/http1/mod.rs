//! HTTP/1.1 messages by RFC 9112, strict where a leniency could be read in two ways.

mod body;
mod fields;
mod forward;
mod head;
#[cfg(test)]
mod tests;

pub use body::{BodyKind, request_body, response_body};
pub use fields::{Field, Fields};
pub use forward::{RequestForward, ResponseForward, write_request_head, write_response_head};
pub use head::{HeadError, HeadLimits, RequestHead, ResponseHead, Version, parse_request, parse_response};

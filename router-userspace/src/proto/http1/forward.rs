//! Heads as they are passed on: every end-to-end field byte for byte, the hop's own fields made anew.

use super::{BodyKind, Fields, RequestHead, ResponseHead};

/// What a forwarded request's head says of its hop.
#[derive(Clone, Copy, Debug)]
pub struct RequestForward<'a> {
    /// The body's framing on the way to the engine.
    pub body: BodyKind,
    /// The value of `Upgrade`, where the client asked for one that passes.
    pub upgrade: Option<&'a [u8]>,
    /// The Host to name where the client gave none (HTTP/1.0).
    pub host_default: &'a str,
}

/// What a forwarded response's head says of its hop.
#[derive(Clone, Copy, Debug)]
pub struct ResponseForward {
    /// The body's framing on the way to the client.
    pub body: BodyKind,
    /// Whether the client's connection closes behind the response.
    pub close: bool,
    /// Whether this is the 101 of an upgrade that passes.
    pub upgrade: bool,
}

/// Fields that belong to one hop (RFC 9110 section 7.6.1), and those that this hop writes itself.
const HOP_FIELDS: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "te",
    "upgrade",
    "content-length",
    "http2-settings",
    "proxy-authenticate",
];

fn is_hop_field(name: &[u8]) -> bool {
    HOP_FIELDS
        .iter()
        .any(|hop| name.eq_ignore_ascii_case(hop.as_bytes()))
}

/// Writes the head for the engine to `out`.
pub fn write_request_head(head: &RequestHead, forward: RequestForward<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(head.method());
    out.push(b' ');
    let absolute = head.absolute_form();
    match absolute {
        // An empty path is `/`, but for OPTIONS it means the server as a whole (RFC 9112 section 3.2.4).
        Some((_, b"")) if head.method() == b"OPTIONS" => out.push(b'*'),
        Some((_, origin)) => {
            if !origin.starts_with(b"/") {
                out.push(b'/');
            }
            out.extend_from_slice(origin);
        }
        None => out.extend_from_slice(head.target()),
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let host = match absolute {
        Some((authority, _)) => authority,
        None => head
            .fields
            .first("host")
            .unwrap_or(forward.host_default.as_bytes()),
    };
    push_field(out, b"Host", host);
    copy_fields(&head.fields, out, |name| {
        name.eq_ignore_ascii_case(b"host") || name.eq_ignore_ascii_case(b"expect")
    });
    push_framing(out, forward.body);
    if let Some(upgrade) = forward.upgrade {
        push_field(out, b"Connection", b"Upgrade");
        push_field(out, b"Upgrade", upgrade);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the head for the client to `out`.
pub fn write_response_head(head: &ResponseHead, forward: ResponseForward, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(head.status.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(head.reason());
    out.extend_from_slice(b"\r\n");
    copy_fields(&head.fields, out, |_| false);
    match forward.body {
        // The answer to HEAD and a 304 keep the length of the body that isn't there (RFC 9110 section 8.6).
        BodyKind::None => {
            if head.status >= 200
                && head.status != 204
                && let Some(length) = head.fields.first("content-length")
            {
                push_field(out, b"Content-Length", length);
            }
        }
        body => push_framing(out, body),
    }
    if forward.upgrade {
        push_field(out, b"Connection", b"Upgrade");
        for value in head.fields.values("upgrade") {
            push_field(out, b"Upgrade", value);
        }
    } else if forward.close {
        push_field(out, b"Connection", b"close");
    }
    out.extend_from_slice(b"\r\n");
}

/// Copies the end-to-end fields but for those that `skip` names.
fn copy_fields(fields: &Fields, out: &mut Vec<u8>, skip: impl Fn(&[u8]) -> bool) {
    for (name, value) in fields.iter() {
        if is_hop_field(name) || skip(name) || named_by_connection(fields, name) {
            continue;
        }
        push_field(out, name, value);
    }
}

fn named_by_connection(fields: &Fields, name: &[u8]) -> bool {
    fields
        .members("connection")
        .any(|member| member.eq_ignore_ascii_case(name))
}

fn push_framing(out: &mut Vec<u8>, body: BodyKind) {
    match body {
        BodyKind::Length(length) => push_field(out, b"Content-Length", length.to_string().as_bytes()),
        BodyKind::Chunked => push_field(out, b"Transfer-Encoding", b"chunked"),
        BodyKind::None | BodyKind::Close => {}
    }
}

fn push_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

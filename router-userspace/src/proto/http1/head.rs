//! Start line and fields of a request or response.

use std::ops::Range;

use bytes::Bytes;
use memchr::{memchr, memmem};

use super::fields::{Field, Fields};

/// Bounds on a head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Bytes, the blank line included.
    pub bytes_max: usize,
    /// Fields; at most [`FIELDS_MAX`].
    pub fields_max: usize,
}

/// The highest `fields_max`.
const FIELDS_MAX: usize = 512;

/// The version of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// What is wrong with a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// It doesn't follow RFC 9112.
    #[error("{0}")]
    Malformed(&'static str),
    /// More bytes than the limit.
    #[error("the head is longer than the limit")]
    TooLong,
    /// More fields than the limit.
    #[error("the head has more fields than the limit")]
    TooManyFields,
}

/// A request's head.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// Its version.
    pub version: Version,
    /// Its fields.
    pub fields: Fields,
    method: Range<u32>,
    target: Range<u32>,
}

impl RequestHead {
    /// The method, as spelt.
    #[must_use]
    pub fn method(&self) -> &[u8] {
        &self.fields.bytes[self.method.start as usize..self.method.end as usize]
    }

    /// The target as received: origin, absolute, asterisk or authority form.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        &self.fields.bytes[self.target.start as usize..self.target.end as usize]
    }

    /// The authority of an absolute-form target (RFC 9112 section 3.2.2), and the origin form behind it.
    #[must_use]
    pub fn absolute_form(&self) -> Option<(&[u8], &[u8])> {
        let target = self.target();
        let scheme_end = memmem::find(target, b"://")?;
        let scheme = &target[..scheme_end];
        if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
            return None;
        }
        let rest = &target[scheme_end + 3..];
        let authority_end = rest
            .iter()
            .position(|byte| matches!(byte, b'/' | b'?'))
            .unwrap_or(rest.len());
        Some((&rest[..authority_end], &rest[authority_end..]))
    }

    /// The path of the target, without its query.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        let target = self.absolute_form().map_or(self.target(), |(_, origin)| origin);
        let end = memchr(b'?', target).unwrap_or(target.len());
        if end == 0 { b"/" } else { &target[..end] }
    }
}

/// A response's head.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// Its version.
    pub version: Version,
    /// The status code, 100 to 999.
    pub status: u16,
    /// Its fields.
    pub fields: Fields,
    reason: Range<u32>,
}

impl ResponseHead {
    /// The reason phrase; may be empty.
    #[must_use]
    pub fn reason(&self) -> &[u8] {
        &self.fields.bytes[self.reason.start as usize..self.reason.end as usize]
    }
}

/// Finds a request's head at the front of `bytes`.
///
/// Empty lines before it are taken as part of it (RFC 9112 section 2.2). The result's length is what the head
/// takes; `None` = more bytes are needed.
///
/// # Errors
/// [`HeadError`], also as soon as an unfinished head is over a limit.
pub fn parse_request(bytes: &[u8], limits: HeadLimits) -> Result<Option<(RequestHead, usize)>, HeadError> {
    let leading = bytes
        .iter()
        .position(|byte| !matches!(byte, b'\r' | b'\n'))
        .unwrap_or(bytes.len());
    let Some(end) = find_end(&bytes[leading..], limits)? else {
        return Ok(None);
    };
    let raw = &bytes[leading..leading + end];
    let mut slots = [const { std::mem::MaybeUninit::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let slots = &mut slots[..limits.fields_max.min(FIELDS_MAX)];
    httparse::ParserConfig::default()
        .parse_request_with_uninit_headers(&mut parsed, raw, slots)
        .map_err(|error| explain(error, raw))?;
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(HeadError::Malformed("the request line is incomplete"));
    };
    let head = RequestHead {
        version: version_of(version),
        method: range_in(raw, method.as_bytes()),
        target: range_in(raw, target.as_bytes()),
        fields: collect(raw, parsed.headers),
    };
    Ok(Some((head, leading + end)))
}

/// Finds a response's head at the front of `bytes`; `None` = more bytes are needed.
///
/// # Errors
/// [`HeadError`], also as soon as an unfinished head is over a limit.
pub fn parse_response(bytes: &[u8], limits: HeadLimits) -> Result<Option<(ResponseHead, usize)>, HeadError> {
    // An engine that speaks another protocol never sends a blank line: say so at its first bytes.
    let start = &bytes[..bytes.len().min(5)];
    if !b"HTTP/".starts_with(start) {
        return Err(HeadError::Malformed("the answer is not HTTP/1"));
    }
    let Some(end) = find_end(bytes, limits)? else {
        return Ok(None);
    };
    let raw = &bytes[..end];
    let mut slots = [const { std::mem::MaybeUninit::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let slots = &mut slots[..limits.fields_max.min(FIELDS_MAX)];
    httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut parsed, raw, slots)
        .map_err(|error| explain(error, raw))?;
    let (Some(status), Some(version)) = (parsed.code, parsed.version) else {
        return Err(HeadError::Malformed("the status line is incomplete"));
    };
    if status < 100 {
        return Err(HeadError::Malformed("the status code is below 100"));
    }
    let head = ResponseHead {
        version: version_of(version),
        status,
        reason: range_in(raw, parsed.reason.unwrap_or("").as_bytes()),
        fields: collect(raw, parsed.headers),
    };
    Ok(Some((head, end)))
}

/// The length of the head with its blank line, where that has arrived; every line must end with CRLF.
fn find_end(bytes: &[u8], limits: HeadLimits) -> Result<Option<usize>, HeadError> {
    let window = &bytes[..bytes.len().min(limits.bytes_max)];
    let end = memmem::find(window, b"\r\n\r\n").map(|at| at + 4);
    let lines = &window[..end.unwrap_or(window.len())];
    for at in memchr::memchr2_iter(b'\r', b'\n', lines) {
        let whole = match lines[at] {
            b'\n' => at > 0 && lines[at - 1] == b'\r',
            _ => lines.get(at + 1).is_none_or(|next| *next == b'\n'),
        };
        if !whole {
            return Err(HeadError::Malformed(
                "a line of the head ends with a bare CR or LF",
            ));
        }
    }
    match end {
        None if bytes.len() >= limits.bytes_max => Err(HeadError::TooLong),
        end => Ok(end),
    }
}

fn explain(error: httparse::Error, raw: &[u8]) -> HeadError {
    match error {
        httparse::Error::TooManyHeaders => HeadError::TooManyFields,
        httparse::Error::Version => HeadError::Malformed("the version is not HTTP/1.0 or HTTP/1.1"),
        httparse::Error::Status => HeadError::Malformed("the status code is malformed"),
        httparse::Error::Token => HeadError::Malformed("the start line is malformed"),
        httparse::Error::HeaderValue => HeadError::Malformed("a field's value has a forbidden character"),
        httparse::Error::HeaderName if memmem::find(raw, b"\r\n ").is_some() => {
            HeadError::Malformed("a field is folded over several lines")
        }
        httparse::Error::HeaderName => HeadError::Malformed("a field's name is malformed"),
        httparse::Error::NewLine => HeadError::Malformed("a line of the head is malformed"),
    }
}

fn version_of(minor: u8) -> Version {
    if minor == 0 {
        Version::Http10
    } else {
        Version::Http11
    }
}

fn collect(raw: &[u8], headers: &[httparse::Header<'_>]) -> Fields {
    let fields = headers
        .iter()
        .map(|header| Field {
            name: range_in(raw, header.name.as_bytes()),
            value: range_in(raw, header.value.trim_ascii()),
        })
        .collect();
    Fields {
        bytes: Bytes::copy_from_slice(raw),
        fields,
    }
}

/// Where `part`, a slice of `whole` or an empty one from elsewhere, lies in `whole`.
fn range_in(whole: &[u8], part: &[u8]) -> Range<u32> {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    if start > whole.len() {
        return 0..0;
    }
    // A head is far shorter than 4 GiB.
    start as u32..(start + part.len()) as u32
}

//! How a message's body is framed (RFC 9112 section 6).

use super::{Fields, HeadError, RequestHead, ResponseHead, Version};

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// There is none.
    None,
    /// After this many bytes.
    Length(u64),
    /// After the chunk of length zero and the trailers.
    Chunked,
    /// When the connection closes; responses only.
    Close,
}

/// The framing of a request's body.
///
/// # Errors
/// Anything that two readers could take in two ways: both length fields, a doubled or odd Content-Length, a
/// transfer coding other than `chunked`, or one in HTTP/1.0.
pub fn request_body(head: &RequestHead) -> Result<BodyKind, HeadError> {
    let length = content_length(&head.fields)?;
    let mut codings = head.fields.values("transfer-encoding").peekable();
    if codings.peek().is_none() {
        return Ok(length.map_or(BodyKind::None, BodyKind::Length));
    }
    if length.is_some() {
        return Err(HeadError::Malformed(
            "both Content-Length and Transfer-Encoding are present",
        ));
    }
    if head.version == Version::Http10 {
        return Err(HeadError::Malformed("Transfer-Encoding in an HTTP/1.0 request"));
    }
    only_chunked(&head.fields)?;
    Ok(BodyKind::Chunked)
}

/// The framing of a response's body; `method` is the request's.
///
/// # Errors
/// Framing that two readers could take in two ways.
pub fn response_body(head: &ResponseHead, method: &[u8]) -> Result<BodyKind, HeadError> {
    let length = content_length(&head.fields)?;
    let coded = head.fields.first("transfer-encoding").is_some();
    if coded {
        if length.is_some() {
            return Err(HeadError::Malformed(
                "both Content-Length and Transfer-Encoding are present",
            ));
        }
        if head.version == Version::Http10 {
            return Err(HeadError::Malformed("Transfer-Encoding in an HTTP/1.0 response"));
        }
        only_chunked(&head.fields)?;
    }
    if method == b"HEAD" || matches!(head.status, 100..=199 | 204 | 304) {
        return Ok(BodyKind::None);
    }
    Ok(match length {
        _ if coded => BodyKind::Chunked,
        Some(length) => BodyKind::Length(length),
        None => BodyKind::Close,
    })
}

/// `chunked`, once, and nothing else: no engine needs another coding, and an unknown one can't be framed.
fn only_chunked(fields: &Fields) -> Result<(), HeadError> {
    let mut values = fields.values("transfer-encoding");
    match (values.next(), values.next()) {
        (Some(value), None) if value.eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(HeadError::Malformed("Transfer-Encoding is other than chunked")),
    }
}

/// The one Content-Length: 1*DIGIT below 2^63.
fn content_length(fields: &Fields) -> Result<Option<u64>, HeadError> {
    let mut values = fields.values("content-length");
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(HeadError::Malformed("Content-Length is present more than once"));
    }
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(HeadError::Malformed("Content-Length is not a number"));
    }
    let number = value.iter().try_fold(0u64, |sum, digit| {
        sum.checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))
            .filter(|sum| *sum <= i64::MAX as u64)
    });
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(HeadError::Malformed("Content-Length is too large")),
    }
}

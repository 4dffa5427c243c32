//! The inside of a whole ClientHello.

use super::{Hello, NAME_BYTES_MAX};

const EXTENSION_SERVER_NAME: u16 = 0;
const NAME_TYPE_HOST: u8 = 0;
/// legacy_version and random.
const FIXED_BYTES: usize = 2 + 32;

/// The name in a ClientHello's body.
pub(super) fn server_name(body: &[u8]) -> Hello {
    read(body).unwrap_or(Hello::NotTls)
}

/// `None` = the grammar is broken.
fn read(body: &[u8]) -> Option<Hello> {
    let mut rest = body;
    take(&mut rest, FIXED_BYTES)?;
    let session_id = vector(&mut rest, 1)?;
    let cipher_suites = vector(&mut rest, 2)?;
    let compressions = vector(&mut rest, 1)?;
    if session_id.len() > 32
        || cipher_suites.is_empty()
        || cipher_suites.len() % 2 != 0
        || compressions.is_empty()
    {
        return None;
    }
    if rest.is_empty() {
        // TLS 1.2 and older know hellos without extensions.
        return Some(Hello::NoName);
    }
    let mut extensions = vector(&mut rest, 2)?;
    if !rest.is_empty() {
        return None;
    }
    let mut found = None;
    while !extensions.is_empty() {
        let kind = number(&mut extensions, 2)?;
        let data = vector(&mut extensions, 2)?;
        if kind == usize::from(EXTENSION_SERVER_NAME) {
            // RFC 8446 section 4.2: no type more than once.
            if found.is_some() {
                return None;
            }
            found = Some(host(data)?);
        }
    }
    Some(found.flatten().map_or(Hello::NoName, Hello::Name))
}

/// The first host in a server_name extension; the inner `None` = it has none.
fn host(mut data: &[u8]) -> Option<Option<String>> {
    let mut list = vector(&mut data, 2)?;
    if !data.is_empty() || list.is_empty() {
        return None;
    }
    let mut first = None;
    while !list.is_empty() {
        let kind = number(&mut list, 1)?;
        let name = vector(&mut list, 2)?;
        if kind == usize::from(NAME_TYPE_HOST) && first.is_none() {
            first = Some(plain(name)?);
        }
    }
    Some(first)
}

/// A host name in lower case, as it is compared; `None` where no host can be called so.
fn plain(name: &[u8]) -> Option<String> {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.iter().all(fits) {
        return None;
    }
    Some(
        name.iter()
            .map(|byte| char::from(byte.to_ascii_lowercase()))
            .collect(),
    )
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

/// A big-endian number of `width` bytes, 1 or 2.
fn number(rest: &mut &[u8], width: usize) -> Option<usize> {
    let bytes = take(rest, width)?;
    Some(
        bytes
            .iter()
            .fold(0, |number, byte| number << 8 | usize::from(*byte)),
    )
}

/// A vector behind its length of `width` bytes.
fn vector<'a>(rest: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let length = number(rest, width)?;
    take(rest, length)
}

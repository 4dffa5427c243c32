//! One line of a page.

/// A sample of a known name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample<'p> {
    /// What stands between the braces, checked to be well-formed.
    labels: &'p [u8],
    /// Finite and not negative.
    pub(super) value: f64,
}

/// The name at the begin of a line; `None` for comments, empty lines and lines without a value.
pub(super) fn name(line: &[u8]) -> Option<&[u8]> {
    let end = line.iter().position(|byte| matches!(byte, b'{' | b' ' | b'\t'))?;
    (end > 0 && line[0] != b'#').then(|| &line[..end])
}

impl<'p> Sample<'p> {
    /// Reads a whole line; `None` where it is malformed or its value is no amount.
    pub(super) fn parse(line: &'p [u8]) -> Option<Sample<'p>> {
        let end = line.iter().position(|byte| matches!(byte, b'{' | b' ' | b'\t'))?;
        let (labels, rest) = if line[end] == b'{' {
            split_labels(&line[end + 1..])?
        } else {
            (&line[..0], &line[end..])
        };
        let mut words = rest
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let value: f64 = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        (value.is_finite() && value >= 0.0).then_some(Sample { labels, value })
    }

    /// The raw value of a label, escapes untouched; `None` where it is absent.
    pub(super) fn label(&self, name: &[u8]) -> Option<&'p [u8]> {
        let mut rest = self.labels;
        while let Some(pair) = pair(rest) {
            if pair.name == name {
                return Some(pair.value);
            }
            rest = pair.rest;
        }
        None
    }
}

/// What stands before the closing brace and what follows it. A brace inside a value closes nothing.
fn split_labels(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = bytes;
    loop {
        let blanks = rest.iter().take_while(|byte| **byte == b' ').count();
        rest = &rest[blanks..];
        if let Some(after) = rest.strip_prefix(b"}") {
            return Some((&bytes[..bytes.len() - rest.len()], after));
        }
        rest = pair(rest)?.rest;
    }
}

struct Pair<'p> {
    name: &'p [u8],
    value: &'p [u8],
    /// Behind the comma, where there is one.
    rest: &'p [u8],
}

/// `name="value"` and the comma behind it.
fn pair(bytes: &[u8]) -> Option<Pair<'_>> {
    let equals = memchr::memchr(b'=', bytes)?;
    let (name, quoted) = (bytes[..equals].trim_ascii(), &bytes[equals + 1..]);
    let quoted = quoted.strip_prefix(b"\"")?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'.');
    if name.is_empty() || !name.iter().all(plain) {
        return None;
    }
    let mut from = 0;
    let end = loop {
        let at = from + memchr::memchr2(b'"', b'\\', quoted.get(from..)?)?;
        if quoted[at] == b'"' {
            break at;
        }
        // The escaped byte is never the end.
        from = at + 2;
    };
    let after = &quoted[end + 1..];
    let rest = after.strip_prefix(b",").unwrap_or(after);
    // A value that something else than a comma or the end follows would be read in two ways.
    let closed = rest.len() < after.len() || matches!(after.first(), None | Some(b'}' | b' '));
    let value = &quoted[..end];
    closed.then_some(Pair { name, value, rest })
}

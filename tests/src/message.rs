//! HTTP/1.1 messages as a strict reader sees them.

use anyhow::{Context as _, Result, bail};

/// A start line with its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The bytes as they came, the empty line included.
    pub raw: Vec<u8>,
    /// The start line.
    pub start: String,
    /// Names as written, values without surrounding blanks, in order.
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// Reads a whole head, which ends with its empty line.
    ///
    /// # Errors
    /// Where it holds what RFC 9112 forbids a sender: bare CR or LF, a fold, a malformed field.
    pub fn parse(raw: &[u8]) -> Result<Head> {
        let text = raw
            .strip_suffix(b"\r\n\r\n")
            .context("a head without its empty line")?;
        let text: String = text.iter().map(|&byte| char::from(byte)).collect();
        if text.replace("\r\n", "").contains(['\r', '\n', '\0']) {
            bail!("bare CR, bare LF or NUL in {text:?}");
        }
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        let mut fields = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':').with_context(|| format!("field {line:?}"))?;
            let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            if name.is_empty() || !name.chars().all(token) {
                bail!("field name {name:?}");
            }
            fields.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
        }
        Ok(Head {
            raw: raw.to_vec(),
            start,
            fields,
        })
    }

    /// The values of a field, by its name in any case.
    #[must_use]
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.fields
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// A field's first value.
    #[must_use]
    pub fn one(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// A request's method.
    #[must_use]
    pub fn method(&self) -> &str {
        self.start.split(' ').next().unwrap_or_default()
    }

    /// A request's target.
    #[must_use]
    pub fn target(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or_default()
    }

    /// A response's status; 0 where the status line has none.
    #[must_use]
    pub fn status(&self) -> u16 {
        let word = self.start.split(' ').nth(1).unwrap_or_default();
        word.parse().unwrap_or(0)
    }

    /// Whether `Connection` has this option.
    #[must_use]
    pub fn connection_has(&self, option: &str) -> bool {
        self.all("connection")
            .iter()
            .flat_map(|value| value.split(','))
            .any(|word| word.trim().eq_ignore_ascii_case(option))
    }

    /// How a request's body is framed.
    ///
    /// # Errors
    /// Where the fields contradict each other.
    pub fn request_framing(&self) -> Result<Framing> {
        Ok(self.framing()?.unwrap_or(Framing::None))
    }

    /// How a response's body is framed, for a request with `method`.
    ///
    /// # Errors
    /// Where the fields contradict each other.
    pub fn response_framing(&self, method: &str) -> Result<Framing> {
        let framing = self.framing()?;
        if method == "HEAD" || matches!(self.status(), 100..=199 | 204 | 304) {
            return Ok(Framing::None);
        }
        Ok(framing.unwrap_or(Framing::Close))
    }

    fn framing(&self) -> Result<Option<Framing>> {
        let (lengths, codings) = (self.all("content-length"), self.all("transfer-encoding"));
        match (lengths.as_slice(), codings.as_slice()) {
            ([], []) => Ok(None),
            ([length], []) if length.bytes().all(|b| b.is_ascii_digit()) => {
                Ok(Some(Framing::Length(length.parse().context("Content-Length")?)))
            }
            ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(Some(Framing::Chunked)),
            _ => bail!("Content-Length {lengths:?} with Transfer-Encoding {codings:?}"),
        }
    }
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// After so many bytes.
    Length(u64),
    /// With a chunk of size 0.
    Chunked,
    /// With the connection.
    Close,
}

/// A body as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// Its bytes, transfer coding removed.
    pub bytes: Vec<u8>,
    /// Trailer fields.
    pub trailers: Vec<(String, String)>,
    /// Why it ended before its framing said so.
    pub cut: Option<String>,
}

/// A response, or a request, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Interim responses before it.
    pub interim: Vec<Head>,
    /// Its head.
    pub head: Head,
    /// How its body was framed.
    pub framing: Framing,
    /// Its body's bytes, transfer coding removed.
    pub body: Vec<u8>,
    /// Trailer fields.
    pub trailers: Vec<(String, String)>,
    /// Why it ended before its framing said so.
    pub cut: Option<String>,
}

impl Message {
    /// A response's status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.head.status()
    }
}

/// `parts` in chunked coding, each a chunk, with its end; empty parts are left out.
#[must_use]
pub fn chunked(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        out.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Head> {
        Head::parse(text.as_bytes())
    }

    #[test]
    fn what_rfc_9112_forbids_a_sender_is_an_error() {
        for text in [
            "GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
            "GET / HTTP/1.1\r\nA : b\r\n\r\n",
            "GET / HTTP/1.1\r\nA: \0\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        ] {
            assert!(head(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn framing_follows_the_fields_and_contradictions_are_errors() {
        let framing = |fields: &str| {
            head(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"))
                .unwrap()
                .response_framing("GET")
        };
        assert_eq!(framing("").unwrap(), Framing::Close);
        assert_eq!(framing("Content-Length: 7\r\n").unwrap(), Framing::Length(7));
        assert_eq!(
            framing("transfer-encoding: Chunked\r\n").unwrap(),
            Framing::Chunked
        );
        assert!(framing("Content-Length: 7\r\nTransfer-Encoding: chunked\r\n").is_err());
        assert!(framing("Content-Length: 7\r\nContent-Length: 7\r\n").is_err());
        assert!(framing("Content-Length: +7\r\n").is_err());
    }

    #[test]
    fn heads_204_and_304_have_no_body() {
        for status in [204, 304] {
            let head = head(&format!("HTTP/1.1 {status} x\r\nContent-Length: 7\r\n\r\n")).unwrap();
            assert_eq!(head.response_framing("GET").unwrap(), Framing::None);
        }
        let ok = head("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n").unwrap();
        assert_eq!(ok.response_framing("HEAD").unwrap(), Framing::None);
    }
}

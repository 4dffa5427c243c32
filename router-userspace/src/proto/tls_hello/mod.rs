//! The server name in a TLS ClientHello, read without taking part in the handshake.
//!
//! [`HelloReader`] gathers the handshake message across records; `message` reads the name out of it. Each byte is
//! looked at a bounded number of times, however it arrives.

mod message;

/// Bytes of a ClientHello's handshake message; those of today's clients have 200 to 2,000.
pub const HELLO_BYTES_MAX: usize = 16 << 10;

/// Bytes of the name: the bound of a host name (RFC 1035 section 2.3.4).
pub const NAME_BYTES_MAX: usize = 255;

/// A TLS record's payload in plain text (RFC 8446 section 5.1).
const RECORD_BYTES_MAX: usize = 1 << 14;
const RECORD_HEADER_BYTES: usize = 5;
const RECORD_HANDSHAKE: u8 = 22;
const MESSAGE_HEADER_BYTES: usize = 4;
const MESSAGE_CLIENT_HELLO: u8 = 1;

/// What has been found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// The message isn't complete.
    More,
    /// It asks for this host, in lower case.
    Name(String),
    /// It is a ClientHello that names no host.
    NoName,
    /// It is something else, or a ClientHello that breaks its grammar.
    NotTls,
    /// It is longer than [`HELLO_BYTES_MAX`].
    TooLong,
}

/// Reads a ClientHello as it arrives.
///
/// # Source
/// RFC 8446 sections 4.1.2 and 5.1, RFC 6066 section 3.
#[derive(Debug, Default)]
pub struct HelloReader {
    /// The header of the record under way, and how much of it has come.
    header: [u8; RECORD_HEADER_BYTES],
    header_filled: usize,
    /// Bytes of that record's payload still to come.
    record_left: usize,
    message: Vec<u8>,
}

impl HelloReader {
    /// Nothing read yet.
    #[must_use]
    pub fn new() -> HelloReader {
        HelloReader::default()
    }

    /// Takes the next bytes of the stream; what comes after an answer other than [`Hello::More`] means nothing.
    pub fn push(&mut self, mut bytes: &[u8]) -> Hello {
        while !bytes.is_empty() {
            if self.record_left == 0 {
                let (byte, rest) = (bytes[0], &bytes[1..]);
                bytes = rest;
                if !self.push_header(byte) {
                    return Hello::NotTls;
                }
                continue;
            }
            let (part, rest) = bytes.split_at(bytes.len().min(self.record_left));
            bytes = rest;
            self.record_left -= part.len();
            // One record may hold more than is wanted.
            let room = (MESSAGE_HEADER_BYTES + HELLO_BYTES_MAX).saturating_sub(self.message.len());
            self.message.extend_from_slice(&part[..part.len().min(room)]);
            match self.judge() {
                Hello::More => {}
                found => return found,
            }
        }
        Hello::More
    }

    /// Takes one byte of a record's header; `false` where no handshake has it.
    fn push_header(&mut self, byte: u8) -> bool {
        let fits = match self.header_filled {
            0 => byte == RECORD_HANDSHAKE,
            // Every version since SSL 3.0 has this major number; the minor one says nothing here.
            1 => byte == 3,
            _ => true,
        };
        self.header[self.header_filled] = byte;
        self.header_filled += 1;
        if self.header_filled == RECORD_HEADER_BYTES {
            self.header_filled = 0;
            self.record_left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
            return fits && (1..=RECORD_BYTES_MAX).contains(&self.record_left);
        }
        fits
    }

    fn judge(&self) -> Hello {
        let [kind, rest @ ..] = &self.message[..] else {
            return Hello::More;
        };
        if *kind != MESSAGE_CLIENT_HELLO {
            return Hello::NotTls;
        }
        let [high, middle, low, body @ ..] = rest else {
            return Hello::More;
        };
        let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
        if length > HELLO_BYTES_MAX {
            return Hello::TooLong;
        }
        match body.get(..length) {
            Some(body) => message::server_name(body),
            None => Hello::More,
        }
    }
}

#[cfg(test)]
mod tests;

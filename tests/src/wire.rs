//! One end of a connection: bytes out, and bytes, heads and bodies in, each read with a deadline.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::message::{Body, Framing, Head};

/// How long anything awaited may take. Only a failing test ever waits so long.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// The largest head that is read.
const HEAD_BYTES_MAX: usize = 4 << 20;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// By FIN.
    Fin,
    /// By RST.
    Reset,
}

/// A connection with what was read ahead of it.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    ahead: Vec<u8>,
}

impl Wire {
    /// Takes a connected stream.
    ///
    /// # Errors
    /// Where its options can't be set.
    pub fn new(stream: TcpStream) -> Result<Wire> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        Ok(Wire {
            stream,
            ahead: Vec::new(),
        })
    }

    /// The stream itself.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// Where the peer is gone or takes nothing within [`DEADLINE`].
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("send")
    }

    /// Sends until the peer has taken nothing for `pause`; gives the bytes sent.
    ///
    /// # Errors
    /// Where the peer is gone.
    pub fn send_until_blocked(&mut self, bytes: &[u8], pause: Duration) -> Result<usize> {
        self.stream.set_write_timeout(Some(pause))?;
        let mut sent = 0;
        while sent < bytes.len() {
            match self.stream.write(&bytes[sent..]) {
                Ok(n) => sent += n,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) => return Err(error).context("send"),
            }
        }
        self.stream.set_write_timeout(Some(DEADLINE))?;
        Ok(sent)
    }

    /// Reads what there is, at least a byte; 0 is the end.
    fn fill(&mut self) -> Result<usize> {
        let mut buffer = [0; 64 << 10];
        let n = self.stream.read(&mut buffer).context("read")?;
        self.ahead.extend_from_slice(&buffer[..n]);
        Ok(n)
    }

    /// Reads up to and with `mark`. None where the connection ended before the first byte.
    fn through(&mut self, mark: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut searched = 0;
        loop {
            let from = self.ahead[searched..]
                .windows(mark.len())
                .position(|window| window == mark);
            if let Some(at) = from {
                let rest = self.ahead.split_off(searched + at + mark.len());
                return Ok(Some(std::mem::replace(&mut self.ahead, rest)));
            }
            searched = self.ahead.len().saturating_sub(mark.len() - 1);
            if self.ahead.len() > HEAD_BYTES_MAX {
                bail!("no {mark:?} in {HEAD_BYTES_MAX} bytes");
            }
            if self.fill()? == 0 {
                if self.ahead.is_empty() {
                    return Ok(None);
                }
                bail!(
                    "the connection ended inside {:?}",
                    String::from_utf8_lossy(&self.ahead)
                );
            }
        }
    }

    /// Reads a head. None where the connection ended before its first byte.
    ///
    /// # Errors
    /// Where it is malformed, incomplete or late.
    pub fn head(&mut self) -> Result<Option<Head>> {
        let Some(raw) = self.through(b"\r\n\r\n")? else {
            return Ok(None);
        };
        Head::parse(&raw).map(Some)
    }

    /// Reads exactly `len` bytes.
    ///
    /// # Errors
    /// Where the connection ends before, or they come too late.
    pub fn exact(&mut self, len: usize) -> Result<Vec<u8>> {
        while self.ahead.len() < len {
            if self.fill()? == 0 {
                bail!("the connection ended after {} of {len} bytes", self.ahead.len());
            }
        }
        let rest = self.ahead.split_off(len);
        Ok(std::mem::replace(&mut self.ahead, rest))
    }

    /// Reads a chunk as it stands: its data, empty for the last one (whose trailers are left unread).
    ///
    /// # Errors
    /// Where its framing is broken, cut or late.
    pub fn chunk(&mut self) -> Result<Vec<u8>> {
        let line = self
            .through(b"\r\n")?
            .context("the connection ended between chunks")?;
        let line = String::from_utf8_lossy(&line[..line.len() - 2]).into_owned();
        let digits = line.split([';', ' ', '\t']).next().unwrap_or_default();
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            bail!("chunk line {line:?}");
        }
        let len = usize::from_str_radix(digits, 16).context("chunk size")?;
        if len == 0 {
            return Ok(Vec::new());
        }
        let mut data = self.exact(len + 2)?;
        if data.split_off(len) != b"\r\n" {
            bail!("chunk data without its CRLF");
        }
        Ok(data)
    }

    /// Reads the trailers behind the last chunk.
    ///
    /// # Errors
    /// Where they are malformed, cut or late.
    pub fn trailers(&mut self) -> Result<Vec<(String, String)>> {
        let mut trailers = Vec::new();
        loop {
            let line = self
                .through(b"\r\n")?
                .context("the connection ended inside the trailers")?;
            let line = String::from_utf8_lossy(&line[..line.len() - 2]).into_owned();
            if line.is_empty() {
                return Ok(trailers);
            }
            let (name, value) = line
                .split_once(':')
                .with_context(|| format!("trailer {line:?}"))?;
            trailers.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    /// Reads a body to its end; a broken or cut one says why.
    pub fn body(&mut self, framing: Framing) -> Body {
        let mut body = Body::default();
        let read = match framing {
            Framing::None => Ok(()),
            Framing::Length(len) => self.length_body(len, &mut body),
            Framing::Chunked => self.chunked_body(&mut body),
            Framing::Close => self.close_body(&mut body),
        };
        body.cut = read.err().map(|error| format!("{error:#}"));
        body
    }

    fn length_body(&mut self, len: u64, body: &mut Body) -> Result<()> {
        let len = usize::try_from(len).context("length")?;
        while self.ahead.len() < len && self.fill()? > 0 {}
        let rest = self.ahead.split_off(len.min(self.ahead.len()));
        body.bytes = std::mem::replace(&mut self.ahead, rest);
        if body.bytes.len() < len {
            bail!("{} of {len} bytes", body.bytes.len());
        }
        Ok(())
    }

    fn chunked_body(&mut self, body: &mut Body) -> Result<()> {
        loop {
            let data = self.chunk()?;
            if data.is_empty() {
                body.trailers = self.trailers()?;
                return Ok(());
            }
            body.bytes.extend_from_slice(&data);
        }
    }

    fn close_body(&mut self, body: &mut Body) -> Result<()> {
        while self.fill()? > 0 {}
        body.bytes = std::mem::take(&mut self.ahead);
        Ok(())
    }

    /// Waits for the peer to close, dropping what still comes.
    ///
    /// # Errors
    /// Where it doesn't within [`DEADLINE`] of its last byte.
    pub fn closed(&mut self) -> Result<Closed> {
        let mut buffer = [0; 64 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(Closed::Fin),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                    return Ok(Closed::Reset);
                }
                Err(error) => return Err(error).context("the connection stayed open"),
            }
        }
    }

    /// Bytes read ahead and not asked for yet.
    #[must_use]
    pub fn read_ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Ends the sending direction with a FIN.
    ///
    /// # Errors
    /// Where the connection is gone.
    pub fn finish_sending(&mut self) -> Result<()> {
        self.stream.shutdown(Shutdown::Write).context("shutdown")
    }

    /// Closes with an RST.
    ///
    /// # Errors
    /// Where the option can't be set.
    pub fn reset(self) -> Result<()> {
        socket2::SockRef::from(&self.stream)
            .set_linger(Some(Duration::ZERO))
            .context("linger")
    }
}

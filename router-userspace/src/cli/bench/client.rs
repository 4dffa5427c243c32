//! A lean HTTP/1.1 client: one connection, one request at a time, the body handed on as it comes.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::chunks::{ChunkDecoder, ChunkState};

/// Bytes of an answer's head, and fields in it.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEAD_FIELDS_MAX: usize = 128;
/// Bytes that one read takes.
const READ_BYTES: usize = 16 << 10;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Failure {
    /// No connection.
    Connect,
    /// The connection ended before the answer's head.
    Reset,
    /// The answer was no HTTP.
    Malformed,
    /// The answer ended too early.
    Cut,
    /// A status other than 2xx.
    Status(u16),
    /// The stream carried an error.
    InStream,
    /// It took too long.
    Timeout,
}

impl Failure {
    /// Its name in `errors_by_kind`.
    pub(super) fn name(self) -> String {
        match self {
            Failure::Connect => "connect".to_owned(),
            Failure::Reset => "reset".to_owned(),
            Failure::Malformed => "malformed".to_owned(),
            Failure::Cut => "cut_stream".to_owned(),
            Failure::Status(status) => format!("status_{status}"),
            Failure::InStream => "error_in_stream".to_owned(),
            Failure::Timeout => "timeout".to_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

/// A head, understood.
#[derive(Clone, Copy, Debug)]
struct Head {
    status: u16,
    framing: Framing,
    keep_alive: bool,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Whether it carried an answer already.
    pub(super) used: bool,
}

impl Connection {
    /// Opens one.
    pub(super) async fn open(addr: SocketAddr) -> Result<Connection, Failure> {
        let stream = TcpStream::connect(addr).await.map_err(|_| Failure::Connect)?;
        // Failure costs only time: a request is one write.
        let _ = stream.set_nodelay(true);
        Ok(Connection {
            stream,
            buffer: Vec::with_capacity(READ_BYTES),
            used: false,
        })
    }

    /// Whether the other side has closed it, or sent something unasked.
    pub(super) fn stale(&self) -> bool {
        !matches!(self.stream.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Sends a request and reads its answer, handing the body of a 2xx to `body`; says whether the connection
    /// may carry another.
    pub(super) async fn exchange(
        &mut self,
        request: &[u8],
        mut body: impl FnMut(&[u8]),
    ) -> Result<bool, Failure> {
        self.stream.write_all(request).await.map_err(|_| Failure::Reset)?;
        let head = self.head().await?;
        let mut hand_on = |bytes: &[u8]| {
            if (200..300).contains(&head.status) {
                body(bytes);
            }
        };
        match head.framing {
            Framing::Length(length) => self.counted(length, &mut hand_on).await?,
            Framing::Chunked => self.chunked(&mut hand_on).await?,
            Framing::UntilClose => self.until_close(&mut hand_on).await?,
        }
        self.used = true;
        if !(200..300).contains(&head.status) {
            return Err(Failure::Status(head.status));
        }
        Ok(head.keep_alive && head.framing != Framing::UntilClose)
    }

    /// Reads more into the buffer; `false` at the end of the connection.
    async fn fill(&mut self) -> bool {
        self.buffer.reserve(READ_BYTES);
        matches!(self.stream.read_buf(&mut self.buffer).await, Ok(count) if count > 0)
    }

    async fn head(&mut self) -> Result<Head, Failure> {
        loop {
            if let Some((head, length)) = parse_head(&self.buffer)? {
                self.buffer.drain(..length);
                if head.status >= 200 {
                    return Ok(head);
                }
                continue;
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(Failure::Malformed);
            }
            if !self.fill().await {
                return Err(Failure::Reset);
            }
        }
    }

    async fn counted(&mut self, mut length: u64, body: &mut impl FnMut(&[u8])) -> Result<(), Failure> {
        loop {
            let take = usize::try_from(length)
                .unwrap_or(usize::MAX)
                .min(self.buffer.len());
            if take > 0 {
                body(&self.buffer[..take]);
                self.buffer.drain(..take);
                length -= take as u64;
            }
            if length == 0 {
                return Ok(());
            }
            if !self.fill().await {
                return Err(Failure::Cut);
            }
        }
    }

    async fn chunked(&mut self, body: &mut impl FnMut(&[u8])) -> Result<(), Failure> {
        let mut decoder = ChunkDecoder::default();
        loop {
            let consumed = decoder.decode(&self.buffer, body)?;
            self.buffer.drain(..consumed);
            if decoder.state == ChunkState::End {
                return Ok(());
            }
            if !self.fill().await {
                return Err(Failure::Cut);
            }
        }
    }

    async fn until_close(&mut self, body: &mut impl FnMut(&[u8])) -> Result<(), Failure> {
        loop {
            body(&self.buffer);
            self.buffer.clear();
            self.buffer.reserve(READ_BYTES);
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(_) => return Err(Failure::Cut),
            }
        }
    }
}

/// A complete head and its length; `None` while it's incomplete.
fn parse_head(bytes: &[u8]) -> Result<Option<(Head, usize)>, Failure> {
    let mut fields = [httparse::EMPTY_HEADER; HEAD_FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Failure::Malformed),
    };
    let status = response.code.unwrap_or(0);
    let mut head = Head {
        status,
        framing: Framing::UntilClose,
        keep_alive: response.version == Some(1),
    };
    for field in response.headers.iter() {
        let value = field.value.trim_ascii();
        if field.name.eq_ignore_ascii_case("transfer-encoding") {
            head.framing = Framing::Chunked;
        } else if field.name.eq_ignore_ascii_case("content-length") && head.framing != Framing::Chunked {
            let text = std::str::from_utf8(value).map_err(|_| Failure::Malformed)?;
            head.framing = Framing::Length(text.parse().map_err(|_| Failure::Malformed)?);
        } else if field.name.eq_ignore_ascii_case("connection") {
            head.keep_alive &= !value.eq_ignore_ascii_case(b"close");
        }
    }
    if status < 200 || status == 204 || status == 304 {
        head.framing = Framing::Length(0);
    }
    Ok(Some((head, length)))
}

#[cfg(test)]
mod tests {
    use super::{Framing, parse_head};

    #[test]
    fn a_head_says_how_its_body_ends() {
        let framing = |head: &[u8]| parse_head(head).unwrap().unwrap().0.framing;
        assert_eq!(
            framing(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
            Framing::Length(5)
        );
        let both = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(framing(both), Framing::Chunked);
        assert_eq!(framing(b"HTTP/1.1 204 No Content\r\n\r\n"), Framing::Length(0));
        assert_eq!(framing(b"HTTP/1.0 200 OK\r\n\r\n"), Framing::UntilClose);
        assert!(parse_head(b"HTTP/1.1 200 OK\r\n").unwrap().is_none());
    }
}

//! A lean HTTP/1.1 client: one connection, one request at a time, the body handed on as it comes.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    #[default]
    Size,
    Data(u64),
    DataEnd,
    Trailer,
    End,
}

/// Takes the chunks' frames off.
#[derive(Debug, Default)]
struct ChunkDecoder {
    state: ChunkState,
}

impl ChunkDecoder {
    /// Hands on the data in `bytes` and says how many bytes are done with; the others are an incomplete line.
    fn decode(&mut self, bytes: &[u8], body: &mut impl FnMut(&[u8])) -> Result<usize, Failure> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.state {
                ChunkState::Data(length) => {
                    let take = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
                    body(&rest[..take]);
                    at += take;
                    let left = length - take as u64;
                    self.state = if left == 0 {
                        ChunkState::DataEnd
                    } else {
                        ChunkState::Data(left)
                    };
                }
                ChunkState::End => break,
                line_state => {
                    let Some(end) = memchr::memchr(b'\n', rest) else {
                        if rest.len() > HEAD_BYTES_MAX {
                            return Err(Failure::Malformed);
                        }
                        break;
                    };
                    self.state = after_line(line_state, rest[..end].trim_ascii())?;
                    at += end + 1;
                }
            }
        }
        Ok(at)
    }
}

fn after_line(state: ChunkState, line: &[u8]) -> Result<ChunkState, Failure> {
    match state {
        ChunkState::Size => {
            let digits = line
                .split(|&byte| byte == b';')
                .next()
                .unwrap_or_default()
                .trim_ascii();
            let text = std::str::from_utf8(digits).map_err(|_| Failure::Malformed)?;
            match u64::from_str_radix(text, 16).map_err(|_| Failure::Malformed)? {
                0 => Ok(ChunkState::Trailer),
                length => Ok(ChunkState::Data(length)),
            }
        }
        ChunkState::DataEnd if line.is_empty() => Ok(ChunkState::Size),
        ChunkState::Trailer if line.is_empty() => Ok(ChunkState::End),
        ChunkState::Trailer => Ok(ChunkState::Trailer),
        _ => Err(Failure::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::{ChunkDecoder, ChunkState, Failure, Framing, parse_head};

    #[test]
    fn chunks_decode_the_same_split_at_every_byte() {
        let wire = b"5\r\nhello\r\n1;x=y\r\n \r\nA\r\n0123456789\r\n0\r\nT: v\r\n\r\n";
        for split in 0..wire.len() {
            let mut decoder = ChunkDecoder::default();
            let mut out = Vec::new();
            let mut pending = wire[..split].to_vec();
            let done = decoder
                .decode(&pending, &mut |bytes| out.extend_from_slice(bytes))
                .unwrap();
            pending.drain(..done);
            pending.extend_from_slice(&wire[split..]);
            decoder
                .decode(&pending, &mut |bytes| out.extend_from_slice(bytes))
                .unwrap();
            assert_eq!(
                (&out[..], decoder.state),
                (&b"hello 0123456789"[..], ChunkState::End)
            );
        }
    }

    #[test]
    fn bad_chunks_are_malformed() {
        for wire in [&b"x\r\n"[..], b"1\r\nab\r\n", b"\r\n"] {
            let result = ChunkDecoder::default().decode(wire, &mut |_| {});
            assert_eq!(result, Err(Failure::Malformed));
        }
    }

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

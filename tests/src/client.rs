//! A raw client of the router. What goes wrong is a panic: a test has nothing better to do with it.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::message::{Body, Framing, Head, Message};
use crate::wire::{Closed, Wire};

/// A connection to the router.
#[derive(Debug)]
pub struct Client {
    wire: Wire,
}

impl Client {
    /// Connects.
    ///
    /// # Panics
    /// Where it can't.
    #[must_use]
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("connects");
        Client {
            wire: Wire::new(stream).expect("takes its options"),
        }
    }

    /// Connects with a receive buffer of about `bytes`, so that a client that reads nothing is full soon.
    ///
    /// # Panics
    /// Where it can't.
    #[must_use]
    #[track_caller]
    pub fn connect_with_receive_buffer(address: SocketAddr, bytes: usize) -> Client {
        let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)
            .expect("a socket");
        socket.set_recv_buffer_size(bytes).expect("a buffer size");
        socket.connect(&address.into()).expect("connects");
        Client {
            wire: Wire::new(socket.into()).expect("takes its options"),
        }
    }

    /// Lets a read take so long instead of [`crate::DEADLINE`].
    ///
    /// # Panics
    /// Where the option can't be set.
    #[track_caller]
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.wire
            .stream()
            .set_read_timeout(Some(deadline))
            .expect("takes its options");
    }

    /// Sends all of `bytes`.
    ///
    /// # Panics
    /// Where the router is gone or takes nothing.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.wire.send(bytes).expect("the router takes what is sent");
    }

    /// Sends all of `bytes`, or as much as the router takes before it closes.
    pub fn send_if_open(&mut self, bytes: &[u8]) {
        // The router may answer and close first: what it answered is what counts.
        let _ = self.wire.send(bytes);
    }

    /// Reads a head, interim ones too.
    ///
    /// # Panics
    /// Where none comes.
    #[track_caller]
    pub fn head(&mut self) -> Head {
        match self.wire.head() {
            Ok(Some(head)) => head,
            Ok(None) => panic!("the router closed instead of answering"),
            Err(error) => panic!("no head: {error:#}"),
        }
    }

    /// Reads exactly `len` bytes.
    ///
    /// # Panics
    /// Where they don't come.
    #[track_caller]
    pub fn exact(&mut self, len: usize) -> Vec<u8> {
        self.wire.exact(len).expect("the bytes come")
    }

    /// Reads one chunk's data; empty is the last one.
    ///
    /// # Panics
    /// Where none comes.
    #[track_caller]
    pub fn chunk(&mut self) -> Vec<u8> {
        self.wire.chunk().expect("a chunk comes")
    }

    /// Reads chunks until their data is at least `len` bytes long, and gives it: a proxy may cut and join
    /// chunks.
    ///
    /// # Panics
    /// Where they don't come.
    #[track_caller]
    pub fn chunks(&mut self, len: usize) -> Vec<u8> {
        let mut data = Vec::new();
        while data.len() < len {
            let chunk = self.chunk();
            assert!(
                !chunk.is_empty(),
                "the body ended after {} of {len} bytes",
                data.len()
            );
            data.extend_from_slice(&chunk);
        }
        data
    }

    /// Reads the final response to a request with `method`, complete or cut.
    ///
    /// # Panics
    /// Where none comes or its head is malformed.
    #[track_caller]
    pub fn response_or_cut(&mut self, method: &str) -> Message {
        let mut interim = Vec::new();
        let mut head = self.head();
        while matches!(head.status(), 100 | 102..=199) {
            interim.push(std::mem::replace(&mut head, self.head()));
        }
        let framing = head.response_framing(method).expect("a valid response");
        let body = self.wire.body(framing);
        Message {
            interim,
            head,
            framing,
            body: body.bytes,
            trailers: body.trailers,
            cut: body.cut,
        }
    }

    /// Reads the final response to a request with `method`.
    ///
    /// # Panics
    /// Where none comes or it's cut.
    #[track_caller]
    pub fn response(&mut self, method: &str) -> Message {
        let message = self.response_or_cut(method);
        if let Some(why) = &message.cut {
            panic!("a cut response: {why}\n{:?}", message.head);
        }
        message
    }

    /// The body of a response whose head was read by [`Client::head`].
    ///
    /// # Panics
    /// Where it's cut.
    #[track_caller]
    pub fn body(&mut self, framing: Framing) -> Vec<u8> {
        let body = self.wire.body(framing);
        if let Some(why) = &body.cut {
            panic!("a cut body: {why}");
        }
        body.bytes
    }

    /// The rest of a body that may be cut.
    pub fn rest_of_cut_body(&mut self, framing: Framing) -> Body {
        self.wire.body(framing)
    }

    /// Waits for the router to close.
    ///
    /// # Panics
    /// Where it doesn't, or sends anything before.
    #[track_caller]
    pub fn expect_close(&mut self) {
        let extra = self.wire.read_ahead().to_vec();
        assert!(
            extra.is_empty(),
            "unexpected {:?}",
            String::from_utf8_lossy(&extra)
        );
        match self.wire.exact(1) {
            Ok(extra) => panic!("unexpected bytes from {extra:?}"),
            Err(error) => {
                let text = format!("{error:#}");
                let timed_out = text.contains("temporarily unavailable") || text.contains("timed out");
                assert!(!timed_out, "the connection stayed open");
            }
        }
    }

    /// Waits for the router to close, dropping what still comes.
    ///
    /// # Panics
    /// Where it doesn't.
    #[track_caller]
    pub fn drain_to_close(&mut self) -> Closed {
        self.wire.closed().expect("the router closes")
    }

    /// Ends the sending direction with a FIN.
    ///
    /// # Panics
    /// Where the connection is gone.
    #[track_caller]
    pub fn finish_sending(&mut self) {
        self.wire.finish_sending().expect("still connected");
    }

    /// Leaves with an RST.
    ///
    /// # Panics
    /// Where the option can't be set.
    #[track_caller]
    pub fn reset(self) {
        self.wire.reset().expect("takes its options");
    }
}

//! One flow in a relay: what to do when its sockets are ready, and what to wait for next.

use std::io;
use std::net::Shutdown;
use std::os::fd::RawFd;

use bytes::{Buf, BytesMut};
use router_common::framing::{Framing, Piece, Progress as MessageProgress};

use super::kernel_side::{KernelSide, Mode};
use super::poll::Interest;
use super::thread::RelayConfig;
use crate::datapath::{Flow, FlowEnd, FlowKind, Outcome};
use crate::net::{self, Conn};
use crate::types::Micros;

/// What comes after a turn.
pub(super) enum Next {
    /// Wait for what the interests say.
    Wait,
    /// The flow is over.
    End(Outcome),
}

pub(super) const IN: u32 = libc::EPOLLIN as u32;
pub(super) const OUT: u32 = libc::EPOLLOUT as u32;
pub(super) const RDHUP: u32 = libc::EPOLLRDHUP as u32;
const BROKEN: u32 = (libc::EPOLLHUP | libc::EPOLLERR) as u32;

/// A flow and its state.
pub(super) struct Carried {
    pub(super) flow: Flow,
    /// Who carries it at the moment.
    pub(super) mode: Mode,
    pub(super) kernel: KernelSide,
    /// Bytes for the client that its socket didn't take.
    pub(super) down: BytesMut,
    /// Bytes for the engine that its socket didn't take (tunnels).
    pub(super) up: BytesMut,
    /// How the flow ends once `down` is empty.
    pub(super) ending: Option<Outcome>,
    pub(super) client_ended: bool,
    pub(super) upstream_ended: bool,
    /// The client's socket is shut both ways; what it sent before may still be unread (tunnels).
    pub(super) client_hung: bool,
    /// The engine takes nothing any more; what it sent before may still be unread (tunnels).
    pub(super) up_broken: bool,
    pub(super) received_at: Micros,
    pub(super) written_at: Micros,
    /// Bytes that the client had acknowledged when it was last looked at.
    client_acked: u64,
    pub(super) bytes: u64,
}

impl Carried {
    pub(super) fn new(flow: Flow, at: Micros) -> Carried {
        Carried {
            flow,
            mode: Mode::Copy,
            kernel: KernelSide::default(),
            down: BytesMut::new(),
            up: BytesMut::new(),
            ending: None,
            client_ended: false,
            upstream_ended: false,
            client_hung: false,
            up_broken: false,
            received_at: at,
            written_at: at,
            client_acked: 0,
            bytes: 0,
        }
    }

    pub(super) fn client_fd(&self) -> RawFd {
        self.flow.client.raw_fd()
    }

    pub(super) fn upstream_fd(&self) -> RawFd {
        self.flow.upstream.raw_fd()
    }

    pub(super) fn is_tunnel(&self) -> bool {
        matches!(self.flow.kind, FlowKind::Tunnel)
    }

    pub(super) fn client_interest(&self) -> Interest {
        if self.is_tunnel() {
            return self.tunnel_client_interest();
        }
        let mut events = if self.down.is_empty() { 0 } else { OUT };
        if self.flow.client_fin_aborts {
            events |= RDHUP;
        }
        Interest::On(events)
    }

    pub(super) fn upstream_interest(&self) -> Interest {
        match self.mode {
            Mode::Copy => {}
            Mode::Kernel => return Interest::On(RDHUP),
            Mode::Draining { .. } => return Interest::Off,
        }
        let mut events = if self.up.is_empty() { 0 } else { OUT };
        if self.down.is_empty() && !self.upstream_ended && self.ending.is_none() {
            events |= IN;
        }
        // Off while the client is behind: the engine's window closes, and it stops.
        if events == 0 {
            Interest::Off
        } else {
            Interest::On(events)
        }
    }

    /// Sends what was read ahead before the flow came here.
    pub(super) fn begin(&mut self, buffer: &mut [u8], at: Micros) -> Next {
        if self.is_tunnel() {
            let ahead = std::mem::take(&mut self.flow.client.read_ahead);
            self.send_up(&ahead);
        }
        let ahead = std::mem::take(&mut self.flow.upstream.read_ahead);
        let mut rest = &ahead[..];
        while !rest.is_empty() && self.ending.is_none() {
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            if let Next::End(outcome) = self.pass_down(buffer, count, at) {
                return Next::End(outcome);
            }
        }
        self.flow.upstream.read_ahead.extend_from_slice(rest);
        self.settle()
    }

    pub(super) fn upstream_ready(&mut self, events: u32, buffer: &mut [u8], at: Micros) -> Next {
        if self.mode != Mode::Copy {
            // Nothing but the end of the engine's side is watched for.
            return self.reclaim(None, at);
        }
        if events & (OUT | BROKEN) != 0 && !self.up.is_empty() {
            self.flush_up();
            self.written_at = at;
        }
        let reads = self.upstream_interest().events() & IN != 0;
        if !reads {
            return self.settle();
        }
        match receive(&mut self.flow.upstream, buffer) {
            Ok(0) => self.upstream_closed(),
            Ok(count) => {
                self.received_at = at;
                self.kernel.may_arm = true;
                self.flow.progress.note(count as u64, at);
                self.pass_down(buffer, count, at)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Next::Wait,
            Err(_) => self.end_after_flush(Outcome::UpstreamCut("the engine reset the connection")),
        }
    }

    pub(super) fn client_ready(&mut self, events: u32, buffer: &mut [u8], at: Micros) -> Next {
        if self.is_tunnel() {
            return self.tunnel_client_ready(events, buffer, at);
        }
        let left = if self.flow.client_fin_aborts {
            BROKEN | RDHUP
        } else {
            BROKEN
        };
        if events & left != 0 {
            return Next::End(Outcome::ClientLeft);
        }
        if let Err(next) = self.client_takes(events, at) {
            return next;
        }
        self.settle()
    }

    /// Sends on what was kept for the client, where it can take some.
    pub(super) fn client_takes(&mut self, events: u32, at: Micros) -> Result<(), Next> {
        if events & OUT != 0 && !self.down.is_empty() {
            let before = self.down.len();
            self.flush_down()?;
            if self.down.len() < before {
                self.written_at = at;
            }
        }
        Ok(())
    }

    /// Notes whether a client for which bytes wait has taken any: a full socket isn't writable again for as long as a
    /// slow client reads what is in it.
    pub(super) fn sample_client(&mut self, at: Micros) {
        if self.down.is_empty() {
            return;
        }
        let acked = net::acked_bytes(&self.flow.client).unwrap_or(0);
        if acked > self.client_acked {
            self.client_acked = acked;
            self.written_at = at;
        }
    }

    /// Whether a time limit has been passed.
    pub(super) fn overdue(&self, config: &RelayConfig, at: Micros) -> Option<Outcome> {
        let written = self.written_at.max(self.received_at);
        if let Some(terms) = &self.flow.tunnel {
            return (at.since(written) > terms.idle).then_some(Outcome::Idle);
        }
        if !self.down.is_empty() && at.since(written) > config.client_write {
            return Some(Outcome::ClientLeft);
        }
        if let Mode::Draining { since, .. } = self.mode {
            // Nothing is read meanwhile: the silence isn't the engine's.
            return (at.since(since) > config.client_write).then_some(Outcome::ClientLeft);
        }
        if self.down.is_empty() && at.since(self.received_at) > config.stream_idle {
            return Some(Outcome::UpstreamCut(
                "the engine was silent for longer than timeouts.stream_idle",
            ));
        }
        None
    }

    /// Gives the connections back, shut down where the message isn't whole; says what bytes were carried, and those
    /// of them that the kernel carried.
    pub(super) fn finish(mut self, outcome: Outcome) -> (u64, u64) {
        if self.mode == Mode::Kernel {
            self.take_back(crate::types::now());
        }
        let Flow {
            mut upstream_slot,
            mut client_slot,
            client,
            upstream,
            kind,
            tunnel,
            done,
            ..
        } = self.flow;
        let (chunks, ends_by_close) = match kind {
            FlowKind::Body(framing) => (framing.chunks(), framing.is_until_close()),
            FlowKind::Dechunked(framing) => (framing.chunks(), true),
            FlowKind::Tunnel => (0, true),
        };
        if outcome != Outcome::Complete {
            // Out of the maps before they are shut down.
            upstream_slot = None;
            client_slot = None;
            // Both close with a reset. The engine's: unread bytes of a socket that was in the maps lie where its close
            // doesn't see them; it would end by FIN with a closed window, and an engine in the middle of a write would
            // wait for a minute. A tunnel's: a FIN would be taken for the sender's own end.
            if tunnel.is_none() {
                net::shutdown(&upstream, Shutdown::Both);
            }
            net::reset_on_close(&upstream);
            if ends_by_close {
                // A FIN would look like the end of the body.
                net::reset_on_close(&client);
            }
        }
        let (bytes, kernel_bytes) = (self.bytes, self.kernel.bytes);
        let end = FlowEnd {
            upstream_slot,
            client_slot,
            client,
            upstream,
            outcome,
            bytes,
            kernel_bytes,
            chunks,
        };
        // Nobody waits any more only where the worker itself is gone; then both connections just close.
        let _ = done.send(end);
        (bytes, kernel_bytes)
    }

    fn upstream_closed(&mut self) -> Next {
        match &self.flow.kind {
            FlowKind::Tunnel => self.tunnel_upstream_closed(),
            FlowKind::Body(framing) if framing.is_until_close() => self.end_after_flush(Outcome::Complete),
            _ => self.end_after_flush(Outcome::UpstreamCut("the engine closed inside the body")),
        }
    }

    pub(super) fn end_after_flush(&mut self, outcome: Outcome) -> Next {
        self.ending = Some(outcome);
        // Only a tunnel has any, and nobody is there to take them.
        self.up.clear();
        self.settle()
    }

    /// Passes `buffer[..count]`, as received from the engine, to the client.
    fn pass_down(&mut self, buffer: &mut [u8], count: usize, at: Micros) -> Next {
        if let Some(first_byte) = self.flow.first_byte.take() {
            first_byte.came(at);
        }
        let (length, consumed, progress) = match &mut self.flow.kind {
            FlowKind::Tunnel => (count, count, MessageProgress::More),
            FlowKind::Body(framing) => {
                let step = framing.advance(&buffer[..count]);
                (step.consumed, step.consumed, step.progress)
            }
            FlowKind::Dechunked(framing) => dechunk(framing, &mut buffer[..count]),
        };
        if consumed < count && progress == MessageProgress::Done {
            self.flow
                .upstream
                .read_ahead
                .extend_from_slice(&buffer[consumed..count]);
        }
        match progress {
            MessageProgress::More => {}
            MessageProgress::Done => self.ending = Some(Outcome::Complete),
            MessageProgress::Failed(error) => self.ending = Some(Outcome::UpstreamCut(error.reason())),
        }
        if let Err(next) = self.send_down(&buffer[..length]) {
            return next;
        }
        if self.down.is_empty() {
            self.written_at = at;
        }
        self.settle()
    }

    pub(super) fn settle(&mut self) -> Next {
        match self.ending {
            Some(outcome) if self.down.is_empty() => Next::End(outcome),
            None if self.is_tunnel() => self.tunnel_settle(),
            _ => Next::Wait,
        }
    }

    fn send_down(&mut self, bytes: &[u8]) -> Result<(), Next> {
        self.bytes += bytes.len() as u64;
        send_or_keep(&self.flow.client, bytes, &mut self.down).map_err(|_| Next::End(Outcome::ClientLeft))
    }

    fn flush_down(&mut self) -> Result<(), Next> {
        flush(&self.flow.client, &mut self.down).map_err(|_| Next::End(Outcome::ClientLeft))
    }
}

/// Moves the payload to the front of `bytes`; gives its length, the bytes consumed and how the message stands.
pub(crate) fn dechunk(framing: &mut Framing, bytes: &mut [u8]) -> (usize, usize, MessageProgress) {
    let (mut length, mut consumed) = (0, 0);
    loop {
        match framing.next_piece(&bytes[consumed..]) {
            Piece::Payload(count) => {
                bytes.copy_within(consumed..consumed + count, length);
                length += count;
                consumed += count;
            }
            Piece::Framing(count) | Piece::Trailers(count) => consumed += count,
            Piece::More | Piece::Done | Piece::Failed(_) => return (length, consumed, framing.progress()),
        }
    }
}

pub(super) fn receive(conn: &mut Conn, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length come from one slice that outlives the call.
    let received = unsafe {
        libc::recv(
            conn.raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            libc::MSG_DONTWAIT,
        )
    };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    conn.bytes_read += received as u64;
    Ok(received)
}

/// Sends `bytes`, behind what is kept already; what the socket doesn't take is kept.
pub(super) fn send_or_keep(conn: &Conn, bytes: &[u8], kept: &mut BytesMut) -> io::Result<()> {
    let sent = if kept.is_empty() { send(conn, bytes)? } else { 0 };
    kept.extend_from_slice(&bytes[sent..]);
    Ok(())
}

pub(super) fn flush(conn: &Conn, kept: &mut BytesMut) -> io::Result<()> {
    let sent = send(conn, kept)?;
    kept.advance(sent);
    if kept.is_empty() {
        // A flow that keeps up holds no buffer.
        *kept = BytesMut::new();
    }
    Ok(())
}

fn send(conn: &Conn, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match net::send_now(conn.raw_fd(), &bytes[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

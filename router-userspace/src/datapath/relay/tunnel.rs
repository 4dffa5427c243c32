//! What is a tunnel's own: the client's bytes on their way to the engine, and two ends instead of one.
//!
//! A direction is read only while nothing of it is kept, so that a tunnel holds at most one turn's bytes each way,
//! and whoever sends faster than the other side takes finds its window closed.

use std::io;
use std::net::Shutdown;

use super::carried::{Carried, IN, Next, OUT, flush, receive, send_or_keep};
use super::poll::Interest;
use crate::datapath::Outcome;
use crate::net;
use crate::types::Micros;

const ERR: u32 = libc::EPOLLERR as u32;
const HUP: u32 = libc::EPOLLHUP as u32;

impl Carried {
    pub(super) fn tunnel_client_interest(&self) -> Interest {
        let mut events = if self.down.is_empty() { 0 } else { OUT };
        if self.up.is_empty() && !self.client_ended && !self.up_broken && self.ending.is_none() {
            events |= IN;
        }
        // A socket that is shut both ways reports HUP for ever; without it a reset would go unnoticed.
        let shut = self.client_hung || (self.client_ended && self.upstream_ended);
        if events == 0 && shut {
            Interest::Off
        } else {
            Interest::On(events)
        }
    }

    pub(super) fn tunnel_client_ready(&mut self, events: u32, buffer: &mut [u8], at: Micros) -> Next {
        let reads = self.tunnel_client_interest().events() & IN != 0;
        if events & ERR != 0 && !reads {
            return Next::End(Outcome::ClientLeft);
        }
        if events & HUP != 0 {
            self.client_hung = true;
        }
        if let Err(next) = self.client_takes(events, at) {
            return next;
        }
        if reads && events & (IN | HUP | ERR) != 0 {
            match receive(&mut self.flow.client, buffer) {
                Ok(0) => self.client_ended = true,
                Ok(count) => {
                    self.received_at = at;
                    if let Some(terms) = &self.flow.tunnel {
                        terms.sent.note(count as u64, at);
                    }
                    self.send_up(&buffer[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Next::End(Outcome::ClientLeft),
            }
        }
        self.settle()
    }

    pub(super) fn tunnel_upstream_closed(&mut self) -> Next {
        if self.up_broken {
            return self.end_after_flush(Outcome::UpstreamCut("the engine closed the connection"));
        }
        self.upstream_ended = true;
        self.settle()
    }

    /// Passes ends on, once everything before them has been sent.
    pub(super) fn tunnel_settle(&mut self) -> Next {
        if self.upstream_ended && self.up_broken && self.down.is_empty() {
            return Next::End(Outcome::UpstreamCut("the engine reset the connection"));
        }
        if self.upstream_ended && self.down.is_empty() {
            net::shutdown(&self.flow.client, Shutdown::Write);
        }
        if self.client_ended && self.up.is_empty() && !self.up_broken {
            net::shutdown(&self.flow.upstream, Shutdown::Write);
        }
        let over = self.upstream_ended && self.client_ended && self.up.is_empty() && self.down.is_empty();
        if over {
            Next::End(Outcome::Complete)
        } else {
            Next::Wait
        }
    }

    pub(super) fn send_up(&mut self, bytes: &[u8]) {
        let sent = send_or_keep(&self.flow.upstream, bytes, &mut self.up);
        self.note_sent_up(&sent);
    }

    pub(super) fn flush_up(&mut self) {
        let sent = flush(&self.flow.upstream, &mut self.up);
        self.note_sent_up(&sent);
    }

    /// An engine that takes no more may have answered before: what it sent is still passed on.
    fn note_sent_up(&mut self, sent: &io::Result<()>) {
        if sent.is_err() {
            self.up_broken = true;
            self.up.clear();
        }
    }
}

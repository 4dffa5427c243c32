//! A body on its way to the client: handed to the relay, or copied on the worker.

use std::os::fd::AsFd;
use std::pin::pin;
use std::time::Duration;

use router_common::framing::Progress as MessageProgress;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::HalfClose;
use super::client::{Client, Link};
use super::trace::Trace;
use super::upstream::Upstream;
use super::worker::Worker;
use crate::backend::{CarriedBy, Charge};
use crate::datapath::{Flow, FlowEnd, FlowKind, Outcome, RelayHandle, dechunk};
use crate::net::{self, Conn};
use crate::types::now;

/// Bytes asked for by one read of a body that a worker copies.
const COPY_READ_BYTES: usize = 64 << 10;
/// How long a tunnel waits for a place in a full relay queue; the relay empties it in a turn of its loop.
const RELAY_WAIT: Duration = Duration::from_secs(5);
/// How often it asks.
const RELAY_POLL: Duration = Duration::from_millis(1);

/// The connections that came back, and how it went.
pub(super) struct Ended {
    pub(super) client: Option<Client>,
    pub(super) upstream: Option<Upstream>,
    pub(super) outcome: Outcome,
}

/// Appends what has been read of the body already to `out`.
pub(super) fn take_ahead(kind: &mut FlowKind, conn: &mut Conn, out: &mut Vec<u8>) -> MessageProgress {
    match kind {
        FlowKind::Tunnel => {
            out.extend_from_slice(&conn.read_ahead.split());
            MessageProgress::More
        }
        FlowKind::Body(framing) => {
            let step = framing.advance(&conn.read_ahead);
            out.extend_from_slice(&conn.read_ahead.split_to(step.consumed));
            step.progress
        }
        FlowKind::Dechunked(framing) => {
            let (length, consumed, progress) = dechunk(framing, &mut conn.read_ahead);
            let part = conn.read_ahead.split_to(consumed);
            out.extend_from_slice(&part[..length]);
            progress
        }
    }
}

/// A body whose head has been written and that isn't complete yet.
pub(super) struct Pass<'a> {
    pub(super) trace: &'a mut Trace,
    pub(super) worker: &'a Worker,
    pub(super) client: Client,
    pub(super) upstream: Upstream,
    pub(super) kind: FlowKind,
    pub(super) charge: &'a Charge,
    pub(super) chunked: bool,
}

impl Pass<'_> {
    /// Hands the flow to the relay and waits for its end; copies on the worker where the relay is full.
    pub(super) async fn on_relay(self) -> Ended {
        let Pass {
            trace,
            worker,
            client,
            upstream,
            kind,
            charge,
            chunked,
        } = self;
        let (done, end) = oneshot::channel();
        let Client {
            slot: mut client_slot,
            conn,
            link,
        } = client;
        if client_slot.is_none() && upstream.slot.is_some() {
            // From its first stream on; a refusal only means copying.
            client_slot = worker
                .shared
                .kernel
                .as_ref()
                .and_then(|kernel| kernel.insert_client(conn.as_fd()).ok());
        }
        let Upstream {
            slot: upstream_slot,
            conn: upstream_conn,
            ring,
            reused,
            acked_at_checkout,
        } = upstream;
        let flow = Flow {
            upstream_slot,
            client_slot,
            client: conn,
            upstream: upstream_conn,
            kind,
            tunnel: None,
            chunked,
            client_fin_aborts: worker.shared.config.half_close == HalfClose::Abort,
            backend: charge.backend().id,
            progress: charge.backend().progress(),
            done,
        };
        match hand_over(&worker.relay, flow).await {
            Ok(()) => {
                let Ok(end) = end.await else {
                    return Ended {
                        client: None,
                        upstream: None,
                        outcome: Outcome::Stopped,
                    };
                };
                let FlowEnd {
                    upstream_slot,
                    client_slot,
                    client: conn,
                    upstream,
                    outcome,
                    bytes,
                    kernel_bytes,
                    ..
                } = end;
                trace.carried(bytes, if kernel_bytes > 0 { "kernel" } else { "copy" });
                let by_kernel = u64::from(kernel_bytes > 0);
                let backend = charge.backend();
                backend.count_carried(CarriedBy::Kernel, by_kernel, kernel_bytes);
                backend.count_carried(CarriedBy::Copy, 1 - by_kernel, bytes - kernel_bytes);
                let upstream = Upstream {
                    slot: upstream_slot,
                    conn: upstream,
                    ring,
                    reused,
                    acked_at_checkout,
                };
                Ended {
                    client: Some(Client {
                        slot: client_slot,
                        conn,
                        link,
                    }),
                    upstream: Some(upstream),
                    outcome,
                }
            }
            Err(Flow {
                upstream_slot,
                client_slot,
                client: conn,
                upstream,
                kind,
                ..
            }) => {
                worker.shared.metrics.relay_queue_full_total.inc();
                let client = Client {
                    slot: client_slot,
                    conn,
                    link,
                };
                let upstream = Upstream {
                    slot: upstream_slot,
                    conn: upstream,
                    ring,
                    reused,
                    acked_at_checkout,
                };
                Pass {
                    trace,
                    worker,
                    client,
                    upstream,
                    kind,
                    charge,
                    chunked,
                }
                .on_worker()
                .await
            }
        }
    }

    /// Copies to the end on the worker.
    pub(super) async fn on_worker(mut self) -> Ended {
        if matches!(self.kind, FlowKind::Tunnel) {
            // A tunnel needs both directions at once, which only a relay carries.
            net::shutdown(&self.upstream.conn, std::net::Shutdown::Both);
            return Ended {
                client: Some(self.client),
                upstream: None,
                outcome: Outcome::Stopped,
            };
        }
        self.worker.shared.metrics.flow_begins("worker");
        let (outcome, bytes) = self.copy().await;
        self.worker.shared.metrics.flow_ends("worker");
        self.worker.shared.metrics.count_flow_bytes("worker", bytes);
        if self.chunked {
            self.worker.shared.metrics.count_chunked_bytes("worker", bytes);
        }
        self.trace.carried(bytes, "worker");
        self.charge.backend().count_carried(CarriedBy::Worker, 1, bytes);
        if outcome != Outcome::Complete {
            net::shutdown(&self.upstream.conn, std::net::Shutdown::Both);
            net::reset_on_close(&self.upstream.conn);
        }
        Ended {
            client: Some(self.client),
            upstream: Some(self.upstream),
            outcome,
        }
    }

    async fn copy(&mut self) -> (Outcome, u64) {
        let Pass {
            worker,
            client,
            upstream,
            kind,
            charge,
            ..
        } = self;
        let until_close = matches!(kind, FlowKind::Body(framing) if framing.is_until_close());
        let mut total = 0;
        loop {
            let Some(read) = read_or_leave(worker, &client.link, upstream).await else {
                return (Outcome::ClientLeft, total);
            };
            match read {
                Ok(0) if until_close => return (Outcome::Complete, total),
                Ok(0) => return (Outcome::UpstreamCut("the engine closed inside the body"), total),
                Ok(count) => charge.backend().note_bytes(count as u64, now()),
                Err(_) => {
                    let reason = "the engine's connection broke or fell silent inside the body";
                    return (Outcome::UpstreamCut(reason), total);
                }
            }
            let mut bytes = Vec::new();
            let progress = take_ahead(kind, &mut upstream.conn, &mut bytes);
            total += bytes.len() as u64;
            if client.link.write(bytes).await.is_err() {
                return (Outcome::ClientLeft, total);
            }
            match progress {
                MessageProgress::More => {}
                MessageProgress::Done => return (Outcome::Complete, total),
                MessageProgress::Failed(error) => return (Outcome::UpstreamCut(error.reason()), total),
            }
        }
    }
}

/// Hands a flow over. A tunnel waits for a place in the queue, since a worker can't carry it; all else comes back.
async fn hand_over(relay: &RelayHandle, mut flow: Flow) -> Result<(), Flow> {
    let deadline = Instant::now() + RELAY_WAIT;
    loop {
        match relay.hand_over(flow) {
            Err(back) if matches!(back.kind, FlowKind::Tunnel) && Instant::now() < deadline => flow = back,
            done => return done,
        }
        tokio::time::sleep(RELAY_POLL).await;
    }
}

/// Reads more of the body; `None` = the client left, and the engine's connection is shut down.
async fn read_or_leave(
    worker: &Worker,
    link: &Link,
    upstream: &mut Upstream,
) -> Option<Result<usize, net::IoFailure>> {
    let deadline = Instant::now() + worker.shared.config.timeouts.stream_idle;
    let Upstream { conn, ring, .. } = upstream;
    let mut read = pin!(ring.read(conn, COPY_READ_BYTES, Some(deadline)));
    tokio::select! {
        biased;
        read = &mut read => Some(read),
        () = worker.client_leaves(link) => {
            net::shutdown(&*ring, std::net::Shutdown::Both);
            let _ = read.await;
            None
        }
    }
}

//! Tunnels of L4 listeners through a relay, with socket buffers so small that every end comes while bytes still wait.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use router_userspace::datapath::{Flow, FlowEnd, FlowKind, Outcome, Relay, RelayConfig, TunnelTerms};
use router_userspace::net::Conn;
use router_userspace::telemetry::Metrics;
use router_userspace::types::{BackendId, Progress, Rng};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::sync::oneshot;

const DEADLINE: Duration = Duration::from_secs(20);
const BUFFER_BYTES: usize = 4096;

fn relay() -> Relay {
    let config = RelayConfig {
        queue_max: 64,
        stream_idle: DEADLINE,
        client_write: DEADLINE,
    };
    Relay::start("relay-test", config, None, Arc::new(Metrics::new())).expect("a relay")
}

/// A connection whose buffers are as small as the kernel makes them: the outer end and the relay's.
fn pair() -> (TcpStream, Conn) {
    let small = |socket: &Socket| {
        socket.set_recv_buffer_size(BUFFER_BYTES).expect("a size");
        socket.set_send_buffer_size(BUFFER_BYTES).expect("a size");
    };
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    small(&listener);
    listener
        .bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .expect("a port");
    listener.listen(1).expect("listens");
    let listener = TcpListener::from(listener);
    let outer = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    small(&outer);
    outer
        .connect(&listener.local_addr().expect("an address").into())
        .expect("connects");
    let (inner, _) = listener.accept().expect("comes");
    let outer = TcpStream::from(outer);
    outer.set_read_timeout(Some(DEADLINE)).expect("takes its options");
    outer
        .set_write_timeout(Some(DEADLINE))
        .expect("takes its options");
    (outer, Conn::new(inner.into()))
}

/// A tunnel under way: both outer ends, and its end.
struct Tunnel {
    client: TcpStream,
    engine: TcpStream,
    end: oneshot::Receiver<FlowEnd>,
    sent: Arc<Progress>,
}

fn tunnel(relay: &Relay, ahead: &[u8], idle: Duration) -> Tunnel {
    let ((client, mut inner_client), (engine, inner_engine)) = (pair(), pair());
    inner_client.read_ahead.extend_from_slice(ahead);
    let (done, end) = oneshot::channel();
    let sent = Arc::new(Progress::default());
    let flow = Flow {
        upstream_slot: None,
        client_slot: None,
        client: inner_client,
        upstream: inner_engine,
        kind: FlowKind::Tunnel,
        tunnel: Some(TunnelTerms {
            idle,
            sent: Arc::clone(&sent),
        }),
        chunked: false,
        client_fin_aborts: false,
        backend: BackendId(0),
        progress: Arc::default(),
        done,
    };
    relay.handle().hand_over(flow).expect("there is room");
    Tunnel {
        client,
        engine,
        end,
        sent,
    }
}

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

fn read_all(mut stream: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("ends by a FIN");
    all
}

#[test]
fn what_a_client_sent_before_it_closed_arrives_although_both_sides_have_ended() {
    let relay = relay();
    let tunnel = tunnel(&relay, b"ahead", DEADLINE);
    tunnel.engine.shutdown(Shutdown::Write).expect("connected");
    assert_eq!(read_all(&tunnel.client), b"");
    // The last of it waits in the relay and its sockets when the client is gone already.
    let bytes = bytes(&mut Rng::new(1), 400_000);
    let (mut client, sent) = (tunnel.client, bytes.clone());
    let sender = thread::spawn(move || {
        client.write_all(&sent).expect("is taken");
        drop(client);
    });
    assert!(
        read_all(&tunnel.engine) == [b"ahead", &bytes[..]].concat(),
        "other bytes went"
    );
    sender.join().expect("sent");
    drop(tunnel.engine);
    let end = tunnel.end.blocking_recv().expect("an end");
    assert_eq!(end.outcome, Outcome::Complete);
    assert_eq!(tunnel.sent.bytes(), bytes.len() as u64);
    relay.stop();
}

#[test]
fn an_engine_that_resets_ends_a_tunnel_whose_client_only_reads() {
    let relay = relay();
    let tunnel = tunnel(&relay, b"", DEADLINE);
    (&tunnel.engine).write_all(b"part").expect("is taken");
    let mut part = [0; 4];
    (&tunnel.client).read_exact(&mut part).expect("comes");
    SockRef::from(&tunnel.engine)
        .set_linger(Some(Duration::ZERO))
        .expect("takes its options");
    drop(tunnel.engine);
    let end = tunnel.end.blocking_recv().expect("an end");
    assert!(
        matches!(end.outcome, Outcome::UpstreamCut(_)),
        "{:?}",
        end.outcome
    );
    drop(end);
    assert!(
        (&tunnel.client).read(&mut part).is_err(),
        "a FIN would be the end of the message"
    );
    relay.stop();
}

#[test]
fn a_reader_that_stops_is_idle_although_bytes_wait_for_it() {
    let relay = relay();
    let tunnel = tunnel(&relay, &[7; 100_000], Duration::from_millis(200));
    let end = tunnel.end.blocking_recv().expect("an end");
    assert_eq!(end.outcome, Outcome::Idle);
    relay.stop();
}

#[test]
fn random_exchanges_are_exact_in_both_directions() {
    let relay = relay();
    thread::scope(|scope| {
        for seed in 0..24 {
            let mut rng = Rng::new(seed);
            let mut draw = |max| {
                let len = rng.below(max);
                bytes(&mut rng, len)
            };
            let (ahead, up, down) = (draw(30_000), draw(300_000), draw(300_000));
            let tunnel = tunnel(&relay, &ahead, DEADLINE);
            scope.spawn(move || {
                thread::scope(|scope| {
                    for (stream, bytes) in [(&tunnel.client, &up), (&tunnel.engine, &down)] {
                        scope.spawn(move || {
                            let mut writer = stream;
                            writer.write_all(bytes).expect("is taken");
                            writer.shutdown(Shutdown::Write).expect("connected");
                        });
                    }
                    scope.spawn(|| assert!(read_all(&tunnel.client) == down, "{seed}: other bytes came"));
                    let expected = [&ahead[..], &up].concat();
                    assert!(read_all(&tunnel.engine) == expected, "{seed}: other bytes went");
                });
                let end = tunnel.end.blocking_recv().expect("an end");
                assert_eq!(end.outcome, Outcome::Complete, "{seed}");
                assert_eq!(end.bytes, down.len() as u64);
            });
        }
    });
    relay.stop();
}

//! The HTTP/1.1 listener of the pages, bounded in connections, bytes and time.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::pages::answer;
use super::{AdminState, Guard};

/// Connections to one listener; a further one is closed at once.
pub const ADMIN_CONNECTIONS_MAX: usize = 64;
/// A request's head, and an idle connection between requests.
pub const ADMIN_HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// A connection: after it the current answer is finished, and within a tenth of it taken or lost.
pub const ADMIN_CONNECTION_TIME_MAX: Duration = Duration::from_secs(100);
/// A request's head.
pub const ADMIN_HEAD_BYTES_MAX: usize = 16 << 10;
/// Between two tries to accept while descriptors are lacking.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Takes a port, before anything serves, so that one in use is an error of the start.
///
/// # Errors
/// What the system says.
pub fn bind_admin(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves the pages; never returns. Must run on a tokio runtime with time and I/O.
pub async fn serve_admin(listener: TcpListener, state: Arc<AdminState>, guard: Guard) {
    let room = Arc::new(Semaphore::new(ADMIN_CONNECTIONS_MAX));
    let guard = Arc::new(guard);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "an admin connection couldn't be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            continue;
        };
        let (state, guard) = (Arc::clone(&state), Arc::clone(&guard));
        tokio::spawn(async move {
            serve_connection(stream, state, guard).await;
            drop(place);
        });
    }
}

async fn serve_connection(stream: TcpStream, state: Arc<AdminState>, guard: Arc<Guard>) {
    let service = service_fn(move |request: Request<Incoming>| {
        // A body is left unread; hyper closes the connection behind the answer then.
        let (request, _) = request.into_parts();
        let page = answer(&state, &guard, &request);
        async move { Ok::<_, Infallible>(page) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(ADMIN_HEAD_TIME_MAX)
        .max_buf_size(ADMIN_HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::time::timeout(ADMIN_CONNECTION_TIME_MAX, connection.as_mut()).await;
    if ended.is_err() {
        connection.as_mut().graceful_shutdown();
        // A reader that still hasn't taken its answer loses it.
        let _ = tokio::time::timeout(ADMIN_CONNECTION_TIME_MAX / 10, connection).await;
    }
}

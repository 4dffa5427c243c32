//! Listeners and connections of the simulated engines.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::Fleet;
use super::host::Host;
use super::routes;

/// How long to wait before another try where accepting or binding failed.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves one engine for ever, going down and up again as its fault says.
pub(super) async fn serve(fleet: Rc<Fleet>, host: Rc<Host>, listener: TcpListener, addr: SocketAddr) {
    let mut listener = listener;
    loop {
        let mut connections = JoinSet::new();
        tokio::select! {
            () = host.until_down(true) => {}
            () = accept(&fleet, &host, &listener, &mut connections) => {}
        }
        drop(listener);
        connections.abort_all();
        host.lose_everything();
        host.until_down(false).await;
        listener = bind_again(addr).await;
    }
}

async fn accept(fleet: &Rc<Fleet>, host: &Rc<Host>, listener: &TcpListener, connections: &mut JoinSet<()>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn_local(connection(Rc::clone(fleet), Rc::clone(host), stream));
            }
            // Out of descriptors, most likely: connections that end give some back.
            Err(_) => tokio::time::sleep(RETRY_DELAY).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(fleet: Rc<Fleet>, host: Rc<Host>, stream: TcpStream) {
    // Without it a token may wait for the acknowledgement of the one before; failure costs only that.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |call| routes::answer(Rc::clone(&fleet), Rc::clone(&host), call));
    // An error is a client that left or a cut on demand: both are in order here.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn bind_again(addr: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(addr).await {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(RETRY_DELAY).await,
        }
    }
}

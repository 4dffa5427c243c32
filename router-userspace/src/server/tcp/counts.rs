//! What happened to a listener's connections, by reason.

use std::sync::atomic::{AtomicU64, Ordering};

/// By what a connection's backend was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The client's address, as configured.
    Source,
    /// The name in the hello.
    Sni,
    /// The address: the hello has no name.
    NoName,
    /// The address: the first bytes are no TLS hello.
    NotTls,
    /// The address: the hello is over its bound.
    HelloTooLong,
    /// The address: no whole hello in time, or the client sends nothing more.
    HelloLate,
}

impl Route {
    pub(super) const ALL: [Route; 6] = [
        Route::Source,
        Route::Sni,
        Route::NoName,
        Route::NotTls,
        Route::HelloTooLong,
        Route::HelloLate,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Route::Source => "source",
            Route::Sni => "sni",
            Route::NoName => "no_name",
            Route::NotTls => "not_tls",
            Route::HelloTooLong => "hello_too_long",
            Route::HelloLate => "hello_late",
        }
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Both sides finished, and everything was delivered.
    Complete,
    /// The client reset it, or left before a backend was chosen.
    Client,
    /// The backend reset it.
    Backend,
    /// No byte for the idle time.
    Idle,
    /// The router stopped.
    Stopped,
    /// No backend is fit.
    NoBackend,
    /// None of the backends that were tried took the connection.
    Unreachable,
    /// A trusted proxy sent no PROXY header, a bad one, or none in time.
    ProxyHeader,
    /// The relay's queue stayed full, or a descriptor couldn't be had.
    Overloaded,
}

impl End {
    pub(super) const ALL: [End; 9] = [
        End::Complete,
        End::Client,
        End::Backend,
        End::Idle,
        End::Stopped,
        End::NoBackend,
        End::Unreachable,
        End::ProxyHeader,
        End::Overloaded,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            End::Complete => "complete",
            End::Client => "client",
            End::Backend => "backend",
            End::Idle => "idle",
            End::Stopped => "stopped",
            End::NoBackend => "no_backend",
            End::Unreachable => "unreachable",
            End::ProxyHeader => "proxy_header",
            End::Overloaded => "overloaded",
        }
    }
}

/// The counts of one listener, over all workers.
#[derive(Debug, Default)]
pub(super) struct Counts {
    routes: [AtomicU64; Route::ALL.len()],
    ends: [AtomicU64; End::ALL.len()],
}

impl Counts {
    pub(super) fn route(&self, route: Route) {
        self.routes[route as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self, end: End) {
        self.ends[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn routes(&self, route: Route) -> u64 {
        self.routes[route as usize].load(Ordering::Relaxed)
    }

    pub(super) fn ends(&self, end: End) -> u64 {
        self.ends[end as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_place() {
        for (place, route) in Route::ALL.into_iter().enumerate() {
            assert_eq!(route as usize, place);
        }
        for (place, end) in End::ALL.into_iter().enumerate() {
            assert_eq!(end as usize, place);
        }
    }
}

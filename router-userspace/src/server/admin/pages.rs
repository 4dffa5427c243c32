//! From a request to its page.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use super::guard::{Guard, Refusal, Scope};
use super::{AdminState, html, json};
use crate::server::{StopPhase, TcpService};
use crate::telemetry::DECISIONS_KEPT_MAX;
use crate::types::BackendState;

/// Decisions shown where the request doesn't say how many.
pub(super) const EXPLAIN_DEFAULT: usize = 20;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) type Page = Response<Full<Bytes>>;

/// The answer to one request.
pub(super) fn answer(state: &AdminState, guard: &Guard, request: &Parts) -> Page {
    if let Err(refused) = guard.admit(request) {
        return turned_away(&refused);
    }
    match (request.uri.path(), guard.scope) {
        ("/metrics", _) => page(StatusCode::OK, OPENMETRICS, state.metrics.encode()),
        ("/healthz", _) => page(StatusCode::OK, TEXT, "ok\n".to_owned()),
        ("/readyz", Scope::Full) => readiness(state),
        ("/backends", Scope::Full) => page(StatusCode::OK, JSON, json::backends(state)),
        ("/explain", Scope::Full) => explain(state, request.uri.query()),
        ("/", Scope::Full) => page(StatusCode::OK, HTML, html::overview(state)),
        (_, Scope::Full) => {
            let text = "no such page; there are /metrics /healthz /readyz /backends /explain?n=20 and /\n";
            page(StatusCode::NOT_FOUND, TEXT, text.to_owned())
        }
        (_, Scope::ReadOnly) => {
            let text = "no such page; there are /metrics and /healthz\n";
            page(StatusCode::NOT_FOUND, TEXT, text.to_owned())
        }
    }
}

/// Ready = it takes new connections and at least one engine is fit by itself, whether health is heeded or not; where
/// there are L4 listeners alone, one of their backends.
fn readiness(state: &AdminState) -> Page {
    let fit = |backend: &std::sync::Arc<crate::backend::Backend>| {
        !backend.draining() && backend.verdict() == BackendState::Healthy
    };
    let engines = &state.backends.backends;
    let fit_engine = if engines.is_empty() {
        let backends = |service: &std::sync::Arc<TcpService>| service.backends().backends.iter().any(fit);
        state.tcp.iter().any(backends)
    } else {
        engines.iter().any(fit)
    };
    if *state.stop.borrow() != StopPhase::Running {
        page(StatusCode::SERVICE_UNAVAILABLE, TEXT, "draining\n".to_owned())
    } else if fit_engine {
        page(StatusCode::OK, TEXT, "ready\n".to_owned())
    } else {
        page(
            StatusCode::SERVICE_UNAVAILABLE,
            TEXT,
            "no healthy backend\n".to_owned(),
        )
    }
}

fn explain(state: &AdminState, query: Option<&str>) -> Page {
    let mut fields = query.unwrap_or_default().split('&');
    let count = match fields.find_map(|field| field.strip_prefix("n=")) {
        None => Some(EXPLAIN_DEFAULT),
        Some(digits) => digits
            .parse()
            .ok()
            .filter(|count| (1..=DECISIONS_KEPT_MAX).contains(count)),
    };
    match count {
        Some(count) => page(StatusCode::OK, JSON, json::decisions(state, count)),
        None => {
            let text = format!("n isn't a number from 1 to {DECISIONS_KEPT_MAX}\n");
            page(StatusCode::BAD_REQUEST, TEXT, text)
        }
    }
}

fn turned_away(refused: &Refusal) -> Page {
    let mut page = page(refused.status, TEXT, format!("{}\n", refused.message));
    let headers = page.headers_mut();
    match refused.status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        _ => {}
    }
    page
}

fn page(status: StatusCode, content_type: &'static str, body: String) -> Page {
    let mut page = Response::new(Full::new(Bytes::from(body)));
    *page.status_mut() = status;
    // The page for people has no scripts, and nothing may embed it.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    for (name, value) in [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, policy),
    ] {
        page.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    page
}

/// Whether health is ignored because too many are unfit.
pub(super) fn health_ignored(state: &AdminState) -> bool {
    state.backends.health_ignored.load(Ordering::Relaxed)
}

//! Who may read the pages.

use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, HOST};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Version};

use super::AdminToken;

/// How much a listener shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    Full,
    /// `/metrics` and `/healthz`.
    ReadOnly,
}

/// The rules of one listener.
#[derive(Clone, Debug)]
pub struct Guard {
    /// How much it shows.
    pub scope: Scope,
    /// The token that opens it; `None` = none is asked for.
    pub token: Option<AdminToken>,
    /// Whether only this host reaches it.
    pub loopback: bool,
}

/// Why a request is turned away.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: &'static str,
}

impl Guard {
    pub(super) fn admit(&self, request: &Parts) -> Result<(), Refusal> {
        match &self.token {
            Some(token) => {
                let shown = request.headers.get(AUTHORIZATION);
                if !shown.is_some_and(|shown| token.opens(shown.as_bytes())) {
                    let message =
                        "send the header \"Authorization: Bearer TOKEN\" with the token of admin_token_file";
                    return Err(refusal(StatusCode::UNAUTHORIZED, message));
                }
            }
            // A web page may rebind its own name to this address, and its browser then sends that name.
            None if self.loopback => check_host(request)?,
            None => {}
        }
        if request.method == Method::GET || request.method == Method::HEAD {
            Ok(())
        } else {
            let message = "nothing can be changed here; use GET or HEAD";
            Err(refusal(StatusCode::METHOD_NOT_ALLOWED, message))
        }
    }
}

fn check_host(request: &Parts) -> Result<(), Refusal> {
    let mut fields = request.headers.get_all(HOST).iter();
    let (first, second) = (fields.next(), fields.next());
    if second.is_some() || (first.is_none() && request.version != Version::HTTP_10) {
        return Err(refusal(StatusCode::BAD_REQUEST, "send one Host header"));
    }
    let by_field = first.is_none_or(|host| host.to_str().is_ok_and(is_own));
    let by_target = request.uri.authority().is_none_or(|host| is_own(host.as_str()));
    if by_field && by_target {
        Ok(())
    } else {
        let message = "the Host header is a name; use 127.0.0.1, [::1] or localhost";
        Err(refusal(StatusCode::FORBIDDEN, message))
    }
}

/// Whether an authority is `localhost` or an IP address, with or without a port: none that a name server answers for.
fn is_own(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    host.eq_ignore_ascii_case("localhost") || bare.unwrap_or(host).parse::<IpAddr>().is_ok()
}

fn refusal(status: StatusCode, message: &'static str) -> Refusal {
    Refusal { status, message }
}

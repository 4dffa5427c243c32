//! Answers that the router gives itself.

use serde_json::json;

use crate::telemetry::OwnError;

/// An error that the router answers in place of an engine.
#[derive(Clone, Debug)]
pub(super) struct OwnAnswer {
    pub(super) error: OwnError,
    pub(super) status: u16,
    pub(super) message: String,
    pub(super) retry_after_s: Option<u32>,
}

impl OwnAnswer {
    pub(super) fn new(error: OwnError, message: impl Into<String>) -> OwnAnswer {
        let status = match error {
            OwnError::BadRequest => 400,
            OwnError::PathRefused => 403,
            OwnError::RequestTimeout => 408,
            OwnError::BodyTooLarge => 413,
            OwnError::Saturated => 429,
            OwnError::HeadTooLarge => 431,
            OwnError::BadGateway => 502,
            OwnError::NoBackend | OwnError::Overloaded => 503,
            OwnError::GatewayTimeout => 504,
        };
        let retry_after_s = matches!(
            error,
            OwnError::Saturated | OwnError::NoBackend | OwnError::Overloaded
        )
        .then_some(1);
        OwnAnswer {
            error,
            status,
            message: message.into(),
            retry_after_s,
        }
    }

    pub(super) fn with_status(self, status: u16) -> OwnAnswer {
        OwnAnswer { status, ..self }
    }

    /// The whole response. `path` chooses the shape of the body: Anthropic's for its API, OpenAI's for all else.
    pub(super) fn encode(&self, path: &[u8], head_only: bool, close: bool) -> Vec<u8> {
        let kind = match self.status {
            408 | 504 => "timeout_error",
            429 => "rate_limit_error",
            502 => "api_error",
            503 => "overloaded_error",
            404 => "not_found_error",
            403 => "permission_error",
            _ => "invalid_request_error",
        };
        let body = if path.starts_with(b"/v1/messages") {
            json!({"type": "error", "error": {"type": kind, "message": self.message}})
        } else {
            let code = self.error.as_str();
            json!({"error": {"message": self.message, "type": kind, "param": null, "code": code}})
        };
        let body = body.to_string();
        let mut out = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            self.status,
            reason_phrase(self.status),
            body.len()
        );
        if let Some(seconds) = self.retry_after_s {
            out.push_str(&format!("Retry-After: {seconds}\r\n"));
        }
        if close {
            out.push_str("Connection: close\r\n");
        }
        out.push_str("\r\n");
        if !head_only {
            out.push_str(&body);
        }
        out.into_bytes()
    }
}

/// The router's own `/health`: whether it has an engine to send to.
pub(super) fn health(healthy: bool, head_only: bool, close: bool) -> (u16, Vec<u8>) {
    let (status, word) = if healthy {
        (200, "ok")
    } else {
        (503, "no healthy backend")
    };
    let body = json!({ "status": word }).to_string();
    let connection = if close { "Connection: close\r\n" } else { "" };
    let shown = if head_only { "" } else { body.as_str() };
    let out = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{connection}\r\n{shown}",
        reason_phrase(status),
        body.len()
    );
    (status, out.into_bytes())
}

fn reason_phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    }
}

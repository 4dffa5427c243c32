//! Parsers: plain functions over bytes, without a runtime.

pub mod engine_metrics;
pub mod http1;
pub mod json;
pub mod proxy_protocol;
pub mod tls_hello;

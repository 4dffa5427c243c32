//! Parsers: plain functions over bytes, without a runtime.

pub mod http1;
pub mod json;

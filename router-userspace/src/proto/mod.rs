//! Wire formats, as plain functions over bytes.

pub mod http1;
pub mod json;

//! How response bodies get from an engine to its client.

pub mod kernel;

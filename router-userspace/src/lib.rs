//! Warmpath.
pub mod backend;
pub mod cli;
pub mod datapath;
pub mod engine;
pub mod net;
pub mod policy;
pub mod prefix;
pub mod proto;
pub mod server;
pub mod simulate;
pub mod telemetry;
pub mod types;

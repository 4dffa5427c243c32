//! The model of an inference engine: continuous batching, chunked prefill and a prefix cache, without I/O.
//!
//! Time is passed in, so that the simulated engine can pace it with timers and a simulator can invent it.
//! A caller submits requests, asks [`Engine::next_step_at`] when to come back, and gets what happened from
//! [`Engine::step`].

mod cache;
mod config;
mod model;

pub use cache::BlockCache;
pub use config::EngineConfig;
pub use model::{Engine, EngineEvent, EngineRequest, EngineStats, RequestId, SubmitError};

//! The load generator against simulated engines.

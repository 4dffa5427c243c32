//! The engines over real sockets.

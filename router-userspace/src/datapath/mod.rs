//! datapath.

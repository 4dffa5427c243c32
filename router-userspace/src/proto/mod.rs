//! Wire formats, as plain functions over bytes.

pub mod json;

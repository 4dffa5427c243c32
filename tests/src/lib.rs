//! Harness of the whole-router tests.

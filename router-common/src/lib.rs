//! Types and pure functions shared by the BPF programs and userspace.
#![no_std]

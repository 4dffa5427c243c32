//! `warmpath serve` at its limits: caps, timeouts, stops, faulty engines, and hosts that refuse it something.

mod access_log;
mod admin_pages;
mod body_memory;
mod capabilities;
mod command_line;
mod connection_cap;
mod dead_host;
mod health;
mod leaving;
mod requests;
mod retries;
mod stop;
mod timeouts;

//! `warmpath serve` as an HTTP/1.1 proxy: what passes, what is refused, and how things end.

mod connections;
mod departures;
mod fields;
mod framing_faults;
mod overflow;
mod relays;
mod requests;
mod responses;
mod retries;
mod scope;
mod smuggling;
mod streams;
mod upgrades;
mod warmth;

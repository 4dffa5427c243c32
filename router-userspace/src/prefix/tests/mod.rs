//! Tests of prompt keys: examples, properties, and a naive twin that works on a tree.

mod bodies;
mod dom;
mod generate;
mod oracle;
mod properties;

use super::{Api, KeyScanner, PromptKey};

fn key(api: Api, body: &[u8]) -> PromptKey {
    let mut scanner = KeyScanner::new(api);
    scanner.feed(body);
    scanner.finish()
}

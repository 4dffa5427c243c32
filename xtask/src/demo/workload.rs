//! What the demo sends, and to what: all of its parameters.
//!
//! The prompts of all groups together are larger than one engine's KV memory and smaller than that of
//! four, so that it matters where a request goes; the rate is one that four engines bear without a single
//! hit (12 × 4150 of 4 × 20,000 prefill tokens/s), so that the row with nothing shared is no pile-up.

/// Simulated engines.
pub(super) const ENGINES: usize = 4;
/// KV memory of each, in tokens.
const CAPACITY_TOKENS: u32 = 48_000;
/// Groups of requests that share a system text.
const GROUPS: u32 = 32;
/// Tokens of a group's system text.
const PREFIX_TOKENS: u32 = 4000;
/// Tokens of a request's own text.
const UNIQUE_TOKENS: u32 = 150;
/// Tokens generated for a request.
const OUTPUT_TOKENS: u32 = 48;
/// Requests/s over all engines.
const RATE: u32 = 12;
/// Requests of a row where the command line doesn't say: 20 s.
pub(crate) const REQUESTS_DEFAULT: u64 = 240;
/// The same in every row, so that each policy gets the same requests.
const SEED: u32 = 1;

/// What the prompts of a row share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// The system text of their group.
    Groups,
    /// Nothing.
    Nothing,
}

/// The arguments of `warmpath engine`.
pub(super) fn engine_arguments() -> Vec<String> {
    words(&[
        ("engine", String::new()),
        ("--listen", "127.0.0.1:0".to_owned()),
        ("--count", ENGINES.to_string()),
        ("--capacity-tokens", CAPACITY_TOKENS.to_string()),
    ])
}

/// The arguments of `warmpath bench`, its target and output apart.
pub(super) fn bench_arguments(sharing: Sharing, requests: u64) -> Vec<String> {
    let workload = match sharing {
        Sharing::Groups => "shared_prefix",
        Sharing::Nothing => "unique",
    };
    words(&[
        ("bench", String::new()),
        ("--workload", workload.to_owned()),
        ("--groups", GROUPS.to_string()),
        ("--prefix-tokens", PREFIX_TOKENS.to_string()),
        ("--unique-tokens", UNIQUE_TOKENS.to_string()),
        ("--output-tokens", OUTPUT_TOKENS.to_string()),
        ("--rate", RATE.to_string()),
        ("--requests", requests.to_string()),
        ("--seed", SEED.to_string()),
    ])
}

/// The workload in words, for the caption.
pub(super) fn in_words(requests: u64) -> String {
    format!(
        "{ENGINES} engines of {CAPACITY_TOKENS} tokens; {requests} requests a row at {RATE}/s; {GROUPS} shared prompts of \
         {PREFIX_TOKENS} tokens with {UNIQUE_TOKENS} of their own and {OUTPUT_TOKENS} generated; seed {SEED}"
    )
}

fn words(pairs: &[(&str, String)]) -> Vec<String> {
    let pair = |(name, value): &(&str, String)| [(*name).to_owned(), value.clone()];
    pairs
        .iter()
        .flat_map(pair)
        .filter(|word| !word.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_fit_into_all_engines_and_not_into_one() {
        const { assert!(GROUPS * PREFIX_TOKENS > CAPACITY_TOKENS) };
        const { assert!(GROUPS * PREFIX_TOKENS < CAPACITY_TOKENS * ENGINES as u32) };
    }

    #[test]
    fn both_workloads_differ_in_their_name_alone() {
        let (shared, unique) = (
            bench_arguments(Sharing::Groups, 5),
            bench_arguments(Sharing::Nothing, 5),
        );
        let differing = shared.iter().zip(&unique).filter(|(a, b)| a != b).count();
        assert_eq!((shared.len(), differing), (unique.len(), 1));
    }
}

//! What a decision costs once the key is known: each policy at 8 and at 1,000 backends.
//!
//! `cargo run --release --example decision_cost`

use std::hint::black_box;
use std::time::Instant;

use router_userspace::policy::{Member, PolicyConfig, PolicyKind, RequestView, build};
use router_userspace::prefix::PromptKey;
use router_userspace::types::{BackendId, BackendSnapshot, BackendState, Micros, Rng};

const ROUNDS: u32 = 20_000;

fn backend(id: u32, rng: &mut Rng) -> BackendSnapshot {
    BackendSnapshot {
        id: BackendId(id),
        weight: 1,
        state: BackendState::Healthy,
        in_flight: rng.below(40) as u32,
        max_in_flight: 256,
        waiting: None,
        max_waiting: 16,
    }
}

fn main() {
    let mut rng = Rng::new(1);
    for count in [8, 1000] {
        let backends: Vec<BackendSnapshot> = (0..count).map(|id| backend(id, &mut rng)).collect();
        let names: Vec<String> = (0..count).map(|id| format!("engine-{id}:8000")).collect();
        let members: Vec<Member<'_>> = names.iter().map(|name| Member { name, weight: 1 }).collect();
        for kind in PolicyKind::ALL {
            let config = PolicyConfig {
                kind,
                ..PolicyConfig::default()
            };
            let mut policy = build(&config, &members, 1);
            let start = Instant::now();
            for _ in 0..ROUNDS {
                let key = PromptKey {
                    affinity: Some(rng.next_u64()),
                    ..PromptKey::default()
                };
                let request = RequestView {
                    key: Some(&key),
                    session: None,
                    tried: &[],
                    now: Micros(0),
                };
                let _ = black_box(policy.pick(&request, black_box(&backends)));
            }
            let each = start.elapsed() / ROUNDS;
            println!("{:16} {count:5} backends  {:6} ns", kind.name(), each.as_nanos());
        }
    }
}

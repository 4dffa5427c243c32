//! The policies that go by prefixes.

use super::{
    Decision, Member, NoBackend, Policy, PolicyConfig, PolicyKind, PolicyPlan, Reason, RequestView, Ticket,
};
use crate::prefix::PromptKey;
use crate::types::{BackendId, BackendSnapshot, BackendState, Micros};

/// Tokens of a block of 256 bytes.
const BLOCK_TOKENS: u64 = 64;

/// A fleet of equal backends and one worker's policy.
struct Scene {
    plan: PolicyPlan,
    policy: Box<dyn Policy + Send>,
    backends: Vec<BackendSnapshot>,
}

impl Scene {
    fn new(kind: PolicyKind, count: u32) -> Scene {
        let names: Vec<String> = (0..count).map(|at| format!("engine-{at}")).collect();
        let member = |name| Member { name, weight: 1 };
        let members: Vec<Member<'_>> = names.iter().map(|name| member(name)).collect();
        let config = PolicyConfig {
            kind,
            ..PolicyConfig::default()
        };
        let plan = PolicyPlan::new(&config, &members);
        let backend = |id| BackendSnapshot {
            id: BackendId(id),
            weight: 1,
            state: BackendState::Healthy,
            in_flight: 0,
            max_in_flight: 256,
            waiting: None,
            max_waiting: 16,
        };
        Scene {
            policy: plan.policy(1),
            plan,
            backends: (0..count).map(backend).collect(),
        }
    }

    fn pick(&mut self, key: &PromptKey, at_s: u64) -> Result<Decision, NoBackend> {
        self.policy.pick(&view(key, at_s), &self.backends)
    }

    /// Sends a prompt to a backend, whoever would have got it.
    fn send(&mut self, key: &PromptKey, backend: u32, at_s: u64) -> Option<Ticket> {
        self.policy.on_dispatch(&view(key, at_s), BackendId(backend))
    }
}

fn view(key: &PromptKey, at_s: u64) -> RequestView<'_> {
    RequestView {
        key: Some(key),
        session: None,
        tried: &[],
        now: Micros(at_s * 1_000_000),
    }
}

/// A prompt of these blocks.
fn key(blocks: impl IntoIterator<Item = u64>) -> PromptKey {
    let blocks: Vec<u64> = blocks.into_iter().collect();
    PromptKey {
        affinity: blocks.first().copied(),
        text_bytes: blocks.len() as u64 * BLOCK_TOKENS * 4,
        blocks,
        ..PromptKey::default()
    }
}

const BY_PREFIX: [PolicyKind; 3] = [
    PolicyKind::PrefixThreshold,
    PolicyKind::PrefixScore,
    PolicyKind::LeastCost,
];

#[test]
fn a_prompt_goes_where_its_prefix_went() {
    for kind in BY_PREFIX {
        for holder in 0..4 {
            let mut scene = Scene::new(kind, 4);
            scene.send(&key(0..100), holder, 0);
            let expected = Decision {
                backend: BackendId(holder),
                reason: Reason::Affinity,
            };
            assert_eq!(scene.pick(&key(0..110), 1), Ok(expected), "{}", kind.name());
        }
    }
}

#[test]
fn what_a_backend_held_before_its_restart_draws_nothing() {
    for kind in BY_PREFIX {
        let mut scene = Scene::new(kind, 4);
        let ticket = scene.send(&key(0..100), 2, 0);
        scene.plan.fleet().unwrap().reset(BackendId(2));
        drop(ticket);
        let reason = scene.pick(&key(0..110), 1).unwrap().reason;
        assert_eq!(reason, Reason::Load, "{}", kind.name());
    }
}

#[test]
fn a_short_part_of_a_prompt_is_below_the_threshold() {
    let mut scene = Scene::new(PolicyKind::PrefixThreshold, 4);
    scene.send(&key(0..10), 2, 0);
    let long = key((0..10).chain(1000..1090));
    assert_eq!(scene.pick(&long, 1).unwrap().reason, Reason::Load);
}

#[test]
fn an_overloaded_holder_gives_up_only_its_excess() {
    let mut scene = Scene::new(PolicyKind::PrefixThreshold, 4);
    scene.send(&key(0..100), 2, 0);
    scene.backends[2].in_flight = 33;
    assert_ne!(scene.pick(&key(0..110), 1).unwrap().backend, BackendId(2));
    scene.backends[2].in_flight = 32;
    assert_eq!(scene.pick(&key(0..110), 1).unwrap().backend, BackendId(2));
}

#[test]
fn least_cost_leaves_a_holder_whose_queue_costs_more_than_a_copy() {
    let mut scene = Scene::new(PolicyKind::LeastCost, 2);
    let prompt = key(0..100);
    scene.send(&prompt, 1, 0);
    // A copy is 6400 tokens at a price of 3; the queue has to outweigh it.
    let _queue: Vec<_> = (1..4)
        .map(|at| scene.send(&key(at * 1000..at * 1000 + 90), 1, 0))
        .collect();
    assert_eq!(scene.pick(&prompt, 0).unwrap().backend, BackendId(1));
    let _more: Vec<_> = (4..7)
        .map(|at| scene.send(&key(at * 1000..at * 1000 + 90), 1, 0))
        .collect();
    assert_eq!(scene.pick(&prompt, 0).unwrap().backend, BackendId(0));
}

#[test]
fn least_cost_says_that_a_saturated_holder_overflowed() {
    let mut scene = Scene::new(PolicyKind::LeastCost, 3);
    scene.send(&key(0..100), 1, 0);
    scene.backends[1].in_flight = 256;
    let decision = scene.pick(&key(0..100), 1).unwrap();
    assert_eq!(decision.reason, Reason::Overflow);
    for backend in &mut scene.backends {
        backend.in_flight = 256;
    }
    assert_eq!(scene.pick(&key(0..100), 1), Err(NoBackend::AllSaturated));
}

#[test]
fn least_cost_puts_new_prompts_where_nothing_in_use_is_evicted() {
    let mut scene = Scene::new(PolicyKind::LeastCost, 3);
    let fleet = scene.plan.fleet().unwrap().clone();
    for backend in 0..3 {
        fleet.set_capacity(BackendId(backend), 100 * BLOCK_TOKENS);
    }
    // All are full; what 1 would evict was used longest ago.
    for (backend, at_s) in [(1, 0), (0, 300), (2, 300)] {
        let first = u64::from(backend) * 1000;
        let mut ticket = scene.send(&key(first..first + 100), backend, at_s).unwrap();
        ticket.first_token(Micros(at_s * 1_000_000 + 500_000));
    }
    let decision = scene.pick(&key(50_000..50_100), 301).unwrap();
    assert_eq!(decision.backend, BackendId(1));
}

#[test]
fn equal_costs_are_settled_alike_by_every_worker() {
    let scene = Scene::new(PolicyKind::LeastCost, 8);
    let (mut one, mut other) = (scene.plan.policy(1), scene.plan.policy(2));
    let mut chosen = std::collections::HashSet::new();
    for prompt in 0..100 {
        let key = key(prompt * 10_000..prompt * 10_000 + 9);
        let pick = |policy: &mut Box<dyn Policy + Send>| policy.pick(&view(&key, 0), &scene.backends);
        let decision = pick(&mut one);
        assert_eq!(decision, pick(&mut other));
        chosen.insert(decision.unwrap().backend);
    }
    assert_eq!(chosen.len(), 8);
}

#[test]
fn half_of_the_tokens_a_second_counts_as_twice_the_wait() {
    let mut scene = Scene::new(PolicyKind::LeastCost, 2);
    let fleet = scene.plan.fleet().unwrap().clone();
    fleet.work(BackendId(0)).unwrap().set_speed(20_000.0);
    fleet.work(BackendId(1)).unwrap().set_speed(5000.0);
    for prompt in 0..20 {
        let decision = scene.pick(&key(prompt * 1000..prompt * 1000 + 50), 0).unwrap();
        assert_eq!(decision.backend, BackendId(0));
    }
}

#[test]
fn workers_on_threads_share_what_was_sent_through_the_queue() {
    let members = [Member { name: "a", weight: 1 }, Member { name: "b", weight: 1 }];
    let config = PolicyConfig {
        kind: PolicyKind::LeastCost,
        ..PolicyConfig::default()
    };
    let (plan, task) = PolicyPlan::queued(&config, &members);
    let writer = std::thread::spawn(move || task.unwrap().run());
    let prompt = key(0..100);
    let mut one = plan.policy(1);
    let _ticket = one.on_dispatch(&view(&prompt, 0), BackendId(1));
    let index = plan.fleet().unwrap().index().clone();
    // The queue ends when nobody is left who could send.
    drop((one, plan));
    writer.join().unwrap();
    let mut scores = crate::prefix::index::OverlapScores::default();
    index.overlap(&prompt.blocks, &mut scores);
    assert_eq!(scores.depth(BackendId(1)), 100);
}

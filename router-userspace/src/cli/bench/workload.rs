//! What the requests say. Request i follows from the seed and i alone, so that every policy gets the same ones.

use clap::ValueEnum;

use crate::prefix::Api;
use crate::types::Rng;

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum WorkloadName {
    /// Groups of requests, chosen by a Zipf law, that share a system text.
    SharedPrefix,
    /// Nothing shared.
    Unique,
}

impl WorkloadName {
    /// Its name on the command line.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            WorkloadName::SharedPrefix => "shared_prefix",
            WorkloadName::Unique => "unique",
        }
    }
}

/// Sizes of the requests.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Which kind.
    pub(super) name: WorkloadName,
    /// How requests are spelled.
    pub(super) api: Api,
    /// `model`.
    pub(super) model: String,
    /// Whether answers stream.
    pub(super) stream: bool,
    /// Groups that share a system text.
    pub(super) groups: usize,
    /// Exponent of the Zipf law; 0 = all groups alike.
    pub(super) zipf: f64,
    /// Tokens of a group's system text.
    pub(super) prefix_tokens: usize,
    /// Tokens of a turn's user text.
    pub(super) unique_tokens: usize,
    /// Tokens to generate.
    pub(super) output_tokens: usize,
    /// Turns of a conversation, each repeating those before it.
    pub(super) turns: u64,
    /// Conversations that go on at the same time.
    pub(super) sessions: u64,
    /// The seed.
    pub(super) seed: u64,
}

/// Makes requests.
#[derive(Debug)]
pub(super) struct Workload {
    shape: Shape,
    prefixes: Vec<String>,
    /// Cumulated shares of the groups; the last is 1.
    shares: Vec<f64>,
}

impl Workload {
    /// Makes the texts that groups share.
    pub(super) fn new(shape: Shape) -> Workload {
        let mut rng = Rng::new(shape.seed);
        let groups = if shape.name == WorkloadName::Unique {
            0
        } else {
            shape.groups.max(1)
        };
        let prefixes = (0..groups)
            .map(|_| words(&mut rng, shape.prefix_tokens))
            .collect();
        let weights: Vec<f64> = (1..=groups).map(|rank| (rank as f64).powf(-shape.zipf)).collect();
        let total: f64 = weights.iter().sum();
        let cumulate = |sum: &mut f64, weight: &f64| {
            *sum += weight / total;
            Some(*sum)
        };
        let shares = weights.iter().scan(0.0, cumulate).collect();
        Workload {
            shape,
            prefixes,
            shares,
        }
    }

    /// What was asked for.
    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The path of the API.
    pub(super) fn path(&self) -> &'static str {
        match self.shape.api {
            Api::ChatCompletions => "/v1/chat/completions",
            Api::Completions => "/v1/completions",
            Api::Responses => "/v1/responses",
            Api::Messages => "/v1/messages",
            Api::Generate => "/generate",
        }
    }

    /// The body of request `number`.
    pub(super) fn body(&self, number: u64) -> String {
        let (session, turn) = self.session_turn(number);
        let mut rng = Rng::new(Rng::new(self.shape.seed ^ 0x5eed).next_u64() ^ session);
        let draw = rng.unit();
        let unique_system;
        let system = if self.prefixes.is_empty() {
            unique_system = words(&mut rng, self.shape.prefix_tokens);
            &unique_system
        } else {
            let group = self
                .shares
                .partition_point(|&share| share <= draw)
                .min(self.prefixes.len() - 1);
            &self.prefixes[group]
        };
        let mut turns = vec![("user", words(&mut rng, self.shape.unique_tokens))];
        for _ in 0..turn {
            turns.push(("assistant", words(&mut rng, self.shape.output_tokens)));
            turns.push(("user", words(&mut rng, self.shape.unique_tokens)));
        }
        self.spell(system, &turns)
    }

    /// Which conversation a request belongs to and how many turns came before it: `sessions` conversations
    /// advance in turn, and when they are over, the next ones begin.
    fn session_turn(&self, number: u64) -> (u64, u64) {
        let (turns, sessions) = (self.shape.turns.max(1), self.shape.sessions.max(1));
        let generation = number / (turns * sessions);
        (
            generation * sessions + number % sessions,
            number / sessions % turns,
        )
    }

    /// The texts are letters and spaces, so that nothing needs an escape.
    fn spell(&self, system: &str, turns: &[(&str, String)]) -> String {
        let Shape {
            api,
            model,
            stream,
            output_tokens,
            ..
        } = &self.shape;
        let model = serde_json::Value::from(model.as_str());
        let messages = || {
            let message =
                |(role, text): &(&str, String)| format!(r#"{{"role":"{role}","content":"{text}"}}"#);
            turns.iter().map(message).collect::<Vec<_>>().join(",")
        };
        let plain = || {
            let texts: Vec<&str> = std::iter::once(system)
                .chain(turns.iter().map(|turn| turn.1.as_str()))
                .collect();
            texts.concat()
        };
        let usage = if *stream {
            r#","stream_options":{"include_usage":true}"#
        } else {
            ""
        };
        match api {
            Api::ChatCompletions => format!(
                r#"{{"model":{model},"messages":[{{"role":"system","content":"{system}"}},{}],"max_tokens":{output_tokens},"ignore_eos":true,"stream":{stream}{usage}}}"#,
                messages()
            ),
            Api::Completions => format!(
                r#"{{"model":{model},"prompt":"{}","max_tokens":{output_tokens},"ignore_eos":true,"stream":{stream}{usage}}}"#,
                plain()
            ),
            Api::Responses => format!(
                r#"{{"model":{model},"instructions":"{system}","input":[{}],"max_output_tokens":{output_tokens},"stream":{stream}}}"#,
                messages()
            ),
            Api::Messages => format!(
                r#"{{"model":{model},"system":"{system}","messages":[{}],"max_tokens":{output_tokens},"stream":{stream}}}"#,
                messages()
            ),
            Api::Generate => format!(
                r#"{{"text":"{}","sampling_params":{{"max_new_tokens":{output_tokens},"ignore_eos":true}},"stream":{stream}}}"#,
                plain()
            ),
        }
    }
}

/// About `tokens` tokens of text: syllables of four bytes, the space included.
fn words(rng: &mut Rng, tokens: usize) -> String {
    const CONSONANTS: &[u8; 16] = b"bcdfghklmnprstvz";
    const VOWELS: &[u8; 4] = b"aeio";
    let mut text = String::with_capacity(tokens * 4);
    for _ in 0..tokens {
        let bits = rng.next_u64() as usize;
        for letter in [
            CONSONANTS[bits & 15],
            VOWELS[bits >> 4 & 3],
            CONSONANTS[bits >> 6 & 15],
            b' ',
        ] {
            text.push(char::from(letter));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Shape, Workload, WorkloadName};
    use crate::prefix::Api;
    use std::collections::HashMap;

    fn shape(name: WorkloadName) -> Shape {
        Shape {
            name,
            api: Api::ChatCompletions,
            model: "m".to_owned(),
            stream: true,
            groups: 4,
            zipf: 1.0,
            prefix_tokens: 50,
            unique_tokens: 10,
            output_tokens: 5,
            turns: 1,
            sessions: 1,
            seed: 7,
        }
    }

    fn system(body: &str) -> String {
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        body["messages"][0]["content"].as_str().unwrap().to_owned()
    }

    #[test]
    fn requests_follow_from_the_seed_alone() {
        let (a, b) = (
            Workload::new(shape(WorkloadName::SharedPrefix)),
            Workload::new(shape(WorkloadName::SharedPrefix)),
        );
        assert_eq!(a.body(41), b.body(41));
        assert_ne!(a.body(41), a.body(42));
    }

    #[test]
    fn groups_follow_the_zipf_law() {
        let workload = Workload::new(shape(WorkloadName::SharedPrefix));
        let mut counts: HashMap<String, u32> = HashMap::new();
        for number in 0..2500 {
            *counts.entry(system(&workload.body(number))).or_default() += 1;
        }
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // 1 : 1/2 : 1/3 : 1/4 of 2500.
        for (count, expected) in counts.iter().zip([1200u32, 600, 400, 300]) {
            assert!(count.abs_diff(expected) < 100, "{counts:?}");
        }
    }

    #[test]
    fn unique_requests_share_nothing() {
        let workload = Workload::new(shape(WorkloadName::Unique));
        assert_ne!(system(&workload.body(0)), system(&workload.body(1)));
    }

    #[test]
    fn a_turn_repeats_those_before_it() {
        let workload = Workload::new(Shape {
            turns: 3,
            sessions: 2,
            ..shape(WorkloadName::SharedPrefix)
        });
        let messages = |number| {
            let body: serde_json::Value = serde_json::from_str(&workload.body(number)).unwrap();
            body["messages"].as_array().unwrap().clone()
        };
        // Conversation 0 has requests 0, 2 and 4; request 6 begins another.
        assert_eq!(messages(2)[..2], messages(0)[..]);
        assert_eq!(messages(4)[..4], messages(2)[..]);
        assert_eq!(messages(6).len(), 2);
        assert_ne!(messages(6), messages(0));
    }

    #[test]
    fn every_api_is_spelled_as_json() {
        for api in [
            Api::ChatCompletions,
            Api::Completions,
            Api::Responses,
            Api::Messages,
            Api::Generate,
        ] {
            let workload = Workload::new(Shape {
                api,
                turns: 2,
                ..shape(WorkloadName::SharedPrefix)
            });
            serde_json::from_str::<serde_json::Value>(&workload.body(1)).unwrap();
        }
    }
}

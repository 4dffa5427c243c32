//! What a prompt key costs: time for bodies of a few kinds and sizes.
//!
//! `cargo run --release --example prompt_key_cost [-- KIND BYTES COUNT]`; with arguments it scans one kind
//! COUNT times and prints nothing, for counting instructions under `valgrind --tool=callgrind`.

use std::hint::black_box;
use std::time::Instant;

use router_userspace::prefix::{Api, KeyScanner, PromptKey};

const KINDS: [&str; 5] = ["prose", "code", "japanese", "japanese_escaped", "token_ids"];

fn body(kind: &str, bytes: usize) -> (Api, String) {
    let fill = |piece: &str| piece.repeat(bytes / piece.len() + 1);
    let chat = |content: String| {
        let system = "You are a helpful assistant. ".repeat(20);
        let body = format!(
            r#"{{"model":"m","messages":[{{"role":"system","content":"{system}"}},{{"role":"user","content":"{content}"}}],"stream":true}}"#
        );
        (Api::ChatCompletions, body)
    };
    match kind {
        "prose" => chat(fill(
            "The quick brown fox jumps over the lazy dog and runs through the wide field until the evening comes, \
             when it goes home to its den under the old tree by the river, which has been its home for years.\\n",
        )),
        "code" => chat(fill(
            "    if (value == \\\"none\\\") {\\n\\t\\treturn 0;\\n    }\\n    total += value.len();\\n",
        )),
        "japanese" => chat(fill("今日は天気がいいので、散歩に行きましょう。")),
        "japanese_escaped" => chat(fill("\\u4eca\\u65e5\\u306f\\u5929\\u6c17\\u304c")),
        _ => {
            let ids: Vec<String> = (0..bytes / 6)
                .map(|id| (10_000 + id % 90_000).to_string())
                .collect();
            (Api::Completions, format!(r#"{{"prompt":[{}]}}"#, ids.join(",")))
        }
    }
}

fn scan(api: Api, body: &[u8]) -> PromptKey {
    let mut scanner = KeyScanner::new(api);
    for read in body.chunks(16 << 10) {
        scanner.feed(read);
    }
    scanner.finish()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [kind, bytes, count] = args.as_slice() {
        let (api, body) = body(kind, bytes.parse().unwrap_or(48_000));
        for _ in 0..count.parse().unwrap_or(1) {
            black_box(scan(api, black_box(body.as_bytes())));
        }
        return;
    }
    for kind in KINDS {
        for bytes in [4_000, 48_000, 320_000, 1_000_000] {
            let (api, body) = body(kind, bytes);
            let mut times: Vec<u128> = (0..200)
                .map(|_| {
                    let start = Instant::now();
                    black_box(scan(api, black_box(body.as_bytes())));
                    start.elapsed().as_nanos()
                })
                .collect();
            times.sort_unstable();
            println!(
                "{kind:17} {:8} bytes  median {:8.1} us  fastest {:8.1} us",
                body.len(),
                times[100] as f64 / 1000.0,
                times[0] as f64 / 1000.0
            );
        }
    }
}

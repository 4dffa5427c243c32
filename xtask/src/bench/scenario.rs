//! The loads.

/// A load that every variant gets.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    /// Its name on the command line and in the figures.
    pub(super) name: &'static str,
    /// What it is, for its table's caption.
    pub(super) what: &'static str,
    /// What is sent.
    pub(super) load: Load,
    /// Whether each core is kept busy in bursts by an ordinary thread.
    pub(super) busy: bool,
    /// Whether the proxies are measured with real-time scheduling too.
    pub(super) aids: bool,
}

/// What is sent.
#[derive(Clone, Debug)]
pub(super) enum Load {
    /// Paced streams, as the sink's `--streams`. Source and sink run before all ordinary threads, so that the delay
    /// is the proxy's and not their own.
    Streams(&'static [&'static str]),
    /// Streams without pace: the delay is that of full buffers and isn't shown.
    FlatOut(&'static [&'static str]),
    /// Requests.
    Requests { rate: u32, prompt_bytes: u32 },
}

impl Scenario {
    /// All of them. The counts are what two cores carry with each variant.
    pub(super) fn all() -> Vec<Scenario> {
        let scenario = |name, what, load| Scenario {
            name,
            what,
            load,
            busy: false,
            aids: false,
        };
        vec![
            Scenario {
                aids: true,
                ..scenario(
                    "paced",
                    "200 streams, a 200-byte chunk each 20 ms",
                    Load::Streams(&["200 chunked 200 20000"]),
                )
            },
            scenario(
                "many",
                "1,000 streams, a 200-byte chunk each 50 ms",
                Load::Streams(&["1000 chunked 200 50000"]),
            ),
            scenario(
                "large",
                "50 streams, a 32 KB chunk each 40 ms",
                Load::Streams(&["50 chunked 32768 40000"]),
            ),
            scenario(
                "mixed",
                "100 chunked and 100 close-delimited streams, 200 bytes each 20 ms (Warmpath's kernel path copies the \
                 latter)",
                Load::Streams(&["100 chunked 200 20000", "100 close 200 20000"]),
            ),
            Scenario {
                busy: true,
                aids: true,
                ..scenario(
                    "busy",
                    "100 streams, a 200-byte chunk each 20 ms; on each core an ordinary thread works 5 ms of every \
                     20 ms",
                    Load::Streams(&["100 chunked 200 20000"]),
                )
            },
            scenario(
                "flat",
                "8 streams of 200-byte chunks as fast as they go",
                Load::FlatOut(&["8 chunked 200 0"]),
            ),
            scenario(
                "flat_large",
                "8 streams of 32 KB chunks as fast as they go",
                Load::FlatOut(&["8 chunked 32768 0"]),
            ),
            scenario(
                "requests",
                "2,000 requests/s over 32 kept connections, prompt 200 bytes, answer 300 bytes",
                Load::Requests {
                    rate: 2000,
                    prompt_bytes: 200,
                },
            ),
            scenario(
                "prompts",
                "1,000 requests/s over 32 kept connections, prompt 32 KB, answer 300 bytes",
                Load::Requests {
                    rate: 1000,
                    prompt_bytes: 32_768,
                },
            ),
        ]
    }
}

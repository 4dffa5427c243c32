//! Which request paths pass to the engines.

use super::PathScope;

/// What becomes of a request by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    /// It goes to an engine.
    Pass,
    /// The router answers for itself.
    OwnHealth,
    /// It controls or exposes the engine and only passes with `paths = "all"`.
    Control,
    /// It isn't one of the endpoints that pass.
    Unknown,
}

/// Endpoints of vLLM's and SGLang's APIs that infer, tokenise or list.
const INFERENCE: [&str; 27] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
    "/v1/score",
    "/score",
    "/v1/classify",
    "/classify",
    "/pooling",
    "/encode",
    "/generate",
    "/invocations",
    "/tokenize",
    "/detokenize",
    "/v1/tokenize",
    "/v1/detokenize",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/audio/speech",
    "/v1/models",
    "/v1/images/generations",
    "/version",
];

/// Families whose members carry ids or grow by version.
const INFERENCE_PREFIXES: [&str; 4] = [
    "/v1/models/",
    "/v1/responses/",
    "/v1/realtime",
    "/v1/conversations",
];

/// Endpoints that change an engine or show its insides.
const CONTROL_PREFIXES: [&str; 28] = [
    "/flush_cache",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/load_lora_adapter",
    "/unload_lora_adapter",
    "/start_profile",
    "/stop_profile",
    "/start_expert_distribution_record",
    "/stop_expert_distribution_record",
    "/dump_expert_distribution_record",
    "/update_weights",
    "/init_weights",
    "/get_weights",
    "/release_memory_occupation",
    "/resume_memory_occupation",
    "/abort_request",
    "/set_internal_state",
    "/get_server_info",
    "/server_info",
    "/get_load",
    "/collective_rpc",
    "/scale_elastic_ep",
    "/configure_logging",
];

/// Decides by the path alone, without its query.
pub(super) fn passage(path: &[u8], scope: PathScope) -> Passage {
    let Ok(path) = std::str::from_utf8(path) else {
        return if scope == PathScope::All {
            Passage::Pass
        } else {
            Passage::Unknown
        };
    };
    match path {
        "/health" | "/healthz" => return Passage::OwnHealth,
        // An engine's metrics name its model and load; they are for the rack network.
        "/metrics" => return Passage::Unknown,
        _ => {}
    }
    if scope == PathScope::All || INFERENCE.contains(&path) {
        return Passage::Pass;
    }
    if CONTROL_PREFIXES.iter().any(|prefix| path.starts_with(prefix)) {
        return Passage::Control;
    }
    if INFERENCE_PREFIXES.iter().any(|prefix| path.starts_with(prefix)) && !climbs(path) {
        return Passage::Pass;
    }
    Passage::Unknown
}

/// Whether a server that normalises paths could take this one for another: a dot segment, or a separator in disguise.
fn climbs(path: &str) -> bool {
    let plain = path.to_ascii_lowercase().replace("%2e", ".");
    plain.contains("%2f")
        || plain.contains("%5c")
        || plain.split(['/', '\\']).any(|part| matches!(part, "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_control_never_passes_by_default() {
        for path in CONTROL_PREFIXES {
            assert_eq!(
                passage(path.as_bytes(), PathScope::Inference),
                Passage::Control,
                "{path}"
            );
            assert_eq!(passage(path.as_bytes(), PathScope::All), Passage::Pass, "{path}");
        }
    }

    #[test]
    fn inference_passes_and_the_rest_does_not() {
        for path in INFERENCE {
            assert_eq!(
                passage(path.as_bytes(), PathScope::Inference),
                Passage::Pass,
                "{path}"
            );
        }
        for path in [
            "/",
            "/v1",
            "/v1/chat/completionsx",
            "/V1/models",
            "//v1/models",
            "/admin",
        ] {
            assert_eq!(
                passage(path.as_bytes(), PathScope::Inference),
                Passage::Unknown,
                "{path}"
            );
        }
    }

    #[test]
    fn a_path_that_climbs_out_of_its_family_does_not_pass() {
        for path in [
            "/v1/models/../../flush_cache",
            "/v1/models/%2e%2E/%2e%2e/flush_cache",
            "/v1/models/..%2f..%2Fflush_cache",
            "/v1/models/..\\flush_cache",
            "/v1/responses/./x",
        ] {
            assert_eq!(
                passage(path.as_bytes(), PathScope::Inference),
                Passage::Unknown,
                "{path}"
            );
        }
        assert_eq!(
            passage(b"/v1/models/org/model-1.5", PathScope::Inference),
            Passage::Pass
        );
    }

    #[test]
    fn health_and_metrics_are_never_an_engines() {
        for scope in [PathScope::Inference, PathScope::All] {
            assert_eq!(passage(b"/health", scope), Passage::OwnHealth);
            assert_eq!(passage(b"/metrics", scope), Passage::Unknown);
        }
    }
}

//! `/metrics` of a simulated engine, with the names that vLLM uses.

use std::fmt::Write as _;

use super::host::Host;

/// The page.
pub(super) fn metrics(host: &Host, model: &str) -> String {
    let (running, waiting, kv_usage, stats) = host.load();
    let labels = format!(
        "engine=\"0\",model_name=\"{}\"",
        model.replace(['"', '\\', '\n'], "_")
    );
    let mut page = String::with_capacity(8 << 10);
    let mut value = |name: &str, kind: &str, value: &dyn std::fmt::Display| {
        let family = name.strip_suffix("_total").unwrap_or(name);
        // Writing into a String can't fail.
        let _ = writeln!(
            page,
            "# TYPE vllm:{family} {kind}\nvllm:{name}{{{labels}}} {value}"
        );
    };
    value("num_requests_running", "gauge", &running);
    value("num_requests_waiting", "gauge", &waiting);
    value("kv_cache_usage_perc", "gauge", &kv_usage);
    value(
        "prefix_cache_queries_total",
        "counter",
        &stats.prompt_tokens_total,
    );
    value("prefix_cache_hits_total", "counter", &stats.cached_tokens_total);
    value("prompt_tokens_total", "counter", &stats.prompt_tokens_total);
    value(
        "generation_tokens_total",
        "counter",
        &stats.generation_tokens_total,
    );
    value("num_preemptions_total", "counter", &0);
    for (reason, count) in [("length", stats.finished_total), ("abort", stats.aborted_total)] {
        let _ = writeln!(
            page,
            "vllm:request_success_total{{{labels},finished_reason=\"{reason}\"}} {count}"
        );
    }
    let config = host.config();
    let _ = writeln!(
        page,
        "# TYPE vllm:cache_config_info gauge\n\
         vllm:cache_config_info{{engine=\"0\",block_size=\"{}\",num_gpu_blocks=\"{}\",enable_prefix_caching=\"True\"}} 1",
        config.block_tokens, config.capacity_blocks
    );
    host.ttft_seconds
        .borrow()
        .write(&mut page, "vllm:time_to_first_token_seconds", &labels);
    host.itl_seconds
        .borrow()
        .write(&mut page, "vllm:inter_token_latency_seconds", &labels);
    host.e2e_seconds
        .borrow()
        .write(&mut page, "vllm:e2e_request_latency_seconds", &labels);
    page
}

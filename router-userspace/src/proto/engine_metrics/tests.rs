use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn read(page: &str) -> EngineReport {
    parse_engine_metrics(page.as_bytes())
}

#[test]
fn a_page_of_vllm_v1_with_two_ranks_is_summed_and_averaged() {
    let page = r#"
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/model"} 3.0
vllm:num_requests_running{engine="1",model_name="org/model"} 4.0
vllm:num_requests_waiting{engine="0",model_name="org/model"} 2.0
vllm:num_requests_waiting{engine="1",model_name="org/model"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="org/model",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="org/model"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="org/model"} 0.25
vllm:prefix_cache_queries_total{engine="0",model_name="org/model"} 1.2e+06
vllm:prefix_cache_queries_created{engine="0",model_name="org/model"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0",model_name="org/model"} 4e+05
vllm:external_prefix_cache_queries_total{engine="0",model_name="org/model"} 9
vllm:prompt_tokens_total{engine="0",model_name="org/model"} 100.0
vllm:prompt_tokens_total{engine="1",model_name="org/model"} 11.0 1700000000000
vllm:generation_tokens_total{engine="0",model_name="org/model"} 7.0
vllm:num_preemptions_total{engine="0",model_name="org/model"} 1.0
vllm:request_prompt_tokens_sum{engine="0",model_name="org/model"} 5.0
vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="1000",num_gpu_blocks="100"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="100"} 1.0
vllm:time_to_first_token_seconds_bucket{le="0.1"} 3
"#;
    assert_eq!(
        read(page),
        EngineReport {
            kind: Some(EngineKind::Vllm),
            running: Some(7),
            waiting: Some(2),
            waiting_uncached_tokens: None,
            kv_usage_ratio: Some(0.375),
            prompt_tokens_total: Some(111),
            generation_tokens_total: Some(7),
            prefix_queries_total: Some(1_200_000),
            prefix_hits_total: Some(400_000),
            preemptions_total: Some(1),
            block_tokens: Some(16),
            capacity_tokens: Some(2600),
        }
    );
}

#[test]
fn older_names_of_vllm_are_read_and_newer_ones_preferred() {
    let old = "vllm:num_requests_running{model_name=\"m\"} 1\nvllm:gpu_cache_usage_perc 0.5\n\
        vllm:gpu_prefix_cache_queries 10\nvllm:gpu_prefix_cache_hits 4\n";
    let report = read(old);
    assert_eq!((report.running, report.waiting), (Some(1), None));
    assert_eq!(report.kv_usage_ratio, Some(0.5));
    assert_eq!(
        (report.prefix_queries_total, report.prefix_hits_total),
        (Some(10), Some(4))
    );
    let both = format!("{old}vllm:kv_cache_usage_perc 0.75\nvllm:prefix_cache_queries_total 20\n");
    let report = read(&both);
    assert_eq!(
        (report.kv_usage_ratio, report.prefix_queries_total),
        (Some(0.75), Some(20))
    );
}

#[test]
fn sglang_is_read_with_either_prefix_and_copies_of_a_rank_count_once() {
    for prefix in ["sglang:", "sglang_"] {
        let page = format!(
            r#"
{prefix}num_running_reqs{{dp_rank="0",tp_rank="0",priority=""}} 5.0
{prefix}num_running_reqs{{dp_rank="0",tp_rank="0",priority="1"}} 3.0
{prefix}num_running_reqs{{dp_rank="0",tp_rank="1",priority=""}} 5.0
{prefix}num_running_reqs{{dp_rank="1",tp_rank="2",priority=""}} 2.0
{prefix}num_queue_reqs{{dp_rank="0",tp_rank="0"}} 1.0
{prefix}token_usage{{dp_rank="0",tp_rank="0"}} 0.9
{prefix}token_usage{{dp_rank="1",tp_rank="2"}} 0.1
{prefix}prompt_tokens_total{{is_streaming="true"}} 100.0
{prefix}prompt_tokens_total{{is_streaming="false"}} 20.0
{prefix}cached_tokens_total{{cache_source="device"}} 30.0
{prefix}cached_tokens_total{{cache_source="host"}} 12.0
{prefix}cache_hit_rate{{}} 0.99
{prefix}num_retracted_reqs{{}} 7
{prefix}num_retracted_requests_total{{}} 2
"#
        );
        let report = read(&page);
        assert_eq!((report.running, report.waiting), (Some(7), Some(1)));
        assert_eq!(report.kv_usage_ratio, Some(0.5));
        assert_eq!(
            (report.prefix_queries_total, report.prefix_hits_total),
            (Some(120), Some(42))
        );
        assert_eq!(report.preemptions_total, Some(2));
    }
}

#[test]
fn sglang_tells_its_capacity_in_three_ways() {
    for (page, block, capacity) in [
        (
            "sglang:cache_config_info{page_size=\"64\",num_pages=\"10\"} 1",
            Some(64),
            Some(640),
        ),
        ("sglang:page_size 32\nsglang:num_pages 4", Some(32), Some(128)),
        ("sglang:max_total_num_tokens{tp_rank=\"0\"} 999", None, Some(999)),
        ("sglang:num_pages 4", None, None),
    ] {
        let report = read(page);
        assert_eq!(
            (report.block_tokens, report.capacity_tokens),
            (block, capacity),
            "{page}"
        );
    }
}

#[test]
fn what_an_engine_does_not_know_is_unknown_and_not_zero() {
    for page in [
        "",
        "up 1",
        "vllm:num_requests_running",
        "vllm:num_requests_running ",
        "vllm:num_requests_running NaN",
        "vllm:num_requests_running -1",
        "vllm:num_requests_running +Inf",
        "vllm:num_requests_running{ 1",
        "vllm:num_requests_running{engine} 1",
        "vllm:num_requests_running{engine=\"0} 1",
        "vllm:num_requests_running{engine=\"0\\\"} 1",
        "vllm:num_requests_running{engine=\"0\"x=\"1\"} 1",
        "vllm.num_requests_running 1",
        "Vllm:num_requests_running 1",
        "#vllm:num_requests_running 1",
        "my_vllm:num_requests_running 1",
        "vllm:cache_config_info{block_size=\"None\",num_gpu_blocks=\"None\"} 1",
        "vllm:cache_config_info{block_size=\"0\",num_gpu_blocks=\"0\"} 1",
        "\u{fffd}\n{",
    ] {
        let nothing = EngineReport {
            kind: read(page).kind,
            ..EngineReport::default()
        };
        assert_eq!(read(page), nothing, "{page}");
    }
}

#[test]
fn token_counters_alone_are_no_load() {
    let report = read("vllm:prompt_tokens_total 1\n");
    assert!(!report.has_load());
    assert_eq!(report.tokens_total(), Some(1));
    assert_eq!(EngineReport::default().tokens_total(), None);
}

#[test]
fn braces_blanks_and_quotes_in_a_label_end_nothing() {
    let page = "vllm:num_requests_running{model_name=\"a} 9 \\\" b\\\\\", engine=\"1\", } 2 1700 # {trace=\"x\"} 1\r\n";
    assert_eq!(read(page).running, Some(2));
}

#[test]
fn ranks_beyond_the_bound_are_left_out() {
    let line = |rank: u32| format!("vllm:num_requests_running{{engine=\"{rank}\"}} 1\n");
    let page: String = (0..2000).map(line).collect();
    assert_eq!(read(&page).running, Some(512));
}

#[test]
fn loads_of_two_ranks_are_summed_and_put_over_the_metrics() {
    let body = br#"{"timestamp":"x","dp_rank_count":2,"loads":[
        {"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":1,"num_waiting_uncached_tokens":700,
         "max_total_num_tokens":1000,"token_usage":0.5,"disaggregation":{"mode":"null"}},
        {"dp_rank":1,"num_running_reqs":4,"num_waiting_reqs":0,"num_waiting_uncached_tokens":5,
         "max_total_num_tokens":1000,"token_usage":0.25,"queues":null}]}"#;
    let loads = parse_engine_loads(body).expect("a page of loads");
    assert_eq!((loads.running, loads.waiting), (Some(7), Some(1)));
    assert_eq!(loads.waiting_uncached_tokens, Some(705));
    assert_eq!(
        (loads.kv_usage_ratio, loads.capacity_tokens),
        (Some(0.375), Some(2000))
    );
    let page = read("sglang:num_running_reqs 1\nsglang:page_size 64\nsglang:prompt_tokens_total 9\n");
    let both = page.with_loads(&loads);
    assert_eq!((both.running, both.block_tokens), (Some(7), Some(64)));
    assert_eq!(both.prompt_tokens_total, Some(9));
}

#[test]
fn what_is_no_page_of_loads_is_none() {
    for body in [
        "",
        "# a comment\n",
        "{}",
        "[]",
        r#"{"loads":[]}"#,
        r#"{"loads":[{}]}"#,
        r#"{"loads":[{"num_running_reqs":null}]}"#,
        r#"{"loads":[{"num_running_reqs":-1}]}"#,
        r#"{"loads":[{"num_running_reqs":"3"}]}"#,
        r#"{"loads":[{"num_running_reqs":3}"#,
        r#"{"detail":"Not Found"}"#,
    ] {
        assert_eq!(parse_engine_loads(body.as_bytes()), None, "{body}");
    }
    let partial = parse_engine_loads(br#"{"loads":[{"num_running_reqs":3.0}]}"#).expect("a load");
    assert_eq!((partial.running, partial.waiting), (Some(3), None));
}

/// One sample as a generator makes it.
#[derive(Clone, Debug)]
struct Made {
    name: &'static str,
    rank: Option<u8>,
    noise: String,
    value: u32,
}

const NAMES: [&str; 10] = [
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "vllm:prompt_tokens_total",
    "vllm_generation_tokens_total",
    "vllm:num_preemptions",
    "vllm:num_requests_waiting_by_reason",
    "vllm:request_success_total",
    "python_gc_objects_collected_total",
];

impl Made {
    fn line(&self) -> String {
        let noise = self
            .noise
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        let rank = self
            .rank
            .map_or(String::new(), |rank| format!(",engine=\"{rank}\""));
        format!("{}{{model_name=\"{noise}\"{rank}}} {}\n", self.name, self.value)
    }
}

fn made() -> impl Strategy<Value = Vec<Made>> {
    let sample = (
        proptest::sample::select(NAMES.as_slice()),
        proptest::option::of(0u8..4),
        proptest::string::string_regex("[a-z{}=,\"\\\\ \n#]{0,8}").expect("a pattern"),
        0u32..1_000_000,
    );
    let made = sample.prop_map(|(name, rank, noise, value)| Made {
        name,
        rank,
        noise,
        value,
    });
    proptest::collection::vec(made, 0..40)
}

/// The report by maps of everything.
fn naive(samples: &[Made]) -> EngineReport {
    let of = |name: &str| {
        let mut ranks: BTreeMap<Option<u8>, f64> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| sample.name == name) {
            let value = ranks.entry(sample.rank).or_default();
            *value = value.max(f64::from(sample.value));
        }
        ranks
    };
    let count = |name| {
        let ranks = of(name);
        (!ranks.is_empty()).then(|| ranks.values().sum::<f64>() as u32)
    };
    let total = |name: &str| {
        let mut of_name = samples.iter().filter(|sample| sample.name == name).peekable();
        of_name.peek()?;
        Some(of_name.map(|sample| u64::from(sample.value)).sum())
    };
    let known = |sample: &Made| {
        sample.name.starts_with("vllm")
            && !sample.name.ends_with("by_reason")
            && !sample.name.contains("success")
    };
    let mut usage = of("vllm:gpu_cache_usage_perc");
    usage.extend(of("vllm:kv_cache_usage_perc"));
    let mean = usage.values().sum::<f64>() / usage.len() as f64;
    EngineReport {
        kind: samples.iter().any(known).then_some(EngineKind::Vllm),
        running: count("vllm:num_requests_running"),
        waiting: count("vllm:num_requests_waiting"),
        kv_usage_ratio: (!usage.is_empty()).then(|| mean.min(1.0)),
        prompt_tokens_total: total("vllm:prompt_tokens_total"),
        generation_tokens_total: total("vllm_generation_tokens_total"),
        preemptions_total: total("vllm:num_preemptions"),
        ..EngineReport::default()
    }
}

proptest! {
    #[test]
    fn the_report_is_that_of_a_naive_reader(samples in made()) {
        let page: String = samples.iter().map(Made::line).collect();
        prop_assert_eq!(read(&page), naive(&samples));
    }

    #[test]
    fn a_page_cut_anywhere_gives_what_its_whole_lines_say(samples in made(), cut in any::<prop::sample::Index>()) {
        let page: String = samples.iter().map(Made::line).collect();
        let cut = cut.index(page.len() + 1);
        let lines = page.as_bytes()[..cut].iter().filter(|byte| **byte == b'\n').count();
        let whole = naive(&samples[..lines]);
        let tail = page.as_bytes()[..cut].rsplit(|byte| *byte == b'\n').next().expect("a last line");
        // Unless the cut fell into the digits of a value, the last line says nothing.
        let tail_says = tail.last().is_some_and(u8::is_ascii_digit) && Sample::parse(tail).is_some();
        let report = parse_engine_metrics(&page.as_bytes()[..cut]);
        prop_assert!(tail_says || report == whole);
    }

    #[test]
    fn no_page_makes_it_panic(page in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_engine_metrics(&page);
        for begin in ["vllm:num_requests_running", "vllm:cache_config_info{", "sglang_page_size{a=\"", "\n"] {
            let _ = parse_engine_metrics(&[begin.as_bytes(), &page].concat());
        }
        let _ = parse_engine_loads(&page);
    }

    #[test]
    fn a_mangled_page_gives_ratios_from_0_to_1(
        samples in made(), at in any::<prop::sample::Index>(), insert in "[{}\",= \n\\\\0-9a-z]{0,6}", skip in 0usize..6,
    ) {
        let page: Vec<u8> = samples.iter().flat_map(|sample| sample.line().into_bytes()).collect();
        let at = at.index(page.len() + 1);
        let mangled = [&page[..at], insert.as_bytes(), page.get(at + skip..).unwrap_or_default()].concat();
        let report = parse_engine_metrics(&mangled);
        prop_assert!(report.kv_usage_ratio.is_none_or(|ratio| (0.0..=1.0).contains(&ratio)));
    }
}

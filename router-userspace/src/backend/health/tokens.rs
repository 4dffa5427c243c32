//! The token counters of an engine's metrics page, for telling a silent engine that works from one that hangs.

/// Counters that move while an engine computes; vLLM and SGLang, with either of their prefixes.
const COUNTERS: [&str; 2] = ["prompt_tokens_total", "generation_tokens_total"];
const PREFIXES: [&str; 4] = ["vllm:", "sglang:", "vllm_", "sglang_"];

/// The sum of all token counters of a page; `None` where it has none.
///
/// # Source
/// Prometheus text format: `name{labels} value [timestamp]`, one sample a line.
pub(super) fn token_sum(page: &[u8]) -> Option<f64> {
    let mut sum = None;
    for line in page.split(|byte| *byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else {
            continue;
        };
        if let Some(value) = sample(line) {
            sum = Some(sum.unwrap_or(0.0) + value);
        }
    }
    sum
}

fn sample(line: &str) -> Option<f64> {
    let name_end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(name_end);
    let bare = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    if !COUNTERS.contains(&bare) {
        return None;
    }
    let after_labels = match rest.strip_prefix('{') {
        // A label's value may hold a brace; the last one of the line ends the labels.
        Some(labels) => labels.rsplit_once('}')?.1,
        None => rest,
    };
    let value: f64 = after_labels.split_ascii_whitespace().next()?.parse().ok()?;
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::token_sum;

    #[test]
    fn counters_of_all_ranks_and_both_spellings_are_summed() {
        let page = b"# HELP vllm:prompt_tokens_total x\n# TYPE vllm:prompt_tokens_total counter\n\
            vllm:prompt_tokens_total{engine=\"0\",model_name=\"a}b\"} 10.0\n\
            vllm:prompt_tokens_total{engine=\"1\"} 5 1700000000\n\
            vllm:prompt_tokens_created{engine=\"1\"} 99\n\
            vllm:generation_tokens_total 1.5e1\r\n\
            other_generation_tokens_total 7\n";
        assert_eq!(token_sum(page), Some(30.0));
        assert_eq!(
            token_sum(b"sglang:generation_tokens_total{} 3\nsglang_prompt_tokens_total 4"),
            Some(7.0)
        );
    }

    #[test]
    fn a_page_without_them_or_with_rubbish_gives_nothing() {
        for page in [
            "",
            "up 1",
            "vllm:prompt_tokens_total",
            "vllm:prompt_tokens_total{ 1",
            "vllm:prompt_tokens_total NaN",
            "\u{fffd}\n{",
        ] {
            assert_eq!(token_sum(page.as_bytes()), None, "{page}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_page_makes_it_panic(page in proptest::collection::vec(0u8.., 0..300)) {
            let _ = token_sum(&page);
            let _ = token_sum(&[b"vllm:prompt_tokens_total".as_slice(), &page].concat());
        }
    }
}

//! The page for people: the same facts as the JSON, without scripts.

use std::fmt::Write;

use super::AdminState;
use super::json::{BackendPage, backend_page};
use super::pages::{EXPLAIN_DEFAULT, health_ignored};
use crate::types::now;

const HEAD: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width\"><meta http-equiv=\"refresh\" content=\"5\">\
<title>Warmpath</title><style>\
:root{color-scheme:light dark}\
body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem}\
table{border-collapse:collapse;width:100%;margin:.5rem 0 2rem;display:block;overflow-x:auto}\
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #8884;white-space:nowrap}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\
.unhealthy,.stalled{color:#d33;font-weight:600}.draining{color:#a70}\
.note{border-left:4px solid #d33;padding:.3rem .8rem}\
</style></head><body>";

/// `/`.
pub(super) fn overview(state: &AdminState) -> String {
    let mut page = HEAD.to_owned();
    let minutes = now().since(state.started).as_secs() / 60;
    // Writing into a String can't fail.
    let _ = write!(
        page,
        "<h1>Warmpath</h1><p>Version {} · policy {} · up {} h {} min · \
        <a href=\"/metrics\">metrics</a> · <a href=\"/backends\">backends</a> · \
        <a href=\"/explain?n=20\">explain</a> · <a href=\"/readyz\">ready?</a></p>",
        env!("CARGO_PKG_VERSION"),
        escaped(state.policy),
        minutes / 60,
        minutes % 60,
    );
    if health_ignored(state) {
        page.push_str(
            "<p class=\"note\">Too many backends are unfit: health is ignored and each of them gets requests.</p>",
        );
    }
    backends(&mut page, state);
    decisions(&mut page, state);
    page.push_str("</body></html>\n");
    page
}

fn backends(page: &mut String, state: &AdminState) {
    page.push_str(
        "<h2>Backends</h2><table><tr><th>Name<th>Address<th>State<th class=\"n\">In flight\
        <th class=\"n\">Running<th class=\"n\">Waiting<th class=\"n\">KV use\
        <th class=\"n\">Requests<th class=\"n\">2xx, 3xx<th class=\"n\">4xx<th class=\"n\">5xx\
        <th class=\"n\">Broken off<th class=\"n\">Unreachable<th class=\"n\">Last byte<th class=\"n\">Last probe</tr>",
    );
    for backend in &state.backends.backends {
        row(page, &backend_page(backend));
    }
    page.push_str("</table>");
}

fn row(page: &mut String, backend: &BackendPage<'_>) {
    let word = if backend.verdict == backend.state || backend.state == "draining" {
        backend.state.to_owned()
    } else {
        format!("{}, ignored", backend.verdict)
    };
    let class = if backend.state == "draining" {
        backend.state
    } else {
        backend.verdict
    };
    let full = if backend.saturated { " (saturated)" } else { "" };
    let _ = write!(
        page,
        "<tr><td>{}<td>{}<td class=\"{class}\">{word}<td class=\"n\">{} of {}{full}",
        escaped(backend.name),
        escaped(&backend.addr),
        backend.in_flight,
        backend.max_in_flight,
    );
    let engine = &backend.engine;
    for count in [engine.running, engine.waiting] {
        let _ = match count {
            Some(count) => write!(page, "<td class=\"n\">{count}"),
            None => write!(page, "<td class=\"n\">?"),
        };
    }
    let _ = match engine.kv_usage_ratio {
        Some(ratio) => write!(page, "<td class=\"n\">{:.0} %", ratio * 100.0),
        None => write!(page, "<td class=\"n\">?"),
    };
    let answers = &backend.answers_total;
    for count in [
        backend.requests_total,
        answers.good,
        answers.client,
        answers.server,
        backend.broken_total,
        backend.connect_failures_total,
    ] {
        let _ = write!(page, "<td class=\"n\">{count}");
    }
    for age in [backend.last_byte_age_ms, backend.last_probe_age_ms] {
        let _ = match age {
            Some(ms) => write!(page, "<td class=\"n\">{}.{} s ago", ms / 1000, ms % 1000 / 100),
            None => write!(page, "<td class=\"n\">never"),
        };
    }
    page.push_str("</tr>");
}

fn decisions(page: &mut String, state: &AdminState) {
    page.push_str(
        "<h2>Last decisions</h2><table><tr><th>Path<th>Backend<th>Reason<th class=\"n\">Try\
        <th class=\"n\">Prompt bytes</tr>",
    );
    for decision in state.decisions.last(EXPLAIN_DEFAULT) {
        let _ = write!(
            page,
            "<tr><td>{}<td>{}<td>{}<td class=\"n\">{}<td class=\"n\">{}</tr>",
            escaped(&decision.path),
            escaped(&decision.backend),
            escaped(decision.reason),
            decision.try_number,
            decision.prompt_bytes,
        );
    }
    page.push_str("</table>");
}

/// Text that can stand in an element or a quoted attribute: paths come from clients.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

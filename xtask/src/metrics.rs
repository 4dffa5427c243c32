//! Reading numbers from a metrics page.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// The longest that a page may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The body of `GET path` at `base` (`http://HOST:PORT`).
///
/// # Errors
/// Where it can't be read or isn't a 200.
pub(crate) fn get(base: &str, path: &str) -> Result<String> {
    let host = base.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).with_context(|| base.to_owned())?;
    stream.set_read_timeout(Some(LIMIT)).context("timeout")?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").with_context(|| base.to_owned())?;
    let mut page = String::new();
    stream
        .read_to_string(&mut page)
        .with_context(|| base.to_owned())?;
    let (head, body) = page.split_once("\r\n\r\n").context("no HTTP answer")?;
    if head.split(' ').nth(1) != Some("200") {
        bail!("{base}{path}: {}", head.lines().next().unwrap_or_default());
    }
    Ok(body.to_owned())
}

/// The sum of a metric's samples on `page` whose labels hold each of `labels` (`path="kernel"`).
pub(crate) fn sum(page: &str, name: &str, labels: &[&str]) -> f64 {
    page.lines()
        .filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (its_labels, value) = match rest.strip_prefix('{') {
                Some(rest) => rest.rsplit_once('}')?,
                None => ("", rest.strip_prefix(' ')?),
            };
            let value = value.split_whitespace().next()?;
            let has_all = labels.iter().all(|label| its_labels.contains(label));
            has_all.then(|| value.parse::<f64>().ok())?
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# TYPE warmpath_flow_bytes counter\n\
        warmpath_flow_bytes_total{path=\"kernel\"} 950\n\
        warmpath_flow_bytes_total{path=\"copy\"} 50\n\
        warmpath_flow_bytes_total_other 7\n\
        warmpath_connections 3\n# EOF\n";

    #[test]
    fn samples_are_summed_by_label() {
        assert_eq!(
            sum(PAGE, "warmpath_flow_bytes_total", &["path=\"kernel\""]),
            950.0
        );
        assert_eq!(sum(PAGE, "warmpath_flow_bytes_total", &[]), 1000.0);
        assert_eq!(sum(PAGE, "warmpath_connections", &[]), 3.0);
        assert_eq!(sum(PAGE, "warmpath_flows", &[]), 0.0);
    }
}

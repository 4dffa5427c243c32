//! Where requests go.

use std::net::SocketAddr;

/// A target URL, understood and resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The URL as given.
    pub(super) url: String,
    /// The value of `Host`.
    pub(super) authority: String,
    /// What stands before the API's path, without a slash at its end.
    pub(super) base_path: String,
    /// Where to connect.
    pub(super) addr: SocketAddr,
}

/// Why a URL can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum TargetError {
    /// Not `http://host[:port][/path]`.
    #[error("--target {0}: only http://host[:port][/path] is understood")]
    Form(String),
    /// The name has no address.
    #[error("--target {url}: cannot resolve: {cause}")]
    Resolve {
        /// The URL.
        url: String,
        /// What the resolver said.
        cause: String,
    },
}

impl Target {
    /// Parses and resolves a URL.
    pub(super) async fn resolve(url: &str) -> Result<Target, TargetError> {
        let (authority, base_path) = split(url).ok_or_else(|| TargetError::Form(url.to_owned()))?;
        let has_port = authority
            .rsplit(']')
            .next()
            .is_some_and(|tail| tail.contains(':'));
        let host_port = if has_port {
            authority.to_owned()
        } else {
            format!("{authority}:80")
        };
        let failed = |cause: String| TargetError::Resolve {
            url: url.to_owned(),
            cause,
        };
        let mut addrs = tokio::net::lookup_host(&host_port)
            .await
            .map_err(|error| failed(error.to_string()))?;
        Ok(Target {
            url: url.to_owned(),
            authority: authority.to_owned(),
            base_path: base_path.to_owned(),
            addr: addrs.next().ok_or_else(|| failed("no address".to_owned()))?,
        })
    }
}

/// Authority and path of an `http` URL.
fn split(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("http://")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let clean = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'@' && byte != b'#')
    };
    let path = path.trim_end_matches('/');
    // SDKs' base URLs end in it; the paths of the APIs begin with it.
    let path = path.strip_suffix("/v1").unwrap_or(path);
    (!authority.is_empty() && clean(authority) && clean(path)).then_some((authority, path))
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn only_plain_http_urls_are_understood() {
        assert_eq!(split("http://a:8000"), Some(("a:8000", "")));
        assert_eq!(split("http://[::1]:80/base/"), Some(("[::1]:80", "/base")));
        assert_eq!(split("http://a/base/v1"), Some(("a", "/base")));
        for url in [
            "https://a",
            "a:80",
            "http://",
            "http:///x",
            "http://u@a",
            "http://a b",
        ] {
            assert_eq!(split(url), None, "{url}");
        }
    }
}

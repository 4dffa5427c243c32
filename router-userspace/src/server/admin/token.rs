//! The secret that opens the admin interface to other hosts.

use std::fmt;
use std::io::Read;
use std::path::Path;

/// Bytes that a token has at least: fewer could be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// Bytes that a token has at most.
const TOKEN_BYTES_MAX: usize = 1024;

/// A token read from its file. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken(String);

/// Why a file holds no usable token.
#[derive(Debug, thiserror::Error)]
pub enum AdminTokenError {
    /// It can't be opened or read.
    #[error("can't be read ({0})")]
    Unreadable(#[from] std::io::Error),
    /// Too few or too many bytes.
    #[error("its token has {0} bytes, not {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}")]
    Length(usize),
    /// Bytes that can't stand in a header.
    #[error("its token has bytes other than printable ASCII without spaces")]
    Bytes,
}

impl AdminToken {
    /// Reads the first line of `file`.
    ///
    /// # Errors
    /// [`AdminTokenError`] where there is none that serves.
    pub fn read(file: &Path) -> Result<AdminToken, AdminTokenError> {
        let mut text = String::new();
        let bound = TOKEN_BYTES_MAX as u64 + 2;
        std::fs::File::open(file)?.take(bound).read_to_string(&mut text)?;
        AdminToken::new(text.lines().next().unwrap_or_default().trim())
    }

    /// A token of this text.
    ///
    /// # Errors
    /// [`AdminTokenError`] where it is too short, too long or can't stand in a header.
    pub fn new(text: &str) -> Result<AdminToken, AdminTokenError> {
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&text.len()) {
            return Err(AdminTokenError::Length(text.len()));
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(AdminTokenError::Bytes);
        }
        Ok(AdminToken(text.to_owned()))
    }

    /// Whether an `Authorization` field shows this token.
    #[must_use]
    pub fn opens(&self, authorization: &[u8]) -> bool {
        let Some((scheme, shown)) = authorization.split_at_checked(b"Bearer ".len()) else {
            return false;
        };
        if !scheme.eq_ignore_ascii_case(b"Bearer ") || shown.len() != self.0.len() {
            return false;
        }
        // Every byte is compared, so that the time says nothing of how many are right.
        let differences = shown
            .iter()
            .zip(self.0.bytes())
            .fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differences) == 0
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_opens() {
        let token = AdminToken::new("0123456789abcdef").expect("long enough");
        assert!(token.opens(b"Bearer 0123456789abcdef"));
        assert!(token.opens(b"bearer 0123456789abcdef"));
        for shut in [
            "",
            "Bearer ",
            "Bearer 0123456789abcdee",
            "Bearer 0123456789abcde",
            "Basic 0123456789abcdef",
        ] {
            assert!(!token.opens(shut.as_bytes()), "{shut}");
        }
        assert!(!token.opens(b"Bearer 0123456789abcdef0"));
    }

    #[test]
    fn short_and_unprintable_tokens_are_refused_and_none_is_printed() {
        assert!(matches!(
            AdminToken::new("short"),
            Err(AdminTokenError::Length(5))
        ));
        assert!(matches!(
            AdminToken::new("0123456789 abcdef"),
            Err(AdminTokenError::Bytes)
        ));
        let token = AdminToken::new("0123456789abcdef").expect("long enough");
        assert!(!format!("{token:?}").contains("0123"));
    }
}

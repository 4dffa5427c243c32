//! Just enough of Rust's lexer to see paths: identifiers and punctuation with their lines.
//!
//! Comments, strings, characters and numbers are dropped, so that a crate named in prose or in a log
//! filter isn't taken for an import.

/// A token that may be part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or keyword.
    Ident(String),
    /// `::`.
    PathSep,
    /// Any other punctuation character.
    Punct(char),
}

/// A token and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// What it is.
    pub(crate) kind: Kind,
    /// Its line, from 1.
    pub(crate) line: usize,
}

impl Token {
    /// The identifier, if it is one.
    pub(crate) fn ident(&self) -> Option<&str> {
        match &self.kind {
            Kind::Ident(name) => Some(name),
            Kind::PathSep | Kind::Punct(_) => None,
        }
    }

    /// Whether it is this punctuation character.
    pub(crate) fn is(&self, punct: char) -> bool {
        self.kind == Kind::Punct(punct)
    }

    /// Whether it is `::`.
    pub(crate) fn is_path_sep(&self) -> bool {
        self.kind == Kind::PathSep
    }
}

/// The tokens of `source`. Text that isn't Rust gives some tokens too, never a panic.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let mut lexer = Lexer {
        rest: source,
        line: 1,
        out: Vec::new(),
    };
    while !lexer.rest.is_empty() {
        lexer.step();
    }
    lexer.out
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    out: Vec<Token>,
}

impl Lexer<'_> {
    /// Drops `bytes` bytes and counts their lines.
    fn skip(&mut self, bytes: usize) {
        let (gone, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.line += gone.matches('\n').count();
        self.rest = rest;
    }

    fn push(&mut self, kind: Kind, bytes: usize) {
        self.out.push(Token {
            kind,
            line: self.line,
        });
        self.skip(bytes);
    }

    fn step(&mut self) {
        let Some(first) = self.rest.chars().next() else {
            return;
        };
        if self.rest.starts_with("//") {
            self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.skip(block_comment_len(self.rest));
        } else if let Some(len) = raw_string_len(self.rest) {
            self.skip(len);
        } else if let Some(prefix) = quoted_prefix_len(self.rest) {
            self.skip(prefix);
            self.skip(quoted_len(self.rest, '"'));
        } else if self.rest.starts_with("b'") {
            self.skip(1);
            self.skip(quoted_len(self.rest, '\''));
        } else if first == '\'' {
            self.skip(char_or_lifetime_len(self.rest));
        } else if first.is_ascii_digit() {
            self.skip(ident_len(self.rest));
        } else if first == '_' || first.is_alphabetic() {
            let raw = if self.rest.starts_with("r#") { 2 } else { 0 };
            let len = raw + ident_len(&self.rest[raw..]);
            self.push(Kind::Ident(self.rest[raw..len].to_owned()), len);
        } else if self.rest.starts_with("::") {
            self.push(Kind::PathSep, 2);
        } else if first.is_whitespace() {
            self.skip(first.len_utf8());
        } else {
            self.push(Kind::Punct(first), first.len_utf8());
        }
    }
}

fn ident_len(text: &str) -> usize {
    text.find(|c: char| c != '_' && !c.is_alphanumeric())
        .unwrap_or(text.len())
}

/// Block comments nest.
fn block_comment_len(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of `r"…"`, `br#"…"#` and their like, if `text` begins with one.
fn raw_string_len(text: &str) -> Option<usize> {
    let after_prefix = ["r", "br", "cr"]
        .iter()
        .filter_map(|prefix| text.strip_prefix(prefix))
        .find(|rest| rest.trim_start_matches('#').starts_with('"'))?;
    let hashes = after_prefix.len() - after_prefix.trim_start_matches('#').len();
    let opened = text.len() - after_prefix.len() + hashes + 1;
    let close = format!("\"{}", "#".repeat(hashes));
    Some(
        text[opened..]
            .find(&close)
            .map_or(text.len(), |at| opened + at + close.len()),
    )
}

fn quoted_prefix_len(text: &str) -> Option<usize> {
    ["\"", "b\"", "c\""]
        .iter()
        .find(|prefix| text.starts_with(**prefix))
        .map(|prefix| prefix.len() - 1)
}

/// The length of a quoted literal whose opening quote is the first byte.
fn quoted_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + c.len_utf8();
        }
    }
    text.len()
}

/// `'a'` and `'\n'` are characters, `'a` alone is a lifetime.
fn char_or_lifetime_len(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), _) | (Some(_), Some((_, '\''))) => quoted_len(text, '\''),
        _ => 1 + ident_len(&text[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idents(source: &str) -> Vec<String> {
        tokens(source)
            .iter()
            .filter_map(|t| t.ident().map(str::to_owned))
            .collect()
    }

    #[test]
    fn comments_strings_and_characters_hold_no_identifiers() {
        let source = r##"
            // tokio_uring
            /* a /* nested */ b */
            x("aya \" aya", r#"aya "quoted" aya"#, b"aya", 'a', '\'', b'\\', 'ä') y
        "##;
        assert_eq!(idents(source), ["x", "y"]);
    }

    #[test]
    fn lifetimes_are_not_the_start_of_a_character() {
        assert_eq!(
            idents("fn f<'a>(x: &'a str) -> &'static str { aya::g('x') }"),
            ["fn", "f", "x", "str", "str", "aya", "g"]
        );
    }

    #[test]
    fn lines_are_counted_through_everything_dropped() {
        let source = "/* \n */ \"\n\\\"\n\" // \n r#\"\n\"#\nhere";
        assert_eq!(tokens(source).last().map(|t| t.line), Some(7));
    }

    #[test]
    fn broken_source_ends_without_a_panic() {
        for source in ["\"open", "/* open", "r#\"open", "'", "'\\", "b'", "::", "é::ü"] {
            tokens(source);
        }
    }
}

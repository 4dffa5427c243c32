//! Which modules a file's paths name: `crate::x`, `super::…::x` that climbs to the root, and groups.

use super::tokens::{Token, tokens};

/// A name that a path begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mention {
    /// The name.
    pub(crate) name: String,
    /// Its line, from 1.
    pub(crate) line: usize,
}

/// What a file names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mentions {
    /// Top-level modules of its own crate. `*` and `self` stand for the crate's root as a whole.
    pub(crate) modules: Vec<Mention>,
    /// First segments of all other paths: crates, or names in scope.
    pub(crate) roots: Vec<Mention>,
    /// Those of them that stand in a `use`.
    pub(crate) uses: Vec<Mention>,
    /// The keywords `async` and `await`.
    pub(crate) awaits: Vec<Mention>,
}

/// Reads `source`, a file whose module path below the crate root is `module` (empty for `lib.rs`).
pub(crate) fn mentions(source: &str, module: &[String]) -> Mentions {
    let mut reader = Reader {
        tokens: tokens(source),
        at: 0,
        module: module.to_vec(),
        braces: Vec::new(),
        found: Mentions::default(),
    };
    while reader.at < reader.tokens.len() {
        reader.step();
    }
    reader.found
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
    /// The module path here, inline modules included.
    module: Vec<String>,
    /// For each open brace, whether it's an inline module's.
    braces: Vec<bool>,
    found: Mentions,
}

impl Reader {
    fn peek(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead)
    }

    fn ident_at(&self, ahead: usize) -> Option<&str> {
        self.peek(ahead).and_then(Token::ident)
    }

    fn sep_at(&self, ahead: usize) -> bool {
        self.peek(ahead).is_some_and(Token::is_path_sep)
    }

    fn step(&mut self) {
        let Some(token) = self.peek(0).cloned() else {
            return;
        };
        if token.is('{') {
            self.braces.push(false);
        } else if token.is('}') {
            if self.braces.pop() == Some(true) {
                self.module.pop();
            }
        } else if let Some(name) = token.ident() {
            return self.ident(name, token.line);
        }
        self.at += 1;
    }

    fn ident(&mut self, name: &str, line: usize) {
        let continues_path =
            self.at > 0 && (self.tokens[self.at - 1].is_path_sep() || self.tokens[self.at - 1].is('.'));
        match name {
            "async" | "await" => self.found.awaits.push(mention(name, line)),
            "mod" if self.peek(2).is_some_and(|t| t.is('{')) => {
                let inner = self.ident_at(1).unwrap_or_default().to_owned();
                self.module.push(inner);
                self.braces.push(true);
                self.at += 3;
                return;
            }
            "crate" if self.sep_at(1) => {
                self.at += 2;
                return self.root_module();
            }
            "super" if self.sep_at(1) && !continues_path => return self.climb(),
            // `impl Trait + use<'a>` captures lifetimes and imports nothing.
            "use" if !self.peek(1).is_some_and(|t| t.is('<')) => return self.use_tree(),
            _ if self.sep_at(1) && !continues_path && name != "self" => {
                self.found.roots.push(mention(name, line));
            }
            _ => {}
        }
        self.at += 1;
    }

    /// After `use`: `use x::…`, `use x;`, `use x as y`, `use ::x::…` and `use {a, b::c}` name crates.
    fn use_tree(&mut self) {
        self.at += 1;
        if self.sep_at(0) {
            self.at += 1;
        }
        let before = self.found.roots.len();
        if self.peek(0).is_some_and(|t| t.is('{')) {
            self.group(|found| &mut found.roots);
        } else if let Some(token) = self.peek(0).cloned()
            && let Some(name) = token.ident()
            && !["crate", "super", "self"].contains(&name)
        {
            self.found.roots.push(mention(name, token.line));
            self.at += 1;
        }
        self.found.uses.extend_from_slice(&self.found.roots[before..]);
    }

    /// At `super::`: counts the climbs; only what reaches the root matters.
    fn climb(&mut self) {
        let mut depth = self.module.len();
        while self.ident_at(0) == Some("super") && self.sep_at(1) {
            depth = depth.saturating_sub(1);
            self.at += 2;
        }
        if depth == 0 {
            self.root_module();
        }
    }

    /// After `crate::` or a climb to the root: a name, `*` or a group.
    fn root_module(&mut self) {
        let Some(token) = self.peek(0).cloned() else {
            return;
        };
        if token.is('{') {
            self.group(|found| &mut found.modules);
        } else if token.is('*') {
            self.found.modules.push(mention("*", token.line));
            self.at += 1;
        } else if let Some(name) = token.ident() {
            self.found.modules.push(mention(name, token.line));
            self.at += 1;
        }
    }

    /// At the `{` of a group: the first name of each of its branches.
    fn group(&mut self, list: fn(&mut Mentions) -> &mut Vec<Mention>) {
        let mut depth = 0_usize;
        let mut branch_begins = true;
        while let Some(token) = self.peek(0).cloned() {
            self.at += 1;
            if token.is('{') {
                depth += 1;
            } else if token.is('}') {
                depth -= 1;
                if depth == 0 {
                    return;
                }
            } else if depth == 1 && token.is(',') {
                branch_begins = true;
            } else if depth == 1 && branch_begins {
                let name = token.ident().unwrap_or("*");
                list(&mut self.found).push(mention(name, token.line));
                branch_begins = false;
            }
        }
    }
}

fn mention(name: &str, line: usize) -> Mention {
    Mention {
        name: name.to_owned(),
        line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(source: &str, module: &[&str]) -> Vec<(String, usize)> {
        let module: Vec<String> = module.iter().map(|&m| m.to_owned()).collect();
        mentions(source, &module)
            .modules
            .into_iter()
            .map(|m| (m.name, m.line))
            .collect()
    }

    fn roots(source: &str) -> Vec<String> {
        mentions(source, &["net".to_owned()])
            .roots
            .into_iter()
            .map(|m| m.name)
            .collect()
    }

    #[test]
    fn use_and_inline_paths_and_macros_name_their_module() {
        let source = "use crate::types::Rng;\nfn f(x: crate::policy::P) {}\nm!($crate::net::x);";
        assert_eq!(
            modules(source, &["net"]),
            [
                ("types".to_owned(), 1),
                ("policy".to_owned(), 2),
                ("net".to_owned(), 3)
            ]
        );
    }

    #[test]
    fn groups_give_every_branch_and_nothing_below() {
        let source = "use crate::{\n  types::{BackendId, Micros},\n  server,\n  *,\n};";
        assert_eq!(
            modules(source, &["policy"]),
            [
                ("types".to_owned(), 2),
                ("server".to_owned(), 3),
                ("*".to_owned(), 4)
            ]
        );
    }

    #[test]
    fn super_counts_only_when_it_reaches_the_root() {
        let source = "use super::super::backend::X;\nuse super::decision::Y;";
        assert_eq!(
            modules(source, &["policy", "least_load"]),
            [("backend".to_owned(), 1)]
        );
        assert_eq!(
            modules("use super::backend::X;", &["policy"]),
            [("backend".to_owned(), 1)]
        );
    }

    #[test]
    fn inline_modules_deepen_the_path_until_their_brace_closes() {
        let source = "mod tests { use super::*; fn f() { let _ = 1; } }\nuse super::server::S;";
        assert_eq!(modules(source, &["policy"]), [("server".to_owned(), 2)]);
    }

    #[test]
    fn crates_are_seen_in_paths_and_in_plain_use() {
        let source = "use tokio_uring::net;\nuse socket2;\nuse ::aya as a;\nuse {rustls, tokio::x};\n\
            fn f() { hyper::g(); self::h(); a.b::<c::D>(); x::tokio_uring::y(); }";
        assert_eq!(
            roots(source),
            [
                "tokio_uring",
                "socket2",
                "aya",
                "rustls",
                "tokio",
                "hyper",
                "c",
                "x"
            ]
        );
    }

    #[test]
    fn async_and_await_are_found_with_their_lines() {
        let found = mentions("async fn f() {\n g().await }", &["proto".to_owned()]);
        assert_eq!(found.awaits, [mention("async", 1), mention("await", 2)]);
    }
}

//! What is wrong with the settings, in the operator's words.

use std::fmt;

/// One fault: where, which key, which value, why, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where it was said.
    pub origin: Origin,
    /// The key (`backend[2].addr`) or flag (`--backend`); empty where the whole file is meant.
    pub key: String,
    /// What was written, as TOML; `None` where nothing was.
    pub value: Option<String>,
    /// What is wrong with it.
    pub reason: String,
    /// What to do about it; empty where the reason says it all.
    pub remedy: String,
}

/// Where a setting was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In this file.
    File(String),
    /// On the command line.
    Flag,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::File(file) => {
                write!(f, "{file}: ")?;
                match (&self.value, self.key.is_empty()) {
                    (Some(value), _) => write!(f, "{} = {value}: ", self.key)?,
                    (None, false) => write!(f, "{}: ", self.key)?,
                    (None, true) => {}
                }
            }
            Origin::Flag => match &self.value {
                Some(value) => write!(f, "{} {value}: ", self.key)?,
                None => write!(f, "{}: ", self.key)?,
            },
        }
        f.write_str(&self.reason)?;
        if self.remedy.is_empty() {
            Ok(())
        } else {
            write!(f, "; {}", self.remedy)
        }
    }
}

/// What a reader says of a value it can't use; the section adds file, key and value.
#[derive(Debug)]
pub(super) struct Complaint {
    pub(super) reason: String,
    pub(super) remedy: String,
}

impl Complaint {
    pub(super) fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Complaint {
        Complaint {
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }
}

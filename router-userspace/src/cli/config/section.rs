//! Walking a TOML table key by key, so that every fault is found and not only the first.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::fault::{Complaint, Fault, Origin};
use super::suggest::nearest;

/// What is gathered while settings are read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The file's name; empty where there is none.
    pub(super) file: String,
    /// Everything wrong so far.
    pub(super) faults: Vec<Fault>,
    /// Every key that some section asked for, as `limits.head_bytes_max` or `backend[].addr`.
    pub(super) keys: BTreeSet<String>,
}

impl Reading {
    /// Notes a fault of a key in the file.
    pub(super) fn fault(&mut self, key: &str, value: Option<&Value>, complaint: Complaint) {
        self.faults.push(Fault {
            origin: Origin::File(self.file.clone()),
            key: key.to_owned(),
            value: value.map(shown),
            reason: complaint.reason,
            remedy: complaint.remedy,
        });
    }

    /// Reads the value of a flag by the same rules as the file's; `None` where it isn't given or is no good.
    pub(super) fn flag<T>(
        &mut self,
        flag: &str,
        given: Option<&String>,
        read: impl FnOnce(&Value) -> Result<T, Complaint>,
    ) -> Option<T> {
        let value = Value::String(given?.clone());
        read(&value)
            .map_err(|complaint| {
                self.faults.push(Fault {
                    origin: Origin::Flag,
                    key: flag.to_owned(),
                    value: Some(shown(&value)),
                    reason: complaint.reason,
                    remedy: complaint.remedy,
                });
            })
            .ok()
    }
}

/// One table of the file. Keys are taken out as they are read; what is left at [`Section::finish`] is unknown.
pub(super) struct Section<'r> {
    reading: &'r mut Reading,
    path: String,
    pattern: String,
    table: Table,
    known: Vec<&'static str>,
}

impl<'r> Section<'r> {
    /// The table at `path` (empty = the file itself); `pattern` is the path without indices.
    pub(super) fn new(reading: &'r mut Reading, path: String, pattern: &str, table: Table) -> Section<'r> {
        let (pattern, known) = (pattern.to_owned(), Vec::new());
        Section {
            reading,
            path,
            pattern,
            table,
            known,
        }
    }

    fn full(&self, key: &str) -> String {
        joined(&self.path, key)
    }

    /// Takes the value of `key`, whatever it is.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.reading.keys.insert(joined(&self.pattern, key));
        self.table.remove(key)
    }

    /// Takes and reads the value of `key`; `None` where it is absent or no good.
    pub(super) fn optional<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Value) -> Result<T, Complaint>,
    ) -> Option<T> {
        let value = self.take(key)?;
        match read(&value) {
            Ok(checked) => Some(checked),
            Err(complaint) => {
                self.reading.fault(&self.full(key), Some(&value), complaint);
                None
            }
        }
    }

    /// Takes and reads the value of `key` into `place`, which keeps its default where the key is absent or no good.
    pub(super) fn set<T>(
        &mut self,
        key: &'static str,
        place: &mut T,
        read: impl FnOnce(&Value) -> Result<T, Complaint>,
    ) {
        if let Some(checked) = self.optional(key, read) {
            *place = checked;
        }
    }

    /// Takes the table `[key]`; an empty one where it is absent or something else.
    pub(super) fn table(&mut self, key: &'static str) -> Table {
        match self.take(key) {
            Some(Value::Table(table)) => table,
            None => Table::new(),
            Some(other) => {
                let remedy = format!("write a section [{key}]");
                self.fault(key, Some(&other), Complaint::new("not a section", remedy));
                Table::new()
            }
        }
    }

    /// Takes the tables `[[key]]`.
    pub(super) fn tables(&mut self, key: &'static str) -> Vec<Table> {
        let complaint = || Complaint::new("not a list of sections", format!("write [[{key}]] once for each"));
        let list = match self.take(key) {
            Some(Value::Array(list)) => list,
            None => return Vec::new(),
            Some(other) => {
                self.fault(key, Some(&other), complaint());
                return Vec::new();
            }
        };
        let mut tables = Vec::with_capacity(list.len());
        for entry in list {
            match entry {
                Value::Table(table) => tables.push(table),
                other => self.fault(key, Some(&other), complaint()),
            }
        }
        tables
    }

    /// Notes a fault of `key` in this section.
    pub(super) fn fault(&mut self, key: &str, value: Option<&Value>, complaint: Complaint) {
        let key = self.full(key);
        self.reading.fault(&key, value, complaint);
    }

    /// Reports every key that nobody took.
    pub(super) fn finish(self) {
        let leftover: Vec<(String, Value)> = self.table.into_iter().collect();
        for (key, value) in leftover {
            let here = nearest(&key, self.known.iter().copied());
            let remedy = match (here, elsewhere(&key, &self.pattern)) {
                (Some(near), _) => format!("did you mean {near}?"),
                (None, Some(section)) => format!("it belongs in {section}"),
                (None, None) => "remove it; `warmpath check --example` prints every key".to_owned(),
            };
            let key = joined(&self.path, &key);
            self.reading
                .fault(&key, Some(&value), Complaint::new("unknown key", remedy));
        }
    }
}

/// The section, other than `pattern`, that has a key of exactly this name.
fn elsewhere(key: &str, pattern: &str) -> Option<String> {
    let own = joined(pattern, key);
    let mut keys = super::known_keys().into_iter().filter(|known| *known != own);
    let found = keys.find(|known| known.rsplit('.').next() == Some(key))?;
    Some(match found.rsplit_once('.') {
        Some(("backend[]", _)) => "a [[backend]] section".to_owned(),
        Some(("tcp[]", _)) => "a [[tcp]] section".to_owned(),
        Some(("tcp[].backend[]", _)) => "a [[tcp.backend]] section".to_owned(),
        Some((section, _)) => format!("the section [{section}]"),
        None => "the top of the file, before the first section".to_owned(),
    })
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// A value as the operator wrote it, without the contents of tables.
fn shown(value: &Value) -> String {
    match value {
        Value::Table(_) => "{…}".to_owned(),
        Value::Array(list) if list.iter().any(Value::is_table) => "[{…}]".to_owned(),
        other => other.to_string(),
    }
}

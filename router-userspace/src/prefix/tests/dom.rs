//! A JSON tree that keeps order and doubled members, and a writer that can spell it in many ways.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::types::Rng;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Number(i64),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    pub(super) fn text(text: &str) -> Json {
        Json::Text(text.to_owned())
    }

    pub(super) fn object(members: &[(&str, Json)]) -> Json {
        Json::Object(
            members
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.clone()))
                .collect(),
        )
    }

    pub(super) fn compact(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, &mut None);
        out
    }

    /// The same value with white space and escapes strewn in.
    pub(super) fn spelt(&self, seed: u64) -> String {
        let mut out = String::new();
        self.write(&mut out, &mut Some(Rng::new(seed)));
        out
    }

    fn write(&self, out: &mut String, noise: &mut Option<Rng>) {
        space(out, noise);
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(&value.to_string()),
            Json::Number(value) => out.push_str(&value.to_string()),
            Json::Text(text) => write_text(text, out, noise),
            Json::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out, noise);
                }
                out.push(']');
            }
            Json::Object(members) => {
                out.push('{');
                for (index, (key, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    space(out, noise);
                    write_text(key, out, noise);
                    space(out, noise);
                    out.push(':');
                    value.write(out, noise);
                }
                out.push('}');
            }
        }
        space(out, noise);
    }
}

fn space(out: &mut String, noise: &mut Option<Rng>) {
    if let Some(rng) = noise {
        out.push_str(["", "", " ", "\n\t", "\r\n  "][rng.below(5)]);
    }
}

fn write_text(text: &str, out: &mut String, noise: &mut Option<Rng>) {
    let Some(rng) = noise else {
        out.push_str(&serde_json::to_string(text).unwrap());
        return;
    };
    let escape_one_in = [1, 2, 20, 10_000][rng.below(4)];
    out.push('"');
    for c in text.chars() {
        if rng.below(escape_one_in) == 0 {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            let spelt = serde_json::to_string(&c).unwrap();
            out.push_str(&spelt[1..spelt.len() - 1]);
        }
    }
    out.push('"');
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(Build)
    }
}

struct Build;

impl<'de> Visitor<'de> for Build {
    type Value = Json;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without fractions")
    }
    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(i64::try_from(value).unwrap()))
    }
    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::text(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element()? {
            array.push(item);
        }
        Ok(Json::Array(array))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut object = Vec::new();
        while let Some(member) = members.next_entry()? {
            object.push(member);
        }
        Ok(Json::Object(object))
    }
}

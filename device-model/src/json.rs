//! JSON of `gearctl`: one line a value, and the value as a tree for tables.
//!
//! The tree keeps the order of fields, which is the order of a table's columns. That of `serde_json`
//! does not.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::Serialize;
use serde_json::Number;

#[cfg(test)]
mod tests;

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// Nothing: what is asked for does not exist.
    Null,
    /// A number.
    Number(Number),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(String),
    /// Values.
    List(Vec<Self>),
    /// Values with names, in their order.
    Object(Vec<(String, Self)>),
}

impl Json {
    /// Returns the tree of a value.
    pub fn of(value: &impl Serialize) -> Self {
        // No key of an answer is anything but text, and no number is infinite: neither step fails.
        let text = serde_json::to_string(value).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or(Self::Null)
    }

    /// Makes an object.
    pub fn object<const N: usize>(fields: [(&str, Self); N]) -> Self {
        let fields = fields.into_iter();
        Self::Object(fields.map(|(name, value)| (name.into(), value)).collect())
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<T: Into<Self>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Returns a value as a line without its end. Names and messages may hold what a guest wrote: no
/// control character of theirs reaches a terminal.
pub fn line(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    // The library leaves those behind ASCII, which stand in strings alone, where escapes may stand.
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => line += &format!("\\u{:04x}", c as u32),
            false => line.push(c),
        }
    }
    line
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Tree)
    }
}

/// Makes a [`Json`] of what a reader finds.
struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
        Ok(Number::from_f64(number).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = values.next_element()? {
            list.push(value);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json, A::Error> {
        let mut object = Vec::new();
        while let Some(field) = fields.next_entry()? {
            object.push(field);
        }
        Ok(Json::Object(object))
    }
}

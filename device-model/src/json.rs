//! Just enough JSON to write.

use std::fmt;

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// Nothing: what is asked for does not exist.
    Null,
    /// A number.
    Number(u64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(String),
    /// Values.
    List(Vec<Self>),
    /// Values with names.
    Object(Vec<(&'static str, Self)>),
}

impl From<u64> for Json {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Writes a value on one line: programs read line by line.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Text(text) => write_text(f, text),
            Self::List(values) => write_list(f, values),
            Self::Object(fields) => write_object(f, fields),
        }
    }
}

/// Writes values with commas between them and no blanks: an answer is one line for programs.
fn write_list(f: &mut fmt::Formatter<'_>, values: &[Json]) -> fmt::Result {
    f.write_str("[")?;
    for (index, value) in values.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(f, "{comma}{value}")?;
    }
    f.write_str("]")
}

/// Writes fields in their order. Names are this program's own, and need no escapes.
fn write_object(f: &mut fmt::Formatter<'_>, fields: &[(&str, Json)]) -> fmt::Result {
    f.write_str("{")?;
    for (index, (name, value)) in fields.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(f, "{comma}\"{name}\":{value}")?;
    }
    f.write_str("}")
}

/// Writes a string with its escapes (RFC 8259, 7).
fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            // Names and messages may hold what a guest wrote: no control character reaches a
            // terminal.
            c if c.is_control() => write!(f, "\\u{:04x}", c as u32)?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

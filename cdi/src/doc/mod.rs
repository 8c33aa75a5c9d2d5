//! A document is the tree of values that a file of JSON or YAML holds, borrowed from its bytes.
//! Which of the two it is, its content says, never its name: JSON is YAML.
//!
//! Two readers give the same tree: a small one for JSON and for the plain YAML that programs
//! write, and a full one for everything that the first has the least doubt about.

mod fast;
mod scalar;
pub(crate) mod tape;
mod yaml;

use std::{borrow::Cow, collections::BTreeSet};

use tape::Tape;

use crate::{file::MAX_SPEC_BYTES, problem::Position};

/// How deep values may nest. A spec needs 7, a pod about 20.
const MAX_DEPTH: usize = 64;

/// One value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node<'a> {
    /// Byte offset in the file; of an alias, where its anchor's value stands.
    pub at: u32,
    /// The value.
    pub value: Value<'a>,
}

/// What a document can hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// Nothing, `null` or `~`.
    Null,
    /// A truth value, and how it is spelled (`true`, `True`, `TRUE`, …).
    Bool(bool, &'static str),
    /// A number, as it is written: see [`Node::integer`].
    Number(Cow<'a, str>),
    /// A text.
    Str(Cow<'a, str>),
    /// A list.
    Seq(Vec<Node<'a>>),
    /// Pairs in the order of the file; each key once.
    Map(Vec<Entry<'a>>),
}

/// One pair of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry<'a> {
    /// Byte offset of the key.
    pub at: u32,
    /// The key; one that is no text is taken by its spelling.
    pub key: Cow<'a, str>,
    /// The value.
    pub node: Node<'a>,
}

/// Why bytes are no document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DocError {
    /// Where.
    pub at: Option<Position>,
    /// What is wrong.
    pub message: String,
}

/// Reads exactly one document; empty ones may follow it. A file without any is one [`Value::Null`].
///
/// # Errors
/// On more than one document, more than 4 MiB, and anything that is no YAML.
pub fn read(bytes: &[u8]) -> Result<Node<'_>, DocError> {
    match check_size(bytes).map(|()| fast::read(bytes))?.and_then(|tape| tape.to_node()) {
        Some(node) => Ok(node),
        None => read_in_full(bytes),
    }
}

/// [`read`], for who looks at it once.
pub(crate) fn read_tape(bytes: &[u8]) -> Result<Tape<'_>, DocError> {
    if let Some(tape) = check_size(bytes).map(|()| fast::read(bytes))? {
        return Ok(tape);
    }
    let too_many = || DocError { at: None, message: "too many values".to_owned() };
    Tape::of(read_in_full(bytes)?, bytes).ok_or_else(too_many)
}

/// As [`read`], by the full reader alone: the fuzz target holds the small one to it.
///
/// # Errors
/// As [`read`].
#[doc(hidden)]
pub fn read_in_full(bytes: &[u8]) -> Result<Node<'_>, DocError> {
    let mut documents = yaml::read(bytes)?.into_iter();
    let first = documents.next();
    match documents.find(|node| node.value != Value::Null) {
        Some(second) => Err(DocError {
            at: Some(position(bytes, second.at)),
            message: "a second document starts here, exactly one is allowed".to_owned(),
        }),
        None => Ok(first.unwrap_or(Node { at: 0, value: Value::Null })),
    }
}

/// Reads all documents, the empty ones left out.
///
/// # Errors
/// On more than 4 MiB, and anything that is no YAML.
pub fn read_all(bytes: &[u8]) -> Result<Vec<Node<'_>>, DocError> {
    let tape = check_size(bytes).map(|()| fast::read(bytes))?;
    if let Some(node) = tape.and_then(|tape| tape.to_node()) {
        return Ok(vec![node]);
    }
    let mut documents = yaml::read(bytes)?;
    documents.retain(|node| node.value != Value::Null);
    Ok(documents)
}

/// Line and column of a byte offset.
pub fn position(bytes: &[u8], at: u32) -> Position {
    let before = bytes.get(..at as usize).unwrap_or(bytes);
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).saturating_add(1);
    let line = before.iter().filter(|byte| **byte == b'\n').count();
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let column = String::from_utf8_lossy(before.get(start..).unwrap_or_default()).chars().count();
    Position { line: count(line), column: count(column) }
}

fn check_size(bytes: &[u8]) -> Result<(), DocError> {
    if bytes.len() > MAX_SPEC_BYTES {
        let message = format!("larger than the limit of {MAX_SPEC_BYTES} bytes");
        return Err(DocError { at: None, message });
    }
    Ok(())
}

/// The entry whose key stands earlier in the same mapping, if there is one.
fn duplicate<'e, 'a>(entries: &'e [Entry<'a>]) -> Option<&'e Entry<'a>> {
    if entries.len() <= 16 {
        let mut rest = entries;
        while let [before @ .., last] = rest {
            if before.iter().any(|entry| entry.key == last.key) {
                return Some(last);
            }
            rest = before;
        }
        return None;
    }
    let mut seen = BTreeSet::new();
    entries.iter().find(|entry| !seen.insert(&*entry.key))
}

// === impl Node ===

impl<'a> Node<'a> {
    /// The value under `key`, when this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node<'a>> {
        self.entries()?.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    /// The pairs, when this is a mapping.
    pub fn entries(&self) -> Option<&[Entry<'a>]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The elements, when this is a list.
    pub fn items(&self) -> Option<&[Node<'a>]> {
        match &self.value {
            Value::Seq(items) => Some(items),
            _ => None,
        }
    }

    /// The text, when this is one.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number, when this is one: decimal, octal (`0660`, `0o660`), `0x1F`, `0b1`, or a
    /// float without fraction.
    pub fn integer(&self) -> Option<i128> {
        match &self.value {
            Value::Number(text) => scalar::integer(text),
            _ => None,
        }
    }

    /// What it is, with its article, for messages.
    pub fn what(&self) -> &'static str {
        match &self.value {
            Value::Null => "null",
            Value::Bool(..) => "a truth value",
            Value::Number(_) => "a number",
            Value::Str(_) => "a text",
            Value::Seq(_) => "a list",
            Value::Map(_) => "an object",
        }
    }

    /// The same as a value of serde_json. What JSON cannot hold as a number becomes text.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::{Number, Value as Json};
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value, _) => Json::Bool(*value),
            Value::Number(text) => {
                let whole = scalar::integer(text).and_then(Number::from_i128);
                let number = whole.or_else(|| scalar::number(text).and_then(Number::from_f64));
                number.map_or_else(|| Json::String(text.to_string()), Json::Number)
            }
            Value::Str(text) => Json::String(text.to_string()),
            Value::Seq(items) => Json::Array(items.iter().map(Node::to_json).collect()),
            Value::Map(entries) => {
                let pair = |entry: &Entry<'_>| (entry.key.to_string(), entry.node.to_json());
                Json::Object(entries.iter().map(pair).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests;

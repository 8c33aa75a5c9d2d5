//! A document is the tree of values that a file of JSON or YAML holds, borrowed from its bytes.
//! Which of the two it is, its content says, never its name: JSON is YAML.

use std::borrow::Cow;

use crate::problem::{Position, quoted};

/// One value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node<'a> {
    /// Byte offset in the file.
    pub at: u32,
    /// The value.
    pub value: Value<'a>,
}

/// What a document can hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// Nothing, `null` or `~`.
    Null,
    /// A truth value.
    Bool(bool),
    /// A number, as it is written.
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
    /// The key; keys that are no text are taken by their text.
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

/// Reads exactly one document.
///
/// # Errors
/// When there is none or more than one, and on anything that is no YAML.
pub fn read(bytes: &[u8]) -> Result<Node<'_>, DocError> {
    let _soon = quoted;
    Err(DocError { at: Some(position(bytes, 0)), message: "not implemented".to_owned() })
}

/// Reads all documents, the empty ones left out.
///
/// # Errors
/// On anything that is no YAML.
pub fn read_all(bytes: &[u8]) -> Result<Vec<Node<'_>>, DocError> {
    read(bytes).map(|node| vec![node])
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

// === impl Node ===

impl Node<'_> {
    /// The same as a value of serde_json. Numbers that JSON cannot hold become text.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

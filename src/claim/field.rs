//! A field is a value of a manifest, with the file and the path by which an error names it.

use divvy_cdi::{
    doc::{Entry, Node, Value, position},
    near,
    problem::{Position, Problem, Severity},
};

use super::{ClaimError, Manifest};
use crate::quantity::{Quantity, QuantityError};

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Field<'a> {
    manifest: Manifest<'a>,
    node: &'a Node<'a>,
    path: String,
    /// Whether a field that is not known is an error.
    strict: bool,
}

/// How much of a wrong value an error shows, in characters.
const MAX_SHOWN: usize = 40;

// === impl Field ===

impl<'a> Field<'a> {
    /// The top of a document. What a person wrote is strict; the API server may be newer than we are.
    pub(crate) fn top(manifest: Manifest<'a>, node: &'a Node<'a>) -> Self {
        Self { manifest, node, path: String::new(), strict: manifest.bytes.is_some() }
    }

    /// The same, where fields that are not known are errors from here on.
    pub(crate) fn strictly(self) -> Self {
        Self { strict: true, ..self }
    }

    /// The driver whose part of it is ours.
    pub(crate) fn driver(&self) -> &'a str {
        self.manifest.driver
    }

    /// `file:line:column: spec.devices.requests[0]`
    pub(crate) fn place(&self) -> String {
        let file = self.manifest.file.display();
        match self.manifest.position(self.node.at) {
            Some(at) => format!("{file}:{}:{}: {}", at.line, at.column, self.path),
            None => format!("{file}: {}", self.path),
        }
    }

    /// The value under `key`; unset and `null` are the same, as in Kubernetes.
    pub(crate) fn get(&self, key: &str) -> Result<Option<Self>, ClaimError> {
        let Value::Map(entries) = &self.node.value else {
            return Err(self.mismatch("an object"));
        };
        let found = entries.iter().find(|entry| entry.key == key);
        let set = found.filter(|entry| entry.node.value != Value::Null);
        Ok(set.map(|entry| self.child(&entry.node, key)))
    }

    /// The value under `key`, which must be set.
    pub(crate) fn need(&self, key: &str) -> Result<Self, ClaimError> {
        self.get(key)?.ok_or_else(|| self.wrong(format!("{key} is missing")))
    }

    /// The text under `key`, if it is set.
    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, ClaimError> {
        self.get(key)?.map(|field| field.as_text().map(str::to_owned)).transpose()
    }

    /// The text under `key`, which must be set.
    pub(crate) fn need_text(&self, key: &str) -> Result<String, ClaimError> {
        Ok(self.need(key)?.as_text()?.to_owned())
    }

    /// The truth value under `key`; unset is false.
    pub(crate) fn flag(&self, key: &str) -> Result<bool, ClaimError> {
        self.get(key)?.map_or(Ok(false), |field| field.as_flag())
    }

    /// The list under `key`, of at most `most` items; unset is empty.
    pub(crate) fn list(&self, key: &str, most: usize) -> Result<Vec<Self>, ClaimError> {
        let Some(field) = self.get(key)? else { return Ok(Vec::new()) };
        let Value::Seq(nodes) = &field.node.value else {
            return Err(field.mismatch("a list"));
        };
        if nodes.len() > most {
            return Err(field.wrong(format!("has {} items, and may have {most}", nodes.len())));
        }
        let item = |(index, node)| field.child(node, &format!("[{index}]"));
        Ok(nodes.iter().enumerate().map(item).collect())
    }

    /// The texts of the list under `key`, of at most `most`; unset is empty.
    pub(crate) fn texts(&self, key: &str, most: usize) -> Result<Vec<String>, ClaimError> {
        self.list(key, most)?.iter().map(|field| field.as_text().map(str::to_owned)).collect()
    }

    /// The pairs of the mapping that this is, at most `most`.
    pub(crate) fn pairs(&self, most: usize) -> Result<Vec<(&'a str, Self)>, ClaimError> {
        let Value::Map(entries) = &self.node.value else {
            return Err(self.mismatch("an object"));
        };
        if entries.len() > most {
            return Err(self.wrong(format!("has {} items, and may have {most}", entries.len())));
        }
        let pair = |entry: &'a Entry<'a>| (&*entry.key, self.child(&entry.node, &entry.key));
        Ok(entries.iter().map(pair).collect())
    }

    /// The quantity that this is, a text or a number.
    pub(crate) fn as_quantity(&self) -> Result<Quantity, ClaimError> {
        let text = match &self.node.value {
            Value::Str(text) | Value::Number(text) => text,
            _ => return Err(self.mismatch("a quantity, such as 16Gi")),
        };
        let quantity: Quantity =
            text.parse().map_err(|e: QuantityError| self.wrong(e.to_string()))?;
        match quantity.sign() {
            -1 => Err(self.wrong(format!("{text} is below nothing"))),
            _ => Ok(quantity),
        }
    }

    /// The whole number that this is.
    pub(crate) fn as_integer(&self) -> Result<i64, ClaimError> {
        let number = self.node.integer().and_then(|number| i64::try_from(number).ok());
        number.ok_or_else(|| self.mismatch("a whole number of 64 bits"))
    }

    /// The truth value that this is.
    pub(crate) fn as_flag(&self) -> Result<bool, ClaimError> {
        match self.node.value {
            Value::Bool(flag, _) => Ok(flag),
            _ => Err(self.mismatch("a truth value")),
        }
    }

    /// The text that this is.
    pub(crate) fn as_text(&self) -> Result<&'a str, ClaimError> {
        match &self.node.value {
            Value::Str(text) => Ok(text),
            Value::Number(text) => {
                Err(self.wrong(format!("the number {text} must be text: write it in quotes")))
            }
            _ => Err(self.mismatch("a text")),
        }
    }

    /// The whole number, from 1 to `most`, that this is.
    pub(crate) fn as_count(&self, most: u32) -> Result<u32, ClaimError> {
        let count = self.node.integer().and_then(|count| u32::try_from(count).ok());
        count.filter(|count| (1..=most).contains(count)).ok_or_else(|| {
            let found = match &self.node.value {
                Value::Number(text) => text.chars().take(MAX_SHOWN).collect(),
                _ => self.node.what().to_owned(),
            };
            self.wrong(format!("must be a whole number from 1 to {most}, and is {found}"))
        })
    }

    /// True for a list, mapping or text with nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.node.value {
            Value::Null => true,
            Value::Bool(..) | Value::Number(_) => false,
            Value::Str(text) => text.is_empty(),
            Value::Seq(nodes) => nodes.is_empty(),
            Value::Map(entries) => entries.is_empty(),
        }
    }

    /// Refuses any key but these where it is strict, as the API server does then.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), ClaimError> {
        let Value::Map(entries) = &self.node.value else {
            return Err(self.mismatch("an object"));
        };
        let is_unknown = |entry: &&Entry<'_>| !known.contains(&entry.key.as_ref());
        match entries.iter().find(is_unknown).filter(|_| self.strict) {
            None => Ok(()),
            Some(entry) => {
                let meant = match near::nearest(&entry.key, known.iter().copied()) {
                    Some(near) => format!("did you mean {near}?"),
                    None if known.is_empty() => "there is none here".to_owned(),
                    None => format!("known are {}", known.join(", ")),
                };
                let field = self.child(&entry.node, &entry.key).at(entry.at);
                Err(field.wrong(format!("unknown field; {meant}")))
            }
        }
    }

    /// The only key of a mapping that must have exactly one of `known`.
    pub(crate) fn one_of(&self, known: &[&str]) -> Result<(&'a str, Self), ClaimError> {
        self.only(known)?;
        match &self.node.value {
            Value::Map(entries) => match entries.as_slice() {
                [entry] => Ok((&entry.key, self.child(&entry.node, &entry.key))),
                _ => Err(self.wrong(format!("exactly one of {} must be set", known.join(", ")))),
            },
            _ => Err(self.mismatch("an object")),
        }
    }

    /// What the text that this is stands for, one of `known`; `what` such texts are called.
    pub(crate) fn one_word<T: Copy>(
        &self,
        what: &str,
        known: &[(&str, T)],
    ) -> Result<T, ClaimError> {
        let text = self.as_text()?;
        let found = known.iter().find(|(name, _)| *name == text);
        found.map(|(_, meant)| *meant).ok_or_else(|| {
            let are = if known.len() == 1 { "is" } else { "are" };
            let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            let text: String = text.chars().take(MAX_SHOWN).collect();
            self.wrong(format!("{text:?} is no {what}; known {are} {}", known.join(", ")))
        })
    }

    /// The error that this value is wrong.
    pub(crate) fn wrong(&self, message: impl Into<String>) -> ClaimError {
        self.problem("CLAIM-INVALID", message.into())
    }

    /// [`Self::wrong`], with a code of its own.
    pub(crate) fn problem(&self, code: &'static str, message: String) -> ClaimError {
        ClaimError::Invalid(Box::new(Problem {
            file: self.manifest.file.to_owned(),
            at: self.manifest.position(self.node.at),
            device: None,
            field: (!self.path.is_empty()).then(|| self.path.clone()),
            severity: Severity::Error,
            code,
            message,
        }))
    }

    fn mismatch(&self, wanted: &str) -> ClaimError {
        let found = self.node.what();
        self.wrong(format!("must be {wanted}, and is {found}"))
    }

    fn child(&self, node: &'a Node<'a>, step: &str) -> Self {
        let dot = if self.path.is_empty() || step.starts_with('[') { "" } else { "." };
        let path = format!("{}{dot}{step}", self.path);
        Self { manifest: self.manifest, node, path, strict: self.strict }
    }

    fn at(self, at: u32) -> Mark<'a> {
        Mark { field: self, at }
    }
}

// === impl Manifest ===

impl Manifest<'_> {
    fn position(self, at: u32) -> Option<Position> {
        self.bytes.map(|bytes| position(bytes, at))
    }
}

/// A field whose key, not whose value, is wrong.
struct Mark<'a> {
    field: Field<'a>,
    at: u32,
}

impl Mark<'_> {
    fn wrong(&self, message: String) -> ClaimError {
        match self.field.wrong(message) {
            ClaimError::Invalid(mut problem) => {
                problem.at = self.field.manifest.position(self.at);
                ClaimError::Invalid(problem)
            }
            other => other,
        }
    }
}

//! A name of Kubernetes: of an object, of a request, or a UID. They become parts of paths and of CDI
//! names, so they are checked where they are read.

use super::{ClaimError, field::Field};

/// What keeps a text from being a DNS subdomain, as the names of Kubernetes objects are, to be read
/// behind the text: `is empty`, …; nothing for a name.
pub(crate) fn wrong_with(text: &str) -> Option<String> {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let inner = |c: char| edge(Some(c)) || c == '-' || c == '.';
    let whole = |label: &str| edge(label.chars().next()) && edge(label.chars().last());
    if text.is_empty() {
        return Some("is empty".to_owned());
    }
    if let Some(other) = text.chars().find(|c| !inner(*c)) {
        return Some(format!("has {other:?} in it"));
    }
    if text.len() > 253 {
        return Some("has more than 253 characters".to_owned());
    }
    let ends = "has - or . at an end or beside a dot";
    (!text.split('.').all(whole)).then(|| ends.to_owned())
}

pub(super) fn named(metadata: &Field<'_>, key: &str) -> Result<String, ClaimError> {
    let field = metadata.need(key)?;
    let text = field.as_text()?;
    if wrong_with(text).is_none() {
        return Ok(text.to_owned());
    }
    Err(field.wrong("must be a DNS name: at most 253 lower case letters, digits, - and ."))
}

/// A DNS label, as the names of requests are.
pub(crate) fn label(field: &Field<'_>, key: &str) -> Result<String, ClaimError> {
    let name = named(field, key)?;
    if name.len() > 63 || name.contains('.') {
        let message = "must be a DNS label: at most 63 lower case letters, digits and -";
        return Err(field.need(key)?.wrong(message));
    }
    Ok(name)
}

pub(super) fn uid(field: &Field<'_>) -> Result<String, ClaimError> {
    let text = field.as_text()?;
    if is_uid(text) {
        return Ok(text.to_owned());
    }
    Err(field.wrong("must be a UID: at most 64 letters, digits and -"))
}

/// A UID becomes a part of file names and CDI names.
pub(crate) fn is_uid(text: &str) -> bool {
    let ok = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let edge = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    edge && text.len() <= 64 && text.chars().all(ok)
}

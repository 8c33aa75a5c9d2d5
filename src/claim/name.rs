//! A name of Kubernetes: of an object, of a request, or a UID. They become parts of paths and of CDI
//! names, so they are checked where they are read.

use super::{ClaimError, field::Field};

/// Whether it is a DNS subdomain, as the names of Kubernetes objects are.
pub(crate) fn is_name(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let inner = |c: char| edge(Some(c)) || c == '-' || c == '.';
    text.len() <= 253
        && text.chars().all(inner)
        && text.split('.').all(|label| edge(label.chars().next()) && edge(label.chars().last()))
}

pub(super) fn named(metadata: &Field<'_>, key: &str) -> Result<String, ClaimError> {
    let field = metadata.need(key)?;
    let text = field.as_text()?;
    if is_name(text) {
        return Ok(text.to_owned());
    }
    Err(field.wrong("must be a DNS name: at most 253 lower case letters, digits, - and ."))
}

/// A DNS label, as the names of requests are.
pub(super) fn label(field: &Field<'_>, key: &str) -> Result<String, ClaimError> {
    let name = named(field, key)?;
    if name.len() > 63 || name.contains('.') {
        let message = "must be a DNS label: at most 63 lower case letters, digits and -";
        return Err(field.need(key)?.wrong(message));
    }
    Ok(name)
}

/// A UID becomes a part of file names and CDI names.
pub(super) fn uid(field: &Field<'_>) -> Result<String, ClaimError> {
    let text = field.as_text()?;
    let ok = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let edge = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if edge && text.len() <= 64 && text.chars().all(ok) {
        return Ok(text.to_owned());
    }
    Err(field.wrong("must be a UID: at most 64 letters, digits and -"))
}

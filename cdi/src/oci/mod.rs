//! An OCI config: the `config.json` of a container, as far as edits look at it.
//!
//! One pass over the bytes proves that they are strict JSON and notes where the parts stand that
//! CDI touches. All else stays bytes, so that what we do not know survives as it was written.

mod error;
mod layout;
mod read;
mod scan;
mod text;

use std::borrow::Cow;

pub use error::ConfigError;
pub(crate) use layout::{Hooks, Item, Layout, List, Object, Slot, Span};
pub(crate) use text::{decode, push_string};

use crate::problem::Position;

/// The most bytes a config may have: a thousand times a usual one, for whoever reads one.
pub const MAX_CONFIG_BYTES: usize = 16 << 20;

/// The string at `path`, the names of members from the outermost on, in a document of the OCI
/// runtime spec: a config, or a container's state.
///
/// # Errors
/// As [`Config::parse`], of the members of `path` alone.
pub fn text_at(bytes: &[u8], path: &[&str]) -> Result<Option<String>, ConfigError> {
    let text = text_of(bytes)?;
    let found = read::text_at(text, path)?;
    Ok(found.and_then(|span| text.get(span.start..span.end)).map(|raw| decode(raw).into_owned()))
}

fn text_of(bytes: &[u8]) -> Result<&str, ConfigError> {
    str::from_utf8(bytes).map_err(|error| ConfigError::at(bytes, error.valid_up_to(), "not UTF-8"))
}

/// A parsed config, borrowed from its text.
#[derive(Debug)]
pub struct Config<'a> {
    text: &'a str,
    layout: Layout,
}

// === impl Config ===

impl<'a> Config<'a> {
    /// Reads `bytes` as one JSON object (RFC 8259, UTF-8) whose known members have the types of
    /// the OCI runtime spec.
    ///
    /// # Errors
    /// At the first byte that is not so; also for nesting deeper than 128 and for a member that
    /// edits look at and that is there twice.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ConfigError> {
        if bytes.len() > MAX_CONFIG_BYTES {
            let what = format!("larger than the limit of {MAX_CONFIG_BYTES} bytes");
            return Err(ConfigError::at(bytes, 0, what));
        }
        let text = text_of(bytes)?;
        Ok(Self { text, layout: read::layout(text)? })
    }

    /// The annotations, in the order of the text.
    pub fn annotations(&self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> {
        let decode = |span| decode(self.raw(span));
        self.layout.annotations.iter().map(move |&(key, value)| (decode(key), decode(value)))
    }

    /// The value of the annotation `key`.
    pub fn annotation(&self, key: &str) -> Option<Cow<'a, str>> {
        self.annotations().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The environment of the process, `KEY=value` each, in the order of the text.
    pub fn env(&self) -> impl Iterator<Item = Cow<'a, str>> {
        let env = self.layout.process.there().and_then(|process| process.env.there());
        let items = env.map_or(&[][..], |list| &list.items);
        items.iter().map(|item| decode(self.raw(item.span)))
    }

    /// True when the container gets a user namespace (`linux.namespaces` has type `user`).
    pub fn has_user_namespace(&self) -> bool {
        self.layout.linux.there().is_some_and(|linux| linux.user_namespace)
    }

    /// The text as it was given.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// Line and column of a byte of the text.
    pub fn position(&self, offset: usize) -> Position {
        error::position(self.text.as_bytes(), offset)
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The text of a span that the layout names.
    pub(crate) fn raw(&self, span: Span) -> &'a str {
        self.text.get(span.start..span.end).unwrap_or_default()
    }

    /// The string in a span that holds a string literal.
    pub(crate) fn string(&self, span: Span) -> Cow<'a, str> {
        decode(self.raw(span))
    }
}

#[cfg(test)]
mod tests;

//! A qualified name is how a device is requested: `vendor/class=device` (CDI SPEC.md, "Kind" and
//! "name"; the grammar is the Go reference's `pkg/parser`).
//!
//! ```text
//! vendor, class   first a letter, last a letter or digit, between them also _ . -
//! device          first and last a letter or digit, between them also _ . - :
//! ```
//! ASCII only, case kept, no length limit, nothing is trimmed.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

use crate::problem::quoted;

/// `vendor/class=device`, checked.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName {
    text: String,
    // Both follow from `text`, so derived comparison is the text's.
    slash: usize,
    equals: usize,
}

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// One of the parts is missing, so nothing can be said about the others.
    #[error("{} is not a qualified CDI device name: missing {missing}, expected vendor/class=device", quoted(.text))]
    Unqualified {
        /// The whole text.
        text: String,
        /// The first part that is missing.
        missing: Part,
    },
    /// The same of a kind, which has no device.
    #[error("{} is not a CDI kind: missing {missing}, a kind is vendor/class", quoted(.text))]
    NoKind {
        /// The whole text.
        text: String,
        /// The first part that is missing.
        missing: Part,
    },
    /// A part breaks the grammar.
    #[error("{}: {part} {}: {flaw}", quoted(.text), quoted(.value))]
    Invalid {
        /// The whole text.
        text: String,
        /// Which part.
        part: Part,
        /// That part's text.
        value: String,
        /// The rule it breaks.
        flaw: Flaw,
    },
}

/// A part of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Before the slash.
    Vendor,
    /// Between slash and equals sign.
    Class,
    /// After the equals sign.
    Device,
}

/// The rule of the grammar that a part breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing there.
    Empty,
    /// Vendor or class starts with something else than a letter.
    FirstNotLetter,
    /// A device name starts with something else than a letter or digit.
    FirstNotAlphanumeric,
    /// A part ends with something else than a letter or digit.
    LastNotAlphanumeric,
    /// This character is allowed nowhere in it.
    Character(char),
}

/// Checks `vendor/class`, the `kind` of a spec.
///
/// # Errors
/// When a part is missing or breaks the grammar.
pub fn check_kind(kind: &str) -> Result<(), NameError> {
    let missing = |missing| NameError::NoKind { text: kind.to_owned(), missing };
    let (vendor, class) = match kind.split_once('/') {
        Some(("", _)) => return Err(missing(Part::Vendor)),
        Some((_, "")) => return Err(missing(Part::Class)),
        Some(parts) => parts,
        None if kind.is_empty() => return Err(missing(Part::Vendor)),
        None => return Err(missing(Part::Class)),
    };
    check(kind, Part::Vendor, vendor)?;
    check(kind, Part::Class, class)
}

/// Checks a device name, the part after `=`.
///
/// # Errors
/// When it breaks the grammar.
pub fn check_device(device: &str) -> Result<(), NameError> {
    check(device, Part::Device, device)
}

fn check(text: &str, part: Part, value: &str) -> Result<(), NameError> {
    match flaw(part, value) {
        None => Ok(()),
        Some(flaw) => {
            Err(NameError::Invalid { text: text.to_owned(), part, value: value.to_owned(), flaw })
        }
    }
}

fn flaw(part: Part, value: &str) -> Option<Flaw> {
    let bytes = value.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return Some(Flaw::Empty);
    };
    let device = part == Part::Device;
    let allowed = |c: &u8| {
        c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-') || (device && *c == b':')
    };
    if !device && !first.is_ascii_alphabetic() {
        Some(Flaw::FirstNotLetter)
    } else if !first.is_ascii_alphanumeric() {
        Some(Flaw::FirstNotAlphanumeric)
    } else if !bytes.iter().all(allowed) {
        let odd = |c: &char| !c.is_ascii() || u8::try_from(*c).is_ok_and(|c| !allowed(&c));
        value.chars().find(odd).map(Flaw::Character)
    } else if !last.is_ascii_alphanumeric() {
        Some(Flaw::LastNotAlphanumeric)
    } else {
        None
    }
}

// === impl QualifiedName ===

impl QualifiedName {
    /// Checks `text` and keeps it.
    ///
    /// # Errors
    /// When a part is missing or breaks the grammar.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let missing = |missing| NameError::Unqualified { text: text.to_owned(), missing };
        let (kind, device) = match text.split_once('=') {
            Some(parts) => parts,
            None if text.is_empty() || text.starts_with('/') => return Err(missing(Part::Vendor)),
            None if !text.contains('/') => return Err(missing(Part::Vendor)),
            None => return Err(missing(Part::Device)),
        };
        let (vendor, class) = match kind.split_once('/') {
            None | Some(("", _)) => return Err(missing(Part::Vendor)),
            Some((_, "")) => return Err(missing(Part::Class)),
            Some(parts) => parts,
        };
        if device.is_empty() {
            return Err(missing(Part::Device));
        }
        check(text, Part::Vendor, vendor)?;
        check(text, Part::Class, class)?;
        check(text, Part::Device, device)?;
        Ok(Self { text: text.to_owned(), slash: vendor.len(), equals: kind.len() })
    }

    /// The whole name.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `vendor/class`.
    pub fn kind(&self) -> &str {
        self.text.get(..self.equals).unwrap_or_default()
    }

    /// The part before the slash.
    pub fn vendor(&self) -> &str {
        self.text.get(..self.slash).unwrap_or_default()
    }

    /// The part between slash and equals sign.
    pub fn class(&self) -> &str {
        self.text.get(self.slash + 1..self.equals).unwrap_or_default()
    }

    /// The part after the equals sign.
    pub fn device(&self) -> &str {
        self.text.get(self.equals + 1..).unwrap_or_default()
    }
}

impl FromStr for QualifiedName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QualifiedName({:?})", self.text)
    }
}

impl Serialize for QualifiedName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

// === impl Part ===

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vendor => "vendor",
            Self::Class => "class",
            Self::Device => "device",
        })
    }
}

// === impl Flaw ===

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("must not be empty"),
            Self::FirstNotLetter => f.write_str("must start with a letter"),
            Self::FirstNotAlphanumeric => f.write_str("must start with a letter or digit"),
            Self::LastNotAlphanumeric => f.write_str("must end with a letter or digit"),
            Self::Character(c) => write!(f, "invalid character {c:?}"),
        }
    }
}

#[cfg(test)]
mod tests;

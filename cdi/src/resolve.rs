//! A resolution: requested names turned into the edits to apply, each with where it came from.

use std::{fmt, path::PathBuf};

use crate::spec::ContainerEdits;

/// Where an edit came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The spec file.
    pub file: PathBuf,
    /// The part of it.
    pub scope: Scope,
}

/// The part of a spec file that holds an edit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// `containerEdits` of the document, for all of its devices.
    Global,
    /// `containerEdits` of the device of this name.
    Device(String),
}

/// Edits from one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The place.
    pub origin: Origin,
    /// What is done to the container.
    pub edits: ContainerEdits,
}

/// What to apply, in order: a file's global edits before its first device, every device once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolution {
    /// The parts, each origin once.
    pub parts: Vec<Part>,
}

// === impl Resolution ===

impl Resolution {
    /// Appends what `other` has and `self` has not.
    pub fn merge(&mut self, other: Self) {
        for part in other.parts {
            if !self.parts.iter().any(|known| known.origin == part.origin) {
                self.parts.push(part);
            }
        }
    }
}

// === impl Origin ===

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            Scope::Global => write!(f, "global edits of {}", self.file.display()),
            Scope::Device(name) => write!(f, "device {name:?} of {}", self.file.display()),
        }
    }
}

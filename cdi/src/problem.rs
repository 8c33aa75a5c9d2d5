//! A problem is one thing that is wrong at one place of one file.

use std::{fmt, path::PathBuf};

use crate::errno;

/// A place in a file, both counted from 1; the column counts characters, not bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file works, but says something its author can hardly mean.
    Warning,
    /// The file, directory or device cannot be used.
    Error,
}

/// One thing that is wrong. Its text is lower case, without a full stop, and has the offending
/// value inside.
///
/// Shown as `/etc/cdi/x.yaml:12:7: device "gpu0": containerEdits.env[3]: invalid …`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// The file or directory.
    pub file: PathBuf,
    /// Where in the file, when the problem has a place there.
    pub at: Option<Position>,
    /// The device that it concerns, by its name in the file.
    pub device: Option<String>,
    /// The field, as a path from the device or from the top: `containerEdits.mounts[0].hostPath`.
    pub field: Option<String>,
    /// How bad it is.
    pub severity: Severity,
    /// A stable code for programs, upper case: `SPEC-INVALID`, `SPEC-VERSION`, `CONFLICT`,
    /// `UNTRUSTED`, `UNREADABLE`.
    pub code: &'static str,
    /// What is wrong, and what is allowed.
    pub message: String,
}

// === impl Problem ===

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(Position { line, column }) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        if let Some(device) = &self.device {
            write!(f, ": device {device:?}")?;
        }
        if let Some(field) = &self.field {
            write!(f, ": {field}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for Problem {}

/// An error and its causes on one line. A transparent error says the same as its cause: that is
/// said once. The system's answers are said in our words.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.downcast_ref().map_or_else(|| error.to_string(), errno::words);
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

/// `text` in double quotes with escapes, so that it stays on one line, and cut when it is long.
pub fn quoted(text: &str) -> impl fmt::Display + '_ {
    Quoted(text)
}

struct Quoted<'a>(&'a str);

// === impl Quoted ===

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(120) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}…", self.0.get(..end).unwrap_or_default()),
        }
    }
}

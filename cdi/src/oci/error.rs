//! A config error: where a config stops being a config.

use std::borrow::Cow;

use crate::problem::Position;

/// Why bytes are no OCI config. Everything in it is about one place of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {what}", .at.line, .at.column)]
pub struct ConfigError {
    /// The place.
    pub at: Position,
    /// What is wrong there.
    pub what: Cow<'static, str>,
}

// === impl ConfigError ===

impl ConfigError {
    /// The stable code of a config that cannot be read.
    pub fn code(&self) -> &'static str {
        "BUNDLE-INVALID"
    }

    pub(super) fn at(text: &[u8], offset: usize, what: impl Into<Cow<'static, str>>) -> Self {
        Self { at: position(text, offset), what: what.into() }
    }
}

/// Line and column of the byte at `offset`, the column in characters.
pub(super) fn position(text: &[u8], offset: usize) -> Position {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let lines = before.iter().filter(|&&byte| byte == b'\n').count();
    // A continuation byte is no character of its own.
    let in_line = before.get(line_start..).unwrap_or_default();
    let columns = in_line.iter().filter(|&&byte| byte & 0xC0 != 0x80).count();
    let one_based = |count: usize| u32::try_from(count + 1).unwrap_or(u32::MAX);
    Position { line: one_based(lines), column: one_based(columns) }
}

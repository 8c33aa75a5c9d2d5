//! The fast reader: strict JSON, and the block YAML that programs write (go-yaml first of all),
//! in ASCII. At any doubt it says `None` and the full reader decides; it never says what the full
//! reader would not.
//!
//! Of YAML it takes one document of block mappings and block sequences, with words for keys, and
//! on one line each scalars that are plain, or quoted without escapes. Comments have their own
//! lines.

mod json;

use super::{
    MAX_DEPTH, scalar,
    tape::{Kind, Tape},
};

/// The one document of `bytes`.
pub(super) fn read(bytes: &[u8]) -> Option<Tape<'_>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut reader = Reader { text, at: 0, indent: None, tape: Tape::new(text) };
    reader.skip_space();
    if reader.here() == b'{' {
        reader.json(1)?;
        reader.skip_space();
    } else {
        reader.at = 0;
        reader.document()?;
    }
    (reader.at == text.len()).then_some(reader.tape)
}

struct Reader<'a> {
    text: &'a str,
    /// Byte offset of what is read next.
    at: usize,
    /// Spaces before `at` on its line, when `at` is a line's first word; `None` at the end.
    indent: Option<usize>,
    tape: Tape<'a>,
}

// === impl Reader ===

impl Reader<'_> {
    /// The byte at `at`, 0 behind the end. A 0 in the file is in no class and ends no document.
    fn byte(&self, at: usize) -> u8 {
        self.text.as_bytes().get(at).copied().unwrap_or(0)
    }

    fn here(&self) -> u8 {
        self.byte(self.at)
    }

    /// The offset of the first byte from `at` on that `stop` takes, or of the end.
    fn find(&self, at: usize, stop: impl Fn(u8) -> bool) -> usize {
        let rest = self.text.as_bytes().get(at..).unwrap_or_default();
        at + rest.iter().position(|c| stop(*c)).unwrap_or(rest.len())
    }

    /// The offset of the `quote`, or of a backslash or what is not printed, from `at` on.
    fn quoted_end(&self, mut at: usize, quote: u8) -> usize {
        loop {
            at = self.find(at, |c| !is(c, QUOTED));
            match self.byte(at) {
                c @ (b'"' | b'\'') if c != quote => at += 1,
                _ => return at,
            }
        }
    }

    fn document(&mut self) -> Option<()> {
        self.next_line()?;
        if self.indent == Some(0) && self.text.get(self.at..)?.starts_with("---\n") {
            self.at += "---\n".len();
            self.next_line()?;
        }
        self.block(self.indent?, 1)?;
        self.indent.is_none().then_some(())
    }

    /// Goes from the end of a line to the next one that is neither blank nor a comment.
    fn next_line(&mut self) -> Option<()> {
        loop {
            let start = self.at;
            self.at = self.find(start, |c| c != b' ');
            match self.here() {
                b'\n' => self.at += 1,
                b'#' => self.at = self.find(self.at, |c| !is(c, PRINTED)),
                0 => {
                    self.indent = None;
                    return Some(());
                }
                _ => {
                    self.indent = Some(self.at - start);
                    return Some(());
                }
            }
        }
    }

    fn is_item(&self) -> bool {
        self.here() == b'-' && self.byte(self.at + 1) == b' '
    }

    fn block(&mut self, indent: usize, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        if self.is_item() { self.sequence(indent, depth) } else { self.mapping(indent, depth) }
    }

    fn sequence(&mut self, indent: usize, depth: usize) -> Option<()> {
        let start = self.tape.open(Kind::Seq, self.at)?;
        while self.indent == Some(indent) && self.is_item() {
            let dash = self.at;
            self.at = self.find(dash + 1, |c| c != b' ');
            if self.key_end().is_some() {
                let column = indent + (self.at - dash);
                self.indent = Some(column);
                self.block(column, depth + 1)?;
            } else {
                self.one_line()?;
            }
        }
        self.close(start, indent)
    }

    fn mapping(&mut self, indent: usize, depth: usize) -> Option<()> {
        let start = self.tape.open(Kind::Map, self.at)?;
        while self.indent == Some(indent) && !self.is_item() {
            let (at, end) = (self.at, self.key_end()?);
            self.tape.push(Kind::Plain, at, end - at)?;
            self.at = self.find(end + 1, |c| c != b' ');
            if !self.is_line_end() {
                self.one_line()?;
                continue;
            }
            self.next_line()?;
            match self.indent {
                Some(inner) if inner > indent => self.block(inner, depth + 1)?,
                // A sequence may stand at the indent of its key.
                Some(inner) if inner == indent && self.is_item() => {
                    let start = self.tape.len();
                    self.block(indent, depth + 1)?;
                    // The full reader places it so.
                    self.tape.move_to_first(start)?;
                }
                _ => self.tape.push(Kind::Null, at, 0)?,
            }
        }
        self.close(start, indent)
    }

    /// What follows a block is indented like it or less; else the last scalar goes on, or worse.
    fn close(&mut self, start: usize, indent: usize) -> Option<()> {
        self.tape.close(start)?;
        self.indent.is_none_or(|next| next <= indent).then_some(())
    }

    fn is_line_end(&self) -> bool {
        matches!(self.here(), b'\n' | 0)
    }

    /// The end of the key that starts here: a word, then a colon and a space or the line's end.
    fn key_end(&self) -> Option<usize> {
        if !self.here().is_ascii_alphabetic() {
            return None;
        }
        let end = self.find(self.at, |c| !is(c, WORD));
        let is_key = self.byte(end) == b':' && matches!(self.byte(end + 1), b' ' | b'\n' | 0);
        (is_key && end - self.at <= 256).then_some(end)
    }

    /// A scalar and the rest of its line, which is empty.
    fn one_line(&mut self) -> Option<()> {
        let at = self.at;
        match self.here() {
            quote @ (b'"' | b'\'') => {
                let end = self.quoted_end(at + 1, quote);
                if self.byte(end) != quote {
                    return None;
                }
                self.at = end + 1;
                self.tape.push(Kind::Quoted, at, end - at - 1)?;
            }
            mark @ (b'[' | b'{') if self.byte(at + 1) == mark + 2 => {
                self.at += 2;
                let kind = if mark == b'[' { Kind::Seq } else { Kind::Map };
                let start = self.tape.open(kind, at)?;
                self.tape.close(start)?;
            }
            b'-' if self.byte(at + 1) > b' ' => self.plain()?,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'_' | b'.' | b'~' | b'+' | b'$' => {
                self.plain()?;
            }
            _ => return None,
        }
        self.at = self.find(self.at, |c| c != b' ');
        if self.is_line_end() { self.next_line() } else { None }
    }

    fn plain(&mut self) -> Option<()> {
        let at = self.at;
        loop {
            self.at = self.find(self.at, |c| !is(c, PLAIN));
            match self.here() {
                b'\n' | 0 => break,
                // A colon before a space ends a key, a hash after one starts a comment.
                b':' if self.byte(self.at + 1) > b' ' => {}
                b'#' if self.byte(self.at.saturating_sub(1)) > b' ' => {}
                _ => return None,
            }
            self.at += 1;
        }
        let mut end = self.at;
        while self.byte(end.saturating_sub(1)) == b' ' {
            end -= 1;
        }
        self.tape.push(scalar::kind(self.text.get(at..end)?), at, end - at)
    }
}

/// Printed ASCII.
const PRINTED: u8 = 1;
/// Of plain scalars, colon and hash left out.
const PLAIN: u8 = 2;
/// Of keys.
const WORD: u8 = 4;
/// Of texts in quotes: neither the quotes nor the backslash.
const QUOTED: u8 = 8;

/// The classes of each byte.
static CLASSES: [u8; 256] = {
    let mut table = [0; 256];
    let mut c = b' ';
    while c <= b'~' {
        let plain = if matches!(c, b':' | b'#') { 0 } else { PLAIN };
        let quoted = if matches!(c, b'"' | b'\'' | b'\\') { 0 } else { QUOTED };
        let is_word = c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'/' | b'-');
        #[allow(clippy::indexing_slicing, reason = "the compiler checks a constant")]
        {
            table[c as usize] = PRINTED | plain | quoted | if is_word { WORD } else { 0 };
        }
        c += 1;
    }
    table
};

fn is(c: u8, class: u8) -> bool {
    CLASSES.get(usize::from(c)).is_some_and(|classes| classes & class != 0)
}

#[cfg(test)]
mod tests;

//! The fast reader: strict JSON, and the block YAML that programs write (go-yaml first of all),
//! in ASCII. At any doubt it says `None` and the full reader decides; it never says what the full
//! reader would not.
//!
//! Of YAML it takes one document of block mappings and block sequences, with words for keys, and
//! on one line each scalars that are plain, or quoted without escapes. Comments have their own
//! lines.

mod json;

use memchr::{memchr, memchr2_iter};

use super::{
    MAX_DEPTH, scalar,
    tape::{Kind, Tape},
};

/// The one document of `bytes`.
pub(super) fn read(bytes: &[u8]) -> Option<Tape<'_>> {
    let seen = bytes.iter().fold(0, |seen, c| seen | class(*c));
    if seen & STRANGE != 0 {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let mut reader = Reader { text, at: 0, indent: None, tape: Tape::new(text) };
    reader.skip_space();
    if reader.here() == b'{' {
        reader.json(1)?;
        reader.skip_space();
        (reader.at == text.len()).then_some(reader.tape)
    } else if seen & BLANK == 0 {
        reader.at = 0;
        reader.document()?;
        Some(reader.tape)
    } else {
        // Of tabs and carriage returns YAML has its own ideas.
        None
    }
}

/// A tab or a carriage return.
const BLANK: u8 = 1;
/// No ASCII text at all, NUL included: below, NUL means the end.
const STRANGE: u8 = 2;

/// What is special about a byte. Without branches and in bytes alone, so that 16 are done at once.
fn class(c: u8) -> u8 {
    let blank = u8::from(c == b'\t') | u8::from(c == b'\r');
    let odd = u8::from(c < 0x20) | u8::from(c > 0x7e);
    let strange = odd & !blank & u8::from(c != b'\n');
    (blank * BLANK) | (strange * STRANGE)
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
                b'#' => self.at = self.find(self.at, |c| c == b'\n'),
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
        let end = self.find(self.at, |c| !WORD.get(usize::from(c)).is_some_and(|is| *is));
        let is_key = self.byte(end) == b':' && matches!(self.byte(end + 1), b' ' | b'\n' | 0);
        (is_key && end - self.at <= 256).then_some(end)
    }

    /// A scalar and the rest of its line, which is empty.
    fn one_line(&mut self) -> Option<()> {
        let at = self.at;
        match self.here() {
            quote @ (b'"' | b'\'') => {
                let end = self.find(at + 1, |c| c == quote || matches!(c, b'\n' | b'\\'));
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
        let line = self.text.get(self.at..)?;
        let line = line.get(..memchr(b'\n', line.as_bytes()).unwrap_or(line.len()))?;
        let bytes = line.as_bytes();
        let is_space =
            |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_none_or(|c| *c == b' ');
        // A colon before a space ends a key, a hash after one starts a comment.
        let is_doubt = |at: usize| match bytes.get(at) {
            Some(b':') => is_space(at.checked_add(1)),
            _ => is_space(at.checked_sub(1)),
        };
        if memchr2_iter(b':', b'#', bytes).any(is_doubt) {
            return None;
        }
        let text = line.trim_end_matches(' ');
        self.tape.push(scalar::kind(text), self.at, text.len())?;
        self.at += line.len();
        Some(())
    }
}

/// The bytes that keys are made of.
static WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut c = 0_u8;
    while c < 128 {
        #[allow(clippy::indexing_slicing, reason = "the compiler checks a constant")]
        {
            table[c as usize] = c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'/' | b'-');
        }
        c += 1;
    }
    table
};

#[cfg(test)]
mod tests;

//! The fast reader: strict JSON, and the block YAML that programs write (go-yaml first of all),
//! in ASCII. At any doubt it says `None` and the full reader decides; it never says what the full
//! reader would not.
//!
//! Of YAML it takes one document of block mappings and block sequences, with words for keys, and
//! on one line each scalars that are plain, or quoted without escapes. Comments have their own
//! lines.

mod json;

use std::borrow::Cow;

use memchr::{memchr, memchr2_iter};

use super::{Entry, MAX_DEPTH, Node, Value, duplicate, scalar};

/// The one document of `bytes`.
pub(super) fn read(bytes: &[u8]) -> Option<Node<'_>> {
    let seen = bytes.iter().fold(0, |seen, c| seen | class(*c));
    if seen & STRANGE != 0 {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let mut reader = Reader { text, at: 0, indent: None, items: vec![], entries: vec![] };
    reader.skip_space();
    if reader.here() == b'{' {
        let node = reader.json(1)?;
        reader.skip_space();
        (reader.at == text.len()).then_some(node)
    } else if seen & BLANK == 0 {
        reader.at = 0;
        reader.document()
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
    /// Elements of the sequences that are open, and pairs of the mappings: cut off as each closes,
    /// so that every list is allocated once, at its size.
    items: Vec<Node<'a>>,
    entries: Vec<Entry<'a>>,
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn byte(&self, at: usize) -> u8 {
        self.text.as_bytes().get(at).copied().unwrap_or(0)
    }

    fn here(&self) -> u8 {
        self.byte(self.at)
    }

    fn slice(&self, from: usize, to: usize) -> Option<Cow<'a, str>> {
        self.text.get(from..to).map(Cow::Borrowed)
    }

    /// The offset of the first byte from `at` on that `stop` takes, or of the end.
    fn find(&self, at: usize, stop: impl Fn(u8) -> bool) -> usize {
        let rest = self.text.as_bytes().get(at..).unwrap_or_default();
        at + rest.iter().position(|c| stop(*c)).unwrap_or(rest.len())
    }

    fn document(&mut self) -> Option<Node<'a>> {
        self.next_line()?;
        if self.indent == Some(0) && self.text.get(self.at..)?.starts_with("---\n") {
            self.at += "---\n".len();
            self.next_line()?;
        }
        let node = self.block(self.indent?, 1)?;
        self.indent.is_none().then_some(node)
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

    fn block(&mut self, indent: usize, depth: usize) -> Option<Node<'a>> {
        if depth > MAX_DEPTH {
            return None;
        }
        let at = offset(self.at)?;
        let value = if self.is_item() {
            self.sequence(indent, depth)?
        } else {
            self.mapping(indent, depth)?
        };
        Some(Node { at, value })
    }

    fn sequence(&mut self, indent: usize, depth: usize) -> Option<Value<'a>> {
        let start = self.items.len();
        while self.indent == Some(indent) && self.is_item() {
            let item = self.find(self.at + 1, |c| c != b' ');
            let column = indent + (item - self.at);
            self.at = item;
            let node = if self.key_end().is_some() {
                self.indent = Some(column);
                self.block(column, depth + 1)?
            } else {
                self.one_line()?
            };
            self.items.push(node);
        }
        self.ends_at(indent)?;
        Some(Value::Seq(self.items.split_off(start)))
    }

    fn mapping(&mut self, indent: usize, depth: usize) -> Option<Value<'a>> {
        let start = self.entries.len();
        while self.indent == Some(indent) && (!self.is_item() || self.entries.len() == start) {
            let (key_at, key_end) = (self.at, self.key_end()?);
            let at = offset(key_at)?;
            let key = self.slice(key_at, key_end)?;
            self.at = self.find(key_end + 1, |c| c != b' ');
            let node = if matches!(self.here(), b'\n' | 0) {
                self.next_line()?;
                match self.indent {
                    Some(inner) if inner > indent => self.block(inner, depth + 1)?,
                    // A sequence may stand at the indent of its key.
                    Some(inner) if inner == indent && self.is_item() => {
                        let node = self.block(indent, depth + 1)?;
                        // The full reader places it at its first element.
                        Node { at: node.items()?.first()?.at, ..node }
                    }
                    _ => Node { at, value: Value::Null },
                }
            } else {
                self.one_line()?
            };
            self.entries.push(Entry { at, key, node });
        }
        self.ends_at(indent)?;
        self.close_mapping(start)
    }

    fn close_mapping(&mut self, start: usize) -> Option<Value<'a>> {
        let entries = self.entries.split_off(start);
        duplicate(&entries).is_none().then_some(Value::Map(entries))
    }

    /// What follows a block is indented like it or less; else the last scalar goes on, or worse.
    fn ends_at(&self, indent: usize) -> Option<()> {
        self.indent.is_none_or(|next| next <= indent).then_some(())
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
    fn one_line(&mut self) -> Option<Node<'a>> {
        let at = offset(self.at)?;
        let value = match self.here() {
            quote @ (b'"' | b'\'') => {
                let start = self.at + 1;
                let end = self.find(start, |c| c == quote || matches!(c, b'\n' | b'\\'));
                if self.byte(end) != quote {
                    return None;
                }
                self.at = end + 1;
                Value::Str(self.slice(start, end)?)
            }
            b'[' if self.byte(self.at + 1) == b']' => {
                self.at += 2;
                Value::Seq(Vec::new())
            }
            b'{' if self.byte(self.at + 1) == b'}' => {
                self.at += 2;
                Value::Map(Vec::new())
            }
            b'-' if self.byte(self.at + 1) > b' ' => self.plain()?,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'_' | b'.' | b'~' | b'+' | b'$' => {
                self.plain()?
            }
            _ => return None,
        };
        self.at = self.find(self.at, |c| c != b' ');
        if !matches!(self.here(), b'\n' | 0) {
            return None;
        }
        self.next_line()?;
        Some(Node { at, value })
    }

    fn plain(&mut self) -> Option<Value<'a>> {
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
        self.at += line.len();
        Some(scalar::resolve(Cow::Borrowed(line.trim_end_matches(' '))))
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

fn offset(at: usize) -> Option<u32> {
    u32::try_from(at).ok()
}

#[cfg(test)]
mod tests;

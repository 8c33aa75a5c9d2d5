//! A scanner: JSON by the letter of RFC 8259, one byte after the other, nothing built.

use std::borrow::Cow;

use super::{
    ConfigError,
    layout::{Item, List, Object, Slot, Span},
    text,
};

pub(super) type Scan<T> = Result<T, ConfigError>;

/// Objects and lists inside each other. A config needs eight.
const MAX_DEPTH: u32 = 128;

#[derive(Debug)]
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

// === impl Scanner ===

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// One value with nothing but blanks around it.
    pub(super) fn whole<T>(mut self, read: impl FnOnce(&mut Self) -> Scan<T>) -> Scan<T> {
        self.blank();
        let value = read(&mut self)?;
        self.blank();
        match self.peek() {
            None => Ok(value),
            Some(_) => self.fail(format!("{} after the end of the config", self.found())),
        }
    }

    /// An object; `member` reads the value of each key. `what` names it in errors.
    pub(super) fn object(
        &mut self,
        what: &str,
        mut member: impl FnMut(&mut Self, Span) -> Scan<()>,
    ) -> Scan<Object> {
        self.enter(b'{', what, "an object")?;
        let open = self.at;
        self.blank();
        let first = self.at;
        let mut last = open;
        if !self.take(b'}') {
            loop {
                let key = self.string("a member name")?;
                self.blank();
                if !self.take(b':') {
                    return self.fail(format!("expected a colon, found {}", self.found()));
                }
                self.blank();
                member(self, key)?;
                last = self.at;
                if self.ends(b'}')? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(Object { open, first, last })
    }

    /// A list; `item` reads each element and names the string it is known by.
    pub(super) fn list(
        &mut self,
        what: &str,
        mut item: impl FnMut(&mut Self) -> Scan<Option<Span>>,
    ) -> Scan<List> {
        let start = self.at;
        self.enter(b'[', what, "a list")?;
        self.blank();
        let mut items = Vec::new();
        if !self.take(b']') {
            loop {
                let start = self.at;
                let key = item(self)?;
                items.push(Item { span: self.since(start), key });
                if self.ends(b']')? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(List { span: self.since(start), items })
    }

    /// The value of a member that may be `null` and must not be there twice.
    pub(super) fn slot<T>(
        &mut self,
        slot: &mut Slot<T>,
        what: &str,
        read: impl FnOnce(&mut Self) -> Scan<T>,
    ) -> Scan<()> {
        if slot.seen() {
            return self.fail(format!("{what} is there twice"));
        }
        *slot = if self.peek() == Some(b'n') {
            Slot::Null(self.any()?)
        } else {
            Slot::There(read(self)?)
        };
        Ok(())
    }

    /// A string literal, its quotes included.
    pub(super) fn string(&mut self, what: &str) -> Scan<Span> {
        let start = self.at;
        if !self.take(b'"') {
            return self.fail(format!("expected {what}, found {}", self.found()));
        }
        loop {
            self.at += plain(self.rest());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(self.since(start));
                }
                Some(b'\\') => self.escape()?,
                Some(_) => return self.fail("a control character in a string"),
                None => return self.fail("a string without an end"),
            }
        }
    }

    /// A number between 0 and 2³²-1, as ids are.
    pub(super) fn id(&mut self, what: &str) -> Scan<u32> {
        let span = self.number_or(what)?;
        match self.text.get(span.start..span.end).map(str::parse) {
            Some(Ok(id)) => Ok(id),
            _ => {
                let what = format!("{what} must be a whole number from 0 to {}", u32::MAX);
                self.fail_at(span.start, what)
            }
        }
    }

    /// Any value.
    pub(super) fn any(&mut self) -> Scan<Span> {
        let start = self.at;
        match self.peek() {
            Some(b'"') => self.string("a string").map(drop)?,
            Some(b'{') => self.object("", |scanner, _| scanner.any().map(drop)).map(drop)?,
            Some(b'[') => self.skip_list()?,
            Some(b't') => self.word("true")?,
            Some(b'f') => self.word("false")?,
            Some(b'n') => self.word("null")?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => return self.fail(format!("expected a value, found {}", self.found())),
        }
        Ok(self.since(start))
    }

    /// The name that a key stands for.
    pub(super) fn name(&self, key: Span) -> Cow<'a, str> {
        text::decode(self.text.get(key.start..key.end).unwrap_or_default())
    }

    pub(super) fn fail<T>(&self, what: impl Into<Cow<'static, str>>) -> Scan<T> {
        self.fail_at(self.at, what)
    }

    pub(super) fn fail_at<T>(&self, at: usize, what: impl Into<Cow<'static, str>>) -> Scan<T> {
        Err(ConfigError::at(self.text.as_bytes(), at, what))
    }

    fn number_or(&mut self, what: &str) -> Scan<Span> {
        let start = self.at;
        match self.peek() {
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => return self.fail(format!("{what} must be a number, found {}", self.found())),
        }
        Ok(self.since(start))
    }

    fn skip_list(&mut self) -> Scan<()> {
        self.enter(b'[', "", "a list")?;
        self.blank();
        if !self.take(b']') {
            loop {
                self.any()?;
                if self.ends(b']')? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn enter(&mut self, bracket: u8, what: &str, kind: &str) -> Scan<()> {
        if self.depth == MAX_DEPTH {
            return self.fail(format!("nested deeper than {MAX_DEPTH}"));
        }
        if !self.take(bracket) {
            return self.fail(format!("{what} must be {kind}, found {}", self.found()));
        }
        self.depth += 1;
        Ok(())
    }

    /// Behind an element: true at the closing bracket, false when another element follows.
    fn ends(&mut self, bracket: u8) -> Scan<bool> {
        self.blank();
        if self.take(b',') {
            self.blank();
            return Ok(false);
        }
        if self.take(bracket) {
            return Ok(true);
        }
        let bracket = char::from(bracket);
        self.fail(format!("expected a comma or {bracket}, found {}", self.found()))
    }

    fn number(&mut self) -> Scan<()> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Scan<()> {
        let count = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return self.fail(format!("expected a digit, found {}", self.found()));
        }
        self.at += count;
        Ok(())
    }

    fn word(&mut self, word: &str) -> Scan<()> {
        if !self.rest().starts_with(word.as_bytes()) {
            return self.fail(format!("expected {word}"));
        }
        self.at += word.len();
        Ok(())
    }

    fn escape(&mut self) -> Scan<()> {
        let length = match self.rest() {
            [_, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
            [_, b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|x| x.is_ascii_hexdigit()) => 6,
            _ => return self.fail("an escape that JSON does not know"),
        };
        self.at += length;
        Ok(())
    }

    fn blank(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    pub(super) fn since(&self, start: usize) -> Span {
        Span { start, end: self.at }
    }

    /// What stands here, for an error.
    fn found(&self) -> &'static str {
        match self.peek() {
            None => "the end of the text",
            Some(b'"') => "a string",
            Some(b'{') => "an object",
            Some(b'[') => "a list",
            Some(b'-' | b'0'..=b'9') => "a number",
            Some(_) if self.rest().starts_with(b"null") => "null",
            Some(b't' | b'f') => "true or false",
            Some(b'}' | b']') => "a closing bracket",
            Some(_) => "something else",
        }
    }
}

/// How many bytes from the start need no look inside a string: no quote, backslash or control
/// character. Eight at a time, since most of a config is strings.
pub(super) fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 0xFF;
    const HIGH: u64 = ONES << 7;
    let (words, tail) = bytes.as_chunks::<8>();
    let mut length = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        // The lowest flag is exact: a borrow only ever reaches upwards.
        let zero = |x: u64| x.wrapping_sub(ONES) & !x;
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let flags = (zero(word ^ (ONES * 0x22)) | zero(word ^ (ONES * 0x5C)) | control) & HIGH;
        if flags != 0 {
            return length + flags.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    let stops = |&byte: &u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    length + tail.iter().position(stops).unwrap_or(tail.len())
}

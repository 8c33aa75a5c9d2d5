//! Strict JSON, in ASCII; `\u` escapes are left to the full reader.

use std::borrow::Cow;

use super::{Kind, MAX_DEPTH, Reader, scalar};

// === impl Reader ===

impl Reader<'_> {
    pub(super) fn skip_space(&mut self) {
        self.at = self.find(self.at, |c| !matches!(c, b' ' | b'\n' | b'\t' | b'\r'));
    }

    pub(super) fn json(&mut self, depth: usize) -> Option<()> {
        match self.here() {
            b'{' | b'[' if depth > MAX_DEPTH => None,
            b'{' => self.json_collection(Kind::Map, b'}', |reader| {
                reader.json_string()?;
                reader.skip_space();
                reader.take(b':')?;
                reader.json(depth + 1)
            }),
            b'[' => self.json_collection(Kind::Seq, b']', |reader| reader.json(depth + 1)),
            b'"' => self.json_string(),
            _ => self.json_word(),
        }
    }

    fn json_collection(
        &mut self,
        kind: Kind,
        end: u8,
        mut element: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        let start = self.tape.open(kind, self.at)?;
        self.at += 1;
        self.skip_space();
        while self.here() != end || self.tape.len() > start + 1 {
            element(self)?;
            self.skip_space();
            if self.here() == end {
                break;
            }
            self.take(b',')?;
        }
        self.at += 1;
        self.tape.close(start)
    }

    /// A number, `true`, `false` or `null`.
    fn json_word(&mut self) -> Option<()> {
        let is_of_word = |c: u8| matches!(c, b'+' | b'-' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'E');
        let (at, end) = (self.at, self.find(self.at, |c| !is_of_word(c)));
        self.at = end;
        match scalar::kind(self.text.get(at..end).filter(|text| !text.is_empty())?) {
            Kind::Plain => None,
            kind => self.tape.push(kind, at, end - at),
        }
    }

    /// Takes a mark and the space after it.
    #[inline(always)]
    fn take(&mut self, mark: u8) -> Option<()> {
        if self.here() != mark {
            return None;
        }
        self.at += 1;
        self.skip_space();
        Some(())
    }

    fn json_string(&mut self) -> Option<()> {
        let at = self.at;
        if self.here() != b'"' {
            return None;
        }
        let end = self.quoted_end(at + 1, b'"');
        self.at = end + 1;
        match self.byte(end) {
            b'"' => self.tape.push(Kind::Quoted, at, end - at - 1),
            b'\\' => {
                self.at = end;
                let text = self.escaped(self.text.get(at + 1..end)?.to_owned())?;
                self.tape.push_owned(Kind::Quoted, u32::try_from(at).ok()?, Cow::Owned(text))
            }
            _ => None,
        }
    }

    /// The rest of a string from its first backslash on.
    fn escaped(&mut self, mut text: String) -> Option<String> {
        loop {
            let end = self.quoted_end(self.at, b'"');
            text.push_str(self.text.get(self.at..end)?);
            self.at = end + 1;
            match self.byte(end) {
                b'"' => return Some(text),
                b'\\' => {}
                _ => return None,
            }
            text.push(match self.here() {
                c @ (b'"' | b'\\' | b'/') => char::from(c),
                b'n' => '\n',
                b't' => '\t',
                b'r' => '\r',
                _ => return None,
            });
            self.at += 1;
        }
    }
}

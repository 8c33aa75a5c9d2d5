//! Strict JSON, in ASCII; `\u` escapes are left to the full reader.

use std::borrow::Cow;

use super::{Entry, MAX_DEPTH, Node, Reader, Value, offset, scalar};

// === impl Reader ===

impl<'a> Reader<'a> {
    pub(super) fn skip_space(&mut self) {
        self.at = self.find(self.at, |c| !matches!(c, b' ' | b'\n' | b'\t' | b'\r'));
    }

    pub(super) fn json(&mut self, depth: usize) -> Option<Node<'a>> {
        let at = self.at;
        let value = match self.here() {
            b'{' | b'[' if depth > MAX_DEPTH => return None,
            b'{' => self.json_object(depth)?,
            b'[' => self.json_array(depth)?,
            b'"' => Value::Str(self.json_string()?),
            _ => {
                self.at = self.find(
                    at,
                    |c| !matches!(c, b'+' | b'-' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'E'),
                );
                match scalar::resolve(self.slice(at, self.at)?) {
                    Value::Null if self.at == at => return None,
                    value @ (Value::Null | Value::Bool(..) | Value::Number(_)) => value,
                    _ => return None,
                }
            }
        };
        Some(Node { at: offset(at)?, value })
    }

    fn json_object(&mut self, depth: usize) -> Option<Value<'a>> {
        let start = self.entries.len();
        self.at += 1;
        self.skip_space();
        while self.here() != b'}' || self.entries.len() > start {
            let at = offset(self.at)?;
            let key = self.json_string()?;
            self.skip_space();
            self.take(b':')?;
            let node = self.json(depth + 1)?;
            self.entries.push(Entry { at, key, node });
            self.skip_space();
            if self.here() == b'}' {
                break;
            }
            self.take(b',')?;
        }
        self.at += 1;
        self.close_mapping(start)
    }

    fn json_array(&mut self, depth: usize) -> Option<Value<'a>> {
        let start = self.items.len();
        self.at += 1;
        self.skip_space();
        while self.here() != b']' || self.items.len() > start {
            let item = self.json(depth + 1)?;
            self.items.push(item);
            self.skip_space();
            if self.here() == b']' {
                break;
            }
            self.take(b',')?;
        }
        self.at += 1;
        Some(Value::Seq(self.items.split_off(start)))
    }

    /// Takes a mark and the space after it.
    fn take(&mut self, mark: u8) -> Option<()> {
        if self.here() != mark {
            return None;
        }
        self.at += 1;
        self.skip_space();
        Some(())
    }

    fn json_string(&mut self) -> Option<Cow<'a, str>> {
        if self.here() != b'"' {
            return None;
        }
        let start = self.at + 1;
        let end = self.find(start, |c| matches!(c, b'"' | b'\\' | b'\n' | b'\t' | b'\r'));
        self.at = end + 1;
        match self.byte(end) {
            b'"' => self.slice(start, end),
            b'\\' => {
                self.at = end;
                self.escaped(self.text.get(start..end)?.to_owned()).map(Cow::Owned)
            }
            _ => None,
        }
    }

    /// The rest of a string from its first backslash on. `\u` is the full reader's.
    fn escaped(&mut self, mut text: String) -> Option<String> {
        loop {
            let end = self.find(self.at, |c| matches!(c, b'"' | b'\\' | b'\n' | b'\t' | b'\r'));
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

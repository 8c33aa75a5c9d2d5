//! An entry is one key of a TOML file with its whole path, value and line.
//!
//! The grammar is that of `toml_parser`; this puts its events together. The crate `toml`, with the
//! code that serde derives for it, is a tenth of the hook's size for what is five kinds of value.

use toml_parser::{
    ParseError, Source, Span,
    decoder::ScalarKind,
    parser::{Event, EventKind, RecursionGuard, parse_document},
};

/// How deep arrays and inline tables may nest; nothing here needs more than two.
const MAX_DEPTH: u32 = 8;

/// One key, or a table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// From 1.
    pub(super) line: usize,
    /// The names of the tables that it is in, then its own.
    pub(super) path: Vec<String>,
    pub(super) value: Value,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value {
    Table,
    Text(String),
    Bool(bool),
    List(Vec<Value>),
    /// A number or a date.
    Other,
}

/// What is wrong, and in which line.
pub(super) type Error = (Option<usize>, String);

#[derive(Default)]
struct Reader<'a> {
    text: &'a str,
    entries: Vec<Entry>,
    /// The table that keys are in.
    table: Vec<String>,
    /// The key that is being read.
    key: Vec<String>,
    /// A header is being read, not a key.
    in_header: bool,
    /// The length that `table` had before each open inline table.
    outer: Vec<usize>,
    list: Option<Vec<Value>>,
}

/// The entries of a file in their order.
pub(super) fn read(text: &str) -> Result<Vec<Entry>, Error> {
    let source = Source::new(text);
    let tokens = source.lex().into_vec();
    let (mut events, mut error) = (Vec::new(), None);
    let mut collect = |event: Event| events.push(event);
    parse_document(&tokens, &mut RecursionGuard::new(&mut collect, MAX_DEPTH), &mut error);
    let mut reader = Reader { text, ..Reader::default() };
    reader.check(error)?;
    for event in events {
        reader.event(&source, event)?;
    }
    Ok(reader.entries)
}

// === impl Reader ===

impl Reader<'_> {
    fn event(&mut self, source: &Source<'_>, event: Event) -> Result<(), Error> {
        let line = self.line(event.span());
        match event.kind() {
            EventKind::StdTableOpen => {
                self.table.clear();
                self.in_header = true;
            }
            EventKind::StdTableClose => {
                self.in_header = false;
                self.enter(line, Value::Table)?;
            }
            EventKind::ArrayTableOpen | EventKind::ArrayTableClose => {
                return Err((Some(line), "a list of tables ([[…]]) stands nowhere here".into()));
            }
            EventKind::InlineTableOpen => {
                if self.list.is_some() {
                    return Err((Some(line), "no list here has tables in it".into()));
                }
                self.outer.push(self.table.len());
                self.table.append(&mut self.key);
                self.enter(line, Value::Table)?;
            }
            EventKind::InlineTableClose => {
                self.table.truncate(self.outer.pop().unwrap_or(0));
            }
            EventKind::ArrayOpen => {
                if self.list.replace(Vec::new()).is_some() {
                    return Err((Some(line), "no list here has lists in it".into()));
                }
            }
            EventKind::ArrayClose => {
                let list = self.list.take().unwrap_or_default();
                self.enter(line, Value::List(list))?;
            }
            EventKind::SimpleKey => {
                let (mut name, mut error) = (String::new(), None);
                if let Some(raw) = source.get(event) {
                    raw.decode_key(&mut name, &mut error);
                }
                self.check(error)?;
                if self.in_header { self.table.push(name) } else { self.key.push(name) }
            }
            EventKind::Scalar => {
                let value = self.scalar(source, event)?;
                match &mut self.list {
                    Some(list) => list.push(value),
                    None => self.enter(line, value)?,
                }
            }
            EventKind::Error
            | EventKind::KeySep
            | EventKind::KeyValSep
            | EventKind::ValueSep
            | EventKind::Whitespace
            | EventKind::Comment
            | EventKind::Newline => {}
        }
        Ok(())
    }

    fn scalar(&self, source: &Source<'_>, event: Event) -> Result<Value, Error> {
        let (mut text, mut error) = (std::borrow::Cow::Borrowed(""), None);
        let Some(raw) = source.get(event) else { return Ok(Value::Other) };
        let kind = raw.decode_scalar(&mut text, &mut error);
        self.check(error)?;
        Ok(match kind {
            ScalarKind::String => Value::Text(text.into_owned()),
            ScalarKind::Boolean(value) => Value::Bool(value),
            ScalarKind::DateTime | ScalarKind::Float | ScalarKind::Integer(_) => Value::Other,
        })
    }

    /// Adds what stands at the current path; nothing may stand there twice.
    fn enter(&mut self, line: usize, value: Value) -> Result<(), Error> {
        let mut path = self.table.clone();
        path.append(&mut self.key);
        // Nor within what is no table.
        let clashes = |entry: &Entry| {
            let within = |short: &Entry, long: &[String]| {
                short.value != Value::Table && long.starts_with(&short.path)
            };
            entry.path == path
                || within(entry, &path)
                || (value != Value::Table && entry.path.starts_with(&path))
        };
        if self.entries.iter().any(clashes) {
            return Err((Some(line), format!("duplicate key {}", path.join("."))));
        }
        self.entries.push(Entry { line, path, value });
        Ok(())
    }

    fn line(&self, span: Span) -> usize {
        let before = self.text.as_bytes().iter().take(span.start());
        1 + before.filter(|byte| **byte == b'\n').count()
    }

    fn check(&self, error: Option<ParseError>) -> Result<(), Error> {
        let Some(error) = error else { return Ok(()) };
        let line = error.unexpected().or(error.context()).map(|span| self.line(span));
        Err((line, error.description().to_owned()))
    }
}

#[cfg(test)]
mod tests;

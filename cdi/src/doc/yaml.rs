//! The full reader: every YAML, through saphyr-parser's events.
//!
//! On top of the grammar it bounds what a small file can cost: depth, and what aliases expand to.

mod offsets;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};

use super::{DocError, Entry, MAX_DEPTH, Node, Value, duplicate, position, scalar};
use crate::problem::quoted;
use offsets::Offsets;

/// What all anchors and aliases of a file together may hold, in bytes of memory, about.
const MAX_EXPANSION: usize = 16 << 20;

/// All documents of `bytes`, empty ones as [`Value::Null`].
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Node<'_>>, DocError> {
    let text = check_characters(bytes)?;
    let (text, shift) = match text.strip_prefix('\u{feff}') {
        Some(text) => (text, '\u{feff}'.len_utf8()),
        None => (text, 0),
    };
    let mut builder = Builder::new(bytes, Offsets::new(text, shift));
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| builder.scan_error(&error))?;
        builder.take(event, span)?;
    }
    Ok(builder.documents)
}

/// The characters that YAML allows. The parser takes NUL for the end, so it must not see one.
fn check_characters(bytes: &[u8]) -> Result<&str, DocError> {
    let fail = |at: usize, message: &str| {
        let at = u32::try_from(at).ok().map(|at| position(bytes, at));
        Err(DocError { at, message: message.to_owned() })
    };
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return fail(error.valid_up_to(), "not UTF-8 from here"),
    };
    let odd = |(at, c): &(usize, char)| match *c {
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' => false,
        '\u{feff}' => *at != 0,
        c => c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'),
    };
    match text.char_indices().find(odd) {
        None => Ok(text),
        Some((at, _)) => fail(at, "a control character, which must be escaped in a quoted text"),
    }
}

struct Builder<'a> {
    bytes: &'a [u8],
    offsets: Offsets<'a>,
    documents: Vec<Node<'a>>,
    stack: Vec<Frame<'a>>,
    /// What an anchor stands for and what a copy of it costs; absent while it is being read.
    anchors: BTreeMap<usize, (Node<'a>, usize)>,
    expanded: usize,
}

/// A collection that is being read.
struct Frame<'a> {
    at: u32,
    anchor: usize,
    kind: FrameKind<'a>,
}

enum FrameKind<'a> {
    Seq(Vec<Node<'a>>),
    Map { entries: Vec<Entry<'a>>, key: Option<Key<'a>>, merge: Option<Node<'a>> },
}

struct Key<'a> {
    at: u32,
    text: Cow<'a, str>,
    /// An unquoted `<<`.
    merges: bool,
}

// === impl Builder ===

impl<'a> Builder<'a> {
    fn new(bytes: &'a [u8], offsets: Offsets<'a>) -> Self {
        Self {
            bytes,
            offsets,
            documents: Vec::new(),
            stack: Vec::new(),
            anchors: BTreeMap::new(),
            expanded: 0,
        }
    }

    fn scan_error(&self, error: &ScanError) -> DocError {
        self.error(
            self.offsets.byte(error.marker()),
            format!("neither JSON nor YAML: {}", error.info()),
        )
    }

    fn error(&self, at: u32, message: String) -> DocError {
        DocError { at: Some(position(self.bytes, at)), message }
    }

    fn take(&mut self, event: Event<'a>, span: Span) -> Result<(), DocError> {
        let at = self.offsets.byte(&span.start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text = self.without_end(text, style, &span);
                self.scalar(at, text, style, anchor, tag.as_deref())
            }
            Event::SequenceStart(anchor, tag) => {
                self.check_tag(at, tag.as_deref(), "seq")?;
                self.open(at, anchor, FrameKind::Seq(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.check_tag(at, tag.as_deref(), "map")?;
                self.open(at, anchor, FrameKind::Map { entries: vec![], key: None, merge: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.alias(at, anchor),
            Event::DocumentEnd => {
                self.anchors.clear();
                Ok(())
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) => {
                Ok(())
            }
        }
    }

    /// The parser ends a block scalar in a line feed that a file without one at its end lacks.
    fn without_end(&self, text: Cow<'a, str>, style: ScalarStyle, span: &Span) -> Cow<'a, str> {
        let file = self.offsets.text;
        let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        let is_last = is_block && !file.ends_with('\n') && self.offsets.is_end(&span.end);
        match text.strip_suffix('\n') {
            Some(shorter) if is_last => Cow::Owned(shorter.to_owned()),
            _ => text,
        }
    }

    fn scalar(
        &mut self,
        at: u32,
        text: Cow<'a, str>,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
    ) -> Result<(), DocError> {
        let plain = style == ScalarStyle::Plain;
        if self.wants_key() {
            let merges = plain && tag.is_none() && text == "<<";
            if anchor != 0 {
                self.remember(anchor, &Node { at, value: Value::Str(text.clone()) })?;
            }
            return self.key(Key { at, text, merges });
        }
        // Where nothing is written there is no place either: the key's stands for it.
        let at = match self.stack.last().map(|frame| &frame.kind) {
            Some(FrameKind::Map { key: Some(key), .. }) if plain && text.is_empty() => key.at,
            _ => at,
        };
        let value = match tag {
            None if plain => scalar::resolve(text),
            None => Value::Str(text),
            Some(tag) => self.tagged(at, text, plain, tag)?,
        };
        self.value(anchor, Node { at, value })
    }

    /// A scalar whose type the file names.
    fn tagged(
        &self,
        at: u32,
        text: Cow<'a, str>,
        plain: bool,
        tag: &Tag,
    ) -> Result<Value<'a>, DocError> {
        // "!" alone: no resolution by spelling.
        if tag.handle.is_empty() && tag.suffix == "!" {
            return Ok(Value::Str(text));
        }
        let wanted = if tag.is_yaml_core_schema() { tag.suffix.as_str() } else { "" };
        if wanted == "str" {
            return Ok(Value::Str(text));
        }
        let spelling = text.to_string();
        let value = if plain { scalar::resolve(text) } else { Value::Str(text) };
        match (wanted, &value) {
            ("null", Value::Null) | ("bool", Value::Bool(..)) => Ok(value),
            ("int", Value::Number(text)) if scalar::integer(text).is_some() => Ok(value),
            ("float", Value::Number(_)) => Ok(value),
            ("null" | "bool" | "int" | "float", _) => {
                Err(self.error(at, format!("{} is no !!{wanted}", quoted(&spelling))))
            }
            _ => Err(self.unknown_tag(at, tag)),
        }
    }

    fn check_tag(&self, at: u32, tag: Option<&Tag>, own: &str) -> Result<(), DocError> {
        match tag {
            Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == own) => {
                Err(self.unknown_tag(at, tag))
            }
            _ => Ok(()),
        }
    }

    fn unknown_tag(&self, at: u32, tag: &Tag) -> DocError {
        self.error(at, format!("the tag {} is not supported", quoted(&tag.to_string())))
    }

    fn alias(&mut self, at: u32, anchor: usize) -> Result<(), DocError> {
        let Some(&(_, weight)) = self.anchors.get(&anchor) else {
            let message = "an alias to an anchor whose value is not complete here".to_owned();
            return Err(self.error(at, message));
        };
        self.expand(at, weight)?;
        let Some((node, _)) = self.anchors.get(&anchor).cloned() else { return Ok(()) };
        if self.stack.len() + depth(&node) > MAX_DEPTH {
            return Err(self.too_deep(at));
        }
        if self.wants_key() {
            return match node.value {
                Value::Str(text) | Value::Number(text) => self.key(Key { at, text, merges: false }),
                _ => Err(self.error(at, "a key must be a text".to_owned())),
            };
        }
        self.value(0, node)
    }

    fn wants_key(&self) -> bool {
        let top = self.stack.last().map(|frame| &frame.kind);
        matches!(top, Some(FrameKind::Map { key: None, .. }))
    }

    fn key(&mut self, new: Key<'a>) -> Result<(), DocError> {
        if let Some(Frame { kind: FrameKind::Map { key, .. }, .. }) = self.stack.last_mut() {
            *key = Some(new);
        }
        Ok(())
    }

    fn open(&mut self, at: u32, anchor: usize, kind: FrameKind<'a>) -> Result<(), DocError> {
        if self.wants_key() {
            return Err(self.error(at, "a key must be a text".to_owned()));
        }
        if self.stack.len() >= MAX_DEPTH {
            return Err(self.too_deep(at));
        }
        self.stack.push(Frame { at, anchor, kind });
        Ok(())
    }

    fn too_deep(&self, at: u32) -> DocError {
        self.error(at, format!("nested deeper than {MAX_DEPTH} levels"))
    }

    fn close(&mut self) -> Result<(), DocError> {
        let Some(Frame { at, anchor, kind }) = self.stack.pop() else { return Ok(()) };
        let value = match kind {
            FrameKind::Seq(items) => Value::Seq(items),
            FrameKind::Map { mut entries, merge, .. } => {
                if let Some(entry) = duplicate(&entries) {
                    let message = format!("the key {} is there twice", quoted(&entry.key));
                    return Err(self.error(entry.at, message));
                }
                if let Some(merge) = merge {
                    self.merge(&mut entries, merge)?;
                }
                Value::Map(entries)
            }
        };
        self.value(anchor, Node { at, value })
    }

    /// Adds the pairs of `<<` whose keys are not there yet; of several mappings the first wins.
    fn merge(&self, entries: &mut Vec<Entry<'a>>, merge: Node<'a>) -> Result<(), DocError> {
        let Node { at, value } = merge;
        let sources = match value {
            Value::Seq(items) => items,
            value => vec![Node { at, value }],
        };
        let mut seen: BTreeSet<_> = entries.iter().map(|entry| entry.key.clone()).collect();
        for source in sources {
            let Value::Map(merged) = source.value else {
                let message = "<< takes an object or a list of objects".to_owned();
                return Err(self.error(source.at, message));
            };
            entries.extend(merged.into_iter().filter(|entry| seen.insert(entry.key.clone())));
        }
        Ok(())
    }

    /// Puts a finished value where it belongs.
    fn value(&mut self, anchor: usize, node: Node<'a>) -> Result<(), DocError> {
        if anchor != 0 {
            self.remember(anchor, &node)?;
        }
        let twice = match self.stack.last_mut().map(|frame| &mut frame.kind) {
            None => {
                self.documents.push(node);
                None
            }
            Some(FrameKind::Seq(items)) => {
                items.push(node);
                None
            }
            Some(FrameKind::Map { entries, key, merge }) => match key.take() {
                Some(Key { at, merges: true, .. }) => merge.replace(node).map(|_first| at),
                Some(Key { at, text, .. }) => {
                    entries.push(Entry { at, key: text, node });
                    None
                }
                None => None,
            },
        };
        match twice {
            None => Ok(()),
            Some(at) => Err(self.error(at, "the key \"<<\" is there twice".to_owned())),
        }
    }

    fn remember(&mut self, anchor: usize, node: &Node<'a>) -> Result<(), DocError> {
        let weight = weight(node);
        self.expand(node.at, weight)?;
        self.anchors.insert(anchor, (node.clone(), weight));
        Ok(())
    }

    fn expand(&mut self, at: u32, weight: usize) -> Result<(), DocError> {
        self.expanded = self.expanded.saturating_add(weight);
        if self.expanded > MAX_EXPANSION {
            let message = "anchors and aliases expand to more than 16 MiB".to_owned();
            return Err(self.error(at, message));
        }
        Ok(())
    }
}

/// Memory of a copy, about. Recursive, as deep as [`MAX_DEPTH`] allows.
fn weight(node: &Node<'_>) -> usize {
    let own = 64;
    match &node.value {
        Value::Null | Value::Bool(..) => own,
        Value::Number(text) | Value::Str(text) => own + text.len(),
        Value::Seq(items) => own + items.iter().map(weight).sum::<usize>(),
        Value::Map(entries) => {
            let entry = |entry: &Entry<'_>| own + entry.key.len() + weight(&entry.node);
            own + entries.iter().map(entry).sum::<usize>()
        }
    }
}

fn depth(node: &Node<'_>) -> usize {
    match &node.value {
        Value::Null | Value::Bool(..) | Value::Number(_) | Value::Str(_) => 0,
        Value::Seq(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Map(entries) => {
            1 + entries.iter().map(|entry| depth(&entry.node)).max().unwrap_or(0)
        }
    }
}

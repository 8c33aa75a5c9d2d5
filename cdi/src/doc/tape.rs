//! A tape is a document in one flat list, eight bytes a value: what a spec is decoded from.
//!
//! A tree of a spec of 100 KB takes 300 KB, and most of the time to read it goes into page faults.
//! The values lie in the order of the file; a collection knows where the list goes on behind it. A
//! mapping is its keys and values in turn, keys that are there twice included.

use std::borrow::Cow;

use super::{Entry, Node, Value, duplicate, scalar};

/// A document.
#[derive(Debug)]
pub(crate) struct Tape<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    /// The texts that do not stand in the file as they are meant.
    owned: Vec<Cow<'a, str>>,
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    True,
    False,
    Number,
    /// A text without quotes.
    Plain,
    /// A text in quotes.
    Quoted,
    Seq,
    Map,
}

#[derive(Debug, Clone, Copy)]
struct Token {
    /// Where it stands in the file; of a quoted text that is its quote.
    at: u32,
    /// [`Kind`], then a bit for a text that is owned, then 28 bits: the length of a text in the
    /// file, the index of one that is owned, the token behind a collection.
    word: u32,
}

/// One value of a tape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item<'t> {
    tape: &'t Tape<'t>,
    index: usize,
}

/// The values of a list, or the keys and values of a mapping.
#[derive(Debug, Clone)]
pub(crate) struct Items<'t> {
    next: Item<'t>,
    end: usize,
}

const KIND: u32 = 29;
const OWNED: u32 = 1 << 28;
const LOW: u32 = OWNED - 1;

// === impl Tape ===

impl<'a> Tape<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        // Generators write a value in ten bytes or more; what is not used is never touched.
        Self { text, tokens: Vec::with_capacity(text.len() / 8 + 8), owned: Vec::new() }
    }

    /// The document's value.
    pub(crate) fn top(&self) -> Item<'_> {
        Item { tape: self, index: 0 }
    }

    // --- writing; `None` on more than 2^28 values, which 4 MiB cannot hold ---

    pub(super) fn push(&mut self, kind: Kind, at: usize, low: usize) -> Option<()> {
        let low = u32::try_from(low).ok().filter(|low| *low <= LOW)?;
        let word = (kind as u32) << KIND | low;
        self.tokens.push(Token { at: u32::try_from(at).ok()?, word });
        Some(())
    }

    /// A text that is meant otherwise than it stands in the file.
    pub(super) fn push_owned(&mut self, kind: Kind, at: u32, text: Cow<'a, str>) -> Option<()> {
        let low = u32::try_from(self.owned.len()).ok().filter(|low| *low <= LOW)?;
        self.owned.push(text);
        self.tokens.push(Token { at, word: (kind as u32) << KIND | OWNED | low });
        Some(())
    }

    /// Begins a collection, and says which token it is.
    pub(super) fn open(&mut self, kind: Kind, at: usize) -> Option<usize> {
        self.push(kind, at, 0)?;
        Some(self.tokens.len() - 1)
    }

    /// Ends the collection that token `start` begins.
    pub(super) fn close(&mut self, start: usize) -> Option<()> {
        let end = u32::try_from(self.tokens.len()).ok().filter(|end| *end <= LOW)?;
        self.tokens.get_mut(start)?.word |= end;
        Some(())
    }

    /// Places the collection that token `start` begins where its first element is.
    pub(super) fn move_to_first(&mut self, start: usize) -> Option<()> {
        let at = self.tokens.get(start + 1)?.at;
        self.tokens.get_mut(start)?.at = at;
        Some(())
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    // --- from and to a tree ---

    /// The tape of a tree that was read from `bytes`.
    pub(super) fn of(node: Node<'a>, bytes: &[u8]) -> Option<Self> {
        let mut tape = Tape { text: "", tokens: Vec::new(), owned: Vec::new() };
        tape.push_node(node, bytes)?;
        Some(tape)
    }

    fn push_node(&mut self, node: Node<'a>, bytes: &[u8]) -> Option<()> {
        let Node { at, value } = node;
        match value {
            Value::Null => self.push(Kind::Null, at as usize, 0),
            Value::Bool(true, text) => self.push_owned(Kind::True, at, text.into()),
            Value::Bool(false, text) => self.push_owned(Kind::False, at, text.into()),
            Value::Number(text) => self.push_owned(Kind::Number, at, text),
            Value::Str(text) => {
                let first = bytes.get(at as usize);
                let is_marked = matches!(first, Some(b'"' | b'\'' | b'|' | b'>' | b'!'));
                self.push_owned(if is_marked { Kind::Quoted } else { Kind::Plain }, at, text)
            }
            Value::Seq(items) => {
                let start = self.open(Kind::Seq, at as usize)?;
                items.into_iter().try_for_each(|item| self.push_node(item, bytes))?;
                self.close(start)
            }
            Value::Map(entries) => {
                let start = self.open(Kind::Map, at as usize)?;
                for Entry { at, key, node } in entries {
                    self.push_owned(Kind::Quoted, at, key)?;
                    self.push_node(node, bytes)?;
                }
                self.close(start)
            }
        }
    }

    /// The tree; none when a key is there twice.
    pub(super) fn to_node(&self) -> Option<Node<'a>> {
        self.node(self.top())
    }

    fn node(&self, item: Item<'_>) -> Option<Node<'a>> {
        let value = match item.kind() {
            Kind::Null => Value::Null,
            Kind::True | Kind::False | Kind::Number => scalar::resolve(self.text(item.index)),
            Kind::Plain | Kind::Quoted => Value::Str(self.text(item.index)),
            Kind::Seq => {
                Value::Seq(item.items().map(|item| self.node(item)).collect::<Option<_>>()?)
            }
            Kind::Map => {
                let entry = |(key, value): (Item<'_>, Item<'_>)| {
                    let (at, key) = (key.at(), self.text(key.index));
                    Some(Entry { at, key, node: self.node(value)? })
                };
                let entries: Vec<_> = item.entries().map(entry).collect::<Option<_>>()?;
                if duplicate(&entries).is_some() {
                    return None;
                }
                Value::Map(entries)
            }
        };
        Some(Node { at: item.at(), value })
    }

    fn text(&self, index: usize) -> Cow<'a, str> {
        let Some(token) = self.tokens.get(index) else { return Cow::default() };
        let low = (token.word & LOW) as usize;
        if token.word & OWNED != 0 {
            return self.owned.get(low).cloned().unwrap_or_default();
        }
        Cow::Borrowed(token.slice(self.text))
    }
}

// === impl Token ===

impl Token {
    fn kind(self) -> Kind {
        match self.word >> KIND {
            0 => Kind::Null,
            1 => Kind::True,
            2 => Kind::False,
            3 => Kind::Number,
            4 => Kind::Plain,
            5 => Kind::Quoted,
            6 => Kind::Seq,
            _ => Kind::Map,
        }
    }

    /// The text of a token that is not owned.
    #[inline(always)]
    fn slice(self, text: &str) -> &str {
        let at = self.at as usize + usize::from(self.kind() == Kind::Quoted);
        text.get(at..at + (self.word & LOW) as usize).unwrap_or_default()
    }
}

// === impl Item ===

impl<'t> Item<'t> {
    fn token(self) -> Token {
        // There is no index without its token.
        self.tape.tokens.get(self.index).copied().unwrap_or(Token { at: 0, word: 0 })
    }

    /// Byte offset in the file.
    pub(crate) fn at(self) -> u32 {
        self.token().at
    }

    /// What it is.
    pub(crate) fn kind(self) -> Kind {
        self.token().kind()
    }

    /// The text of anything but a null or a collection, as it is meant.
    pub(crate) fn text(self) -> &'t str {
        let token = self.token();
        match token.kind() {
            Kind::Null | Kind::Seq | Kind::Map => "",
            _ if token.word & OWNED != 0 => {
                self.tape.owned.get((token.word & LOW) as usize).map_or("", |text| text)
            }
            _ => token.slice(self.tape.text),
        }
    }

    /// The values of a list; of anything else none.
    pub(crate) fn items(self) -> Items<'t> {
        self.inside(Kind::Seq)
    }

    /// The keys and values of a mapping; of anything else none.
    pub(crate) fn entries(self) -> impl Iterator<Item = (Item<'t>, Item<'t>)> {
        let mut items = self.inside(Kind::Map);
        std::iter::from_fn(move || Some((items.next()?, items.next()?)))
    }

    fn inside(self, kind: Kind) -> Items<'t> {
        let token = self.token();
        let end = if token.kind() == kind { (token.word & LOW) as usize } else { 0 };
        Items { next: Item { index: self.index + 1, ..self }, end }
    }

    /// The value under `key`, when this is a mapping that has it.
    pub(crate) fn get(self, key: &str) -> Option<Item<'t>> {
        self.entries().find(|(known, _)| known.text() == key).map(|(_, value)| value)
    }

    /// The whole number, when this is one: see [`Node::integer`].
    pub(crate) fn integer(self) -> Option<i128> {
        (self.kind() == Kind::Number).then(|| scalar::integer(self.text())).flatten()
    }

    /// What it is, with its article, for messages.
    pub(crate) fn what(self) -> &'static str {
        match self.kind() {
            Kind::Null => "null",
            Kind::True | Kind::False => "a truth value",
            Kind::Number => "a number",
            Kind::Plain | Kind::Quoted => "a text",
            Kind::Seq => "a list",
            Kind::Map => "an object",
        }
    }
}

// === impl Items ===

impl<'t> Iterator for Items<'t> {
    type Item = Item<'t>;

    fn next(&mut self) -> Option<Item<'t>> {
        let item = self.next;
        if item.index >= self.end {
            return None;
        }
        let token = item.token();
        self.next.index = match token.kind() {
            Kind::Seq | Kind::Map => (token.word & LOW) as usize,
            _ => item.index + 1,
        };
        Some(item)
    }
}

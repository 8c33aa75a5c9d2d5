//! A candidate is a spec file that may define a device that is looked for.
//!
//! Most files of a node define other devices, and finding that out must cost less than parsing
//! them. A file is passed over only when its text proves that a parse would not find the device;
//! at any doubt it is a candidate. `lookup_equals_a_full_scan` holds the two to each other.

use memchr::{memchr2, memmem};

use crate::name::QualifiedName;

/// The devices that are looked for.
#[derive(Debug)]
pub(crate) struct Wanted<'n> {
    kinds: Vec<Kind<'n>>,
    key: memmem::Finder<'static>,
}

#[derive(Debug)]
struct Kind<'n> {
    kind: &'n str,
    devices: Vec<&'n [u8]>,
}

/// What the text of a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It defines none of them.
    Foreign,
    /// The beginning is not enough to know.
    ReadOn,
    /// It may define one: parse it.
    Candidate,
}

// === impl Wanted ===

impl<'n> Wanted<'n> {
    pub(crate) fn new(names: impl IntoIterator<Item = &'n QualifiedName>) -> Self {
        let mut kinds: Vec<Kind<'n>> = Vec::new();
        for name in names {
            let index = kinds.iter().position(|known| known.kind == name.kind());
            let device = name.device().as_bytes();
            match index.and_then(|index| kinds.get_mut(index)) {
                Some(known) => known.devices.push(device),
                None => kinds.push(Kind { kind: name.kind(), devices: vec![device] }),
            }
        }
        for kind in &mut kinds {
            kind.devices.sort_unstable();
        }
        Self { kinds, key: memmem::Finder::new("name") }
    }

    /// Whether a device of this name is looked for, of whatever kind.
    pub(crate) fn has(&self, device: &str) -> bool {
        self.kinds.iter().any(|kind| kind.devices.binary_search(&device.as_bytes()).is_ok())
    }

    /// What `bytes` say, which are the `whole` file or its beginning.
    pub(crate) fn judge(&self, bytes: &[u8], whole: bool) -> Verdict {
        let declared = declared_kind(bytes);
        let is_of_file = |kind: &Kind<'_>| declared.is_none_or(|text| text == kind.kind.as_bytes());
        if !self.kinds.iter().any(is_of_file) {
            Verdict::Foreign
        } else if !whole {
            Verdict::ReadOn
        } else if self.may_define(bytes, is_of_file) {
            Verdict::Candidate
        } else {
            Verdict::Foreign
        }
    }

    /// True unless the value of every key `name` is known to be another one.
    fn may_define(&self, bytes: &[u8], is_of_file: impl Fn(&Kind<'_>) -> bool) -> bool {
        // Escapes and aliases can write a key or a name without its letters. Nothing else can: an
        // unquoted number or truth value counts by its spelling.
        if memchr2(b'\\', b'*', bytes).is_some() {
            return true;
        }
        let is_wanted = |name: &[u8]| {
            let mut kinds = self.kinds.iter().filter(|kind| is_of_file(kind));
            kinds.any(|kind| kind.devices.binary_search(&name).is_ok())
        };
        self.key.find_iter(bytes).any(|at| {
            match value_of_key(bytes.get(at + 4..).unwrap_or_default()) {
                Value::NoKey => false,
                Value::Text(name) => {
                    is_wanted(name) || name.strip_suffix(b":").is_some_and(is_wanted)
                }
                Value::Unclear => true,
            }
        })
    }
}

/// What stands behind a key.
enum Value<'b> {
    /// Nothing: it is no key.
    NoKey,
    Text(&'b [u8]),
    /// Something that only a parser understands.
    Unclear,
}

/// The value that `after`, the text behind the letters of a key, gives it.
fn value_of_key(after: &[u8]) -> Value<'_> {
    let after = after.strip_prefix(b"\"").or_else(|| after.strip_prefix(b"'")).unwrap_or(after);
    let after = after.trim_ascii_start();
    let Some((b':', after)) = after.split_first().map(|(first, rest)| (*first, rest)) else {
        // Between key and colon a comment may stand.
        return if after.starts_with(b"#") { Value::Unclear } else { Value::NoKey };
    };
    let after = after.trim_ascii_start();
    if let Some((quote @ (b'"' | b'\''), text)) = after.split_first() {
        let end = text.iter().position(|byte| byte == quote);
        return end.and_then(|end| text.get(..end)).map_or(Value::Unclear, Value::Text);
    }
    match run(after) {
        b"" => Value::Unclear,
        text => Value::Text(text),
    }
}

/// The letters at the start that names are made of.
fn run(bytes: &[u8]) -> &[u8] {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(byte);
    let end = bytes.iter().position(|byte| !is_of_name(byte)).unwrap_or(bytes.len());
    bytes.get(..end).unwrap_or_default()
}

/// The document's kind, when it stands where generators put it: first, or right behind the
/// version. Only whole and plain values count, so that what follows cannot change them.
fn declared_kind(bytes: &[u8]) -> Option<&[u8]> {
    let start = bytes.trim_ascii_start();
    match start.strip_prefix(b"{") {
        Some(rest) => kind_of_flow(rest),
        None => kind_of_block(bytes),
    }
}

/// The kind of `{"cdiVersion":"…","kind":"…"`, from behind the brace.
fn kind_of_flow(mut rest: &[u8]) -> Option<&[u8]> {
    for _ in 0..2 {
        let (key, after) = flow_string(rest)?;
        let (value, after) = flow_string(after.trim_ascii_start().strip_prefix(b":")?)?;
        let (end, after) = after.trim_ascii_start().split_first()?;
        match (key, end) {
            (b"kind", b',' | b'}') => return Some(value),
            (b"cdiVersion", b',') => rest = after,
            _ => return None,
        }
    }
    None
}

/// A string in double quotes, without escapes, and what follows it. A line break in it makes it no
/// kind and no version, whatever a parser puts in its place.
fn flow_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = bytes.trim_ascii_start().strip_prefix(b"\"")?;
    let end = memchr2(b'"', b'\\', text)?;
    let (value, after) = text.split_at_checked(end)?;
    Some((value, after.strip_prefix(b"\"")?))
}

/// The kind of a document of lines: `kind:` without indentation behind nothing but comments,
/// `---` and the version.
fn kind_of_block(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes;
    loop {
        // A line that does not end here may go on.
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let (line, after) = rest.split_at_checked(end)?;
        rest = after.get(1..)?;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(value) = line.strip_prefix(b"kind: ") {
            return block_value(value);
        } else if let Some(value) = line.strip_prefix(b"cdiVersion: ") {
            block_value(value)?;
        } else if !(line == b"---" || line.starts_with(b"#") || line.is_empty()) {
            return None;
        }
    }
}

/// A plain or quoted value of letters that names are made of, with nothing but a comment behind.
fn block_value(bytes: &[u8]) -> Option<&[u8]> {
    let bytes = bytes.trim_ascii_start();
    let quote = bytes.first().filter(|byte| matches!(byte, b'"' | b'\''));
    let text = if quote.is_some() { bytes.get(1..)? } else { bytes };
    let is_of_kind = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-/".contains(byte);
    let end = text.iter().position(|byte| !is_of_kind(byte)).unwrap_or(text.len());
    let (value, after) = text.split_at_checked(end)?;
    let after = match quote {
        Some(quote) => after.strip_prefix(std::slice::from_ref(quote))?,
        None => after,
    };
    let rest = after.trim_ascii_start();
    let ends = rest.is_empty() || (rest.starts_with(b"#") && rest.len() < after.len());
    (ends && !value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests;

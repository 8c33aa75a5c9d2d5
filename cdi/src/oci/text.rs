//! Text: JSON string literals, decoded and written.

use std::borrow::Cow;

use super::scan;

/// The string that the literal `raw` (with its quotes, already found to be valid) stands for. A
/// lone surrogate becomes U+FFFD, as in Go.
pub(crate) fn decode(raw: &str) -> Cow<'_, str> {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    match memchr::memchr(b'\\', inner.as_bytes()) {
        Some(_) => Cow::Owned(unescape(inner)),
        None => Cow::Borrowed(inner),
    }
}

fn unescape(inner: &str) -> String {
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((plain, tail)) = rest.split_once('\\') {
        out.push_str(plain);
        let mut chars = tail.chars();
        match chars.next() {
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('u') => {
                let (decoded, left) = unicode(chars.as_str());
                out.push(decoded);
                rest = left;
                continue;
            }
            Some(other) => out.push(other),
            None => {}
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out
}

/// The character of `XXXX…` behind a `\u`, and what follows it.
fn unicode(text: &str) -> (char, &str) {
    let (high, rest) = hex(text);
    if !(0xD800..0xDC00).contains(&high) {
        return (char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER), rest);
    }
    if let Some(tail) = rest.strip_prefix("\\u") {
        let (low, after) = hex(tail);
        if (0xDC00..0xE000).contains(&low) {
            let code = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
            return (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), after);
        }
    }
    (char::REPLACEMENT_CHARACTER, rest)
}

fn hex(text: &str) -> (u32, &str) {
    let (digits, rest) = text.split_at_checked(4).unwrap_or((text, ""));
    (u32::from_str_radix(digits, 16).unwrap_or(0xFFFD), rest)
}

/// Appends `text` as a JSON string literal.
pub(crate) fn push_string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    loop {
        let (plain, tail) = rest.split_at(scan::plain(rest.as_bytes()));
        out.push_str(plain);
        let mut chars = tail.chars();
        match chars.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some(control) => {
                let digit = |nibble: u32| char::from_digit(nibble & 0xF, 16).unwrap_or('0');
                let code = u32::from(control);
                out.push_str("\\u00");
                out.push(digit(code >> 4));
                out.push(digit(code));
            }
            None => break,
        }
        rest = chars.as_str();
    }
    out.push('"');
}

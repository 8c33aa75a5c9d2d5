//! A tree as text: JSON and YAML in the styles that writers have, and in odd ones.

use std::fmt::Write;

use fastrand::Rng;
use serde_json::Value;

use super::{once_in, pick};

/// How a YAML text is laid out.
struct Style {
    /// Spaces a level.
    indent: usize,
    /// Whether a list in a mapping is indented below its key.
    lists_deeper: bool,
    /// One choice in so many is an odd one; 0 for none.
    odd: usize,
}

/// The tree in one of many styles.
pub(crate) fn text(rng: &mut Rng, tree: &Value) -> Vec<u8> {
    let mut text = match rng.u8(..10) {
        0 => tree.to_string(),
        1 => serde_json::to_string_pretty(tree).expect("serialises"),
        2 => serde_json::to_string_pretty(tree).expect("serialises").replace("  ", "\t"),
        3 => ascii(&tree.to_string()),
        4 | 5 => yaml(rng, tree, &Style { indent: 2, lists_deeper: false, odd: 0 }),
        6 => yaml(rng, tree, &Style { indent: 4, lists_deeper: true, odd: 0 }),
        _ => {
            let style = Style {
                indent: 1 + rng.usize(..4),
                lists_deeper: rng.bool(),
                odd: 2 + rng.usize(..8),
            };
            yaml(rng, tree, &style)
        }
    };
    match rng.u8(..40) {
        0 => text.insert_str(0, "---\n"),
        1 => text.insert(0, '\u{feff}'),
        2 => text = text.replace('\n', "\r\n"),
        3 => text.push_str("\n---\n"),
        4 => text.push_str("\n...\n"),
        5 => text.insert_str(0, "# comment\n\n"),
        6 => text.push_str("\n# comment"),
        7 => text.truncate(text.trim_end().len()),
        8 => text.insert_str(0, "\n \n"),
        _ => (),
    }
    let mut bytes = text.into_bytes();
    if once_in(rng, 10) {
        damage(rng, &mut bytes);
    }
    bytes
}

/// Only ASCII, the rest as `\u` escapes, as Python's writer does; `/` escaped as PHP's does.
fn ascii(json: &str) -> String {
    let mut out = String::new();
    for c in json.chars() {
        let mut units = [0; 2];
        match c {
            '/' => out.push_str("\\/"),
            ' '..='~' => out.push(c),
            _ => c
                .encode_utf16(&mut units)
                .iter()
                .for_each(|unit| write!(out, "\\u{unit:04x}").expect("fits")),
        }
    }
    out
}

/// One small change somewhere.
fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let at = rng.usize(..bytes.len());
    let mut lines: Vec<Vec<u8>> = bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let line = rng.usize(..lines.len());
    match rng.u8(..7) {
        0 => drop(bytes.remove(at)),
        1 => bytes.insert(
            at,
            pick(
                rng,
                &[
                    b'\t', b' ', b':', b'#', b'-', b'"', b'\'', b'\n', b',', b'[', b'{', b'}',
                    0x80, 0,
                ],
            ),
        ),
        2 => bytes.truncate(at),
        3 => {
            let copy = lines[line].clone();
            lines.insert(line, copy);
            *bytes = lines.join(&b'\n');
        }
        4 => {
            lines.remove(line);
            *bytes = lines.join(&b'\n');
        }
        5 => {
            lines[line].insert(0, b' ');
            *bytes = lines.join(&b'\n');
        }
        _ => {
            let other = rng.usize(..lines.len());
            lines.swap(line, other);
            *bytes = lines.join(&b'\n');
        }
    }
}

fn yaml(rng: &mut Rng, tree: &Value, style: &Style) -> String {
    let mut out = String::new();
    block(rng, &mut out, tree, style, 0, true);
    out
}

/// A value from where the cursor stands; `fresh` when that is the start of an indented line.
fn block(rng: &mut Rng, out: &mut String, tree: &Value, style: &Style, depth: usize, fresh: bool) {
    let flows = style.odd > 0 && once_in(rng, style.odd * 3) && !fresh;
    match tree {
        Value::Object(fields) if !fields.is_empty() && !flows => {
            let mut names: Vec<&String> = fields.keys().collect();
            if style.odd > 0 {
                rng.shuffle(&mut names);
            }
            for (i, name) in names.into_iter().enumerate() {
                if i > 0 || !fresh {
                    line(rng, out, style, depth);
                }
                scalar(rng, out, name, style, depth, true);
                out.push(':');
                child(rng, out, &fields[name], style, depth);
            }
        }
        Value::Array(items) if !items.is_empty() && !flows => {
            for (i, item) in items.iter().enumerate() {
                if i > 0 || !fresh {
                    line(rng, out, style, depth);
                }
                out.push('-');
                let nested = matches!(item, Value::Object(fields) if !fields.is_empty());
                if nested && !(style.odd > 0 && once_in(rng, style.odd * 2)) {
                    out.push_str(&" ".repeat(style.indent.max(2) - 1));
                    block(rng, out, item, style, depth + style.indent.max(2), true);
                } else if nested {
                    block(rng, out, item, style, depth + style.indent, false);
                } else {
                    out.push(' ');
                    flow(rng, out, item, style, depth);
                }
            }
        }
        other => {
            if !fresh {
                out.push(' ');
            }
            flow(rng, out, other, style, depth);
        }
    }
}

/// What follows a key's colon.
fn child(rng: &mut Rng, out: &mut String, value: &Value, style: &Style, depth: usize) {
    let deeper = match value {
        Value::Array(_) if !style.lists_deeper => depth,
        _ => depth + style.indent,
    };
    block(rng, out, value, style, deeper, false);
}

/// A new line, at times after a comment or a blank.
fn line(rng: &mut Rng, out: &mut String, style: &Style, depth: usize) {
    if style.odd > 0 && once_in(rng, style.odd * 4) {
        out.push_str(pick(rng, &[" ", "\t", " # comment", "\n", "\n   # comment", "  #"]));
    }
    out.push('\n');
    out.push_str(&" ".repeat(depth));
}

/// A value on one line.
fn flow(rng: &mut Rng, out: &mut String, tree: &Value, style: &Style, depth: usize) {
    match tree {
        Value::Null => out.push_str(pick(rng, &["null", "~", "", "Null"])),
        Value::String(text) => scalar(rng, out, text, style, depth, false),
        Value::Number(number) if style.odd > 0 && once_in(rng, style.odd) => {
            match number.as_u64() {
                Some(n) => match rng.u8(..5) {
                    0 => write!(out, "0{n:o}").expect("fits"),
                    1 => write!(out, "0x{n:x}").expect("fits"),
                    2 => write!(out, "0o{n:o}").expect("fits"),
                    3 => write!(out, "{n}.0").expect("fits"),
                    _ => write!(out, "+{n}").expect("fits"),
                },
                None => out.push_str(&number.to_string()),
            }
        }
        Value::Bool(yes) if style.odd > 0 => {
            out.push_str(pick(
                rng,
                if *yes { &["true", "yes", "On"] } else { &["false", "no", "OFF"] },
            ));
        }
        Value::Bool(_) | Value::Number(_) => out.push_str(&tree.to_string()),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { pick(rng, &[", ", ",", " , ", ",\n      "]) } else { "" });
                // A `null` written as nothing is no list element.
                if item.is_null() { out.push('~') } else { flow(rng, out, item, style, depth) }
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (i, (name, value)) in fields.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                out.push_str(&serde_json::to_string(name).expect("serialises"));
                out.push_str(": ");
                flow(rng, out, value, style, depth);
            }
            out.push('}');
        }
    }
}

/// A text: plain, quoted or as a block, whether or not that keeps it.
fn scalar(rng: &mut Rng, out: &mut String, text: &str, style: &Style, depth: usize, key: bool) {
    let simple = !text.is_empty()
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"/._-=".contains(&c));
    let simple =
        simple && text.bytes().next().is_some_and(|c| c.is_ascii_alphabetic() || c == b'/');
    let choice = if style.odd > 0 && once_in(rng, style.odd) { rng.u8(..7) } else { 9 };
    let printable = !text.chars().any(char::is_control);
    match choice {
        0 => out.push_str(text),
        1 if printable => write!(out, "'{}'", text.replace('\'', "''")).expect("fits"),
        2 => out.push_str(&serde_json::to_string(text).expect("serialises")),
        3 if !key && depth > 0 => {
            let pad = " ".repeat(depth + style.indent);
            write!(out, "{}", pick(rng, &["|-", "|", ">", ">-", "|+"])).expect("fits");
            for line in text.split('\n') {
                write!(out, "\n{pad}{line}").expect("fits");
            }
        }
        4 if !key => write!(out, "{} {text}", pick(rng, &["!!str", "!foo", "&a", "!!int", "!"]))
            .expect("fits"),
        5 if !key => write!(out, "{text}\t# c").expect("fits"),
        _ if simple => out.push_str(text),
        _ => out.push_str(&serde_json::to_string(text).expect("serialises")),
    }
}

//! A document is a manifest's object as it is printed: YAML, or JSON.

use std::fmt::Write;

use divvy_cdi::doc::{Node, Value};
use serde_json::{Map, Value as Json};

/// Objects as one stream of YAML, in the order of their fields.
pub(super) fn yaml(objects: &[Node<'_>]) -> String {
    let mut text = String::new();
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            text.push_str("---\n");
        }
        block(&mut text, object, 0, true);
    }
    text
}

/// The object, or a `List` of several, as kubectl prints them.
pub(super) fn json(objects: &[Node<'_>]) -> Json {
    match objects {
        [object] => value(object),
        objects => serde_json::json!({
            "apiVersion": "v1",
            "kind": "List",
            "items": objects.iter().map(value).collect::<Vec<_>>(),
        }),
    }
}

/// Writes a value; `fresh` where the line has nothing but its indent on it yet.
fn block(text: &mut String, node: &Node<'_>, indent: usize, fresh: bool) {
    let pad = " ".repeat(indent);
    match &node.value {
        Value::Map(entries) if !entries.is_empty() => {
            for (index, entry) in entries.iter().enumerate() {
                let start = if index == 0 && fresh { "" } else { &pad };
                let _infallible = write!(text, "{start}{}:", line(&entry.key));
                inside(text, &entry.node, indent);
            }
        }
        Value::Seq(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index == 0 && fresh { "" } else { &pad });
                text.push('-');
                if is_block(item) {
                    text.push(' ');
                    block(text, item, indent + 2, true);
                } else {
                    inside(text, item, indent);
                }
            }
        }
        _ => {
            let _infallible = writeln!(text, "{}", flow(node, indent));
        }
    }
}

/// Writes what stands behind a key or a dash.
fn inside(text: &mut String, node: &Node<'_>, indent: usize) {
    match &node.value {
        Value::Map(entries) if !entries.is_empty() => {
            text.push('\n');
            block(text, node, indent + 2, false);
        }
        // As kubectl does: a list is no deeper than its key.
        Value::Seq(items) if !items.is_empty() => {
            text.push('\n');
            block(text, node, indent, false);
        }
        _ => {
            let _infallible = writeln!(text, " {}", flow(node, indent));
        }
    }
}

fn is_block(node: &Node<'_>) -> bool {
    match &node.value {
        Value::Map(entries) => !entries.is_empty(),
        Value::Seq(items) => !items.is_empty(),
        _ => false,
    }
}

fn flow(node: &Node<'_>, indent: usize) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::Bool(_, spelled) => (*spelled).to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Str(text) => scalar(text, indent),
        Value::Seq(_) => "[]".to_owned(),
        Value::Map(_) => "{}".to_owned(),
    }
}

/// A text, plain where nothing in it means anything to YAML, as a block where it has lines.
fn scalar(text: &str, indent: usize) -> String {
    let lined = |line: &str| {
        !line.is_empty() && !line.starts_with(' ') && line.chars().all(|c| !c.is_control())
    };
    if text.contains('\n')
        && text.trim_end_matches('\n').lines().all(lined)
        && !text.ends_with("\n\n")
    {
        let keep = if text.ends_with('\n') { "" } else { "-" };
        let pad = " ".repeat(indent + 2);
        let lines: Vec<String> = text.lines().map(|line| format!("{pad}{line}")).collect();
        return format!("|{keep}\n{}", lines.join("\n"));
    }
    line(text)
}

fn line(text: &str) -> String {
    match is_plain(text) {
        true => text.to_owned(),
        // A text of JSON is one of YAML.
        false => Json::from(text).to_string(),
    }
}

fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    let inner = |c: char| c.is_ascii_alphanumeric() || " _./()=<>!&\"'[]?,|+-".contains(c);
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == '/';
    text.starts_with(first)
        && text.chars().all(inner)
        && !text.ends_with(' ')
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

fn value(node: &Node<'_>) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(flag, _) => Json::Bool(*flag),
        Value::Number(text) => {
            let number = node.integer().and_then(|number| i64::try_from(number).ok());
            let number = number.map(Json::from);
            let float = || text.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
            number
                .or_else(|| float().map(Json::Number))
                .unwrap_or_else(|| Json::from(text.as_ref()))
        }
        Value::Str(text) => Json::from(text.as_ref()),
        Value::Seq(items) => items.iter().map(value).collect(),
        Value::Map(entries) => {
            let pair =
                |entry: &divvy_cdi::doc::Entry<'_>| (entry.key.to_string(), value(&entry.node));
            Json::Object(entries.iter().map(pair).collect::<Map<_, _>>())
        }
    }
}

#[cfg(test)]
mod tests;

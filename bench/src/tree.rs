//! A tree is a document before it is text: the bench writes one spec as JSON or as YAML, in the order and
//! layout in which Go's generators write theirs.

use std::fmt::Write;

/// A node of a document.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    Number(u64),
    Text(String),
    List(Vec<Tree>),
    /// Keys in the order in which they are written.
    Map(Vec<(&'static str, Tree)>),
}

pub(crate) fn text(text: impl Into<String>) -> Tree {
    Tree::Text(text.into())
}

pub(crate) fn list<T: Into<String>>(items: impl IntoIterator<Item = T>) -> Tree {
    Tree::List(items.into_iter().map(text).collect())
}

// === impl Tree ===

impl Tree {
    /// Compact, as Go's `json.Marshal`.
    pub(crate) fn to_json(&self) -> String {
        let mut out = String::new();
        self.json(&mut out);
        out
    }

    fn json(&self, out: &mut String) {
        match self {
            Self::Number(number) => push(out, format_args!("{number}")),
            Self::Text(text) => {
                push(out, format_args!("{}", serde_json::Value::from(text.as_str())));
            }
            Self::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.json(out);
                }
                out.push(']');
            }
            Self::Map(entries) => {
                out.push('{');
                for (i, (key, value)) in entries.iter().enumerate() {
                    push(out, format_args!("{}\"{key}\":", if i > 0 { "," } else { "" }));
                    value.json(out);
                }
                out.push('}');
            }
        }
    }

    /// Block style, indented by four columns, as go-yaml version 3.
    pub(crate) fn to_yaml(&self) -> String {
        let mut out = String::from("---\n");
        self.yaml(&mut out, 0, false);
        out
    }

    /// Writes a node at the indentation `depth`; `begun` says that its first line is begun.
    fn yaml(&self, out: &mut String, depth: usize, begun: bool) {
        match self {
            Self::Number(number) => push(out, format_args!("{number}\n")),
            Self::Text(text) if plain(text) => push(out, format_args!("{text}\n")),
            Self::Text(text) => push(out, format_args!("\"{text}\"\n")),
            Self::List(items) => {
                for item in items {
                    push(out, format_args!("{:depth$}- ", ""));
                    item.yaml(out, depth + 2, true);
                }
            }
            Self::Map(entries) => {
                for (i, (key, value)) in entries.iter().enumerate() {
                    let indent = if begun && i == 0 { 0 } else { depth };
                    let nested = matches!(value, Self::List(_) | Self::Map(_));
                    let end = if nested { '\n' } else { ' ' };
                    push(out, format_args!("{:indent$}{key}:{end}", ""));
                    value.yaml(out, depth + 4 - depth % 4, !nested);
                }
            }
        }
    }
}

/// Whether go-yaml writes a text without quotes. Texts here hold no quote and no control character.
fn plain(text: &str) -> bool {
    !text.is_empty() && !text.bytes().all(|b| b.is_ascii_digit() || b == b':' || b == b'.')
        || text.matches('.').count() == 2
}

fn push(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    out.write_fmt(arguments).unwrap_or_default();
}

#[cfg(test)]
mod tests;

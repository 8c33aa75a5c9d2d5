//! A tree is a manifest's object as it is written, to be changed and written again.

use std::borrow::Cow;

use divvy_cdi::doc::{Entry, Node, Value};

/// The value under a key of a mapping.
pub(crate) fn get<'n, 'a>(node: &'n Node<'a>, key: &str) -> Option<&'n Node<'a>> {
    let Value::Map(entries) = &node.value else { return None };
    entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
}

/// [`get`], to be changed.
pub(crate) fn get_mut<'n, 'a>(node: &'n mut Node<'a>, key: &str) -> Option<&'n mut Node<'a>> {
    let Value::Map(entries) = &mut node.value else { return None };
    entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node)
}

/// The text under a key of a mapping.
pub(crate) fn text_at<'n>(node: &'n Node<'_>, key: &str) -> Option<&'n str> {
    match &get(node, key)?.value {
        Value::Str(text) | Value::Number(text) => Some(text),
        _ => None,
    }
}

/// The items of the list under a key of a mapping; none where it is no list.
pub(crate) fn items_mut<'n, 'a>(node: &'n mut Node<'a>, key: &str) -> &'n mut [Node<'a>] {
    match get_mut(node, key).map(|node| &mut node.value) {
        Some(Value::Seq(items)) => items,
        _ => &mut [],
    }
}

/// Takes the pair of a key out of a mapping.
pub(crate) fn take<'a>(node: &mut Node<'a>, key: &str) -> Option<Node<'a>> {
    let Value::Map(entries) = &mut node.value else { return None };
    let at = entries.iter().position(|entry| entry.key == key)?;
    Some(entries.remove(at).node)
}

/// Puts a value under a key, in place of what is there or behind all.
pub(crate) fn put<'a>(node: &mut Node<'a>, key: &'static str, value: Node<'a>) {
    if let Some(there) = get_mut(node, key) {
        *there = value;
    } else if let Value::Map(entries) = &mut node.value {
        entries.push(Entry { at: value.at, key: Cow::Borrowed(key), node: value });
    }
}

/// A text that stands where something else stood.
pub(crate) fn text<'a>(at: u32, text: impl Into<Cow<'a, str>>) -> Node<'a> {
    Node { at, value: Value::Str(text.into()) }
}

/// A mapping of these pairs.
pub(crate) fn map<'a>(
    at: u32,
    pairs: impl IntoIterator<Item = (impl Into<Cow<'a, str>>, Node<'a>)>,
) -> Node<'a> {
    let entry = |(key, node): (_, Node<'a>)| Entry { at: node.at, key: Into::into(key), node };
    Node { at, value: Value::Map(pairs.into_iter().map(entry).collect()) }
}

/// A list of these items.
pub(crate) fn list<'a>(at: u32, items: impl IntoIterator<Item = Node<'a>>) -> Node<'a> {
    Node { at, value: Value::Seq(items.into_iter().collect()) }
}

//! The values that a spec is made of, each read into the type that its field wants, with whatever
//! is wrong about its shape.

use std::borrow::Cow;

use super::{Decoder, EDITS, Found, RDT};
use crate::{
    doc::{Entry, Node, Value},
    near,
    problem::{Severity, quoted},
    spec::path::Step,
};

const OLD_TRUE: [&str; 8] = ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON"];
const OLD_FALSE: [&str; 8] = ["n", "N", "no", "No", "NO", "off", "Off", "OFF"];

// === impl Decoder ===

impl Decoder<'_> {
    /// Gives each field that is there, and one of `fields`, to `each`. Null is an object without.
    pub(super) fn object(
        &mut self,
        node: &Node<'_>,
        fields: &[&'static str],
        mut each: impl FnMut(&mut Self, &'static str, &Node<'_>),
    ) {
        let entries = match &node.value {
            Value::Map(entries) => entries,
            Value::Null => return,
            _ => return self.mismatch(node, "an object"),
        };
        for entry in entries {
            match fields.iter().find(|field| **field == entry.key) {
                Some(field) => self.field(field, |decoder| each(decoder, field, &entry.node)),
                None if entry.key == "additionalGIDs" && fields == EDITS => {
                    self.old_spelling(node, entry, &mut each);
                }
                None => self.unknown(entry, fields),
            }
        }
    }

    /// CDI's text has both spellings, and older Go libraries take any.
    pub(super) fn old_spelling(
        &mut self,
        node: &Node<'_>,
        entry: &Entry<'_>,
        each: &mut impl FnMut(&mut Self, &'static str, &Node<'_>),
    ) {
        self.field("additionalGids", |decoder| {
            if node.get("additionalGids").is_some() {
                return decoder
                    .error(entry.at, "is there twice, also as additionalGIDs".to_owned());
            }
            let message = "spelled additionalGIDs, which not every reader takes".to_owned();
            decoder.report(entry.at, Severity::Warning, false, message);
            each(decoder, "additionalGids", &entry.node);
        });
    }

    pub(super) fn unknown(&mut self, entry: &Entry<'_>, fields: &[&'static str]) {
        if self.newer {
            return;
        }
        let shown = quoted(&entry.key);
        let message = if matches!(&*entry.key, "enableCMT" | "enableMBM") && fields == RDT {
            format!(
                "unknown field {shown}: CDI 0.7.0 to 1.0.0 had it, 1.1.0 has enableMonitoring \
                 instead"
            )
        } else if let Some(known) = fields.iter().find(|f| f.eq_ignore_ascii_case(&entry.key)) {
            format!("unknown field {shown}: it is spelled \"{known}\"")
        } else if let Some(known) = near::nearest(&entry.key, fields.iter().copied()) {
            format!("unknown field {shown}: did you mean \"{known}\"?")
        } else {
            format!("unknown field {shown}, known are {}", fields.join(", "))
        };
        self.report(entry.at, Severity::Error, false, message);
    }

    /// Null is a list without elements; a null element is an error.
    pub(super) fn list<T>(
        &mut self,
        node: &Node<'_>,
        mut item: impl FnMut(&mut Self, &Node<'_>) -> T,
    ) -> Vec<T> {
        let items = match &node.value {
            Value::Seq(items) => items,
            Value::Null => return Vec::new(),
            _ => {
                self.mismatch(node, "a list");
                return Vec::new();
            }
        };
        let mut list = Vec::with_capacity(items.len());
        for (index, node) in items.iter().enumerate() {
            self.path.push(Step::Index(index));
            if node.value == Value::Null {
                self.error(node.at, "null is no element of a list".to_owned());
            }
            // Also of a null, so that the ones after it keep their index.
            list.push(item(self, node));
            self.path.pop();
        }
        list
    }

    pub(super) fn optional(&mut self, node: &Node<'_>) -> Option<String> {
        Some(self.text(node)).filter(|text| !text.is_empty())
    }

    /// A text; a number or truth value counts by its spelling, null as empty.
    pub(super) fn text(&mut self, node: &Node<'_>) -> String {
        let (text, kind): (&str, _) = match &node.value {
            Value::Str(text) if self.is_old_truth(node.at, text) => (text, "truth value"),
            Value::Str(Cow::Borrowed(text)) => return (*text).to_owned(),
            Value::Str(text) => return text.to_string(),
            Value::Null => return String::new(),
            Value::Number(text) => (text, "number"),
            Value::Bool(_, text) => (text, "truth value"),
            Value::Seq(_) | Value::Map(_) => {
                self.mismatch(node, "a text");
                return String::new();
            }
        };
        let message = format!("{text} without quotes is a {kind} to other readers of CDI");
        self.report(node.at, Severity::Warning, false, message);
        text.to_owned()
    }

    /// An unquoted `yes`, which is a text since YAML 1.2.
    pub(super) fn is_old_truth(&self, at: u32, text: &str) -> bool {
        text.len() <= 3
            && (OLD_TRUE.contains(&text) || OLD_FALSE.contains(&text))
            && !matches!(self.bytes.get(at as usize), Some(b'"' | b'\'' | b'|' | b'>'))
    }

    pub(super) fn number<T: TryFrom<i128>>(&mut self, node: &Node<'_>) -> Option<T> {
        let Value::Number(text) = &node.value else {
            if node.value != Value::Null {
                self.mismatch(node, "a number");
            }
            return None;
        };
        let number = node.integer().and_then(|number| T::try_from(number).ok());
        if number.is_none() {
            let bits = size_of::<T>() * 8;
            let sign = if T::try_from(-1).is_ok() { "" } else { " not below 0" };
            self.error(node.at, format!("{text} is no whole number of {bits} bits{sign}"));
        }
        number
    }

    pub(super) fn truth(&mut self, node: &Node<'_>) -> bool {
        match &node.value {
            Value::Bool(value, _) => return *value,
            Value::Str(text) if OLD_TRUE.contains(&&**text) => return true,
            Value::Str(text) if OLD_FALSE.contains(&&**text) => {}
            Value::Null => {}
            _ => self.mismatch(node, "true or false"),
        }
        false
    }

    pub(super) fn field(&mut self, name: &'static str, look: impl FnOnce(&mut Self)) {
        self.path.push(Step::Field(name));
        look(self);
        self.path.pop();
    }

    pub(super) fn mismatch(&mut self, node: &Node<'_>, wanted: &str) {
        self.error(node.at, format!("must be {wanted}, not {}", node.what()));
    }

    pub(super) fn error(&mut self, at: u32, message: String) {
        self.report(at, Severity::Error, true, message);
    }

    pub(super) fn report(&mut self, at: u32, severity: Severity, covers: bool, message: String) {
        if self.kept.full(severity) {
            return;
        }
        let path = self.path.clone();
        self.found.push(Found { at, path, severity, covers, message });
    }
}

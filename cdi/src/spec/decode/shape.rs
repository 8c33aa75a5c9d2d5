//! The values that a spec is made of, each read into the type that its field wants, with whatever
//! is wrong about its shape.

use super::{Decoder, EDITS, Found, RDT};
use crate::{
    doc::tape::{Item, Kind},
    near,
    problem::{Severity, quoted},
    spec::path::Step,
};

const OLD_TRUE: [&str; 8] = ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON"];
const OLD_FALSE: [&str; 8] = ["n", "N", "no", "No", "NO", "off", "Off", "OFF"];

// === impl Decoder ===

impl Decoder {
    /// Gives each field that is there, and one of `fields`, to `each`. Null is an object without.
    pub(super) fn object(
        &mut self,
        node: Item<'_>,
        fields: &[&'static str],
        mut each: impl FnMut(&mut Self, &'static str, Item<'_>),
    ) {
        if !matches!(node.kind(), Kind::Map | Kind::Null) {
            self.mismatch(node, "an object");
        }
        let mut seen = 0_u32;
        for (key, value) in node.entries() {
            let name = key.text();
            match fields.iter().position(|field| *field == name) {
                Some(index) => {
                    if seen & 1 << index != 0 {
                        self.twice(key);
                    }
                    seen |= 1 << index;
                    let Some(field) = fields.get(index).copied() else { continue };
                    self.field(field, |decoder| each(decoder, field, value));
                }
                None if name == "additionalGIDs" && fields == EDITS => {
                    self.old_spelling(node, key, value, &mut each);
                }
                None => self.unknown(key, fields),
            }
        }
    }

    pub(super) fn twice(&mut self, key: Item<'_>) {
        let message = format!("the key {} is there twice", quoted(key.text()));
        self.report(key.at(), Severity::Error, false, message);
    }

    /// CDI's text has both spellings, and older Go libraries take any.
    pub(super) fn old_spelling(
        &mut self,
        node: Item<'_>,
        key: Item<'_>,
        value: Item<'_>,
        each: &mut impl FnMut(&mut Self, &'static str, Item<'_>),
    ) {
        self.field("additionalGids", |decoder| {
            if node.get("additionalGids").is_some() {
                return decoder
                    .error(key.at(), "is there twice, also as additionalGIDs".to_owned());
            }
            let message = "spelled additionalGIDs, which not every reader takes".to_owned();
            decoder.report(key.at(), Severity::Warning, false, message);
            each(decoder, "additionalGids", value);
        });
    }

    pub(super) fn unknown(&mut self, key: Item<'_>, fields: &[&'static str]) {
        if self.newer {
            return;
        }
        let shown = quoted(key.text());
        let message = if matches!(key.text(), "enableCMT" | "enableMBM") && fields == RDT {
            format!(
                "unknown field {shown}: CDI 0.7.0 to 1.0.0 had it, 1.1.0 has enableMonitoring \
                 instead"
            )
        } else if let Some(known) = fields.iter().find(|f| f.eq_ignore_ascii_case(key.text())) {
            format!("unknown field {shown}: it is spelled \"{known}\"")
        } else if let Some(known) = near::nearest(key.text(), fields.iter().copied()) {
            format!("unknown field {shown}: did you mean \"{known}\"?")
        } else {
            format!("unknown field {shown}, known are {}", fields.join(", "))
        };
        self.report(key.at(), Severity::Error, false, message);
    }

    /// Null is a list without elements; a null element is an error.
    pub(super) fn list<T>(
        &mut self,
        node: Item<'_>,
        item: impl FnMut(&mut Self, Item<'_>) -> T,
    ) -> Vec<T> {
        self.elements(node, |_| true, item)
    }

    /// A [`Self::list`] of the elements whose index counts.
    pub(super) fn elements<T>(
        &mut self,
        node: Item<'_>,
        counts: impl Fn(usize) -> bool,
        mut item: impl FnMut(&mut Self, Item<'_>) -> T,
    ) -> Vec<T> {
        if !matches!(node.kind(), Kind::Seq | Kind::Null) {
            self.mismatch(node, "a list");
        }
        let elements = || node.items().enumerate().filter(|(index, _)| counts(*index));
        let mut list = Vec::with_capacity(elements().count());
        for (index, node) in elements() {
            self.path.push(Step::Index(index));
            if node.kind() == Kind::Null {
                self.error(node.at(), "null is no element of a list".to_owned());
            }
            // Also of a null, so that the ones after it keep their index.
            list.push(item(self, node));
            self.path.pop();
        }
        list
    }

    pub(super) fn optional(&mut self, node: Item<'_>) -> Option<String> {
        Some(self.text(node)).filter(|text| !text.is_empty())
    }

    /// A text; a number or truth value counts by its spelling, null as empty.
    pub(super) fn text(&mut self, node: Item<'_>) -> String {
        let text = node.text();
        let kind = match node.kind() {
            Kind::Plain if is_old_truth(text) => "truth value",
            Kind::Plain | Kind::Quoted | Kind::Null => return text.to_owned(),
            Kind::Number => "number",
            Kind::True | Kind::False => "truth value",
            Kind::Seq | Kind::Map => {
                self.mismatch(node, "a text");
                return String::new();
            }
        };
        let message = format!("{text} without quotes is a {kind} to other readers of CDI");
        self.report(node.at(), Severity::Warning, false, message);
        text.to_owned()
    }

    pub(super) fn number<T: TryFrom<i128>>(&mut self, node: Item<'_>) -> Option<T> {
        if !matches!(node.kind(), Kind::Number | Kind::Null) {
            self.mismatch(node, "a number");
        }
        if node.kind() != Kind::Number {
            return None;
        }
        let number = node.integer().and_then(|number| T::try_from(number).ok());
        if number.is_none() {
            let (text, bits) = (node.text(), size_of::<T>() * 8);
            let sign = if T::try_from(-1).is_ok() { "" } else { " not below 0" };
            self.error(node.at(), format!("{text} is no whole number of {bits} bits{sign}"));
        }
        number
    }

    pub(super) fn truth(&mut self, node: Item<'_>) -> bool {
        match node.kind() {
            Kind::True => return true,
            Kind::False | Kind::Null => {}
            Kind::Plain | Kind::Quoted if OLD_TRUE.contains(&node.text()) => return true,
            Kind::Plain | Kind::Quoted if OLD_FALSE.contains(&node.text()) => {}
            _ => self.mismatch(node, "true or false"),
        }
        false
    }

    pub(super) fn field(&mut self, name: &'static str, look: impl FnOnce(&mut Self)) {
        self.path.push(Step::Field(name));
        look(self);
        self.path.pop();
    }

    pub(super) fn mismatch(&mut self, node: Item<'_>, wanted: &str) {
        self.error(node.at(), format!("must be {wanted}, not {}", node.what()));
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

/// `yes` and the like, which are a text since YAML 1.2.
fn is_old_truth(text: &str) -> bool {
    text.len() <= 3 && (OLD_TRUE.contains(&text) || OLD_FALSE.contains(&text))
}

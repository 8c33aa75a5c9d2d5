//! A selector says which devices will do. Of CEL, this is the part that needs no evaluator:
//! equality of texts, joined by `&&`.
//!
//! ```text
//! device.driver == "gpu.divvy.dev"
//! device.attributes["gpu.divvy.dev"].profile == "1g.10gb"
//! device.attributes['gpu.divvy.dev'].type == 'mig' && device.attributes["gpu.divvy.dev"].profile == "3g.40gb"
//! ```
//!
//! Whatever is not of this form is refused: a selector that is passed over gives a claim a device
//! that it did not ask for.

use crate::{
    claim::DRIVER,
    gpu::{Attribute, Device},
};

/// One thing that must hold of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// `device.driver == "…"`
    Driver(String),
    /// `device.attributes["gpu.divvy.dev"].… == "…"`
    Attribute(Attribute, String),
}

/// A selector that this version cannot evaluate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// Another form of CEL, or none.
    #[error(
        "the selector stops being understood at {at:?}; this version knows \
         device.driver == \"{DRIVER}\" and device.attributes[\"{DRIVER}\"].NAME == \"TEXT\", joined by &&"
    )]
    Form {
        /// What follows the part that was understood.
        at: String,
    },
    /// The attribute is none of ours, or no text.
    #[error(
        "device.attributes[\"{DRIVER}\"].{name}: no such text attribute; known are {}",
        known()
    )]
    Attribute {
        /// Its name.
        name: String,
    },
}

/// The conditions that an expression joins.
///
/// # Errors
/// When it is of another form.
pub(super) fn parse(expression: &str) -> Result<Vec<Condition>, SelectorError> {
    let mut rest = Rest(expression);
    let mut conditions = Vec::new();
    loop {
        conditions.push(rest.condition()?);
        if rest.skip_space().is_empty() {
            return Ok(conditions);
        }
        rest.token("&&")?;
    }
}

/// What is not read yet.
struct Rest<'a>(&'a str);

// === impl Rest ===

impl<'a> Rest<'a> {
    fn condition(&mut self) -> Result<Condition, SelectorError> {
        self.token("device")?;
        self.token(".")?;
        match self.word() {
            "driver" => {
                self.token("==")?;
                Ok(Condition::Driver(self.text()?))
            }
            "attributes" => {
                self.token("[")?;
                let before = self.0;
                if self.text()? != DRIVER {
                    return Err(Rest(before).stop());
                }
                self.token("]")?;
                self.token(".")?;
                let name = self.word();
                let known = Attribute::ALL.iter().find(|(known, _)| *known == name);
                let Some((_, attribute)) = known else {
                    return Err(SelectorError::Attribute { name: name.to_owned() });
                };
                self.token("==")?;
                Ok(Condition::Attribute(*attribute, self.text()?))
            }
            other => {
                let length = other.len() + self.0.len();
                Err(Rest(self.0).stop_with(other, length))
            }
        }
    }

    fn skip_space(&mut self) -> &'a str {
        self.0 = self.0.trim_start_matches([' ', '\t', '\r', '\n']);
        self.0
    }

    fn token(&mut self, token: &str) -> Result<(), SelectorError> {
        self.0 = self.skip_space().strip_prefix(token).ok_or_else(|| self.stop())?;
        Ok(())
    }

    fn word(&mut self) -> &'a str {
        let text = self.skip_space();
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        self.0 = rest;
        word
    }

    /// A text in single or double quotes, without escapes.
    fn text(&mut self) -> Result<String, SelectorError> {
        let start = self.skip_space();
        let quote = start.chars().next().filter(|c| matches!(c, '"' | '\''));
        let inside = quote.and_then(|quote| {
            let (text, rest) = start.get(1..)?.split_once(quote)?;
            (!text.contains(['\\', '\n', '\r'])).then_some((text, rest))
        });
        let (text, rest) = inside.ok_or_else(|| self.stop())?;
        // `""` at once followed by a quote would be CEL's triple-quoted text.
        if text.is_empty() && rest.starts_with(['"', '\'']) {
            return Err(self.stop());
        }
        self.0 = rest;
        Ok(text.to_owned())
    }

    fn stop(&self) -> SelectorError {
        self.stop_with("", self.0.len())
    }

    fn stop_with(&self, word: &str, length: usize) -> SelectorError {
        const SHOWN: usize = 40;
        let mut at: String = word.chars().chain(self.0.trim_start().chars()).take(SHOWN).collect();
        if length > SHOWN {
            at.push('…');
        }
        SelectorError::Form { at }
    }
}

// === impl Condition ===

impl Condition {
    /// True when it holds of this device.
    pub fn holds(&self, device: &Device<'_>) -> bool {
        match self {
            Self::Driver(name) => name == DRIVER,
            Self::Attribute(attribute, text) => device.attribute(*attribute) == Some(text),
        }
    }
}

fn known() -> String {
    Attribute::ALL.map(|(name, _)| name).join(", ")
}

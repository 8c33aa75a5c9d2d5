//! A path is the way from the top of a spec to one of its fields.

use std::fmt;

use crate::problem::quoted;

/// One step of the way from the top of a document to a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Field(&'static str),
    Key(String),
    Index(usize),
}

/// Device and field of a path from the top.
pub(super) fn place<'a>(
    path: &[Step],
    device: impl FnOnce(usize) -> Option<&'a str>,
) -> (Option<String>, String) {
    if let [Step::Field("devices"), Step::Index(index), rest @ ..] = path
        && let Some(name) = device(*index).filter(|name| !name.is_empty())
    {
        return (Some(name.to_owned()), Path(rest).to_string());
    }
    (None, Path(path).to_string())
}

struct Path<'a>(&'a [Step]);

// === impl Path ===

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if index == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Key(key) => write!(f, "[{}]", quoted(key))?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

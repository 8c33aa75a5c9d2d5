//! A salvage is what a configuration that cannot be used says with certainty all the same: which
//! handlers require no record, and where the records are. In any doubt none does without a record,
//! and then no container of a pod starts.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use divvy_cdi::file::{self, Trust};

use super::{
    MAX_BYTES, absolute,
    toml::{self, Entry, Value},
};

/// What a file that cannot be used says for certain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Salvage {
    /// Where records are, if the file says it: certain where a handler is optional, and good enough
    /// for the log elsewhere.
    pub run_dir: Option<PathBuf>,
    /// The handlers that require no record.
    optional: BTreeSet<String>,
}

// === impl Salvage ===

impl Salvage {
    /// Reads what is certain: nothing where the file is unreadable or not trusted.
    pub fn read(path: &Path) -> Self {
        let bytes = file::read(path, MAX_BYTES, &Trust::of_process()).unwrap_or_default();
        std::str::from_utf8(&bytes).map(Self::of).unwrap_or_default()
    }

    /// Only of a file that is TOML: else nothing tells where a key ends, or a table.
    pub(super) fn of(text: &str) -> Self {
        let (mut salvage, mut doubtful) = (Self::default(), false);
        for Entry { path, value, .. } in toml::read(text).unwrap_or_default() {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            match (&*path, value) {
                (["run_dir"], value) => match absolute(value) {
                    Ok(dir) => salvage.run_dir = Some(dir),
                    Err(_) => doubtful = true,
                },
                (["handlers", name, "require_record"], Value::Bool(false)) => {
                    salvage.optional.insert((*name).to_owned());
                }
                // It may be the run_dir that was meant: misspelt, or below a table.
                (path, Value::Text(_) | Value::List(_)) => doubtful |= !is_known(path),
                _ => {}
            }
        }
        if doubtful {
            salvage.optional.clear();
        }
        salvage
    }

    /// Whether a container of a pod may certainly do without a record there.
    pub fn is_optional(&self, handler: &str) -> bool {
        self.optional.contains(handler)
    }
}

/// Whether a text or list can stand there.
fn is_known(path: &[&str]) -> bool {
    matches!(
        path,
        ["runtimes" | "spec_dirs" | "log"] | ["handlers", _, "engine" | "environment" | "runtime"]
    )
}

#[cfg(test)]
mod tests;

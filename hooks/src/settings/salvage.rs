//! A salvage is what a configuration that cannot be used still tells: which containers must not
//! start without it. It is never a reason to give anything, so whoever wrote the file may have.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use divvy_cdi::file::{self, Trust};

use super::MAX_BYTES;

/// What a file seems to say that cannot be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Salvage {
    /// Where records are: one there is a request still.
    pub run_dir: Option<PathBuf>,
    handlers: BTreeMap<String, Draft>,
}

/// What a handler seems to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Draft {
    of_pods: bool,
    require_record: Option<bool>,
}

// === impl Salvage ===

impl Salvage {
    /// Reads what can be read; nothing where even that fails.
    pub fn read(path: &Path) -> Self {
        let bytes = file::read(path, MAX_BYTES, &Trust::Any).unwrap_or_default();
        Self::of(&String::from_utf8_lossy(&bytes))
    }

    /// Line by line, so that what is wrong in one hides none of the others.
    pub(super) fn of(text: &str) -> Self {
        let mut salvage = Self::default();
        let mut table = Vec::new();
        for line in text.lines().map(str::trim) {
            if let Some((name, _)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
                table = path(name);
            } else if let Some((key, value)) = line.split_once('=') {
                let mut key = path(key);
                key.splice(..0, table.iter().copied());
                salvage.set(&key, value.trim_start());
            }
        }
        salvage
    }

    /// Whether a container of a pod must have a record there, by the rule of the settings: true
    /// for the engines of pods unless it says otherwise.
    pub fn requires_record(&self, handler: &str) -> bool {
        self.handlers
            .get(handler)
            .is_some_and(|draft| draft.require_record.unwrap_or(draft.of_pods))
    }

    fn set(&mut self, key: &[&str], value: &str) {
        match *key {
            ["run_dir"] => {
                let dir = quoted(value).map(PathBuf::from);
                self.run_dir = dir.filter(|dir| dir.is_absolute()).or(self.run_dir.take());
            }
            ["handlers", name, "engine"] => {
                self.draft(name).of_pods = matches!(quoted(value), Some("cri" | "crio"));
            }
            ["handlers", name, "require_record"] => {
                let word = value.split([' ', '\t', '#']).next();
                self.draft(name).require_record = word.and_then(|word| word.parse().ok());
            }
            _ => {}
        }
    }

    fn draft(&mut self, name: &str) -> &mut Draft {
        self.handlers.entry(name.to_owned()).or_default()
    }
}

/// The names of a dotted key. No name that matters has a dot or a quote in it.
fn path(key: &str) -> Vec<&str> {
    key.split('.').map(|name| name.trim().trim_matches(['"', '\''])).collect()
}

/// The text at the beginning of a value.
fn quoted(value: &str) -> Option<&str> {
    let (quote, value) = value.split_at_checked(1)?;
    if quote != "\"" && quote != "'" {
        return None;
    }
    Some(value.split_once(quote)?.0)
}

#[cfg(test)]
mod tests;

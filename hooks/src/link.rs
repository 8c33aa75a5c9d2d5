//! A dangling link is there and leads to nothing: what it stands for was lost, not left out.

use std::path::Path;

use rustix::{fs, io::Errno};

/// The dangling link by which `path` was not found: itself or what it is in. None when it is just
/// not there.
pub(crate) fn dangling(path: &Path) -> Option<&Path> {
    let there = path.ancestors().find(|part| fs::lstat(*part).is_ok())?;
    matches!(fs::stat(there), Err(Errno::NOENT)).then_some(there)
}

#[cfg(test)]
mod tests;

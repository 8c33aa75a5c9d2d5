//! The early look at paths that only the runtime would miss, with a worse message than ours.

use std::path::Path;

use super::{EditError, EditErrorKind, index::Index};
use crate::{
    errno,
    host::Host,
    resolve::{Part, Resolution},
    spec::{Hook, HookName, Mount},
};

/// Every mount source and hook of `resolution` that `host` does not have. Only absolute paths of bind
/// mounts: other sources are names that the filesystem may give any meaning.
pub fn missing_paths(resolution: &Resolution, host: &dyn Host) -> Vec<EditError> {
    missing(resolution, host, usize::MAX)
}

pub(super) fn first_missing_path(resolution: &Resolution, host: &dyn Host) -> Option<EditError> {
    missing(resolution, host, 1).pop()
}

fn missing(resolution: &Resolution, host: &dyn Host, most: usize) -> Vec<EditError> {
    let mut missing = Vec::new();
    // Claims of one driver repeat the same mounts, and specs the same program: each is looked at once.
    let (mut sources, mut programs) = (Index::default(), Index::default());
    for part in &resolution.parts {
        let mounts = part.edits.mounts.iter();
        let mounts = mounts.filter(|mount| mount.is_bind());
        let mounts = mounts.filter(|mount| sources.is_new(mount.host_path.as_str().into()));
        missing.extend(mounts.filter_map(|m| mount(part, m, host)).take(most - missing.len()));
        let hooks = part.edits.hooks.iter();
        let hooks =
            hooks.filter(|hook| runs_here(hook) && programs.is_new(hook.path.as_str().into()));
        missing.extend(hooks.filter_map(|h| hook(part, h, host)).take(most - missing.len()));
    }
    missing
}

fn mount(part: &Part, mount: &Mount, host: &dyn Host) -> Option<EditError> {
    let path = Path::new(&mount.host_path);
    if !path.is_absolute() {
        return None;
    }
    let found = errno::words(&host.entry(path).err()?);
    let destination = mount.container_path.clone();
    let kind = EditErrorKind::MountSource { path: path.to_owned(), destination, found };
    Some(EditError::new(&part.origin, kind))
}

/// startContainer runs inside: its path is the container's.
fn runs_here(hook: &Hook) -> bool {
    hook.path.starts_with('/') && hook.hook_name != HookName::StartContainer
}

fn hook(part: &Part, hook: &Hook, host: &dyn Host) -> Option<EditError> {
    let path = Path::new(&hook.path);
    let found = match host.entry(path) {
        Ok(entry) if entry.executable() => return None,
        Ok(entry) if entry.regular => "not executable".to_owned(),
        Ok(_) => "not a program".to_owned(),
        Err(error) => errno::words(&error),
    };
    let hook = hook.hook_name.as_str();
    let kind = EditErrorKind::HookMissing { path: path.to_owned(), hook, found };
    Some(EditError::new(&part.origin, kind))
}

//! The hook of a spec mounts the driver's files in a container, makes its links there, and tells the loader of its
//! libraries: all in one process, of a program that is linked statically.

use std::{
    mem,
    path::{Path, PathBuf},
};

use divvy_cdi::{
    file::{FileError, Trust},
    host::Entry,
    spec::{Hook, HookName},
};

use divvy_hook::container::Edits;

use super::edits::Scope;
use crate::gpu::{Files, MountFile, MountKind};

/// Where the program is, unless it is said.
pub const HOOK: &str = "/usr/local/bin/divvy-hook";

/// Never empty: without an environment of its own a hook gets the image's, by which a loader could
/// be told what to load (CVE-2025-23266).
const ENVIRONMENT: &str = "DIVVY_HOOK=container";

/// Why no spec can name the hook.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// It is not there.
    #[error(
        "{}: no program that can be run is there; containers get the driver's links by divvy-hook, \
         which --hook names by its absolute path",
        path.display()
    )]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// Others could have written it, and it is run as root.
    #[error(transparent)]
    Untrusted(FileError),
}

/// Moves the links of a device to what its spec has in common: one hook makes them all, since each costs a container
/// more than what it does. It passes over those whose device a container does not have.
pub(super) fn gather(common: &mut Files, device: &mut Files) {
    for link in mem::take(&mut device.links) {
        if !common.links.contains(&link) {
            common.links.push(link);
        }
    }
}

/// The hook for the links and folders of `files`, which has none then; none where none is needed. It mounts the files
/// as well for a claim.
///
/// # Errors
/// The program is not there, or not to be trusted.
pub(super) fn edit(
    program: &Path,
    files: &mut Files,
    scope: Scope,
) -> Result<Option<Hook>, HookError> {
    let (links, folders) = (mem::take(&mut files.links), mem::take(&mut files.folders));
    if links.is_empty() && folders.is_empty() {
        return Ok(None);
    }
    let mut args = vec!["divvy-hook".to_owned(), "container".to_owned()];
    for file in files.mounts.extract_if(.., |file| scope == Scope::Claim && is_for_hook(file)) {
        args.extend(["--mount".to_owned(), mount(&file)]);
    }
    for link in links {
        args.extend(["--link".to_owned(), format!("{}::{}", link.target, link.path)]);
    }
    for folder in folders {
        args.extend(["--folder".to_owned(), folder]);
    }
    let hook = Hook {
        hook_name: HookName::CreateContainer,
        path: checked(program)?,
        args,
        env: vec![ENVIRONMENT.to_owned()],
        timeout: None,
    };
    Ok(Some(hook))
}

/// A mount, as the hook is told it.
fn mount(file: &MountFile) -> String {
    format!("{}::{}", file.host_path, file.path)
}

/// Whether the hook can mount it, and can be told so.
fn is_for_hook(file: &MountFile) -> bool {
    let wanted = [(file.host_path.as_str().into(), file.path.as_str().into())];
    let told = Edits::parse(&["--mount".into(), mount(file).into()]);
    file.kind == MountKind::File && told.is_ok_and(|edits| edits.mounts == wanted)
}

/// The path of a program that containers may be edited by.
fn checked(program: &Path) -> Result<String, HookError> {
    let missing = || HookError::Missing { path: program.to_owned() };
    let text = program.to_str().filter(|_| program.is_absolute()).ok_or_else(missing)?;
    let stat = rustix::fs::stat(program).map_err(|_| missing())?;
    let regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
    if !(Entry { regular, mode: stat.st_mode & 0o7777 }).executable() {
        return Err(missing());
    }
    match Trust::of_process().distrust(&stat) {
        None => Ok(text.to_owned()),
        Some(why) => {
            Err(HookError::Untrusted(FileError::Untrusted { path: program.to_owned(), why }))
        }
    }
}

// === impl HookError ===

impl HookError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "HOOK-MISSING",
            Self::Untrusted(error) => error.code(),
        }
    }
}

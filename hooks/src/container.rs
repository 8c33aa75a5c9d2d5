//! A container's file system, edited as the container is created (OCI's `createContainer` hook): files of
//! the driver, the links by which programs know its libraries, and the dynamic loader's cache.
//!
//! A file is mounted here in an eighth of the time that runc takes for it, and a driver has forty.
//!
//! The image chose what stands there, and a volume may change while we look. So nothing of the
//! container is executed or named from the host's side: its root is opened once, and the kernel
//! resolves each path below that (see [`root`]). The environment, which may be the image's too, is
//! not looked at.

use std::{
    ffi::OsString,
    io::{self, Read},
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

use divvy_cdi::{errno, oci};
use rustix::{fs::Mode, io::Errno, process};

use crate::{
    error::HookError,
    inject::{Injector, Process},
    log, shim, verify,
};

pub mod cache;
pub mod elf;
pub mod root;

use root::Root;

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// The files: where each is on the host, and where it stands in the container.
    pub mounts: Vec<(PathBuf, PathBuf)>,
    /// The links: where each leads, and where it stands.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// The folders of libraries that the loader is to find, the first first.
    pub folders: Vec<PathBuf>,
}

/// Why a container's file system was not edited.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// The state or the config of the bundle.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// The bundle does not lead to the container's root.
    #[error("CONTAINER-ROOT: {}: root.path cannot be used: {what}", .config.display())]
    Root {
        /// The bundle's config.
        config: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A file of the host cannot be mounted.
    #[error(
        "CONTAINER-MOUNT: {}: cannot be mounted at {} in the container: see that the host has the file, \
         and what the image or a volume has in its place",
        .source_path.display(), .target.display()
    )]
    Mount {
        /// Where it is on the host.
        source_path: PathBuf,
        /// Where it would stand.
        target: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A link cannot be made.
    #[error(
        "CONTAINER-LINK: {}: cannot be made a link in the container: see what the image or a volume \
         has in its place",
        .link.display()
    )]
    Link {
        /// Where it would stand.
        link: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The loader's cache cannot be made.
    #[error("CONTAINER-CACHE: {}: the container's loader may not find the driver", .path.display())]
    Cache {
        /// The cache, or a folder of libraries.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// Edits the container whose state is on `input`. False when that failed; the reason is on standard
/// error then. What the container's file system refuses (it is read-only, or another user's) is said,
/// and stops nobody: the image may have all it needs.
pub fn run(process: &mut Process, edits: &Edits, input: impl Read) -> bool {
    process::umask(Mode::from_raw_mode(0o022));
    // The image chose it.
    process.runtime_dir = None;
    let failed = match apply(edits, input) {
        Ok(()) => return true,
        Err(error) => error,
    };
    let refused = failed.is_refused();
    let rest = if refused { "; going on without it" } else { "" };
    let line = log::one_line(&format!("divvy: {}{rest}", log::chain(&failed)));
    Injector::new(process).note(&format!("container: {line}"));
    log::tell_person(&line);
    refused
}

fn apply(edits: &Edits, input: impl Read) -> Result<(), ContainerError> {
    // crun 1.8 fails where a hook does not read its input.
    let bundle = verify::state(input).map_err(HookError::Input)?.bundle;
    let root = open(&bundle)?;
    for (source, target) in &edits.mounts {
        root.mount(source, target).map_err(|errno| ContainerError::Mount {
            source_path: source.clone(),
            target: target.clone(),
            source: errno.into(),
        })?;
    }
    let mut refused = Ok(());
    for (target, link) in &edits.links {
        // One hook is for all devices of a spec, and this container may have but some.
        if link.starts_with("/dev") && !root.has(&led(target, link)) {
            continue;
        }
        let made = root
            .link(target, link)
            .map_err(|errno| ContainerError::Link { link: link.clone(), source: errno.into() });
        refused = keep(refused, made)?;
    }
    keep(refused, cache::update(&root, &edits.folders))?
}

/// Where a link leads in which nothing is a link but itself.
fn led(target: &Path, link: &Path) -> PathBuf {
    let mut leads = link.parent().unwrap_or(link).to_owned();
    for part in target.components() {
        match part {
            Component::ParentDir => _ = leads.pop(),
            part => leads.push(part),
        }
    }
    leads
}

/// The first refusal, unless there is worse.
fn keep(
    before: Result<(), ContainerError>,
    now: Result<(), ContainerError>,
) -> Result<Result<(), ContainerError>, ContainerError> {
    match now {
        Err(error) if !error.is_refused() => Err(error),
        now => Ok(before.and(now)),
    }
}

/// Opens the root of the container that `bundle` describes.
fn open(bundle: &Path) -> Result<Root, ContainerError> {
    let config = bundle.join("config.json");
    let wrong = |what: String| ContainerError::Root { config: config.clone(), what };
    let bytes = shim::read_config(&config, "the bundle in the container's state")?;
    let path = oci::text_at(&bytes, &["root", "path"])
        .map_err(|error| HookError::bundle_invalid(&config, error))?;
    let Some(path) = path else { return Err(wrong("it is missing".to_owned())) };
    let path = bundle.join(path);
    match Root::open(&path) {
        Ok(Some(root)) => Ok(root),
        Ok(None) => Err(wrong("it is the host's own root".to_owned())),
        Err(errno) => Err(wrong(errno::words(&errno.into()))),
    }
}

// === impl Edits ===

impl Edits {
    /// Reads `--mount SOURCE::TARGET`, `--link TARGET::LINK` and `--folder DIR`, each any number of times.
    ///
    /// # Errors
    /// What is not understood, for a usage message.
    pub fn parse(args: &[OsString]) -> Result<Self, String> {
        let mut edits = Self::default();
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            let value = args.next().and_then(|value| value.to_str()).unwrap_or_default();
            match (flag.to_str(), value.split_once("::")) {
                (Some("--mount"), Some((source, target)))
                    if is_plain(source) && is_plain(target) =>
                {
                    edits.mounts.push((source.into(), target.into()));
                }
                (Some("--link"), Some((target, link))) if !target.is_empty() && is_plain(link) => {
                    edits.links.push((target.into(), link.into()));
                }
                (Some("--folder"), _) if is_plain(value) => edits.folders.push(value.into()),
                _ => {
                    return Err("container takes --mount SOURCE::TARGET, --link TARGET::LINK and \
                                --folder DIR, absolute"
                        .into());
                }
            }
        }
        Ok(edits)
    }
}

/// An absolute path of a file, with nothing in it that leads back.
fn is_plain(path: &str) -> bool {
    let path = Path::new(path);
    let lines = path.as_os_str().as_bytes().contains(&b'\n');
    let back = path.components().any(|part| part == Component::ParentDir);
    path.is_absolute() && path.file_name().is_some() && !back && !lines
}

// === impl ContainerError ===

impl ContainerError {
    /// Whether the container's file system refused what any other would take.
    fn is_refused(&self) -> bool {
        let (Self::Link { source, .. } | Self::Cache { source, .. }) = self else { return false };
        let errno = Errno::from_io_error(source);
        let all = [Errno::ROFS, Errno::ACCESS, Errno::PERM, Errno::BUSY];
        errno.is_some_and(|errno| all.contains(&errno))
    }
}

#[cfg(test)]
mod tests;

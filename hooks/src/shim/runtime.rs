//! The low-level runtime is the program that makes the container: runc or crun.

use std::{
    convert::Infallible,
    ffi::{CString, OsStr, OsString},
    fs::{File, Metadata},
    io::{self, Read as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use divvy_cdi::errno;
use nix::errno::Errno;

use crate::{error::HookError, inject::Injector};

const OURSELVES: &str = "/proc/self/exe";

/// The low-level runtime of the handler.
pub(super) fn choose<'a>(injector: &'a Injector<'_>, handler: &str) -> Result<&'a Path, HookError> {
    let settings = &injector.settings;
    let candidates = settings.runtimes_of(settings.handlers.get(handler));
    first(candidates, injector.settings_path(), injector.executable())
}

/// Whether the kernel may execute it: it begins as a program or a script does. Else nothing needs to
/// be edited for it.
pub(super) fn check(runtime: &Path, settings: &Path) -> Result<(), HookError> {
    let mut head = Vec::new();
    let read = File::open(runtime).and_then(|file| file.take(4).read_to_end(&mut head));
    // What cannot be read can still be executed.
    if read.is_err() || head == *b"\x7fELF" || head.starts_with(b"#!") {
        return Ok(());
    }
    let (runtime, settings) = (runtime.to_owned(), settings.to_owned());
    Err(HookError::NoProgram { runtime, settings })
}

/// Becomes the low-level runtime, with the same arguments, environment, open files, signals and
/// working directory. Not by `std`'s command: that one unblocks all signals and gives SIGPIPE its
/// default.
pub(super) fn execute(runtime: &Path, args: &[OsString]) -> Result<Infallible, HookError> {
    let failed = |errno: Errno| HookError::Exec {
        runtime: runtime.to_owned(),
        source: io::Error::from_raw_os_error(errno as i32),
    };
    // None of them has a NUL byte within: they were C's texts, or lines of a file of ours.
    let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(|_| failed(Errno::EINVAL));
    let program = text(runtime.as_os_str())?;
    let mut all = vec![program.clone()];
    for arg in args {
        all.push(text(arg)?);
    }
    nix::unistd::execv(&program, &all).map_err(failed)
}

/// The first candidate that is there and can run.
fn first<'a>(
    candidates: &'a [PathBuf],
    settings: &Path,
    executable: Option<&Path>,
) -> Result<&'a Path, HookError> {
    let mut looked = Vec::new();
    for candidate in candidates {
        match program(candidate) {
            Ok(found) if is_ourselves(candidate, &found, executable) => {
                let (runtime, settings) = (candidate.clone(), settings.to_owned());
                return Err(HookError::RuntimeLoop { runtime, settings });
            }
            Ok(_) => return Ok(candidate),
            Err(why) => looked.push(format!("{} ({why})", candidate.display())),
        }
    }
    Err(HookError::RuntimeNotFound { looked: looked.join(", "), settings: settings.to_owned() })
}

fn program(path: &Path) -> Result<Metadata, String> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => Err("not a file".to_owned()),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => Err("not executable".to_owned()),
        Ok(found) => Ok(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err("not there".to_owned()),
        Err(error) => Err(errno::words(&error)),
    }
}

/// Executing ourselves would never end. A copy under another name would come back to us, so that
/// counts as well.
fn is_ourselves(path: &Path, found: &Metadata, executable: Option<&Path>) -> bool {
    let ours = executable.and_then(|path| std::fs::metadata(path).ok());
    let Some(ours) = ours.or_else(|| std::fs::metadata(OURSELVES).ok()) else { return false };
    if (ours.dev(), ours.ino()) == (found.dev(), found.ino()) {
        return true;
    }
    ours.len() == found.len() && same_bytes(path).unwrap_or(false)
}

fn same_bytes(path: &Path) -> io::Result<bool> {
    let (mut ours, mut theirs) = (File::open(OURSELVES)?, File::open(path)?);
    let (mut a, mut b) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let count = ours.read(&mut a)?;
        let Some(theirs_read) = b.get_mut(..count) else { return Ok(false) };
        theirs.read_exact(theirs_read)?;
        if a.get(..count) != b.get(..count) {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests;

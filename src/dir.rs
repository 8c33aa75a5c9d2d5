//! A directory of ours: made with exactly its mode, and used only when nobody else can write it.

use std::{io, path::Path};

use divvy_cdi::file::{FileError, Trust};
use rustix::{fs, fs::Mode, io::Errno};

/// Makes `dir` and what is missing above it, mode `mode` whatever the umask is; one that is there
/// must be trusted.
///
/// # Errors
/// [`FileError::Untrusted`], or [`FileError::Io`] when it cannot be made.
pub fn make(dir: &Path, mode: u32) -> Result<(), FileError> {
    match made(dir, Mode::from_raw_mode(mode)) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => check(dir),
        Err(errno) => Err(failed(dir, "create", errno)),
    }
}

/// Says whether `dir`, if it is there, may be used.
///
/// # Errors
/// [`FileError::Untrusted`] when others can write it, [`FileError::Io`] when it is no directory or
/// cannot be looked at.
pub fn check(dir: &Path) -> Result<(), FileError> {
    let stat = match fs::stat(dir) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failed(dir, "read", errno)),
    };
    if !fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
        return Err(failed(dir, "use", Errno::NOTDIR));
    }
    match Trust::of_process().distrust(&stat) {
        Some(why) => Err(FileError::Untrusted { path: dir.to_owned(), why }),
        None => Ok(()),
    }
}

fn made(dir: &Path, mode: Mode) -> Result<(), Errno> {
    match fs::mkdir(dir, mode) {
        Err(Errno::NOENT) => {
            let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
            match made(parent.ok_or(Errno::NOENT)?, mode) {
                // Somebody else was faster.
                Ok(()) | Err(Errno::EXIST) => fs::mkdir(dir, mode)?,
                Err(errno) => return Err(errno),
            }
        }
        other => other?,
    }
    fs::chmod(dir, mode)
}

fn failed(dir: &Path, doing: &'static str, errno: Errno) -> FileError {
    FileError::Io { path: dir.to_owned(), doing, source: io::Error::from(errno) }
}

#[cfg(test)]
mod tests;

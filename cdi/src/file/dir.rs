//! A directory of ours: made with exactly its mode, and used only when nobody else can write it.

use std::path::Path;

use rustix::{
    fs::{self, FileType, Mode},
    io::Errno,
};

use super::{Durability, FileError, Trust, failed, parent, sync_parent};

/// The mode of what is missing above a directory.
const OF_PARENTS: u32 = 0o755;

/// Makes `dir` with the mode `mode` whatever the umask is, and what is missing above it with 0755.
/// One that is there, or that somebody else makes at the same time, must be a directory that this
/// process trusts ([`Trust::of_process`]). Made [`Durability::Durable`], it outlives a power cut
/// with what is written into it.
///
/// # Errors
/// [`FileError::Untrusted`], or [`FileError::Io`] when it cannot be made or is no directory.
pub fn make_dir(dir: &Path, mode: u32, durability: Durability) -> Result<(), FileError> {
    let trust = Trust::of_process();
    if check_dir(dir, &trust)? {
        return Ok(());
    }
    make(dir, mode, durability)?;
    match check_dir(dir, &trust)? {
        true => Ok(()),
        // A link to nowhere.
        false => Err(failed(dir, "create", Errno::NOENT)),
    }
}

/// Whether `dir` is there; if it is, `trust` must allow its use.
///
/// # Errors
/// [`FileError::Untrusted`] when others can write it, [`FileError::Io`] when it is no directory or
/// cannot be looked at.
pub fn check_dir(dir: &Path, trust: &Trust) -> Result<bool, FileError> {
    let stat = match fs::stat(dir) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(failed(dir, "read", errno)),
    };
    if !FileType::from_raw_mode(stat.st_mode).is_dir() {
        return Err(failed(dir, "use", Errno::NOTDIR));
    }
    match trust.distrust(&stat) {
        Some(why) => Err(FileError::Untrusted { path: dir.to_owned(), why }),
        None => Ok(true),
    }
}

fn make(dir: &Path, mode: u32, durability: Durability) -> Result<(), FileError> {
    let create = || fs::mkdir(dir, Mode::from_raw_mode(mode));
    let made = match create() {
        Err(Errno::NOENT) => {
            // Nothing above is left, so that is what is missing.
            if dir.parent().is_none() || parent(dir) == dir {
                return Err(failed(dir, "create", Errno::NOENT));
            }
            make(parent(dir), OF_PARENTS, durability)?;
            create()
        }
        made => made,
    };
    match made {
        Ok(()) => {}
        // There before, or somebody else was faster: the caller looks at what it is.
        Err(Errno::EXIST) => return Ok(()),
        Err(errno) => return Err(failed(dir, "create", errno)),
    }
    fs::chmod(dir, Mode::from_raw_mode(mode)).map_err(|errno| failed(dir, "create", errno))?;
    match durability {
        Durability::Durable => sync_parent(dir),
        Durability::Volatile => Ok(()),
    }
}

#[cfg(test)]
mod tests;

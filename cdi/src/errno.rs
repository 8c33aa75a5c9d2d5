//! The words for what the system answers.
//!
//! Not the system's own: podman takes an error that holds one of its phrases (`/permission
//! denied/i` and the like, `libpod/oci_util.go`) for an error of its own and shows something else.

use std::io;

use rustix::io::Errno;

/// What `error` says, in words that no engine re-classifies.
pub fn words(error: &io::Error) -> String {
    let known = error.raw_os_error().map(Errno::from_raw_os_error).and_then(known);
    match (known, error.raw_os_error()) {
        (Some(words), _) => words.to_owned(),
        (None, Some(number)) => format!("system error {number}"),
        (None, None) => error.to_string(),
    }
}

fn known(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::NOENT => "nothing is there",
        Errno::ACCESS | Errno::PERM => "access refused",
        Errno::NOTDIR => "a part of the path is no directory",
        Errno::ISDIR => "is a directory",
        Errno::LOOP => "too many symbolic links",
        Errno::NAMETOOLONG => "the name is too long",
        Errno::INVAL => "invalid argument",
        Errno::MFILE | Errno::NFILE => "too many open files",
        Errno::NOSPC => "no space left",
        Errno::DQUOT => "disk quota exceeded",
        Errno::ROFS => "the filesystem is read-only",
        Errno::EXIST => "something is already there",
        Errno::IO => "input or output error",
        Errno::NOMEM => "out of memory",
        Errno::NXIO | Errno::NODEV => "no device behind it",
        Errno::BUSY => "busy",
        Errno::XDEV => "on another filesystem",
        Errno::TXTBSY => "a program that is running",
        Errno::FBIG => "too large",
        _ => return None,
    })
}

//! Trust is whose files count: a file or directory that somebody else could have written is
//! refused.

use std::fmt;

use rustix::fs::{self, CWD, Mode, OFlags, Stat};

/// The uid and gid that an unmapped owner has in a user namespace (`/proc/sys/kernel/overflowuid`,
/// which nobody changes).
const OVERFLOW_ID: u32 = 65534;

/// Whose files are taken. Whoever owns it, a file that others, or a group that is not root's, can
/// write is never taken (except by `Any`).
///
/// In a user namespace the host's root is not mapped and shows as the overflow id; there that id
/// counts as root's. Whoever is neither root nor mapped shows as the same id, so a rootless caller
/// relies on root having kept others out of the directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Anybody's: for a person who names the file.
    Any,
    /// Root's.
    Root,
    /// Root's or this user's.
    RootOr(u32),
    /// Root's or this user's, where they are mapped: for what a caller keeps apart from all others. In a user namespace
    /// the overflow id is then nobody to trust, not the host's root either.
    Mapped(u32),
}

/// Why a file or directory is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distrust {
    /// This user owns it.
    Owner(u32),
    /// Everybody can write it.
    OthersWrite,
    /// This group, which is not root's, can write it.
    GroupWrites(u32),
}

// === impl Trust ===

impl Trust {
    /// What a process of this effective user id trusts: root only root, anybody else also himself.
    pub fn of(euid: u32) -> Self {
        if euid == 0 { Self::Root } else { Self::RootOr(euid) }
    }

    /// [`Trust::of`] this process.
    pub fn of_process() -> Self {
        Self::of(rustix::process::geteuid().as_raw())
    }

    /// [`Trust::Mapped`] for this process.
    pub fn of_caller() -> Self {
        Self::Mapped(rustix::process::geteuid().as_raw())
    }

    /// Why a file or directory with this status is not trusted, if it is not.
    pub fn distrust(&self, stat: &Stat) -> Option<Distrust> {
        let is_root = |id| id == 0 || (!matches!(self, Self::Mapped(_)) && is_unmapped_root(id));
        let owner_is_trusted = match *self {
            Self::Any => return None,
            Self::Root => is_root(stat.st_uid),
            Self::RootOr(uid) | Self::Mapped(uid) => stat.st_uid == uid || is_root(stat.st_uid),
        };
        let mode = Mode::from_raw_mode(stat.st_mode);
        if !owner_is_trusted {
            Some(Distrust::Owner(stat.st_uid))
        } else if mode.contains(Mode::WOTH) {
            Some(Distrust::OthersWrite)
        } else if mode.contains(Mode::WGRP) && !is_root(stat.st_gid) {
            Some(Distrust::GroupWrites(stat.st_gid))
        } else {
            None
        }
    }
}

fn is_unmapped_root(id: u32) -> bool {
    id == OVERFLOW_ID && in_user_namespace()
}

/// Asked only for the overflow id, so the usual way costs nothing.
pub fn in_user_namespace() -> bool {
    let mut map = [0; 64];
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(fd) = fs::openat(CWD, c"/proc/self/uid_map", flags, Mode::empty()) else {
        return false;
    };
    let Ok(count) = rustix::io::read(&fd, &mut map) else {
        return false;
    };
    // The initial namespace maps every id onto itself, in one line.
    let map = map.get(..count).unwrap_or_default();
    let words = map.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    !words.eq([&b"0"[..], b"0", b"4294967295"])
}

// === impl Distrust ===

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(uid) => write!(f, "owned by user {uid}"),
            Self::OthersWrite => f.write_str("everybody can write it"),
            Self::GroupWrites(gid) => write!(f, "group {gid} can write it"),
        }
    }
}

//! The host, as far as an edit looks at it: what stands at a path.

use std::{io, path::Path};

/// What kind of device node a path is (CDI `type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeKind {
    /// `b`
    Block,
    /// `c`
    Char,
    /// `p`, a FIFO
    Fifo,
}

/// A device node as `lstat` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Block, character or FIFO.
    pub kind: NodeKind,
    /// Major number; 0 for a FIFO.
    pub major: u32,
    /// Minor number; 0 for a FIFO.
    pub minor: u32,
    /// Permission bits, `st_mode & 0o7777`.
    pub mode: u32,
    /// Owner on the host.
    pub uid: u32,
    /// Group on the host.
    pub gid: u32,
}

/// A file as `stat` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// A regular file.
    pub regular: bool,
    /// Permission bits, `st_mode & 0o7777`.
    pub mode: u32,
}

/// What the host answers. `node`: a symbolic link is not followed (as the Go reference does).
pub trait Host {
    /// The node at `path`; `Ok(None)` when something else stands there (a file, a link, a socket).
    fn node(&self, path: &Path) -> io::Result<Option<Node>>;

    /// Whatever is at `path`, symbolic links followed.
    fn entry(&self, path: &Path) -> io::Result<Entry>;
}

/// The machine that this process runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThisHost;

// === impl ThisHost ===

impl Host for ThisHost {
    fn node(&self, path: &Path) -> io::Result<Option<Node>> {
        let stat = rustix::fs::lstat(path)?;
        let kind = match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
            rustix::fs::FileType::BlockDevice => NodeKind::Block,
            rustix::fs::FileType::CharacterDevice => NodeKind::Char,
            rustix::fs::FileType::Fifo => NodeKind::Fifo,
            _ => return Ok(None),
        };
        let (major, minor) = match kind {
            NodeKind::Fifo => (0, 0),
            NodeKind::Block | NodeKind::Char => {
                (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev))
            }
        };
        let mode = stat.st_mode & 0o7777;
        Ok(Some(Node { kind, major, minor, mode, uid: stat.st_uid, gid: stat.st_gid }))
    }
    fn entry(&self, path: &Path) -> io::Result<Entry> {
        let stat = rustix::fs::stat(path)?;
        let regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
        Ok(Entry { regular, mode: stat.st_mode & 0o7777 })
    }
}

// === impl Entry ===

impl Entry {
    /// A program that somebody may run.
    pub fn executable(self) -> bool {
        self.regular && self.mode & 0o111 != 0
    }
}

// === impl NodeKind ===

impl NodeKind {
    /// The letter that CDI and OCI use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Block => "b",
            Self::Char => "c",
            Self::Fifo => "p",
        }
    }
}

//! An edit error: why a resolution does not fit this host or this config.

use std::path::PathBuf;

use crate::resolve::Origin;

/// Why nothing was edited. One line, its code first, the spec and what to do at its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {kind} ({origin}); {}", .kind.code(), .kind.advice())]
pub struct EditError {
    /// What does not fit.
    pub kind: EditErrorKind,
    /// The part that asked for it.
    pub origin: Box<Origin>,
}

/// What does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditErrorKind {
    /// No device node stands at the host path, or it cannot be looked at.
    #[error("device node {path:?}: {found}")]
    DeviceGone {
        /// The path on the host.
        path: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// Another device node stands at the host path than the spec was written for.
    #[error("device node {path:?}: the spec says {spec}, the host has {host}")]
    DeviceChanged {
        /// The path on the host.
        path: PathBuf,
        /// Type and numbers in the spec.
        spec: String,
        /// Type and numbers on the host.
        host: String,
    },
    /// A number that a device node cannot have; the cgroup would take it for "all devices".
    #[error(
        "device node {path:?}: device numbers {major}:{minor} are not between 0 and 4294967295"
    )]
    DeviceNumber {
        /// The path on the host.
        path: PathBuf,
        /// Major number in the spec.
        major: i64,
        /// Minor number in the spec.
        minor: i64,
    },
    /// In a user namespace nobody could open the node.
    #[error(
        "device node {path:?} has mode {mode:04o} and owner {uid}:{gid} on the host, so a process \
         in a user namespace cannot open it to {access}"
    )]
    UsernsMode {
        /// The path on the host.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
        /// `read`, `write` or `read and write`.
        access: &'static str,
    },
    /// The source of a mount is not there.
    #[error("mount source {path:?} of {destination:?}: {found}")]
    MountSource {
        /// The path on the host.
        path: PathBuf,
        /// Where it would be mounted.
        destination: String,
        /// What the host says.
        found: String,
    },
    /// A hook's program is not there or cannot run.
    #[error("{hook} hook {path:?}: {found}")]
    HookMissing {
        /// The program.
        path: PathBuf,
        /// The hook list.
        hook: &'static str,
        /// What is there instead.
        found: String,
    },
    /// One network interface is asked for by two devices.
    #[error("network interface {interface:?} is asked for twice, as {first:?} and {second:?}")]
    NetTwice {
        /// The interface on the host.
        interface: String,
        /// A name in the container.
        first: String,
        /// The other one.
        second: String,
    },
    /// Two network interfaces would get one name in the container.
    #[error("network interfaces {first:?} and {second:?} would both be {name:?} in the container")]
    NetName {
        /// An interface on the host.
        first: String,
        /// The other one.
        second: String,
        /// The name in the container.
        name: String,
    },
}

// === impl EditError ===

impl EditError {
    pub(super) fn new(origin: &Origin, kind: EditErrorKind) -> Self {
        Self { kind, origin: Box::new(origin.clone()) }
    }

    /// The stable code: `DEVICE-GONE`, `DEVICE-CHANGED`, `SPEC-INVALID`, `USERNS-MODE`,
    /// `MOUNT-SOURCE`, `HOOK-MISSING` or `CONFLICT`.
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }
}

// === impl EditErrorKind ===

impl EditErrorKind {
    fn code(&self) -> &'static str {
        match self {
            Self::DeviceGone { .. } => "DEVICE-GONE",
            Self::DeviceChanged { .. } => "DEVICE-CHANGED",
            Self::DeviceNumber { .. } => "SPEC-INVALID",
            Self::UsernsMode { .. } => "USERNS-MODE",
            Self::MountSource { .. } => "MOUNT-SOURCE",
            Self::HookMissing { .. } => "HOOK-MISSING",
            Self::NetTwice { .. } | Self::NetName { .. } => "CONFLICT",
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::DeviceGone { .. } => "load the driver, or write the spec again",
            Self::DeviceChanged { .. } | Self::DeviceNumber { .. } => "write the spec again",
            Self::UsernsMode { .. } => {
                "give the node a mode that lets others open it, or run without a user namespace"
            }
            Self::MountSource { .. } => {
                "install what is missing, or write the spec again after a driver update"
            }
            Self::HookMissing { .. } => "install the hook, or write the spec again",
            Self::NetTwice { .. } | Self::NetName { .. } => "request only one of them",
        }
    }
}

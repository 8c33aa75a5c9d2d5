//! A layout: the places in a config's text that edits look at.

/// A range of bytes of the text: one JSON value, quotes and brackets included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The place of a member of an object.
#[derive(Debug, Default)]
pub(crate) enum Slot<T> {
    /// The member is not there.
    #[default]
    Absent,
    /// It is `null`, which Go reads as not there.
    Null(Span),
    /// It is there.
    There(T),
}

/// An object, as far as adding a member needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Object {
    /// Behind the `{`.
    pub(crate) open: usize,
    /// At the first key, or at the `}` of an empty object.
    pub(crate) first: usize,
    /// Behind the last value; `open` in an empty object.
    pub(crate) last: usize,
}

/// A list with its elements.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) span: Span,
    pub(crate) items: Vec<Item>,
}

/// An element of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) span: Span,
    /// The string by which elements of this list are told apart: a mount's `destination`, a
    /// device's `path`.
    pub(crate) key: Option<Span>,
}

/// The config.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) root: Object,
    pub(crate) annotations: Vec<(Span, Span)>,
    pub(crate) process: Slot<Process>,
    pub(crate) mounts: Slot<List>,
    pub(crate) hooks: Slot<Hooks>,
    pub(crate) linux: Slot<Linux>,
}

/// `process`.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) object: Object,
    pub(crate) env: Slot<List>,
    pub(crate) user: Slot<User>,
}

/// `process.user`.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) object: Object,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) additional_gids: Slot<List>,
}

/// `hooks`: the six lists, in the order of [`Hooks::NAMES`].
#[derive(Debug)]
pub(crate) struct Hooks {
    pub(crate) object: Object,
    pub(crate) lists: [Slot<List>; 6],
}

/// `linux`.
#[derive(Debug)]
pub(crate) struct Linux {
    pub(crate) object: Object,
    pub(crate) devices: Slot<List>,
    pub(crate) resources: Slot<Resources>,
    pub(crate) net_devices: Slot<NetDevices>,
    pub(crate) intel_rdt: Slot<Span>,
    pub(crate) user_namespace: bool,
    pub(crate) uid_mappings: Slot<Span>,
    pub(crate) gid_mappings: Slot<Span>,
}

/// `linux.resources`.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) object: Object,
    pub(crate) devices: Slot<List>,
}

/// `linux.netDevices`: interface on the host to its settings.
#[derive(Debug)]
pub(crate) struct NetDevices {
    pub(crate) object: Object,
    pub(crate) members: Vec<(Span, Span)>,
}

// === impl Slot ===

impl<T> Slot<T> {
    /// The value, when there is one.
    pub(crate) fn there(&self) -> Option<&T> {
        match self {
            Self::There(value) => Some(value),
            Self::Absent | Self::Null(_) => None,
        }
    }

    /// The same place of a part of the value.
    pub(crate) fn map<U>(&self, part: impl FnOnce(&T) -> U) -> Slot<U> {
        match self {
            Self::Absent => Slot::Absent,
            Self::Null(span) => Slot::Null(*span),
            Self::There(value) => Slot::There(part(value)),
        }
    }

    /// True once the member was seen.
    pub(super) fn seen(&self) -> bool {
        !matches!(self, Self::Absent)
    }
}

// === impl Object ===

impl Object {
    pub(crate) fn is_empty(self) -> bool {
        self.last == self.open
    }
}

// === impl Hooks ===

impl Hooks {
    pub(crate) const NAMES: [&'static str; 6] =
        ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];
}

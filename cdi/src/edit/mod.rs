//! An edit: what a resolution does to an OCI config.
//!
//! The rules are those of the Go reference library where `DEVIATIONS.md` says nothing else. All
//! of it happens or nothing: the result is a new text, made when everything is known to fit.
//! What is there already as it is asked for stays as it is, so that a second edit, or one on top
//! of an engine that did CDI itself, gives the same bytes.

mod cgroup;
mod check;
mod device;
mod draft;
mod env;
mod error;
mod gids;
mod hook;
mod index;
mod mount;
mod net;
mod rdt;
mod userns;

use std::{borrow::Cow, fmt};

pub use check::missing_paths;
pub use error::{EditError, EditErrorKind};

use crate::{
    host::Host,
    oci::Config,
    resolve::{Origin, Resolution},
};

/// What an edit cannot read from the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The runtime itself runs in a user namespace or without root, so that it cannot make device
    /// nodes: they are mounted, as for a config that asks for a user namespace.
    pub rootless: bool,
    /// Mount sources and hooks must be there now: the runtime's own message about them names no
    /// spec. Off for tools that show what an edit would do elsewhere.
    pub check_paths: bool,
}

/// An edited config.
#[derive(Debug)]
pub struct Edited<'a> {
    /// The new text; the borrowed old one when nothing changed.
    pub bytes: Cow<'a, [u8]>,
    /// What changed and on whose behalf.
    pub changes: Vec<Change<'a>>,
}

/// One change of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<'a> {
    /// What happened.
    pub what: What,
    /// The part that asked for it.
    pub origin: &'a Origin,
    place: Place<'a>,
}

/// What a change did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A value that was not there.
    Added,
    /// Another value than was there.
    Replaced,
    /// A value is gone; the pointer is that of the config before the edit.
    Removed,
    /// Values that were there have another order.
    Reordered,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place<'a> {
    /// The value itself.
    Value(&'static str),
    /// An element of a list.
    Item(&'static str, usize),
    /// A member of an object with free keys.
    Member(&'static str, Cow<'a, str>),
}

/// Applies `resolution` to `config`.
///
/// # Errors
/// [`EditError`] says which part of which spec does not fit this host, or this config. Nothing is
/// half done then: there is no result.
pub fn apply<'a>(
    config: &Config<'a>,
    resolution: &'a Resolution,
    host: &dyn Host,
    options: Options,
) -> Result<Edited<'a>, EditError> {
    if options.check_paths
        && let Some(error) = check::first_missing_path(resolution, host)
    {
        return Err(error);
    }
    let mut draft = draft::Draft::new(config);
    env::apply(&mut draft, resolution);
    let binds = device::apply(&mut draft, resolution, host, options)?;
    net::apply(&mut draft, resolution)?;
    mount::apply(&mut draft, resolution, binds);
    hook::apply(&mut draft, resolution);
    rdt::apply(&mut draft, resolution);
    gids::apply(&mut draft, resolution);
    Ok(draft.finish())
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self { rootless: false, check_paths: true }
    }
}

// === impl Change ===

impl Change<'_> {
    /// The place, as a JSON pointer (RFC 6901) into the edited config; for [`What::Removed`] into
    /// the one before.
    pub fn pointer(&self) -> String {
        match &self.place {
            Place::Value(pointer) => (*pointer).to_owned(),
            Place::Item(list, index) => format!("{list}/{index}"),
            Place::Member(object, key) => {
                format!("{object}/{}", key.replace('~', "~0").replace('/', "~1"))
            }
        }
    }
}

impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            What::Added => "added",
            What::Replaced => "replaced",
            What::Removed => "removed",
            What::Reordered => "reordered",
        };
        write!(f, "{} {what} by {}", self.pointer(), self.origin)
    }
}

#[cfg(test)]
mod tests;

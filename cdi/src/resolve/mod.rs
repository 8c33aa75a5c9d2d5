//! A resolution: requested names turned into the edits to apply, each with where it came from.
//!
//! All names resolve or none does.

mod unresolved;

use std::{
    fmt,
    path::{Path, PathBuf},
};

pub use unresolved::{Missing, Unresolved, Why};

use crate::{
    file::{self, MAX_SPEC_BYTES, Trust},
    name::QualifiedName,
    registry::{self, Found, Listed, Order, Place, Registry, SpecFile, Verdict, Wanted},
    spec::{self, ContainerEdits},
};

/// Bytes of a file that are read first. Enough for all of most specs, so that a file that is not
/// asked for costs three calls of the system.
const FIRST_LOOK: usize = 16 << 10;

/// Of more names than these it is not said what may have been meant.
const EXPLAINED: usize = 16;

/// Where an edit came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The spec file.
    pub file: PathBuf,
    /// The part of it.
    pub scope: Scope,
}

/// The part of a spec file that holds an edit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// `containerEdits` of the document, for all of its devices.
    Global,
    /// `containerEdits` of the device of this name.
    Device(String),
}

/// Edits from one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The place.
    pub origin: Origin,
    /// What is done to the container.
    pub edits: ContainerEdits,
}

/// What to apply, in order: a file's global edits before its first device, every device once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolution {
    /// The parts, each origin once.
    pub parts: Vec<Part>,
}

/// Resolves `names` among everything that was scanned.
///
/// # Errors
/// When a name is not defined or is in conflict.
pub fn resolve(registry: &Registry, names: &[QualifiedName]) -> Result<Resolution, Unresolved> {
    let mut places = Vec::with_capacity(names.len());
    let mut missing = Vec::new();
    for name in names {
        match registry.find(name) {
            Found::One(place) => places.push(place),
            Found::Nothing if missing.len() < EXPLAINED => {
                missing.push(Missing::undefined(name, registry));
            }
            Found::Nothing => missing.push(Missing::unexplained(name)),
            Found::Conflict(there) => missing.push(Missing::conflict(name, registry, &there)),
        }
    }
    if !missing.is_empty() {
        return Err(Unresolved::in_directories(missing, registry));
    }
    let parts = places.into_iter().flat_map(|place| {
        let file = registry.spec(place.spec);
        let device = file.and_then(|file| file.spec.devices.get(place.device));
        let global = file.map(|file| (file, Scope::Global, file.spec.container_edits.clone()));
        let own = file.zip(device).map(|(file, device)| {
            (file, Scope::Device(device.name.clone()), device.container_edits.clone())
        });
        global.into_iter().chain(own)
    });
    let mut resolution = Resolution::default();
    for (file, scope, edits) in parts {
        resolution.push(&file.path, scope, edits);
    }
    Ok(resolution)
}

/// What [`resolve`] gives after [`Registry::scan`], for a hook that has to be fast: every file is
/// read, but only those are parsed that may define one of `names`. A failure is explained by a
/// full scan.
///
/// # Errors
/// As [`resolve`].
pub fn lookup(
    dirs: &[PathBuf],
    names: &[QualifiedName],
    trust: &Trust,
) -> Result<Resolution, Unresolved> {
    if names.is_empty() {
        return Ok(Resolution::default());
    }
    match quick(dirs, names, trust) {
        Some(resolution) => Ok(resolution),
        None => resolve(&Registry::scan(dirs, trust), names),
    }
}

/// [`lookup`] when all goes well.
fn quick(dirs: &[PathBuf], names: &[QualifiedName], trust: &Trust) -> Option<Resolution> {
    let wanted = Wanted::new(names);
    let mut specs: Vec<SpecFile> = Vec::new();
    let mut buffer = Vec::new();
    registry::walk(dirs, trust, Order::Listed, |listed| {
        specs.extend(read_candidate(listed, &wanted, trust, &mut buffer));
    });
    take(&mut specs, names)
}

/// Resolves `names` in one file, which something else has found to be the right one.
///
/// # Errors
/// When the file is no valid spec or does not define a name.
pub fn from_spec(
    path: &Path,
    bytes: &[u8],
    names: &[QualifiedName],
) -> Result<Resolution, Unresolved> {
    let skimmed = spec::skim(bytes, |device| names.iter().any(|name| name.device() == device));
    let of_file =
        |spec| SpecFile { path: path.to_owned(), priority: 0, spec, warnings: Vec::new() };
    if let Some(resolution) = skimmed.and_then(|spec| take(&mut [of_file(spec)], names)) {
        return Ok(resolution);
    }
    let spec = spec::read(path, bytes)
        .map_err(|problems| Unresolved::in_invalid_file(names, path, problems))?
        .spec;
    let mut specs = [of_file(spec)];
    take(&mut specs, names).ok_or_else(|| Unresolved::in_file(names, &specs))
}

/// The spec in a file, when it may define what is wanted. A file that cannot be read or parsed
/// defines nothing; why, a full scan says.
fn read_candidate(
    listed: &Listed<'_>,
    wanted: &Wanted<'_>,
    trust: &Trust,
    buffer: &mut Vec<u8>,
) -> Option<SpecFile> {
    if listed.irregular().is_some() {
        return None;
    }
    let peeked = file::peek_at(listed.fd, listed.name, FIRST_LOOK, buffer).ok()?;
    let mut verdict = wanted.judge(buffer, peeked.whole);
    if verdict == Verdict::Foreign {
        return None;
    }
    let path = listed.path();
    peeked.finish(&path, MAX_SPEC_BYTES, trust, buffer).ok()?;
    if verdict == Verdict::ReadOn {
        verdict = wanted.judge(buffer, true);
    }
    if verdict == Verdict::Foreign {
        return None;
    }
    let spec = spec::skim(buffer, |device| wanted.has(device))
        .or_else(|| Some(spec::read(&path, buffer).ok()?.spec))?;
    Some(SpecFile { path, priority: listed.priority, spec, warnings: Vec::new() })
}

/// Takes the edits of `names` out of `specs`; none, and nothing is taken, when one is missing or
/// in conflict.
fn take(specs: &mut [SpecFile], names: &[QualifiedName]) -> Option<Resolution> {
    let mut places = Vec::with_capacity(names.len());
    for name in names {
        match registry::find(specs, &places_of(specs, name)) {
            Found::One(place) => places.push(place),
            Found::Nothing | Found::Conflict(_) => return None,
        }
    }
    let mut resolution = Resolution::default();
    for place in places {
        let Some(SpecFile { path, spec, .. }) = specs.get_mut(place.spec) else { continue };
        resolution.push(path, Scope::Global, std::mem::take(&mut spec.container_edits));
        if let Some(device) = spec.devices.get_mut(place.device) {
            let edits = std::mem::take(&mut device.container_edits);
            resolution.push(path, Scope::Device(device.name.clone()), edits);
        }
    }
    Some(resolution)
}

/// Where `specs` define `name`.
fn places_of(specs: &[SpecFile], name: &QualifiedName) -> Vec<Place> {
    let of_kind = specs.iter().enumerate().filter(|(_, file)| file.spec.kind == name.kind());
    let places = of_kind.flat_map(|(spec, file)| {
        let devices = file.spec.devices.iter().enumerate();
        let named = devices.filter(|(_, device)| device.name == name.device());
        named.map(move |(device, _)| Place { spec, device })
    });
    places.collect()
}

// === impl Resolution ===

impl Resolution {
    /// Appends what `other` has and `self` has not.
    pub fn merge(&mut self, other: Self) {
        for Part { origin, edits } in other.parts {
            self.push(&origin.file, origin.scope, edits);
        }
    }

    fn push(&mut self, file: &Path, scope: Scope, edits: ContainerEdits) {
        let is_known =
            |part: &Part| part.origin.scope == scope && part.origin.file.as_path() == file;
        if !edits.is_empty() && !self.parts.iter().any(is_known) {
            let origin = Origin { file: file.to_owned(), scope };
            self.parts.push(Part { origin, edits });
        }
    }
}

// === impl Origin ===

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            Scope::Global => write!(f, "global edits of {}", self.file.display()),
            Scope::Device(name) => write!(f, "device {name:?} of {}", self.file.display()),
        }
    }
}

#[cfg(test)]
mod tests;

//! A registry: everything that the spec directories hold, good and bad.
//!
//! A name counts in the directory of the highest priority that defines it. Two files there that
//! define it make it unusable, even where a directory of lower priority has a good definition:
//! the later word is the one that counts, and it is ambiguous. Nothing else makes a file or a
//! directory hide another: not that it is broken, unreadable or untrusted.

mod candidate;
mod walk;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

pub(crate) use candidate::{Verdict, Wanted};
pub(crate) use walk::{Listed, Order, walk};

use crate::{
    file::{self, FileError, MAX_SPEC_BYTES, Trust},
    name::QualifiedName,
    problem::{Problem, Severity},
    spec::{self, Device, Spec},
};

/// Where specs are looked for, lowest priority first.
pub const DEFAULT_DIRS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// Bytes of rejected files that are kept, to tell which of them could define a name.
const MAX_KEPT: usize = 1 << 20;

/// Everything that was found.
#[derive(Debug)]
pub struct Registry {
    directories: Vec<Directory>,
    specs: Vec<SpecFile>,
    /// The places of each name in `specs`, highest priority first.
    names: BTreeMap<QualifiedName, Vec<Place>>,
    problems: Vec<Problem>,
    rejected: Vec<(PathBuf, Vec<u8>)>,
}

/// A directory that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// As it was given.
    pub path: PathBuf,
    /// What became of it.
    pub state: State,
}

/// What became of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Its spec files were read.
    Read {
        /// How many there are, good and bad.
        files: usize,
    },
    /// It is not there, which is no problem.
    Missing,
    /// It is the same directory as a later one, and counts there.
    Same(PathBuf),
    /// It was not read: a code (`UNTRUSTED`, `UNREADABLE`) and why.
    Refused(&'static str, String),
}

/// A spec file that is valid.
#[derive(Debug, Clone)]
pub struct SpecFile {
    /// The file.
    pub path: PathBuf,
    /// The place of its directory in the list of directories; higher wins.
    pub priority: usize,
    /// What it says.
    pub spec: Spec,
    /// What its author may not have meant.
    pub warnings: Vec<Problem>,
}

/// A device that a file defines.
#[derive(Debug, Clone)]
pub struct Definition<'r> {
    /// Its whole name.
    pub name: &'r QualifiedName,
    /// The file.
    pub file: &'r SpecFile,
    /// The device in it.
    pub device: &'r Device,
    /// Whether a request gets it.
    pub standing: Standing<'r>,
}

/// Whether a request for a name gets a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing<'r> {
    /// It does.
    Usable,
    /// This file of higher priority defines it too.
    Shadowed(&'r Path),
    /// These files of the same directory define it too: no request for it succeeds.
    Conflict(Vec<&'r Path>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) spec: usize,
    pub(crate) device: usize,
}

/// What a name stands for.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    One(Place),
    Conflict(Vec<Place>),
}

// === impl Registry ===

impl Registry {
    /// Reads every spec file of `dirs`, lowest priority first, that `trust` allows.
    pub fn scan(dirs: &[PathBuf], trust: &Trust) -> Self {
        let mut registry = Self {
            directories: Vec::new(),
            specs: Vec::new(),
            names: BTreeMap::new(),
            problems: Vec::new(),
            rejected: Vec::new(),
        };
        let mut buffer = Vec::new();
        registry.directories =
            walk(dirs, trust, Order::Sorted, |file| registry.read(file, trust, &mut buffer));
        for Directory { path, state } in &registry.directories {
            if let State::Refused(code, why) = state {
                registry.problems.push(problem(path.clone(), code, why.clone()));
            }
        }
        registry.index();
        registry
    }

    /// The valid spec files, in the order in which they were read.
    pub fn specs(&self) -> &[SpecFile] {
        &self.specs
    }

    /// What became of each directory, in the order in which they were given.
    pub fn directories(&self) -> &[Directory] {
        &self.directories
    }

    /// What is wrong with files, directories and names, errors and warnings.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The devices that can be requested, in the order of their names.
    pub fn devices(&self) -> impl Iterator<Item = Definition<'_>> {
        self.definitions().filter(|definition| definition.standing == Standing::Usable)
    }

    /// Every definition of every name, in the order of the names; of one name the one that counts
    /// first.
    pub fn definitions(&self) -> impl Iterator<Item = Definition<'_>> {
        self.names.iter().flat_map(move |(name, places)| {
            places.iter().filter_map(move |place| self.definition(name, places, *place))
        })
    }

    /// Up to three names that somebody who asks for `name` may have meant: devices of the same
    /// kind, or else of a kind that is spelled much alike.
    pub fn near(&self, name: &QualifiedName) -> Vec<&QualifiedName> {
        near(name, self.names.keys())
    }

    pub(crate) fn find(&self, name: &QualifiedName) -> Found {
        self.names.get(name).map_or(Found::Nothing, |places| find(&self.specs, places))
    }

    pub(crate) fn spec(&self, index: usize) -> Option<&SpecFile> {
        self.specs.get(index)
    }

    /// The rejected files that may have been meant to define `name`.
    pub(crate) fn rejected_for(&self, name: &QualifiedName) -> impl Iterator<Item = &Problem> {
        let wanted = Wanted::new([name]);
        let candidates =
            self.rejected.iter().filter(|(_, text)| wanted.judge(text, true) == Verdict::Candidate);
        let files: Vec<&Path> = candidates.map(|(path, _)| path.as_path()).collect();
        self.problems.iter().filter(move |problem| {
            problem.severity == Severity::Error && files.contains(&problem.file.as_path())
        })
    }

    fn read(&mut self, listed: &Listed<'_>, trust: &Trust, buffer: &mut Vec<u8>) {
        let path = listed.path();
        if let Some(found) = listed.irregular() {
            let error = FileError::NotRegular { path: path.clone(), found };
            self.problems.push(problem(path, error.code(), error.why().to_string()));
            return;
        }
        let read =
            file::read_at(listed.fd, listed.directory, listed.name, MAX_SPEC_BYTES, trust, buffer);
        match read {
            Ok(()) => {}
            Err(FileError::NotFound { .. }) if listed.may_vanish() => return,
            Err(error) => {
                self.problems.push(problem(path, error.code(), error.why().to_string()));
                return;
            }
        }
        match spec::read(&path, buffer) {
            Ok(parsed) => {
                self.problems.extend(parsed.warnings.iter().cloned());
                let (spec, warnings) = (parsed.spec, parsed.warnings);
                self.specs.push(SpecFile { path, priority: listed.priority, spec, warnings });
            }
            Err(problems) => {
                self.problems.extend(problems);
                let kept: usize = self.rejected.iter().map(|(_, bytes)| bytes.len()).sum();
                if kept + buffer.len() <= MAX_KEPT {
                    self.rejected.push((path, buffer.clone()));
                }
            }
        }
    }

    /// Fills `names`, and reports conflicts.
    fn index(&mut self) {
        // The directory of highest priority was read last; in it the first file comes first.
        let files: Vec<(usize, &SpecFile)> = self.specs.iter().enumerate().collect();
        let of_directory = files.chunk_by(|(_, a), (_, b)| a.priority == b.priority);
        for &(spec, file) in of_directory.rev().flatten() {
            for (device, found) in file.spec.devices.iter().enumerate() {
                // Both parts were validated.
                let name = format!("{}={}", file.spec.kind, found.name);
                if let Ok(name) = QualifiedName::parse(&name) {
                    self.names.entry(name).or_default().push(Place { spec, device });
                }
            }
        }
        for (name, places) in &self.names {
            let files: Vec<_> =
                places.iter().filter_map(|place| self.specs.get(place.spec)).collect();
            for files in files.chunk_by(|a, b| a.priority == b.priority) {
                for file in files.iter().filter(|_| files.len() > 1) {
                    let others = files.iter().filter(|other| other.path != file.path);
                    let others: Vec<_> = others.map(|other| &other.path).collect();
                    let others = paths(others.into_iter());
                    let message = format!("is defined by {others} too, so that neither counts");
                    let device = Some(name.to_string());
                    let conflict = problem(file.path.clone(), "CONFLICT", message);
                    self.problems.push(Problem { device, ..conflict });
                }
            }
        }
    }

    fn definition<'r>(
        &'r self,
        name: &'r QualifiedName,
        places: &[Place],
        place: Place,
    ) -> Option<Definition<'r>> {
        let file = self.specs.get(place.spec)?;
        let device = file.spec.devices.get(place.device)?;
        let first = self.specs.get(places.first()?.spec)?;
        let others = places.iter().filter_map(|place| self.specs.get(place.spec));
        let others = others.filter(|other| other.priority == file.priority);
        let others: Vec<&Path> =
            others.map(|file| file.path.as_path()).filter(|path| *path != file.path).collect();
        let standing = if first.priority > file.priority {
            Standing::Shadowed(&first.path)
        } else if others.is_empty() {
            Standing::Usable
        } else {
            Standing::Conflict(others)
        };
        Some(Definition { name, file, device, standing })
    }
}

/// What `places`, all of one name, amount to.
pub(crate) fn find(specs: &[SpecFile], places: &[Place]) -> Found {
    let priority = |place: &Place| specs.get(place.spec).map(|file| file.priority);
    let Some(highest) = places.iter().map(priority).max() else {
        return Found::Nothing;
    };
    let mut there = places.iter().copied().filter(|place| priority(place) == highest);
    match (there.next(), there.next()) {
        (Some(one), None) => Found::One(one),
        (Some(first), Some(second)) => {
            Found::Conflict([first, second].into_iter().chain(there).collect())
        }
        (None, _) => Found::Nothing,
    }
}

/// Up to three of `names` that somebody who asks for `name` may have meant.
pub(crate) fn near<'r>(
    name: &QualifiedName,
    names: impl Iterator<Item = &'r QualifiedName> + Clone,
) -> Vec<&'r QualifiedName> {
    let mut kinds = names.clone().map(QualifiedName::kind);
    let kind = match kinds.clone().find(|kind| *kind == name.kind()) {
        Some(kind) => kind,
        None => match crate::near::nearest(name.kind(), &mut kinds) {
            Some(kind) => kind,
            None => return Vec::new(),
        },
    };
    let of_kind: Vec<_> = names.filter(|candidate| candidate.kind() == kind).collect();
    let distance = |near: &QualifiedName| crate::near::distance(name.device(), near.device());
    let mut near: Vec<(usize, usize)> =
        of_kind.iter().map(|near| distance(near)).zip(0..).collect();
    near.sort_unstable();
    near.into_iter().take(3).filter_map(|(_, index)| of_kind.get(index).copied()).collect()
}

/// The first of `files`, and how many more there are.
pub(crate) fn paths(files: impl ExactSizeIterator<Item = impl AsRef<Path>>) -> String {
    const SHOWN: usize = 3;
    let more = files.len().saturating_sub(SHOWN);
    let shown = files.take(SHOWN).map(|path| path.as_ref().display().to_string());
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

fn problem(file: PathBuf, code: &'static str, message: String) -> Problem {
    Problem { file, at: None, device: None, field: None, severity: Severity::Error, code, message }
}

#[cfg(test)]
mod tests;

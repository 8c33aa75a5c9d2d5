//! Unresolved: why requested names have no edits, and everything that was looked at.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::Place;
use crate::{
    name::QualifiedName,
    problem::{Problem, Severity, quoted},
    registry::{self, Directory, Registry, SpecFile, State},
};

/// The most letters of the line.
const MAX_LINE: usize = 2000;

/// The most names, directories and problems of each kind that the line names.
const SHOWN: usize = 3;

/// Why nothing was resolved. Shown as one line, its code first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    missing: Vec<Missing>,
    looked_at: LookedAt,
    problems: Vec<Problem>,
    /// Something that nobody may read could well define the first name: nothing that was read has
    /// devices of its kind.
    suspect: bool,
}

/// A name without edits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The name.
    pub name: QualifiedName,
    /// Why.
    pub why: Why,
    /// Names that may have been meant.
    pub near: Vec<QualifiedName>,
}

/// Why a name has no edits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Nothing defines it.
    Undefined,
    /// These files of one directory define it.
    Conflict(Vec<PathBuf>),
    /// Files that seem to define it were rejected.
    Rejected(Vec<Problem>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LookedAt {
    Directories(Vec<Directory>),
    File(PathBuf),
}

impl std::error::Error for Unresolved {}

// === impl Unresolved ===

impl Unresolved {
    pub(super) fn in_directories(missing: Vec<Missing>, registry: &Registry) -> Self {
        let looked_at = LookedAt::Directories(registry.directories().to_vec());
        let errors = registry.problems().iter().filter(|p| p.severity == Severity::Error);
        let suspect = missing.first().is_some_and(|first| {
            registry.specs().iter().all(|file| file.spec.kind != first.name.kind())
        });
        Self { missing, looked_at, problems: errors.cloned().collect(), suspect }
    }

    pub(super) fn in_invalid_file(
        names: &[QualifiedName],
        path: &Path,
        problems: Vec<Problem>,
    ) -> Self {
        let why = Why::Rejected(problems.clone());
        let missing = names.iter().map(|name| Missing {
            name: name.clone(),
            why: why.clone(),
            near: Vec::new(),
        });
        Self {
            missing: missing.collect(),
            looked_at: LookedAt::File(path.to_owned()),
            problems,
            suspect: false,
        }
    }

    /// `names` that the one file of `specs` does not all define.
    pub(super) fn in_file(names: &[QualifiedName], specs: &[SpecFile]) -> Self {
        let defined: Vec<QualifiedName> = specs
            .iter()
            .flat_map(|file| file.spec.devices.iter().map(|d| (&file.spec.kind, &d.name)))
            .filter_map(|(kind, name)| QualifiedName::parse(&format!("{kind}={name}")).ok())
            .collect();
        let absent = names.iter().filter(|name| !defined.contains(name));
        let missing = absent.map(|name| Missing {
            name: name.clone(),
            why: Why::Undefined,
            near: registry::near(name, defined.iter()).into_iter().cloned().collect(),
        });
        let path = specs.first().map(|file| file.path.clone()).unwrap_or_default();
        Self {
            missing: missing.collect(),
            looked_at: LookedAt::File(path),
            problems: Vec::new(),
            suspect: false,
        }
    }

    /// The stable code: `CONFLICT`, `SPEC-INVALID`, `SPEC-VERSION`, `UNTRUSTED` or `UNRESOLVED`.
    /// `UNTRUSTED` where a file or directory that is not trusted is the likely place of a name.
    pub fn code(&self) -> &'static str {
        let first = self.missing.first().map(|missing| &missing.why);
        match first {
            Some(Why::Conflict(_)) => "CONFLICT",
            Some(Why::Rejected(problems)) => {
                problems.first().map_or("SPEC-INVALID", |problem| problem.code)
            }
            Some(Why::Undefined) if self.suspect && self.untrusted().next().is_some() => {
                "UNTRUSTED"
            }
            Some(Why::Undefined) | None => "UNRESOLVED",
        }
    }

    /// The names that were asked for in vain.
    pub fn names(&self) -> impl Iterator<Item = &QualifiedName> {
        self.missing.iter().map(|missing| &missing.name)
    }

    /// Each of them with its reason.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Everything that is wrong where it was looked, whether it matters or not.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The directories that were read; none when a record named the file.
    pub fn directories(&self) -> &[Directory] {
        match &self.looked_at {
            LookedAt::Directories(directories) => directories,
            LookedAt::File(_) => &[],
        }
    }

    fn untrusted(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|problem| problem.code == "UNTRUSTED")
    }

    fn line(&self) -> String {
        let mut line = format!("{}: ", self.code());
        // Names that share a reason are told together.
        let mut told: Vec<&Why> = Vec::new();
        for missing in &self.missing {
            if told.contains(&&missing.why) {
                continue;
            }
            if !told.is_empty() {
                line.push_str("; ");
            }
            if told.len() == SHOWN {
                line.push_str("and more");
                break;
            }
            told.push(&missing.why);
            let same = || self.missing.iter().filter(|other| other.why == missing.why);
            line.push_str(&devices(same().map(|missing| &missing.name)));
            line.push_str(&self.reason(&missing.why));
            let mut near: Vec<&str> = Vec::new();
            for name in same().flat_map(|missing| &missing.near) {
                if near.len() < SHOWN && !near.contains(&name.as_str()) {
                    near.push(name.as_str());
                }
            }
            if !near.is_empty() {
                line.push_str(&format!("; nearest: {}", near.join(", ")));
            }
        }
        if let LookedAt::Directories(_) = self.looked_at {
            line.push_str("; \"divvy devices\" lists what is defined");
        }
        line
    }

    fn reason(&self, why: &Why) -> String {
        match why {
            Why::Undefined => {
                let mut text = format!(": not defined in {}", self.looked_at());
                let untrusted: Vec<_> = self.untrusted().collect();
                if !untrusted.is_empty() {
                    text.push_str("; not trusted: ");
                    text.push_str(&list(untrusted.iter().map(ToString::to_string)));
                }
                text
            }
            Why::Conflict(files) => format!(
                ": defined more than once at the same priority, by {}; remove all but one",
                registry::paths(files.iter())
            ),
            Why::Rejected(problems) => {
                let file = problems.first().map(|problem| problem.file.display().to_string());
                let file = file.unwrap_or_default();
                let list = list(problems.iter().map(ToString::to_string));
                format!(": in a file that was rejected: {list}; \"divvy lint {file}\" explains")
            }
        }
    }

    fn looked_at(&self) -> String {
        match &self.looked_at {
            LookedAt::File(path) => path.display().to_string(),
            LookedAt::Directories(directories) if directories.is_empty() => {
                "any directory: none is configured".to_owned()
            }
            LookedAt::Directories(directories) => {
                let shown = directories.iter().take(SHOWN).map(|dir| self.looked_at_one(dir));
                let mut text = shown.collect::<Vec<_>>().join(" or ");
                let more = directories.len().saturating_sub(SHOWN);
                if more > 0 {
                    text.push_str(&format!(" or {more} more"));
                }
                text
            }
        }
    }

    fn looked_at_one(&self, directory: &Directory) -> String {
        let path = directory.path.display();
        let files = match &directory.state {
            State::Missing => return format!("{path} (missing)"),
            State::Same(other) => return format!("{path} (the same as {})", other.display()),
            State::Refused(_, why) => return format!("{path} (refused: {why})"),
            State::Read { files } => files,
        };
        let rejected = || {
            let of_dir = |problem: &&Problem| problem.file.parent() == Some(&directory.path);
            let of_file = |problem: &&Problem| problem.code != "CONFLICT";
            self.problems.iter().filter(of_dir).filter(of_file)
        };
        let s = if *files == 1 { "" } else { "s" };
        if rejected().next().is_none() {
            return format!("{path} ({files} file{s} read)");
        }
        let short = rejected().map(|problem| {
            let text = problem.to_string();
            let name = problem.file.file_name().map(|name| name.to_string_lossy().into_owned());
            let rest = text.strip_prefix(&*problem.file.display().to_string()).unwrap_or_default();
            format!("{}{rest}", name.unwrap_or_default())
        });
        format!("{path} ({files} file{s} read; rejected: {})", list(short))
    }
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Paths may hold anything; the message stays one line.
        for (count, letter) in self.line().chars().enumerate() {
            if count == MAX_LINE {
                return f.write_str("…");
            }
            if letter.is_control() {
                write!(f, "{}", letter.escape_default())?;
            } else {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

// === impl Missing ===

impl Missing {
    pub(super) fn undefined(name: &QualifiedName, registry: &Registry) -> Self {
        let rejected: Vec<Problem> = registry.rejected_for(name).cloned().collect();
        let why = if rejected.is_empty() { Why::Undefined } else { Why::Rejected(rejected) };
        let near = registry.near(name).into_iter().cloned().collect();
        Self { name: name.clone(), why, near }
    }

    /// The one of so many that nobody reads about it.
    pub(super) fn unexplained(name: &QualifiedName) -> Self {
        Self { name: name.clone(), why: Why::Undefined, near: Vec::new() }
    }

    pub(super) fn conflict(name: &QualifiedName, registry: &Registry, places: &[Place]) -> Self {
        let files = places.iter().filter_map(|place| registry.spec(place.spec));
        let why = Why::Conflict(files.map(|file| file.path.clone()).collect());
        Self { name: name.clone(), why, near: Vec::new() }
    }
}

/// The first of some names, as the subject of a sentence.
fn devices<'n>(names: impl Iterator<Item = &'n QualifiedName>) -> String {
    let names: Vec<_> = names.collect();
    let shown = names.iter().take(SHOWN).map(|name| quoted(name.as_str()).to_string());
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len() {
        0 | 1 => format!("device {shown}"),
        count if count <= SHOWN => format!("devices {shown}"),
        count => format!("devices {shown} and {} more", count - SHOWN),
    }
}

/// The first of some texts.
fn list(texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<_> = texts.collect();
    let mut line = texts.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
    let more = texts.len().saturating_sub(SHOWN);
    if more > 0 {
        line.push_str(&format!("; and {more} more"));
    }
    line
}

//! An exit code says how a command ended, and a failure why: with a stable code for programs, a
//! text for people, and what to do next. One table maps the second to the first.

use std::{error::Error, fmt, io, process::ExitCode};

use divvy_cdi::problem::chain;

use crate::declared::DeclaredError;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It did what it was asked to.
    Ok = 0,
    /// Something else is in the way: a device, a file, the machine.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A CDI name cannot be resolved.
    Unresolved = 3,
    /// A spec, manifest or configuration is invalid.
    Invalid = 4,
}

/// Why a command failed: at least one reason, of which the first decides the exit code.
#[derive(Debug)]
pub struct Failure {
    reasons: Vec<Reason>,
    /// In place of what the first reason's code stands for.
    exit: Option<Exit>,
}

/// One thing that failed.
#[derive(Debug)]
struct Reason {
    /// Stable, for programs.
    code: &'static str,
    /// What failed, where, and what was looked at.
    line: String,
    /// What to do next; empty where the line says it all.
    help: &'static str,
}

/// What each code means for the exit code, and what a person can do.
const TABLE: &[(&str, Exit, &str)] = &[
    ("UNRESOLVED", Exit::Unresolved, ""),
    ("CONFLICT", Exit::Unresolved, ""),
    ("SPEC-INVALID", Exit::Invalid, ""),
    ("SPEC-VERSION", Exit::Invalid, ""),
    ("CLAIM-INVALID", Exit::Invalid, ""),
    ("CLAIM-VERSION", Exit::Invalid, ""),
    ("CLAIM-UNSUPPORTED", Exit::Invalid, ""),
    ("BUNDLE-INVALID", Exit::Invalid, ""),
    ("CONFIG-INVALID", Exit::Invalid, ""),
    ("CONFIG-UNSUPPORTED", Exit::Invalid, ""),
    ("SLICE-INVALID", Exit::Invalid, ""),
    (
        "SELECTOR-INVALID",
        Exit::Invalid,
        "an attribute that some devices lack is asked for with .?NAME.orValue(…), or after what only \
         those with it meet",
    ),
    ("GPUS-INVALID", Exit::Invalid, ""),
    ("DEVICES-INVALID", Exit::Invalid, ""),
    ("USAGE", Exit::Usage, ""),
    (
        "NO-GPUS",
        Exit::Usage,
        "name a simulated node: --gpus sim:FILE, or devices of the host: --devices FILE",
    ),
    (
        "GPUS-MISSING",
        Exit::Failed,
        "bring them back to where they were, then `divvy unprepare` it again",
    ),
    ("NO-DEVICE", Exit::Failed, "`divvy devices --gpus …` shows what the node has"),
    (
        "OVERLAP",
        Exit::Failed,
        "end the claim that has it with `divvy unprepare`, or what this journal does not know by \
         the means that made it, or allocate another device",
    ),
    (
        "CLAIM-PREPARED",
        Exit::Failed,
        "end it with `divvy unprepare` first: what containers were given must not change",
    ),
    // What helps depends on the system's answer: `refused`.
    ("STATE-DIR", Exit::Failed, ""),
    ("UNWRITABLE", Exit::Failed, ""),
    (
        "UNTRUSTED",
        Exit::Failed,
        "only files that nobody but root (or you) can write are used; correct owner or mode",
    ),
    (
        "JOURNAL-INVALID",
        Exit::Failed,
        "what its claim holds is not known, so nobody else gets its GPUs; `divvy-node --once`, with \
         the --gpus and --run-dir that it was prepared with, makes the entry anew and keeps the file \
         aside",
    ),
    (
        "JOURNAL-NEWER",
        Exit::Failed,
        "what its claim holds is not known to this divvy, so nobody else gets its GPUs; run the \
         newer one, or end the claim with it",
    ),
    ("DEVICE-GONE", Exit::Failed, ""),
    ("LOCK-HELD", Exit::Failed, "end that process if it hangs: the kernel frees its lock"),
    ("API-CONFIG", Exit::Usage, ""),
    (
        "CERTIFICATE-INVALID",
        Exit::Invalid,
        "a certificate chain and its key, both in PEM, are wanted",
    ),
    ("API-SERVER", Exit::Failed, ""),
    (
        "API-FORBIDDEN",
        Exit::Failed,
        "give divvy-node's service account that rule; deploy/chart/templates/rbac.yaml has all that it \
         needs",
    ),
    ("API-VERSION", Exit::Failed, "Kubernetes 1.34 or newer is needed"),
    ("NO-NODE", Exit::Failed, "--node-name is the name that kubectl get nodes shows"),
    (
        "OTHER-DRIVER",
        Exit::Failed,
        "drain the node and remove the other driver from it, or let both be: --beside-other-driver",
    ),
];

// === impl Failure ===

impl Failure {
    /// A failure with one reason.
    pub fn new(code: &'static str, line: impl Into<String>) -> Self {
        let help = row(code).map_or("", |(_, _, help)| *help);
        Self { reasons: vec![Reason { code, line: line.into(), help }], exit: None }
    }

    /// The failure of an error and the chain of its causes.
    pub fn of(code: &'static str, error: &dyn Error) -> Self {
        let mut failure = Self::new(code, chain(error));
        if let ("STATE-DIR" | "UNWRITABLE", Some(kind)) = (code, answer(error)) {
            failure.reasons.iter_mut().for_each(|reason| reason.help = refused(kind));
        }
        failure
    }

    /// The failure of declared devices: each thing that is wrong with a file on a line of its own.
    pub(crate) fn of_declared(error: &DeclaredError) -> Self {
        match error {
            DeclaredError::Invalid { problems } => {
                Self::all(problems.iter().map(|problem| Self::of(problem.code, problem)))
                    .unwrap_or_else(|| Self::of(error.code(), error))
            }
            error => Self::of(error.code(), error),
        }
    }

    /// The failure with the reasons of another behind its own.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.reasons.extend(other.reasons);
        self
    }

    /// The failure with another exit code than its own: where one code has two meanings.
    #[must_use]
    pub fn ending(self, exit: Exit) -> Self {
        Self { exit: Some(exit), ..self }
    }

    /// All failures as one; none when there are none.
    pub fn all(failures: impl IntoIterator<Item = Self>) -> Option<Self> {
        failures.into_iter().reduce(Self::and)
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        let code = self.reasons.first().map(|reason| reason.code);
        let of_code = || code.and_then(row).map_or(Exit::Failed, |(_, exit, _)| *exit);
        self.exit.unwrap_or_else(of_code)
    }
}

fn row(code: &'static str) -> Option<&'static (&'static str, Exit, &'static str)> {
    TABLE.iter().find(|(known, ..)| *known == code)
}

/// The system's answer, among the causes of an error.
fn answer(error: &dyn Error) -> Option<io::ErrorKind> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        cause = error.source();
    }
    None
}

/// What helps where the system refused to write.
fn refused(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::PermissionDenied => {
            "run it as root, or choose directories of your own with --state-dir, --run-dir, \
             --cdi-dir"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space there, then run it again"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "the file system is read-only: mount it writable, or choose other directories with \
             --state-dir, --run-dir, --cdi-dir"
        }
        _ => "",
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut helps: Vec<&str> = Vec::new();
        for Reason { code, line, help } in &self.reasons {
            writeln!(f, "error[{code}]: {}", Plain(&one_line(line)))?;
            if !help.is_empty() && !helps.contains(help) {
                helps.push(help);
            }
        }
        helps.iter().try_for_each(|help| writeln!(f, "  help: {help}"))
    }
}

/// A text from anywhere, such as a path, that must not begin a line of its own.
pub(super) fn one_line(text: &str) -> String {
    text.replace('\n', "\\n")
}

/// A text from anywhere, without what a terminal would take for commands, and not without end.
pub(crate) struct Plain<'a>(pub(crate) &'a str);

/// More than a path and a message need.
const MAX_LINE: usize = 4000;

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.0.split_inclusive('\n') {
            for (count, letter) in line.chars().enumerate() {
                match letter {
                    '\n' => f.write_str("\n")?,
                    _ if count == MAX_LINE => f.write_str("…")?,
                    _ if count > MAX_LINE => {}
                    _ if letter.is_control() => write!(f, "{}", letter.escape_default())?,
                    _ => write!(f, "{letter}")?,
                }
            }
        }
        Ok(())
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(test)]
mod tests;

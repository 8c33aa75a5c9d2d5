//! An exit code says how a command ended, and a failure why: with a stable code for programs, a
//! text for people, and what to do next. One table maps the second to the first.

use std::{fmt, process::ExitCode};

use divvy_cdi::problem::chain;

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
    (
        "SELECTOR-UNSUPPORTED",
        Exit::Invalid,
        "write it in that form, or name the devices in status.allocation",
    ),
    ("GPUS-INVALID", Exit::Invalid, ""),
    ("USAGE", Exit::Usage, ""),
    ("NO-GPUS", Exit::Usage, "name a simulated node: --gpus sim:FILE"),
    ("NO-DEVICE", Exit::Failed, "`divvy devices --gpus …` shows what the node has"),
    (
        "OVERLAP",
        Exit::Failed,
        "end the claim that has it with `divvy unprepare`, or what divvy did not make by the means \
         that made it, or allocate another device",
    ),
    (
        "CLAIM-PREPARED",
        Exit::Failed,
        "end it with `divvy unprepare` first: what containers were given must not change",
    ),
    (
        "STATE-DIR",
        Exit::Failed,
        "run it as root, or choose directories of your own with --state-dir, --run-dir, --cdi-dir",
    ),
    (
        "UNWRITABLE",
        Exit::Failed,
        "run it as root, or choose directories of your own with --state-dir, --run-dir, --cdi-dir",
    ),
    (
        "UNTRUSTED",
        Exit::Failed,
        "only files that nobody but root (or you) can write are used; correct owner or mode",
    ),
    (
        "JOURNAL-INVALID",
        Exit::Failed,
        "what its claim holds is not known, so nothing new is prepared; move the file away once \
         nothing uses that claim's devices",
    ),
    ("DEVICE-GONE", Exit::Failed, ""),
];

// === impl Failure ===

impl Failure {
    /// A failure with one reason.
    pub fn new(code: &'static str, line: impl Into<String>) -> Self {
        Self { reasons: vec![Reason { code, line: line.into() }], exit: None }
    }

    /// The failure of an error and the chain of its causes.
    pub fn of(code: &'static str, error: &dyn std::error::Error) -> Self {
        Self::new(code, chain(error))
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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut helps: Vec<&str> = Vec::new();
        for Reason { code, line } in &self.reasons {
            writeln!(f, "error[{code}]: {}", Plain(&line.replace('\n', "\\n")))?;
            let help = row(code).map(|(_, _, help)| *help).filter(|help| !help.is_empty());
            helps.extend(help.filter(|help| !helps.contains(help)));
        }
        helps.iter().try_for_each(|help| writeln!(f, "  help: {help}"))
    }
}

/// A text from anywhere, without what a terminal would take for commands, and not without end.
pub(super) struct Plain<'a>(pub(super) &'a str);

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

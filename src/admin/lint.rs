//! `divvy lint`: everything that is wrong with spec files, not only the first thing.

use std::path::{Path, PathBuf};

use divvy_cdi::{
    doc::{self, Value},
    file::{self, MAX_SPEC_BYTES, Trust},
    problem::{Problem, Severity, quoted},
    registry::{Registry, State},
    spec::{self, Spec, Version},
};
use serde_json::json;

use super::{Answer, Exit, Failure, exit::one_line, shown};

/// Check CDI spec files, and everything in directories of them.
///
/// Every error is listed with file, line, column, device and field; in a directory also devices
/// that two files define. Warnings are things that work, but that their author can hardly mean.
/// Ends with 4 when there is an error, with 1 when all that is wrong is that a path cannot be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  divvy lint /etc/cdi
  divvy lint vendor.yaml other.json -o json")]
pub(super) struct Lint {
    /// Spec files and directories
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

/// What was found.
#[derive(Default)]
struct Found {
    files: Vec<Checked>,
    problems: Vec<Problem>,
}

/// A file that is valid.
struct Checked {
    path: PathBuf,
    devices: usize,
    version: Version,
    needs: Version,
}

// === impl Lint ===

impl Lint {
    pub(super) fn run(&self) -> Result<Answer, Failure> {
        let mut found = Found::default();
        for path in &self.paths {
            // A person who names a file answers for its owner.
            if path.is_dir() { found.directory(path) } else { found.file(path) }
        }
        Ok(found.answer())
    }
}

// === impl Found ===

impl Found {
    fn directory(&mut self, path: &Path) {
        let registry = Registry::scan(&[path.to_owned()], &Trust::Any);
        self.files.extend(registry.specs().iter().map(|f| Checked::new(&f.path, &f.spec)));
        self.problems.extend_from_slice(registry.problems());
        // Where there is nothing to check, say so: an empty answer would read as "fine".
        let empty = |state: &State| matches!(state, State::Read { files: 0 });
        if registry.directories().iter().any(|directory| empty(&directory.state)) {
            let why = "no spec file in it: these end in .json or .yaml".to_owned();
            self.problems.push(problem(path, Severity::Warning, "EMPTY", why));
        }
    }

    fn file(&mut self, path: &Path) {
        let bytes = match file::read(path, MAX_SPEC_BYTES, &Trust::Any) {
            Ok(bytes) => bytes,
            Err(error) => {
                let why = error.why().to_string();
                return self.problems.push(problem(path, Severity::Error, error.code(), why));
            }
        };
        match spec::read(path, &bytes) {
            Ok(parsed) => {
                self.files.push(Checked::new(path, &parsed.spec));
                self.problems.extend(parsed.warnings);
            }
            Err(problems) => match manifest(&bytes) {
                Some(what) => {
                    let why = format!("{what} is a Kubernetes manifest, not a CDI spec");
                    self.problems.push(problem(path, Severity::Error, "SPEC-INVALID", why));
                }
                None => self.problems.extend(problems),
            },
        }
    }

    fn answer(self) -> Answer {
        let count = |severity| self.problems.iter().filter(|p| p.severity == severity).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        let mut text = String::new();
        for problem in &self.problems {
            text.push_str(&line(problem));
            text.push('\n');
        }
        for Checked { path, devices, version, needs } in &self.files {
            let (path, version) = (one_line(&shown(path)), version.as_str());
            let devices = plural(*devices, "device");
            let lower = match needs.as_str() {
                needs if needs < version => format!(", its fields need {needs}"),
                _ => String::new(),
            };
            text.push_str(&format!("{path}: valid, {devices}, CDI {version}{lower}\n"));
        }
        text.push_str(&format!("{}, {}\n", plural(errors, "error"), plural(warnings, "warning")));
        let file = |checked: &Checked| {
            json!({
                "file": shown(&checked.path),
                "devices": checked.devices,
                "version": checked.version.as_str(),
                "needs": checked.needs.as_str(),
            })
        };
        let json = json!({
            "valid": self.files.iter().map(file).collect::<Vec<_>>(),
            "problems": problems(&self.problems),
            "errors": errors,
            "warnings": warnings,
        });
        let mut codes = self.problems.iter().filter(|p| p.severity == Severity::Error);
        let exit = match codes.any(|problem| problem.code != "UNREADABLE") {
            true => Exit::Invalid,
            false if errors > 0 => Exit::Failed,
            false => Exit::Ok,
        };
        Answer { text, json, exit }
    }
}

// === impl Checked ===

impl Checked {
    fn new(path: &Path, spec: &Spec) -> Self {
        Self {
            path: path.to_owned(),
            devices: spec.devices.len(),
            version: spec.version,
            needs: Version::required_by(spec),
        }
    }
}

/// What a manifest of Kubernetes describes, for those who mistake it for a spec: `ResourceClaim of
/// resource.k8s.io/v1`.
fn manifest(bytes: &[u8]) -> Option<String> {
    let documents = doc::read_all(bytes).ok()?;
    let top = documents.first()?;
    let Some(Value::Str(kind)) = top.get("kind").map(|node| &node.value) else { return None };
    let Some(Value::Str(version)) = top.get("apiVersion").map(|node| &node.value) else {
        return None;
    };
    Some(format!("{} of {}", quoted(kind), quoted(version)))
}

/// Problems for programs. Not by serde: a path need be no text.
pub(super) fn problems(problems: &[Problem]) -> Vec<serde_json::Value> {
    let problem = |problem: &Problem| {
        let Problem { file, at, device, field, severity, code, message } = problem;
        json!({
            "file": shown(file),
            "at": at,
            "device": device,
            "field": field,
            "severity": severity,
            "code": code,
            "message": message,
        })
    };
    problems.iter().map(problem).collect()
}

fn problem(path: &Path, severity: Severity, code: &'static str, message: String) -> Problem {
    Problem { file: path.to_owned(), at: None, device: None, field: None, severity, code, message }
}

/// A problem on one line, its severity and code first.
pub(super) fn line(problem: &Problem) -> String {
    let severity = match problem.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    format!("{severity}[{}]: {}", problem.code, one_line(&problem.to_string()))
}

fn plural(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

//! The settings are what `/etc/divvy/config.toml` says. Without the file everything has its
//! default, and no handler is declared.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use divvy_cdi::file::{self, FileError, Trust};

use crate::link;

mod salvage;
mod toml;

pub use salvage::Salvage;
use toml::{Entry, Value};

/// Where the settings are, unless `--config` says otherwise.
pub const PATH: &str = "/etc/divvy/config.toml";

/// The most bytes that the file may have.
const MAX_BYTES: usize = 64 << 10;

/// Low-level runtimes that are tried when none is configured. runc first: each engine's command
/// line is understood by it.
const RUNTIMES: [&str; 8] = [
    "/usr/bin/runc",
    "/usr/sbin/runc",
    "/usr/local/bin/runc",
    "/usr/local/sbin/runc",
    "/usr/bin/crun",
    "/usr/local/bin/crun",
    "/usr/libexec/crio/crun",
    "/usr/libexec/crio/runc",
];

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The low-level runtimes to choose from: the first that is there is executed.
    pub runtimes: Vec<PathBuf>,
    /// The CDI directories, in rising priority.
    pub spec_dirs: Vec<PathBuf>,
    /// Where the records are.
    pub run_dir: PathBuf,
    /// Where failures and warnings are noted; unset, `hook.log` in the run directory.
    pub log: Option<PathBuf>,
    /// Installed name → how it is called and what it may do.
    pub handlers: BTreeMap<String, Handler>,
}

/// What an installed name of the shim stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handler {
    /// The engine that calls it: it decides which inputs count.
    pub engine: Engine,
    /// cri, crio: a container of a pod without a record fails.
    pub require_record: bool,
    /// Whether the container's annotations request devices.
    pub annotations: bool,
    /// podman, docker: the environment variables that request devices.
    pub environment: Vec<String>,
    /// The low-level runtime of this handler, in place of `runtimes`.
    pub runtime: Option<PathBuf>,
}

/// Who calls a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// containerd's CRI plugin.
    Cri,
    /// CRI-O.
    Crio,
    /// podman, buildah.
    Podman,
    /// docker.
    Docker,
    /// `ctr`, `nerdctl`, or a person.
    Ctr,
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file is unreadable or not trusted.
    #[error("configuration")]
    File(#[from] FileError),
    /// The file says something that it cannot say.
    #[error("configuration {}{}: {why}", .path.display(), Line(*.line))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Where in it, when there is one place.
        line: Option<usize>,
        /// What is wrong, the key inside.
        why: String,
    },
}

/// A handler as far as it was read.
#[derive(Default)]
struct Draft {
    line: usize,
    engine: Option<Engine>,
    require_record: Option<(usize, bool)>,
    annotations: Option<bool>,
    environment: Option<(usize, Vec<String>)>,
    runtime: Option<PathBuf>,
}

struct Line(Option<usize>);

// === impl Settings ===

impl Settings {
    /// Reads the settings; a file that is not there is an empty one.
    ///
    /// # Errors
    /// [`SettingsError`]; the caller goes on with [`Settings::default`] where nothing is requested.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        match file::read(path, MAX_BYTES, &Trust::of_process()) {
            Ok(bytes) => Self::parse(path, &bytes),
            Err(FileError::NotFound { .. }) => match link::dangling(path) {
                None => Ok(Self::default()),
                Some(link) => Err(SettingsError::Invalid {
                    path: path.to_owned(),
                    line: None,
                    why: format!("{} is a link to something that is not there", link.display()),
                }),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the settings from the bytes of `path`.
    ///
    /// # Errors
    /// [`SettingsError::Invalid`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, SettingsError> {
        let invalid = |line, why| SettingsError::Invalid { path: path.to_owned(), line, why };
        let text = std::str::from_utf8(bytes)
            .map_err(|error| invalid(Some(line(bytes, error.valid_up_to())), "not UTF-8".into()))?;
        Self::decode(text).map_err(|(line, why)| invalid(line, why))
    }

    fn decode(text: &str) -> Result<Self, toml::Error> {
        let mut settings = Self::default();
        let mut drafts: BTreeMap<String, Draft> = BTreeMap::new();
        for Entry { line, path, value } in toml::read(text)? {
            let at = |why: String| (Some(line), format!("{}: {why}", path.join(".")));
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            match *path {
                ["runtimes"] => {
                    settings.runtimes = paths(value).map_err(at)?;
                    if settings.runtimes.is_empty() {
                        return Err(at("empty: name one, or leave the key out".into()));
                    }
                }
                ["spec_dirs"] => settings.spec_dirs = paths(value).map_err(at)?,
                ["run_dir"] => settings.run_dir = absolute(value).map_err(at)?,
                ["log"] => settings.log = Some(absolute(value).map_err(at)?),
                ["handlers"] if value == Value::Table => {}
                ["handlers", name, ref key @ ..] => {
                    if name.is_empty() || name.contains('/') {
                        return Err(at("it is the installed name of the shim, no path".into()));
                    }
                    let draft = drafts.entry(name.to_owned()).or_default();
                    draft.line = draft.line.max(line);
                    draft.set(key, line, value).map_err(at)?;
                }
                _ => {
                    let known = "runtimes, spec_dirs, run_dir, log and handlers";
                    return Err(at(format!("unknown key; known here are {known}")));
                }
            }
        }
        for (name, draft) in drafts {
            let handler = draft.finish().map_err(|(line, key, why)| {
                (Some(line), format!("handlers.{name}.{key}: {why}"))
            })?;
            settings.handlers.insert(name, handler);
        }
        Ok(settings)
    }

    /// The candidates for the low-level runtime of a handler.
    pub fn runtimes_of<'a>(&'a self, handler: Option<&'a Handler>) -> &'a [PathBuf] {
        match handler.and_then(|handler| handler.runtime.as_ref()) {
            Some(runtime) => std::slice::from_ref(runtime),
            None => &self.runtimes,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            runtimes: RUNTIMES.map(PathBuf::from).to_vec(),
            spec_dirs: ["/etc/cdi", "/var/run/cdi"].map(PathBuf::from).to_vec(),
            run_dir: "/run/divvy".into(),
            log: None,
            handlers: BTreeMap::new(),
        }
    }
}

// === impl Draft ===

impl Draft {
    fn set(&mut self, key: &[&str], line: usize, value: Value) -> Result<(), String> {
        match (key, value) {
            ([], Value::Table) => {}
            (["engine"], Value::Text(name)) => self.engine = Some(Engine::parse(&name)?),
            (["require_record"], value) => self.require_record = Some((line, truth(&value)?)),
            (["annotations"], value) => self.annotations = Some(truth(&value)?),
            (["environment"], value) => self.environment = Some((line, texts(value)?)),
            (["runtime"], value) => self.runtime = Some(absolute(value)?),
            ([] | ["engine"], _) => return Err("expected a table with an engine, a text".into()),
            _ => {
                let known = "engine, require_record, annotations, environment and runtime";
                return Err(format!("unknown key; known here are {known}"));
            }
        }
        Ok(())
    }

    /// The handler; or line, key and what is wrong.
    fn finish(self) -> Result<Handler, (usize, &'static str, String)> {
        let Some(engine) = self.engine else {
            return Err((self.line, "engine", format!("missing: one of {ENGINES}")));
        };
        let of_pods = matches!(engine, Engine::Cri | Engine::Crio);
        if let Some((line, _)) = self.require_record
            && !of_pods
        {
            let why = format!("only engines cri and crio have pods, not {engine}");
            return Err((line, "require_record", why));
        }
        let (line, environment) = self.environment.unwrap_or_default();
        if !environment.is_empty() && !matches!(engine, Engine::Podman | Engine::Docker) {
            let why = format!("allowed for engines podman and docker, not {engine}");
            return Err((line, "environment", why));
        }
        if let Some(bad) = environment.iter().find(|name| !is_variable(name)) {
            let why = format!("{bad:?} is no name of an environment variable");
            return Err((line, "environment", why));
        }
        Ok(Handler {
            engine,
            require_record: self.require_record.map_or(of_pods, |(_, value)| value),
            annotations: self.annotations.unwrap_or(of_pods),
            environment,
            runtime: self.runtime,
        })
    }
}

// === impl Engine ===

/// All of them, for messages.
const ENGINES: &str = "cri, crio, podman, docker, ctr";

impl Engine {
    fn parse(name: &str) -> Result<Self, String> {
        Ok(match name {
            "cri" => Self::Cri,
            "crio" => Self::Crio,
            "podman" => Self::Podman,
            "docker" => Self::Docker,
            "ctr" => Self::Ctr,
            _ => return Err(format!("{name:?} is none of {ENGINES}")),
        })
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cri => "cri",
            Self::Crio => "crio",
            Self::Podman => "podman",
            Self::Docker => "docker",
            Self::Ctr => "ctr",
        })
    }
}

// === impl SettingsError ===

impl SettingsError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File(FileError::Untrusted { .. }) => "UNTRUSTED",
            _ => "CONFIG-INVALID",
        }
    }
}

// === impl Line ===

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(line) => write!(f, ":{line}"),
            None => Ok(()),
        }
    }
}

fn line(bytes: &[u8], at: usize) -> usize {
    1 + bytes.iter().take(at).filter(|byte| **byte == b'\n').count()
}

fn truth(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(value) => Ok(*value),
        _ => Err("expected true or false".into()),
    }
}

fn texts(value: Value) -> Result<Vec<String>, String> {
    let text = |value| match value {
        Value::Text(text) => Ok(text),
        _ => Err("expected a list of texts".to_owned()),
    };
    match value {
        Value::List(list) => list.into_iter().map(text).collect(),
        other => text(other).and_then(|_| Err("expected a list of texts".to_owned())),
    }
}

fn paths(value: Value) -> Result<Vec<PathBuf>, String> {
    texts(value)?.into_iter().map(|text| absolute(Value::Text(text))).collect()
}

fn absolute(value: Value) -> Result<PathBuf, String> {
    match value {
        Value::Text(text) if Path::new(&text).is_absolute() => Ok(text.into()),
        Value::Text(text) => Err(format!("{text:?} is no absolute path")),
        _ => Err("expected an absolute path".into()),
    }
}

fn is_variable(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(allowed) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests;

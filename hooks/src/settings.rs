//! The settings are what `/etc/divvy/config.toml` says. Without the file everything has its
//! default, and no handler is declared.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use divvy_cdi::file::{self, FileError, Trust};
use serde::Deserialize;

/// Where the settings are, unless `--config` says otherwise.
pub const PATH: &str = "/etc/divvy/config.toml";

/// The most bytes that the file may have.
const MAX_BYTES: usize = 256 << 10;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    runtimes: Option<Vec<PathBuf>>,
    spec_dirs: Option<Vec<PathBuf>>,
    run_dir: Option<PathBuf>,
    log: Option<PathBuf>,
    #[serde(default)]
    handlers: BTreeMap<String, FileHandler>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileHandler {
    engine: Engine,
    require_record: Option<bool>,
    annotations: Option<bool>,
    #[serde(default)]
    environment: Vec<String>,
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
            Err(FileError::NotFound { .. }) => Ok(Self::default()),
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
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| line(bytes, span.start));
            invalid(line, error.message().replace('\n', ", "))
        })?;
        Self::check(file).map_err(|why| invalid(None, why))
    }

    /// The run directory that a file seems to name which cannot be used: a record there is a
    /// request still, and then the container must not start without its devices.
    pub fn salvage_run_dir(path: &Path) -> Option<PathBuf> {
        let bytes = file::read(path, MAX_BYTES, &Trust::Any).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        text.lines().find_map(|line| {
            let value = line.trim().strip_prefix("run_dir")?.trim_start().strip_prefix('=')?;
            let (quote, value) = value.trim_start().split_at_checked(1)?;
            let (dir, _) = value.split_once(quote)?;
            Some(PathBuf::from(dir)).filter(|dir| dir.is_absolute())
        })
    }

    /// The candidates for the low-level runtime of a handler.
    pub fn runtimes_of<'a>(&'a self, handler: Option<&'a Handler>) -> &'a [PathBuf] {
        match handler.and_then(|handler| handler.runtime.as_ref()) {
            Some(runtime) => std::slice::from_ref(runtime),
            None => &self.runtimes,
        }
    }

    fn check(file: File) -> Result<Self, String> {
        let default = Self::default();
        let settings = Self {
            runtimes: file.runtimes.unwrap_or(default.runtimes),
            spec_dirs: file.spec_dirs.unwrap_or(default.spec_dirs),
            run_dir: file.run_dir.unwrap_or(default.run_dir),
            log: file.log,
            handlers: BTreeMap::new(),
        };
        absolute("runtimes", &settings.runtimes)?;
        absolute("spec_dirs", &settings.spec_dirs)?;
        absolute("run_dir", [&settings.run_dir])?;
        absolute("log", &settings.log)?;
        if settings.runtimes.is_empty() {
            return Err("runtimes is empty: name one, or leave the key out".into());
        }
        let mut handlers = BTreeMap::new();
        for (name, handler) in file.handlers {
            let handler = Handler::check(&name, handler)?;
            handlers.insert(name, handler);
        }
        Ok(Self { handlers, ..settings })
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

// === impl Handler ===

impl Handler {
    fn check(name: &str, file: FileHandler) -> Result<Self, String> {
        let key = |key: &str| format!("handlers.{name}.{key}");
        if name.is_empty() || name.contains('/') {
            return Err(format!("handlers.{name:?}: the installed name of the shim, no path"));
        }
        let engine = file.engine;
        let of_pods = matches!(engine, Engine::Cri | Engine::Crio);
        if file.require_record.is_some() && !of_pods {
            let key = key("require_record");
            return Err(format!("{key}: only engines cri and crio have pods, not {engine}"));
        }
        if !file.environment.is_empty() && !matches!(engine, Engine::Podman | Engine::Docker) {
            let key = key("environment");
            return Err(format!("{key}: allowed for engines podman and docker, not {engine}"));
        }
        if let Some(bad) = file.environment.iter().find(|name| !is_variable(name)) {
            let key = key("environment");
            return Err(format!("{key}: {bad:?} is no name of an environment variable"));
        }
        absolute(&key("runtime"), &file.runtime)?;
        Ok(Self {
            engine,
            require_record: file.require_record.unwrap_or(of_pods),
            annotations: file.annotations.unwrap_or(of_pods),
            environment: file.environment,
            runtime: file.runtime,
        })
    }
}

// === impl Engine ===

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
            _ => "CONFIG",
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

fn absolute<'a>(key: &str, paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), String> {
    match paths.into_iter().find(|path| !path.is_absolute()) {
        Some(path) => Err(format!("{key}: {path:?} is no absolute path")),
        None => Ok(()),
    }
}

fn is_variable(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(allowed) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests;

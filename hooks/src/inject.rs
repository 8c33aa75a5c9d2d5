//! To inject is to find what a container requests, resolve it, and edit the container's config.
//! The shim, the precreate filter and the verify hook do this; they differ in where the config
//! comes from and goes to.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

use divvy_cdi::{
    edit::{self, Options},
    file::{self, FileError, MAX_SPEC_BYTES, Trust},
    host::ThisHost,
    oci::Config,
    resolve::{self, Resolution},
};

use crate::{
    error::HookError,
    log,
    record::{self, RunDir},
    request::{self, Prepared, Request, Rules},
    settings::{Salvage, Settings, SettingsError},
};

/// What a process of the hook knows from its caller; `main` gathers it.
#[derive(Debug)]
pub struct Process {
    /// The path of this program as it was executed.
    pub executable: Option<PathBuf>,
    /// Where the settings are.
    pub settings: PathBuf,
    /// `XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
}

/// A process with its settings read.
#[derive(Debug)]
pub struct Injector<'a> {
    process: &'a Process,
    /// The settings; the built-in ones where the file is broken.
    pub settings: Settings,
    /// What is wrong with the file, said when the settings are needed.
    broken: Option<SettingsError>,
    /// What it says for certain then.
    salvage: Option<Salvage>,
    run_dir: RunDir,
}

// === impl Injector ===

impl<'a> Injector<'a> {
    /// Reads the settings. A broken file is noted in the log and stops nobody who needs none.
    pub fn new(process: &'a Process) -> Self {
        let (mut settings, broken) = match Settings::read(&process.settings) {
            Ok(settings) => (settings, None),
            Err(error) => (Settings::default(), Some(error)),
        };
        let salvage = broken.as_ref().map(|_| Salvage::read(&process.settings));
        if let Some(dir) = salvage.as_ref().and_then(|salvage| salvage.run_dir.clone()) {
            settings.run_dir = dir;
        }
        let run_dir = RunDir::new(process.run_dir(&settings));
        let injector = Self { process, settings, broken, salvage, run_dir };
        if let Some(error) = &injector.broken {
            let code = error.code();
            injector.note(&format!("{code}: {}; going on without it", log::chain(error)));
        }
        injector
    }

    /// The path of this program.
    pub fn executable(&self) -> Option<&Path> {
        self.process.executable.as_deref()
    }

    /// Where the settings are, for messages.
    pub fn settings_path(&self) -> &Path {
        &self.process.settings
    }

    /// The run directory.
    pub fn run_dir(&self) -> &RunDir {
        &self.run_dir
    }

    /// Notes a line in our own log.
    pub fn note(&self, line: &str) {
        let line = log::one_line(line);
        log::note(self.settings.log.as_deref(), self.run_dir.path(), &line);
    }

    /// The config with the edits for what the container requests; the same bytes when nothing is
    /// requested or everything is there. `path` is for messages.
    ///
    /// # Errors
    /// When something is requested and cannot be had.
    pub fn inject<'b>(
        &mut self,
        handler: &str,
        path: &Path,
        bytes: &'b [u8],
    ) -> Result<Cow<'b, [u8]>, HookError> {
        let rules = Rules {
            name: handler,
            handler: self.settings.handlers.get(handler),
            settings: &self.process.settings,
            run_dir: &self.run_dir,
            salvage: self.salvage.as_ref(),
        };
        if !request::may_request(bytes, &rules)? {
            return Ok(Cow::Borrowed(bytes));
        }
        let config = Config::parse(bytes).map_err(|e| HookError::bundle_invalid(path, e))?;
        let request = rules.request(&config, self.broken.take())?;
        if request.is_empty() {
            return Ok(Cow::Borrowed(bytes));
        }
        let resolution = self.resolve(&request)?;
        let options = Options { rootless: is_rootless(), ..Options::default() };
        Ok(match edit::apply(&config, &resolution, &ThisHost, options)?.bytes {
            Cow::Borrowed(_) => Cow::Borrowed(bytes),
            Cow::Owned(edited) => Cow::Owned(edited),
        })
    }

    /// Claims first, then names.
    fn resolve(&self, request: &Request) -> Result<Resolution, HookError> {
        let trust = Trust::of_process();
        let mut resolution = Resolution::default();
        for prepared in &request.prepared {
            resolution.merge(of_record(prepared, &trust)?);
        }
        if !request.names.is_empty() {
            let dirs = &self.settings.spec_dirs;
            resolution.merge(resolve::lookup(dirs, &request.names, &trust)?);
        }
        Ok(resolution)
    }
}

// === impl Process ===

impl Process {
    /// Rootless, records are the caller's own.
    fn run_dir(&self, settings: &Settings) -> PathBuf {
        match &self.runtime_dir {
            Some(dir) if dir.is_absolute() && is_rootless() => dir.join("divvy"),
            _ => settings.run_dir.clone(),
        }
    }
}

/// Through the record alone: its spec file, if that is still the one it names.
fn of_record(prepared: &Prepared, trust: &Trust) -> Result<Resolution, HookError> {
    let Prepared { what, path, digest, names } = prepared;
    let bytes = file::read(path, MAX_SPEC_BYTES, trust).map_err(|source| HookError::Spec {
        code: match source {
            FileError::NotFound { .. } => "SPEC-MISSING",
            _ => source.code(),
        },
        what: what.clone(),
        source,
    })?;
    let found = record::digest(&bytes);
    if found != *digest {
        let [recorded, found] = [digest, &found].map(|digest| digest.chars().take(19).collect());
        let (path, what) = (path.clone(), what.clone());
        return Err(HookError::SpecChanged { path, what, recorded, found });
    }
    Ok(resolve::from_spec(path, &bytes, names)?)
}

/// Whether the runtime cannot make device nodes: without root, or in a user namespace.
fn is_rootless() -> bool {
    !rustix::process::geteuid().is_root() || file::in_user_namespace()
}

//! The precreate filter of podman: a config on standard input, the edited one on
//! standard output (oci-hooks(5), stage `precreate`).
//!
//! podman throws our standard error away and shows only an exit status. So a failure is said by a
//! `createRuntime` hook in the config that we print: it fails with the text, the low-level runtime
//! shows that, and the container does not start either way.

use std::{
    borrow::Cow,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use divvy_cdi::{
    edit::{self, Options},
    errno,
    file::{self, Durability},
    host::ThisHost,
    oci::{Config, MAX_CONFIG_BYTES},
    resolve::{Origin, Part, Resolution, Scope},
    spec::{ContainerEdits, Hook, HookName},
};

use crate::{
    error::HookError,
    inject::{Injector, Process},
    log, settings,
};

/// The handler that the settings declare for this face.
pub const HANDLER: &str = "precreate";

/// Texts that wait for their report.
const MAX_TEXTS: usize = 64;

/// Seconds that the report may take; it only prints.
const REPORT_TIMEOUT: i64 = 10;

/// Filters `input` to `output`. False when that failed: there is no output then.
pub fn run(process: &Process, input: impl Read, output: impl Write) -> bool {
    let mut injector = Injector::new(process);
    match filter(&mut injector, input, output) {
        Ok(()) => true,
        Err(error) => {
            let line = error.line();
            injector.note(&format!("{HANDLER}: {line}"));
            log::tell_person(&line);
            false
        }
    }
}

fn filter(
    injector: &mut Injector<'_>,
    input: impl Read,
    mut output: impl Write,
) -> Result<(), HookError> {
    let path = Path::new("standard input");
    let bytes = read(input)?;
    let edited = match injector.inject(HANDLER, path, &bytes) {
        Ok(edited) => edited,
        Err(error) => {
            let line = error.line();
            let failing = failing(injector, path, &bytes, &line)?;
            injector.note(&format!("{HANDLER}: {line}"));
            // podman shows this one only in its debug log.
            log::tell_person(&line);
            Cow::Owned(failing)
        }
    };
    let write = |error: io::Error| {
        HookError::Input(format!("writing standard output: {}", errno::words(&error)))
    };
    output.write_all(&edited).and_then(|()| output.flush()).map_err(write)
}

fn read(input: impl Read) -> Result<Vec<u8>, HookError> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_CONFIG_BYTES).unwrap_or(u64::MAX);
    input.take(limit + 1).read_to_end(&mut bytes).map_err(|error| {
        HookError::Input(format!("reading standard input: {}", errno::words(&error)))
    })?;
    if bytes.len() > MAX_CONFIG_BYTES {
        let what = format!("standard input has more than {MAX_CONFIG_BYTES} bytes");
        return Err(HookError::Input(what));
    }
    Ok(bytes)
}

/// The config as it was, with a hook that fails and says `line`.
fn failing(
    injector: &Injector<'_>,
    path: &Path,
    bytes: &[u8],
    line: &str,
) -> Result<Vec<u8>, HookError> {
    let config = Config::parse(bytes).map_err(|e| HookError::bundle_invalid(path, e))?;
    let ours = std::env::current_exe().map_err(|error| {
        HookError::Input(format!("asking where divvy-hook is: {}", errno::words(&error)))
    })?;
    let mut args = vec!["divvy-hook".to_owned()];
    // The report reads the same settings as we do: they say where the text is.
    if injector.settings_path() != Path::new(settings::PATH)
        && let Ok(settings) = std::path::absolute(injector.settings_path())
    {
        args.extend(["--config".to_owned(), settings.to_string_lossy().into_owned()]);
    }
    args.push("report".to_owned());
    match keep(injector.run_dir().path(), line) {
        Some(file) => args.push(file.to_string_lossy().into_owned()),
        None => args.extend(["--text".to_owned(), line.to_owned()]),
    }
    let report = Hook {
        hook_name: HookName::CreateRuntime,
        path: ours.to_string_lossy().into_owned(),
        args,
        env: Vec::new(),
        timeout: Some(REPORT_TIMEOUT),
    };
    let edits = ContainerEdits { hooks: vec![report], ..ContainerEdits::default() };
    let origin = Origin { file: ours, scope: Scope::Global };
    let resolution = Resolution { parts: vec![Part { origin, edits }] };
    let edited = edit::apply(&config, &resolution, &ThisHost, Options::default())?;
    Ok(edited.bytes.into_owned())
}

/// Leaves the text where the report finds it; none when that directory cannot be used, and the
/// text then goes as an argument.
fn keep(run_dir: &Path, line: &str) -> Option<PathBuf> {
    let dir = run_dir.join("errors");
    file::make_dir(&dir, 0o755, Durability::Volatile).ok()?;
    clear(&dir);
    // Processes at the same time differ in their ids, those after one another in the time.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let file = dir.join(format!("{now:020}-{}.txt", std::process::id()));
    let text = format!("{line}\n");
    file::replace(&file, text.as_bytes(), 0o644, Durability::Volatile).ok()?;
    // Not absolute, it would be looked for elsewhere.
    file.is_absolute().then_some(file)
}

/// Removes the oldest texts: a container that never came so far leaves its own.
fn clear(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    let mut left: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    left.sort_unstable();
    for old in left.iter().take((left.len() + 1).saturating_sub(MAX_TEXTS)) {
        let _gone = file::remove(old, Durability::Volatile);
    }
}

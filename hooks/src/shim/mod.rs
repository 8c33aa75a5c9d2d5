//! The shim stands where an engine expects an OCI runtime: it edits the config of a container that
//! is created, and becomes the low-level runtime, for that and for everything else.

mod args;
mod runtime;

use std::{
    borrow::Cow,
    convert::Infallible,
    ffi::OsString,
    path::{Path, PathBuf},
};

use divvy_cdi::{
    file::{self, Durability, Trust},
    oci::MAX_CONFIG_BYTES,
};

pub use args::{Call, Command};

use crate::{
    error::HookError,
    inject::{Injector, Process},
    log,
};

/// Does what `args` say as the handler that is installed as `handler`. Returns only when that
/// failed, after the engine was told.
pub fn run(process: &Process, handler: &str, args: &[OsString]) {
    let call = Call::parse(args);
    let mut injector = Injector::new(process);
    let Err(error) = start(&mut injector, handler, &call, args);
    let line = error.line();
    let id = call.id.unwrap_or_default().to_string_lossy();
    injector.note(&format!("{handler} {id}: {line}"));
    log::tell_engine(&call, &line);
}

/// Edits the config of a container that is created, and becomes the low-level runtime. What can be
/// known to fail fails before the bundle is touched.
fn start(
    injector: &mut Injector<'_>,
    handler: &str,
    call: &Call<'_>,
    args: &[OsString],
) -> Result<Infallible, HookError> {
    let edited = match call.command {
        Command::Create => edit(injector, handler, call)?,
        Command::Other => None,
    };
    let runtime = runtime::choose(injector, handler)?;
    if let Some((path, bytes)) = edited {
        runtime::check(runtime, injector.settings_path())?;
        file::replace_keeping(&path, &bytes, Durability::Volatile).map_err(HookError::Write)?;
    }
    runtime::execute(runtime, args)
}

/// The config's place and its new text; none when nothing changes.
fn edit(
    injector: &mut Injector<'_>,
    handler: &str,
    call: &Call<'_>,
) -> Result<Option<(PathBuf, Vec<u8>)>, HookError> {
    let path = call.config_path();
    let bytes = read_config(&path, if call.bundle.is_some() { "--bundle" } else { WORKING_DIR })?;
    Ok(match injector.inject(handler, &path, &bytes)? {
        Cow::Borrowed(_) => None,
        Cow::Owned(edited) => Some((path, edited)),
    })
}

const WORKING_DIR: &str = "the working directory, since there is no --bundle";

/// The config of a bundle is the engine's, whoever owns it.
pub(crate) fn read_config(path: &Path, from: &'static str) -> Result<Vec<u8>, HookError> {
    file::read(path, MAX_CONFIG_BYTES, &Trust::Any)
        .map_err(|source| HookError::Bundle { from, source })
}

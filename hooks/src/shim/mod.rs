//! The shim stands where an engine expects an OCI runtime: it edits the config of a container that
//! is created, and becomes the low-level runtime, for that and for everything else.

mod args;
mod runtime;

use std::{borrow::Cow, ffi::OsString, path::Path};

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
    let outcome = match call.command {
        Command::Create => create(&mut injector, handler, &call),
        Command::Other => Ok(()),
    };
    let error = match outcome {
        Ok(()) => runtime::become_runtime(&injector, handler, args),
        Err(error) => error,
    };
    let line = error.line();
    let id = call.id.unwrap_or_default().to_string_lossy();
    injector.note(&format!("{handler} {id}: {line}"));
    log::tell_engine(&call, &line);
}

fn create(injector: &mut Injector<'_>, handler: &str, call: &Call<'_>) -> Result<(), HookError> {
    let path = call.config_path();
    let bytes = read_config(&path, if call.bundle.is_some() { "--bundle" } else { WORKING_DIR })?;
    match injector.inject(handler, &path, &bytes)? {
        Cow::Borrowed(_) => Ok(()),
        Cow::Owned(edited) => {
            file::replace_keeping(&path, &edited, Durability::Volatile).map_err(HookError::Write)
        }
    }
}

const WORKING_DIR: &str = "the working directory, since there is no --bundle";

/// The config of a bundle is the engine's, whoever owns it.
pub(crate) fn read_config(path: &Path, from: &'static str) -> Result<Vec<u8>, HookError> {
    file::read(path, MAX_CONFIG_BYTES, &Trust::Any)
        .map_err(|source| HookError::Bundle { from, source })
}

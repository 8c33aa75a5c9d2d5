//! Verify is a createRuntime hook that checks that a container has what it requests. It never
//! injects: the runtime has read the config already.

use std::{
    borrow::Cow,
    io::Read,
    path::{Path, PathBuf},
};

use divvy_cdi::{errno, oci};

use crate::{
    error::HookError,
    inject::{Injector, Process},
    log, shim,
};

/// The most bytes of a state.
const MAX_STATE_BYTES: u64 = 1 << 20;

/// The container's state as the runtime gives it to hooks, as far as we look at it.
pub(crate) struct State {
    id: String,
    pub(crate) bundle: PathBuf,
}

/// Checks the container whose state is on `input`, by the rules of `handler`. False when edits are
/// missing or that cannot be told; the reason is on standard error then.
pub fn run(process: &Process, handler: &str, input: impl Read) -> bool {
    let mut injector = Injector::new(process);
    match verify(&mut injector, handler, input) {
        Ok(()) => true,
        Err(error) => {
            let line = error.line();
            injector.note(&format!("verify: {line}"));
            log::tell_person(&line);
            false
        }
    }
}

fn verify(injector: &mut Injector<'_>, handler: &str, input: impl Read) -> Result<(), HookError> {
    let State { id, bundle } = state(input).map_err(HookError::Input)?;
    let path = bundle.join("config.json");
    let bytes = shim::read_config(&path, "the bundle in the container's state")?;
    match injector.inject(handler, &path, &bytes)? {
        Cow::Borrowed(_) => Ok(()),
        Cow::Owned(_) => Err(HookError::EditsMissing { id, path }),
    }
}

/// Reads a state; all of `input`, unless it is too long.
pub(crate) fn state(input: impl Read) -> Result<State, String> {
    let mut bytes = Vec::new();
    input
        .take(MAX_STATE_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("reading the container's state: {}", errno::words(&error)))?;
    let member = |name| match oci::text_at(&bytes, &[name]) {
        Ok(Some(member)) => Ok(member),
        Ok(None) => Err(format!("the container's state on standard input: no {name}")),
        Err(error) => Err(format!("the container's state on standard input: {error}")),
    };
    let state = State { id: member("id")?, bundle: member("bundle")?.into() };
    if Path::new(&state.bundle).is_absolute() {
        Ok(state)
    } else {
        Err(format!("the container's state: bundle {:?} is no absolute path", state.bundle))
    }
}

//! The hook binary: gathers what its caller gives it; the library does the rest.

use std::{env, ffi::OsString, process::ExitCode};

use divvy_hook::{alloc::Bump, inject::Process, settings};

#[global_allocator]
static ALLOCATOR: Bump = Bump::new();

fn main() -> ExitCode {
    let args: Vec<OsString> = env::args_os().collect();
    let process = Process {
        settings: settings::PATH.into(),
        runtime_dir: env::var_os("XDG_RUNTIME_DIR").map(Into::into),
    };
    divvy_hook::run(process, &args)
}

//! The hook binary: gathers what its caller gives it; the library does the rest.
//!
//! It starts as C does. Rust's own start-up makes 14 system calls, half of what a container without
//! a request costs, and ignores SIGPIPE, which the low-level runtime would inherit.
#![no_main]
#![allow(unsafe_code, reason = "the arguments come as C's")]

use std::{
    env,
    ffi::{CStr, OsStr, OsString, c_char, c_int, c_ulong},
    os::unix::ffi::OsStrExt,
};

use divvy_hook::{alloc::Bump, inject::Process, settings};

#[global_allocator]
static ALLOCATOR: Bump = Bump::new();

unsafe extern "C" {
    /// What the kernel says of this process.
    safe fn getauxval(what: c_ulong) -> *const c_char;
}

/// The path that was executed.
const AT_EXECFN: c_ulong = 31;

#[unsafe(no_mangle)]
extern "C" fn main(argc: c_int, argv: *const *const c_char) -> c_int {
    // As good as /proc/self/exe, which costs more to look up than all else that is looked up.
    let executed = getauxval(AT_EXECFN);
    // SAFETY: if it is there, it is a string with an end that lives as long as the process.
    let executed = (!executed.is_null()).then(|| unsafe { CStr::from_ptr(executed) });
    let process = Process {
        executable: executed.map(|path| OsStr::from_bytes(path.to_bytes()).into()),
        settings: settings::PATH.into(),
        runtime_dir: env::var_os("XDG_RUNTIME_DIR").map(Into::into),
    };
    let arg = |index| {
        // SAFETY: `argv` has `argc` pointers, of which this is one.
        let arg = unsafe { *argv.wrapping_add(index) };
        // SAFETY: each points to a string with an end that lives as long as the process.
        OsStr::from_bytes(unsafe { CStr::from_ptr(arg) }.to_bytes()).to_owned()
    };
    let args: Vec<OsString> = (0..usize::try_from(argc).unwrap_or(0)).map(arg).collect();
    c_int::from(divvy_hook::run(process, &args))
}

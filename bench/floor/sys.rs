//! The system as the floor programs see it: the few C functions they call, nothing of Rust's std.

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// What core asks for where it was built to unwind; nothing here does.
#[cfg(target_env = "gnu")]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// A path or a list entry as the system wants it.
pub type CStr = *const u8;

#[link(name = "c")]
unsafe extern "C" {
    pub fn open(path: CStr, flags: i32, ...) -> i32;
    pub fn close(fd: i32) -> i32;
    pub fn read(fd: i32, into: *mut u8, len: usize) -> isize;
    pub fn write(fd: i32, from: *const u8, len: usize) -> isize;
    pub fn rename(from: CStr, to: CStr) -> i32;
    pub fn syscall(number: i64, ...) -> i64;
    pub fn execv(path: CStr, argv: *const CStr) -> i32;
    pub fn posix_spawn(
        pid: *mut i32,
        path: CStr,
        actions: *const u8,
        attributes: *const u8,
        argv: *const CStr,
        env: *const CStr,
    ) -> i32;
    pub fn wait4(pid: i32, status: *mut i32, options: i32, usage: *mut Usage) -> i32;
    pub fn clock_gettime(clock: i32, into: *mut Time) -> i32;
    pub static environ: *const CStr;
}

/// `struct timespec`.
#[repr(C)]
#[derive(Default)]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: i64,
}

/// `struct rusage`: two times, then the peak resident set in KiB, then what nobody here reads.
#[repr(C)]
#[derive(Default)]
pub struct Usage {
    pub times: [i64; 4],
    pub max_rss: i64,
    pub rest: [i64; 32],
}

/// What a shim execs at its end: the low-level runtime that does nothing.
pub const RUNTIME: &[u8] = b"/bench/empty\0";

/// Becomes the low-level runtime, with the arguments unchanged.
pub fn exec_runtime(argv: *const CStr) -> i32 {
    unsafe { execv(RUNTIME.as_ptr(), argv) };
    127
}

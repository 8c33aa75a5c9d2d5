//! The floor of a container that requests nothing: a shim that only becomes the low-level runtime.
#![no_std]
#![no_main]

#[allow(dead_code)]
mod sys;

#[unsafe(no_mangle)]
pub extern "C" fn main(_argc: i32, argv: *const sys::CStr) -> i32 {
    sys::exec_runtime(argv)
}

//! The low-level runtime of the bench: it does nothing.
#![no_std]
#![no_main]

#[allow(dead_code)]
mod sys;

#[unsafe(no_mangle)]
pub extern "C" fn main() -> i32 {
    0
}

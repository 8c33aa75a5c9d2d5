//! The C ABI of libnvidia-ml.so.1: the calls that divvy makes, as nvml.h has them.
//!
//! Each one goes through [`call`], which is where scripts take effect and calls are noted.
#![allow(unsafe_code, reason = "a C library writes through the pointers that it is given")]
#![allow(non_snake_case, reason = "the names are NVML's")]
#![allow(clippy::missing_safety_doc, reason = "what nvml.h says of each holds")]

mod device;
mod events;
mod handle;
mod health;
mod mig;
mod session;
mod world;

use std::ffi::{c_char, c_uint};

use nvml_wrapper_sys::bindings as sys;

use crate::state::{Code, Gpu, INVALID_ARGUMENT, State};
use handle::About;
use world::World;

/// Every call: notes it, does what the script says, sees that a session is open and the GPU there,
/// and answers.
fn call(
    name: &str,
    about: About,
    answer: impl FnOnce(&World, &State, Option<&Gpu>) -> Result<(), Code>,
) -> sys::nvmlReturn_t {
    let Some(world) = world::world() else {
        return sys::nvmlReturn_enum_NVML_ERROR_LIBRARY_NOT_FOUND;
    };
    match world.scripted(name, about, answer) {
        Ok(()) => sys::nvmlReturn_enum_NVML_SUCCESS,
        Err(code) => code,
    }
}

/// Writes a value where C wants it.
///
/// # Safety
/// `place` is null, or can be written.
unsafe fn put<T>(place: *mut T, value: T) -> Result<(), Code> {
    if place.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, and so the caller's to write.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes a text where C wants it, with its zero.
///
/// # Safety
/// `place` is null, or has room for `length` bytes.
unsafe fn put_text(place: *mut c_char, length: c_uint, text: &str) -> Result<(), Code> {
    let room = usize::try_from(length).unwrap_or(0);
    if place.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if text.len() >= room {
        return Err(sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
    }
    for (index, byte) in text.bytes().chain([0]).enumerate() {
        // SAFETY: `index` is below `room`.
        let place = unsafe { place.add(index) };
        // SAFETY: as above.
        unsafe { place.write(byte.cast_signed()) };
    }
    Ok(())
}

/// A text as a field of a C struct.
fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (place, byte) in field.iter_mut().take(N.saturating_sub(1)).zip(text.bytes()) {
        *place = byte.cast_signed();
    }
    field
}

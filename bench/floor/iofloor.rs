//! The I/O floor of an injection: reads every spec in the CDI directories and the config, writes the
//! config to a temporary file, renames it into place and becomes the low-level runtime. It looks at nothing.
//! With `etc_only` it reads /etc/cdi alone.
#![no_std]
#![no_main]

#[allow(dead_code)]
mod sys;

use sys::{close, open, read, rename, syscall, write};

const BUFFER: usize = 1 << 20;
static mut ENTRIES: [u8; 64 << 10] = [0; 64 << 10];
static mut BYTES: [u8; BUFFER] = [0; BUFFER];

#[cfg(target_arch = "x86_64")]
const GETDENTS64: i64 = 217;
#[cfg(target_arch = "x86_64")]
const OPENAT: i64 = 257;
#[cfg(target_arch = "aarch64")]
const GETDENTS64: i64 = 61;
#[cfg(target_arch = "aarch64")]
const OPENAT: i64 = 56;

const READ_ONLY: i32 = 0o2000000;
const CREATE: i32 = 0o1 | 0o100 | 0o200 | 0o2000000;

/// Reads to the end, which a short read tells; the bytes are where `BYTES` is.
fn slurp(fd: i32) -> usize {
    let mut length = 0;
    loop {
        let room = BUFFER - length;
        let n = unsafe { read(fd, (&raw mut BYTES).cast::<u8>().add(length), room) };
        if n <= 0 {
            return length;
        }
        length += n as usize;
        // A spec file on tmpfs or a page cache comes in one piece.
        if (n as usize) < room {
            return length;
        }
    }
}

fn read_specs(dir: sys::CStr) {
    let fd = unsafe { open(dir, READ_ONLY | 0o200000) };
    if fd < 0 {
        return;
    }
    let entries = (&raw mut ENTRIES).cast::<u8>();
    loop {
        let n = unsafe { syscall(GETDENTS64, fd, entries, 64 << 10) };
        if n <= 0 {
            break;
        }
        let mut at = 0;
        while at < n {
            // struct linux_dirent64: inode 8, offset 8, length 2, type 1, name.
            let entry = unsafe { entries.add(at as usize) };
            let (low, high) = unsafe { (*entry.add(16), *entry.add(17)) };
            let name = unsafe { entry.add(19) };
            at += i64::from(u16::from_ne_bytes([low, high]));
            if unsafe { *name } == b'.' {
                continue;
            }
            let file = unsafe { syscall(OPENAT, fd, name, READ_ONLY, 0) } as i32;
            if file >= 0 {
                slurp(file);
                unsafe { close(file) };
            }
        }
    }
    unsafe { close(fd) };
}

#[unsafe(no_mangle)]
pub extern "C" fn main(_argc: i32, argv: *const sys::CStr) -> i32 {
    read_specs(b"/etc/cdi\0".as_ptr());
    if !cfg!(etc_only) {
        read_specs(b"/var/run/cdi\0".as_ptr());
    }
    let config = b"/run/bundle/config.json\0".as_ptr();
    let temporary = b"/run/bundle/.config.json\0".as_ptr();
    let fd = unsafe { open(config, READ_ONLY) };
    let length = slurp(fd);
    unsafe { close(fd) };
    let fd = unsafe { open(temporary, CREATE, 0o600) };
    let written = unsafe { write(fd, (&raw const BYTES).cast::<u8>(), length) };
    unsafe { close(fd) };
    if written != length as isize || unsafe { rename(temporary, config) } != 0 {
        return 1;
    }
    sys::exec_runtime(argv)
}

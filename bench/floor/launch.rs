//! Starts one program, waits for it and prints `status nanoseconds peak-KiB`.
//! It is small because a child's peak memory as the kernel counts it includes its parent's before exec.
#![no_std]
#![no_main]

#[allow(dead_code)]
mod sys;

use sys::{CStr, Time, Usage, clock_gettime, environ, posix_spawn, wait4, write};

/// Appends a number and a separator.
fn put(out: &mut [u8], at: &mut usize, mut number: u64, end: u8) {
    let mut digits = [0_u8; 20];
    let mut n = 0;
    loop {
        digits[n] = b'0' + (number % 10) as u8;
        number /= 10;
        n += 1;
        if number == 0 {
            break;
        }
    }
    while n > 0 {
        n -= 1;
        out[*at] = digits[n];
        *at += 1;
    }
    out[*at] = end;
    *at += 1;
}

#[unsafe(no_mangle)]
pub extern "C" fn main(argc: i32, argv: *const CStr) -> i32 {
    if argc < 2 {
        return 2;
    }
    let (mut begin, mut end) = (Time::default(), Time::default());
    let (mut pid, mut status) = (0, 0);
    let mut usage = Usage::default();
    unsafe {
        let arguments = argv.add(1);
        clock_gettime(1, &mut begin);
        let failed = posix_spawn(
            &mut pid,
            *arguments,
            core::ptr::null(),
            core::ptr::null(),
            arguments,
            environ,
        );
        if failed != 0 {
            return 127;
        }
        wait4(pid, &mut status, 0, &mut usage);
        clock_gettime(1, &mut end);
    }
    let nanoseconds =
        (end.seconds - begin.seconds) * 1_000_000_000 + end.nanoseconds - begin.nanoseconds;
    let mut out = [0; 80];
    let mut at = 0;
    put(&mut out, &mut at, status as u32 as u64, b' ');
    put(&mut out, &mut at, nanoseconds as u64, b' ');
    put(&mut out, &mut at, usage.max_rss as u64, b'\n');
    unsafe { write(1, out.as_ptr(), at) };
    0
}

//! The library has the name of the one that it stands in for.
#![allow(clippy::print_stdout, reason = "cargo reads it")]

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
}

//! The hook binary: see the library.

fn main() {}

//! The command line: `divvy --help`.

use std::process::ExitCode;

use divvy::admin::User;

fn main() -> ExitCode {
    divvy::admin::run(std::env::args_os(), &User::of(|name| std::env::var_os(name)))
}

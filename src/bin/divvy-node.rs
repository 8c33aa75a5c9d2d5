//! The node's daemon: `divvy-node --help`.

use std::process::ExitCode;

use divvy::admin::User;

fn main() -> ExitCode {
    divvy::daemon::run(std::env::args_os(), &User::of(|name| std::env::var_os(name)))
}

//! The node's daemon: `divvy-node --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    divvy::daemon::run(std::env::args_os())
}

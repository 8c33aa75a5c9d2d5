//! The command line: `divvy --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    divvy::admin::run(std::env::args_os())
}

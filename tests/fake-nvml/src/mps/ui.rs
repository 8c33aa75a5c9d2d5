//! The front end takes commands from its standard input to the daemon, and prints the answers.

use std::{
    io::{self, BufRead, Write},
    process::ExitCode,
};

use super::{packet, pipe};

pub(super) fn run() -> io::Result<ExitCode> {
    let Ok(socket) = packet::connected(&pipe().join("control")) else {
        writeln!(io::stderr(), "Cannot find MPS control daemon process")?;
        return Ok(ExitCode::FAILURE);
    };
    for line in io::stdin().lock().lines() {
        packet::say(&socket, &format!("ui {}", line?.trim()))?;
        match packet::hear(&socket)? {
            Some(answer) => write!(io::stdout(), "{}", answer.trim_start_matches(' '))?,
            // It has ended: by `quit`, or otherwise.
            None => return Ok(ExitCode::SUCCESS),
        }
    }
    Ok(ExitCode::SUCCESS)
}

//! The control program without arguments tells a daemon what it reads from its standard input, and
//! writes what the daemon answers. Whatever it refuses goes to the daemon's log alone: it ends with 0,
//! and says as much as if it had obeyed (550.163.01). So each setting is asked for after it was set.

use std::{ffi::OsStr, time::Duration};

use super::{PIPE_DIRECTORY, Setup, place::Place};
use crate::program::{Program, Run};

/// Ends a daemon, and after so many seconds its servers with the clients that are left.
pub(super) const QUIT: &str = "quit -t 5";

/// Why a daemon is not as it should be.
#[derive(Debug)]
pub(super) enum Failed {
    /// It does not answer.
    Silent(String),
    /// It has another setting.
    Setting {
        /// The setting, and its value.
        setting: String,
        /// What it says instead.
        answer: String,
    },
}

/// A setting: how it is set and asked for.
struct Setting {
    /// `default_active_thread_percentage`, `default_device_pinned_mem_limit GPU-…`
    name: String,
    /// `50`, `512M`
    value: String,
}

/// More than an answer has.
const MAX_ANSWER: usize = 200;

/// Tells a daemon something; the first line of its answer.
pub(super) fn ask(
    program: &Program,
    place: &Place,
    command: &str,
    patience: Duration,
) -> Result<String, Failed> {
    let pipe = place.pipe();
    let env: [(&str, &OsStr); 1] = [(PIPE_DIRECTORY, pipe.as_os_str())];
    let input = format!("{command}\n");
    let run = Run { env: &env, input: &input, ..Run::default() };
    let silent = |why: String| Failed::Silent(format!("does not answer {command:?}: {why}"));
    let said = program.run(&run, patience, |_| {}).map_err(|error| silent(error.to_string()))?;
    let line: String =
        said.text.lines().next().unwrap_or_default().chars().take(MAX_ANSWER).collect();
    match said.success {
        true => Ok(line.trim().to_owned()),
        false => Err(silent(format!("{} found none", program.path().display()))),
    }
}

/// Makes a daemon's settings those of its setup.
pub(super) fn apply(
    program: &Program,
    place: &Place,
    setup: &Setup,
    patience: Duration,
) -> Result<(), Failed> {
    for Setting { name, value } in settings(setup) {
        ask(program, place, &format!("set_{name} {value}"), patience)?;
    }
    verify(program, place, setup, patience)
}

/// Asks a daemon whether it is ready, and whether its settings are those of its setup.
pub(super) fn verify(
    program: &Program,
    place: &Place,
    setup: &Setup,
    patience: Duration,
) -> Result<(), Failed> {
    // Every daemon has an answer to this one.
    let answer = ask(program, place, "get_default_active_thread_percentage", patience)?;
    if answer.parse::<f64>().is_err() {
        let why =
            format!("answers {:?} when asked for a percentage", answer.escape_debug().to_string());
        return Err(Failed::Silent(why));
    }
    for setting in settings(setup) {
        let answer = ask(program, place, &format!("get_{}", setting.name), patience)?;
        if !setting.is(&answer) {
            let answer =
                if answer.is_empty() { "nothing".to_owned() } else { format!("{answer:?}") };
            return Err(Failed::Setting { setting: setting.to_string(), answer });
        }
    }
    Ok(())
}

fn settings(setup: &Setup) -> impl Iterator<Item = Setting> + '_ {
    let percentage = setup.active_thread_percentage.map(|percentage| Setting {
        name: "default_active_thread_percentage".to_owned(),
        value: percentage.to_string(),
    });
    let memory = setup.pinned_memory.iter().map(|(device, bytes)| Setting {
        name: format!("default_device_pinned_mem_limit {device}"),
        // It takes whole numbers of these, or of G.
        value: format!("{}M", bytes >> 20),
    });
    percentage.into_iter().chain(memory)
}

// === impl Setting ===

impl Setting {
    /// True when an answer says it: `50.0`, `512M`, and `1G` for 1024M.
    fn is(&self, answer: &str) -> bool {
        let (wanted, said) = (megabytes(&self.value), megabytes(answer));
        wanted.is_some() && wanted == said
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.value)
    }
}

/// A size in megabytes; a plain number, which may end with `.0`, is as it is.
fn megabytes(text: &str) -> Option<u64> {
    if let Some(number) = text.strip_suffix('G') {
        return number.parse::<u64>().ok()?.checked_mul(1 << 10);
    }
    let number = text.strip_suffix('M').or(text.strip_suffix(".0")).unwrap_or(text);
    number.parse().ok()
}

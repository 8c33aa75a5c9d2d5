//! The command line: a file per subcommand, one way to print and one way to fail.

mod devices;
pub mod exit;
mod inject;
mod lint;
mod prepare;
mod table;
mod unprepare;

use std::{
    ffi::OsString,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use divvy_hook::record::RunDir;

use crate::{
    gpu::{self, Gpus},
    journal::Journal,
};
use exit::{Exit, Failure};
pub(crate) use prepare::failure;

/// Gives containers the devices they were allocated.
///
/// A claim file is prepared: its GPUs, or parts of them, are set up, and a CDI spec and a record
/// say how a container gets them. Then a container that names the claim starts with its devices.
#[derive(Debug, Parser)]
#[command(name = "divvy", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    places: Places,
    /// How to print the answer.
    #[arg(short, long, global = true, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong command line, 3 a CDI name is not resolved, \
4 an invalid spec, manifest or configuration.";

#[derive(Debug, Subcommand)]
enum Command {
    Prepare(prepare::Prepare),
    Unprepare(unprepare::Unprepare),
    Inject(inject::Inject),
    Devices(devices::Devices),
    Lint(lint::Lint),
}

/// Where things are.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Where things are")]
pub(crate) struct Places {
    /// The node's GPUs: `sim:FILE` is a simulated node that FILE describes
    #[arg(long, global = true, value_name = "GPUS")]
    gpus: Option<String>,
    /// Where claims' CDI specs are written
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/run/cdi")]
    pub(crate) cdi_dir: PathBuf,
    /// Where the records are, by which the hook finds a prepared claim
    #[arg(long, global = true, value_name = "DIR", default_value = "/run/divvy")]
    run_dir: PathBuf,
    /// Where the journal is: what was done for each claim
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/lib/divvy")]
    state_dir: PathBuf,
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For programs: one JSON document.
    Json,
}

/// What a command answers.
struct Answer {
    /// For people.
    text: String,
    /// For programs.
    json: serde_json::Value,
    /// How the command ends.
    exit: Exit,
}

/// Runs the command line `args`, prints its answer, and says how it ended.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no failure; clap knows which stream they go to.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
            let _printed = error.print();
            return exit.into();
        }
    };
    let answer = match cli.command {
        Command::Prepare(command) => command.run(&cli.places),
        Command::Unprepare(command) => command.run(&cli.places),
        Command::Inject(command) => return inject::finish(&command),
        Command::Devices(command) => command.run(&cli.places),
        Command::Lint(command) => command.run(),
    };
    match answer {
        Ok(answer) => {
            let text = match cli.output {
                Format::Text => answer.text,
                Format::Json => format!("{:#}\n", answer.json),
            };
            print(text.as_bytes(), answer.exit).into()
        }
        Err(failure) => fail(&failure).into(),
    }
}

/// Writes an answer to stdout. A reader who has seen enough (`| head`) is no failure.
fn print(bytes: &[u8], exit: Exit) -> Exit {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => exit,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit,
        Err(error) => fail(&Failure::new("UNWRITABLE", format!("standard output: {error}"))),
    }
}

/// Writes messages to stderr, where nobody may listen.
fn tell(text: &str) {
    let _nobody_listens = io::stderr().lock().write_all(text.as_bytes());
}

fn fail(failure: &Failure) -> Exit {
    tell(&failure.to_string());
    failure.exit()
}

// === impl Places ===

impl Places {
    pub(crate) fn journal(&self) -> Journal {
        Journal::new(&self.state_dir)
    }

    pub(crate) fn run_dir(&self) -> RunDir {
        RunDir::new(&self.run_dir)
    }

    /// The GPUs that were named.
    pub(crate) fn gpus(&self) -> Result<Box<dyn Gpus>, Failure> {
        match &self.gpus {
            Some(address) => gpu::open(address).map_err(|e| Failure::of(e.code(), &e)),
            None => Err(Failure::new(
                "NO-GPUS",
                "no GPUs named; this version has the simulated node only, hardware comes later",
            )),
        }
    }
}

/// The boot that this machine is in.
pub(crate) fn boot() -> Result<String, Failure> {
    divvy_hook::record::boot_id().map_err(|e| Failure::of(e.code(), &e))
}

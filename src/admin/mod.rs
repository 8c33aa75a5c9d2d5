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
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use divvy_hook::record::RunDir;

use crate::{
    gpu::{self, Gpus},
    journal::Journal,
};
use exit::{Exit, Failure, Plain};
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
    /// How to print the answer
    #[arg(short, long, global = true, value_name = "FORMAT", default_value = "text")]
    output: Format,
    #[command(flatten)]
    places: PlacesArgs,
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

/// Where things are, as far as the command line says.
#[derive(Debug, Args)]
#[command(next_help_heading = "Where things are (without root: in your own directories)")]
pub(crate) struct PlacesArgs {
    /// The node's GPUs: `sim:FILE` is a simulated node that FILE describes
    #[arg(long, global = true, value_name = "GPUS")]
    gpus: Option<String>,
    /// Where claims' CDI specs are written [default: /var/run/cdi]
    #[arg(long, global = true, value_name = "DIR")]
    cdi_dir: Option<PathBuf>,
    /// Where the records are, by which the hook finds a prepared claim [default: /run/divvy]
    #[arg(long, global = true, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Where the journal is: what was done for each claim [default: /var/lib/divvy]
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// Whose machine it is, as `main` finds it: root's directories are the system's, and another user
/// has their own.
#[derive(Debug, Default)]
pub struct User {
    /// `XDG_RUNTIME_DIR`
    pub runtime_dir: Option<PathBuf>,
    /// `XDG_STATE_HOME`
    pub state_home: Option<PathBuf>,
    /// `HOME`
    pub home: Option<PathBuf>,
}

/// Where things are.
#[derive(Debug)]
pub(crate) struct Places {
    gpus: Option<String>,
    pub(crate) cdi_dir: PathBuf,
    run_dir: PathBuf,
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
pub fn run(args: impl IntoIterator<Item = OsString>, user: &User) -> ExitCode {
    let cli: Cli = match parse(args) {
        Ok(cli) => cli,
        Err(exit) => return exit.into(),
    };
    let places = || cli.places.settle(user);
    let answer = match cli.command {
        Command::Prepare(command) => places().and_then(|places| command.run(&places)),
        Command::Unprepare(command) => places().and_then(|places| command.run(&places)),
        Command::Inject(command) => return inject::finish(&command),
        Command::Devices(command) => places().and_then(|places| command.run(&places)),
        Command::Lint(command) => command.run(),
    };
    match answer {
        Ok(answer) => {
            let text = match cli.output {
                Format::Text => Plain(&answer.text).to_string(),
                Format::Json => format!("{:#}\n", answer.json),
            };
            print(text.as_bytes(), answer.exit).into()
        }
        Err(failure) => fail(&failure).into(),
    }
}

/// Reads a command line; one that is wrong, or asks for help, is answered.
pub(crate) fn parse<T: Parser>(args: impl IntoIterator<Item = OsString>) -> Result<T, Exit> {
    T::try_parse_from(args).map_err(|error| {
        let _printed = error.print();
        // Help and version are no failure; clap knows which stream they go to.
        if error.use_stderr() { Exit::Usage } else { Exit::Ok }
    })
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

/// A path as JSON can hold it: what is no text in it is replaced.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// All of stdin, at most `max` bytes.
fn stdin(max: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    let read = io::stdin().lock().take(limit).read_to_end(&mut bytes);
    read.map_err(|error| Failure::new("UNREADABLE", format!("standard input: {error}")))?;
    if bytes.len() > max {
        let line = format!("standard input: larger than the limit of {max} bytes");
        return Err(Failure::new("UNREADABLE", line));
    }
    Ok(bytes)
}

/// Writes messages to stderr, where nobody may listen.
pub(crate) fn tell(text: &str) {
    let _nobody_listens = io::stderr().lock().write_all(Plain(text).to_string().as_bytes());
}

fn fail(failure: &Failure) -> Exit {
    tell(&failure.to_string());
    failure.exit()
}

// === impl PlacesArgs ===

impl PlacesArgs {
    /// Fills in what the command line leaves open.
    pub(crate) fn settle(self, user: &User) -> Result<Places, Failure> {
        let root = rustix::process::geteuid().is_root() && !divvy_cdi::file::in_user_namespace();
        let place = |given: Option<PathBuf>, option, system: &str, own: Option<PathBuf>| {
            let own = if root { Some(PathBuf::from(system)) } else { own };
            given.or(own).ok_or_else(|| {
                let line = format!("{option} is needed: XDG_RUNTIME_DIR or HOME is not set");
                Failure::new("USAGE", line)
            })
        };
        // As the hook does: rootless, records are the user's own.
        let run = user.runtime_dir.as_ref().map(|dir| dir.join("divvy"));
        let home = || user.home.as_ref().map(|home| home.join(".local/state"));
        let state = user.state_home.clone().or_else(home).map(|dir| dir.join("divvy"));
        let cdi = run.as_ref().map(|run| run.join("cdi"));
        Ok(Places {
            gpus: self.gpus,
            cdi_dir: place(self.cdi_dir, "--cdi-dir", "/var/run/cdi", cdi)?,
            run_dir: place(self.run_dir, "--run-dir", "/run/divvy", run)?,
            state_dir: place(self.state_dir, "--state-dir", "/var/lib/divvy", state)?,
        })
    }
}

// === impl User ===

impl User {
    /// The user whom a process's environment describes.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let path = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self {
            runtime_dir: path("XDG_RUNTIME_DIR"),
            state_home: path("XDG_STATE_HOME"),
            home: path("HOME"),
        }
    }
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

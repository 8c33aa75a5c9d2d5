//! The command line: a file per subcommand, one way to print and one way to fail.

mod allocate;
mod devices;
mod document;
pub mod exit;
mod generate;
mod inject;
mod install;
mod lint;
mod migrate;
mod places;
mod prepare;
mod table;
mod unprepare;
mod webhook;

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    path::Path,
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use divvy_cdi::problem::quoted;

use crate::claim::wrong_with;
use exit::{Exit, Failure, Plain};
pub use places::User;
pub(crate) use places::{Kept, Places, PlacesArgs, boot};
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
    Allocate(allocate::Allocate),
    Migrate(migrate::Migrate),
    Unprepare(unprepare::Unprepare),
    Inject(inject::Inject),
    Devices(devices::Devices),
    Generate(generate::Generate),
    Install(install::Install),
    Lint(lint::Lint),
    Webhook(webhook::Webhook),
}

/// The options of all commands, which each takes, so that a line can begin with them whatever the
/// command is.
const OF_ALL: [&str; 13] = [
    "output",
    "gpus",
    "devices",
    "driver_root",
    "dev_root",
    "hook",
    "switch_mig",
    "adopt_mig",
    "shares",
    "device_metadata",
    "cdi_dir",
    "run_dir",
    "state_dir",
];

/// Those that a command has use for and lists, where not all.
const USED: [(&str, &[&str]); 9] = [
    (
        "allocate",
        &[
            "output",
            "gpus",
            "devices",
            "driver_root",
            "dev_root",
            "switch_mig",
            "shares",
            "state_dir",
        ],
    ),
    ("migrate", &["output"]),
    ("unprepare", &["output", "driver_root", "dev_root", "cdi_dir", "run_dir", "state_dir"]),
    ("inject", &[]),
    ("devices", &["output", "gpus", "devices", "driver_root", "dev_root", "cdi_dir", "state_dir"]),
    ("generate", &["output", "gpus", "driver_root", "dev_root", "hook"]),
    ("install", &["output"]),
    ("lint", &["output"]),
    ("webhook", &[]),
];

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
    let cli: Cli = match parse(listing(Cli::command()), args) {
        Ok(cli) => cli,
        Err(exit) => return exit.into(),
    };
    let places = Places::new(cli.places, user);
    let answer = match cli.command {
        Command::Prepare(command) => command.run(&places),
        Command::Unprepare(command) => command.run(&places),
        Command::Inject(command) => return inject::finish(&command),
        Command::Allocate(command) => command.run(&places),
        Command::Devices(command) => command.run(&places),
        Command::Generate(command) => command.run(&places),
        Command::Install(command) => command.run(),
        Command::Lint(command) => command.run(),
        Command::Migrate(command) => command.run(),
        Command::Webhook(command) => {
            return command.serve().map_or_else(|failure| fail(&failure), |()| Exit::Ok).into();
        }
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

/// The command line, which lists for each subcommand the options that it uses.
fn listing(mut command: clap::Command) -> clap::Command {
    // Only then the subcommands have the options of all.
    command.build();
    command.mut_subcommands(|subcommand| {
        let name = subcommand.get_name();
        let used = USED.iter().find(|(of, _)| *of == name).map_or(&OF_ALL[..], |(_, ids)| *ids);
        subcommand.mut_args(|arg| {
            let id = arg.get_id().as_str();
            let unused = OF_ALL.contains(&id) && !used.contains(&id);
            if unused { arg.hide(true) } else { arg }
        })
    })
}

/// Reads a command line; one that is wrong, or asks for help, is answered.
pub(crate) fn parse<T: FromArgMatches>(
    command: clap::Command,
    args: impl IntoIterator<Item = OsString>,
) -> Result<T, Exit> {
    let matches = command.try_get_matches_from(args);
    matches.and_then(|matches| T::from_arg_matches(&matches)).map_err(|error| {
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

/// Namespace, if there is one, and name of a claim as a person writes them: `[namespace/]name`.
fn claim_name(given: &str) -> Result<(Option<&str>, &str), Failure> {
    let (namespace, name) = match given.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, given),
    };
    let of_namespace = namespace.and_then(wrong_with).map(|why| ("namespace", why));
    match of_namespace.or_else(|| wrong_with(name).map(|why| ("name", why))) {
        None => Ok((namespace, name)),
        Some((part, why)) => {
            let line = format!(
                "{} names no claim: the {part} {why}; [namespace/]name is wanted, both DNS names of \
                 at most 253 lower case letters, digits, - and .",
                quoted(given)
            );
            Err(Failure::new("USAGE", line))
        }
    }
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

/// Writes messages to stderr, where nobody may listen; the daemon's go into its log.
pub(crate) fn tell(text: &str) {
    if tracing::dispatcher::has_been_set() {
        let text = text.trim_end();
        match text.starts_with("error[") {
            true => tracing::error!("{text}"),
            false => tracing::info!("{text}"),
        }
        return;
    }
    let _nobody_listens = io::stderr().lock().write_all(Plain(text).to_string().as_bytes());
}

fn fail(failure: &Failure) -> Exit {
    tell(&failure.to_string());
    failure.exit()
}

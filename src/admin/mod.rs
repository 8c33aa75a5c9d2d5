//! The command line: a file per subcommand, one way to print and one way to fail.

mod allocate;
mod devices;
mod document;
pub mod exit;
mod inject;
mod lint;
mod migrate;
mod prepare;
mod table;
mod unprepare;

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use divvy_cdi::problem::quoted;
use divvy_hook::record::RunDir;

use crate::{
    claim::wrong_with,
    emit,
    gpu::{self, Gpus, MigPolicy, Missing, Roots},
    journal::Journal,
    prepare::Node,
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
    Allocate(allocate::Allocate),
    Migrate(migrate::Migrate),
    Unprepare(unprepare::Unprepare),
    Inject(inject::Inject),
    Devices(devices::Devices),
    Lint(lint::Lint),
}

/// The options of all commands, which each takes, so that a line can begin with them whatever the
/// command is.
const OF_ALL: [&str; 10] = [
    "output",
    "gpus",
    "driver_root",
    "dev_root",
    "hook",
    "switch_mig",
    "adopt_mig",
    "cdi_dir",
    "run_dir",
    "state_dir",
];

/// Those that a command has use for and lists, where not all.
const USED: [(&str, &[&str]); 6] = [
    ("allocate", &["output", "gpus", "driver_root", "dev_root", "switch_mig", "state_dir"]),
    ("migrate", &["output"]),
    ("unprepare", &["output", "driver_root", "dev_root", "cdi_dir", "run_dir", "state_dir"]),
    ("inject", &[]),
    ("devices", &["output", "gpus", "driver_root", "dev_root", "cdi_dir", "state_dir"]),
    ("lint", &["output"]),
];

/// Where things are, as far as the command line says.
#[derive(Debug, Args)]
#[command(next_help_heading = "Where things are")]
pub(crate) struct PlacesArgs {
    /// The node's GPUs: `nvml` are this machine's, `nvml:DIR` those of the host that DIR stands
    /// for, and `sim:FILE` is a simulated node that FILE describes
    #[arg(long, global = true, value_name = "GPUS")]
    gpus: Option<String>,
    /// Where the NVIDIA driver's files are [default: /, /run/nvidia/driver or
    /// /home/kubernetes/bin/nvidia, whichever has them]
    #[arg(long, global = true, value_name = "DIR")]
    driver_root: Option<PathBuf>,
    /// Below which DIR the driver's device nodes are, as /dev/nvidia0 [default: /, or else the
    /// driver's root]
    #[arg(long, global = true, value_name = "DIR")]
    dev_root: Option<PathBuf>,
    /// The hook that CDI specs name, divvy-hook: an absolute path on this machine
    #[arg(long, global = true, value_name = "FILE", default_value = emit::HOOK)]
    hook: PathBuf,
    /// Switch the MIG mode of an idle GPU where a claim needs it and no reset is needed for it: on
    /// Hopper and newer. It is switched back with the last claim
    #[arg(long, global = true)]
    switch_mig: bool,
    /// Take MIG partitions that somebody else made for divvy's own: they are ended with the claim
    /// that is given them. Otherwise they are given, and left as they are
    #[arg(long, global = true)]
    adopt_mig: bool,
    /// Where claims' CDI specs are written [default: /var/run/cdi; without root
    /// $XDG_RUNTIME_DIR/divvy/cdi]
    #[arg(long, global = true, value_name = "DIR")]
    cdi_dir: Option<PathBuf>,
    /// Where the records are, by which the hook finds a prepared claim [default: /run/divvy;
    /// without root $XDG_RUNTIME_DIR/divvy]
    #[arg(long, global = true, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Where the journal is: what was done for each claim [default: /var/lib/divvy; without root
    /// $XDG_STATE_HOME/divvy, or $HOME/.local/state/divvy]
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// Whose machine it is, as `main` finds it: root's directories are the system's, and another user
/// has their own. Only absolute paths count.
#[derive(Debug, Default)]
pub struct User {
    /// `XDG_RUNTIME_DIR`
    pub runtime_dir: Option<PathBuf>,
    /// `XDG_STATE_HOME`
    pub state_home: Option<PathBuf>,
    /// `HOME`
    pub home: Option<PathBuf>,
}

/// Where things are. Each is looked up when it is needed: without root it may be nowhere.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    args: PlacesArgs,
    user: &'a User,
}

/// What is kept of claims: a node without its GPUs.
pub(crate) struct Kept {
    pub(crate) journal: Journal,
    run: RunDir,
    cdi_dir: PathBuf,
    hook: PathBuf,
    roots: Roots,
}

/// Where every distribution has the host's cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

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
        Command::Lint(command) => command.run(),
        Command::Migrate(command) => command.run(),
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

/// Writes messages to stderr, where nobody may listen.
pub(crate) fn tell(text: &str) {
    let _nobody_listens = io::stderr().lock().write_all(Plain(text).to_string().as_bytes());
}

fn fail(failure: &Failure) -> Exit {
    tell(&failure.to_string());
    failure.exit()
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

impl Places<'_> {
    pub(crate) fn new(args: PlacesArgs, user: &User) -> Places<'_> {
        Places { args, user }
    }

    /// All that is kept, or everything that is missing to find it.
    pub(crate) fn kept(&self) -> Result<Kept, Failure> {
        let all = both(both(self.journal(), self.run_dir()), self.cdi_dir())?;
        let ((journal, run), cdi_dir) = all;
        Ok(Kept { journal, run, cdi_dir, hook: self.args.hook.clone(), roots: self.roots() })
    }

    fn roots(&self) -> Roots {
        Roots { driver: self.args.driver_root.clone(), dev: self.args.dev_root.clone() }
    }

    fn journal(&self) -> Result<Journal, Failure> {
        let User { state_home, home, .. } = self.user;
        let of_home = || home.as_ref().map(|home| home.join(".local/state"));
        let own = state_home.clone().or_else(of_home).map(|dir| dir.join("divvy"));
        let lacking = "--state-dir is needed: without root it is $XDG_STATE_HOME/divvy, or \
                       $HOME/.local/state/divvy, and neither XDG_STATE_HOME nor HOME is set";
        Ok(Journal::new(&place(self.args.state_dir.as_ref(), "/var/lib/divvy", own, lacking)?))
    }

    /// As the hook does: without root, records are the user's own.
    fn run_dir(&self) -> Result<RunDir, Failure> {
        let own = self.user.runtime_dir.as_ref().map(|dir| dir.join("divvy"));
        let lacking = "--run-dir is needed: without root it is $XDG_RUNTIME_DIR/divvy, and \
                       XDG_RUNTIME_DIR is not set";
        Ok(RunDir::new(place(self.args.run_dir.as_ref(), "/run/divvy", own, lacking)?))
    }

    fn cdi_dir(&self) -> Result<PathBuf, Failure> {
        let own = self.user.runtime_dir.as_ref().map(|dir| dir.join("divvy/cdi"));
        let lacking = "--cdi-dir is needed: without root it is $XDG_RUNTIME_DIR/divvy/cdi, and \
                       XDG_RUNTIME_DIR is not set";
        place(self.args.cdi_dir.as_ref(), "/var/run/cdi", own, lacking)
    }

    fn mig(&self) -> MigPolicy {
        MigPolicy { switch: self.args.switch_mig, adopt: self.args.adopt_mig }
    }

    /// The GPUs that were named.
    pub(crate) fn gpus(&self) -> Result<Box<dyn Gpus>, Failure> {
        match &self.args.gpus {
            Some(address) => {
                gpu::open(address, &self.roots(), self.mig()).map_err(|e| Failure::of(e.code(), &e))
            }
            None => Err(Failure::new(
                "NO-GPUS",
                "no GPUs named: --gpus nvml for this machine's, or --gpus sim:FILE",
            )),
        }
    }
}

// === impl Kept ===

impl Kept {
    /// The GPUs that a claim was prepared on.
    pub(crate) fn gpus(&self, address: &str) -> Box<dyn Gpus> {
        gpu::open(address, &self.roots, MigPolicy::default())
            .unwrap_or_else(|error| Box::new(Missing::new(address, error)))
    }

    /// The node with these GPUs, in this boot.
    pub(crate) fn node<'a>(&'a self, gpus: &'a dyn Gpus, boot: &'a str) -> Node<'a> {
        let Self { journal, run, cdi_dir, hook, .. } = self;
        Node { gpus, journal, run, cdi_dir, hook, cgroups: Path::new(CGROUPS), boot }
    }
}

/// What is given; else root has the system's directory, and another user their own, if they have
/// one.
fn place(
    given: Option<&PathBuf>,
    system: &str,
    own: Option<PathBuf>,
    lacking: &str,
) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return Ok(given.clone());
    }
    let root = rustix::process::geteuid().is_root() && !divvy_cdi::file::in_user_namespace();
    let own = if root { Some(system.into()) } else { own };
    own.ok_or_else(|| Failure::new("USAGE", format!("{lacking} to an absolute path")))
}

/// Both, or the failures of both.
fn both<A, B>(a: Result<A, Failure>, b: Result<B, Failure>) -> Result<(A, B), Failure> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(a), Err(b)) => Err(a.and(b)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
    }
}

/// The boot that this machine is in.
pub(crate) fn boot() -> Result<String, Failure> {
    divvy_hook::record::boot_id().map_err(|e| Failure::of(e.code(), &e))
}

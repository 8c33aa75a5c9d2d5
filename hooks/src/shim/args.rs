//! A call is the command line that an engine gives an OCI runtime, as far as the shim must
//! understand it: runc's and crun's forms, flags before and after the command.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Flags before the command that take the next argument.
const GLOBAL_VALUES: [&str; 7] =
    ["root", "log", "log-format", "log-level", "criu", "rootless", "cgroup-manager"];

/// Flags before the command that stand alone.
const GLOBAL_ALONE: [&str; 2] = ["debug", "systemd-cgroup"];

/// Flags of `create` and `run` that take the next argument.
const CREATE_VALUES: [&str; 8] =
    ["bundle", "b", "config", "f", "console-socket", "pidfd-socket", "pid-file", "preserve-fds"];

/// The commands of runc and crun.
const COMMANDS: [&str; 19] = [
    "checkpoint",
    "create",
    "delete",
    "events",
    "exec",
    "features",
    "help",
    "init",
    "kill",
    "list",
    "mounts",
    "pause",
    "ps",
    "resume",
    "restore",
    "run",
    "spec",
    "start",
    "state",
];

/// What the engine wants of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// `create` or `run`: the bundle's config is edited first. (`restore` is not: the bundle of a
    /// checkpoint has its devices.)
    Create,
    /// Everything else: no business of ours.
    Other,
}

/// A command line, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call<'a> {
    /// What is wanted.
    pub command: Command,
    /// The bundle directory; unset, it is the working directory.
    pub bundle: Option<&'a OsStr>,
    /// crun's `--config`: the config file, from the bundle.
    pub config: Option<&'a OsStr>,
    /// The container.
    pub id: Option<&'a OsStr>,
    /// Where the runtime writes its errors.
    pub log: Option<&'a OsStr>,
    /// Whether it writes them as JSON lines.
    pub json: bool,
}

/// One argument that is a flag: `-name`, `--name`, `--name=value`.
struct Flag<'a> {
    name: &'a str,
    value: Option<&'a OsStr>,
    dashes: usize,
}

// === impl Call ===

impl<'a> Call<'a> {
    /// Reads the arguments after the program's name. Never fails: what it does not know it passes
    /// over, and in doubt it looks on for the command, so that no `create` is missed.
    pub fn parse<A: AsRef<OsStr>>(args: &'a [A]) -> Self {
        let mut call = Call {
            command: Command::Other,
            bundle: None,
            config: None,
            id: None,
            log: None,
            json: false,
        };
        let mut args = args.iter().map(AsRef::as_ref);
        if let Some("create" | "run") = call.globals(&mut args) {
            call.command = Command::Create;
            call.create(&mut args);
        }
        call
    }

    /// The config that the runtime will read.
    pub fn config_path(&self) -> PathBuf {
        let bundle = self.bundle.filter(|bundle| !bundle.is_empty()).unwrap_or(OsStr::new("."));
        Path::new(bundle).join(self.config.unwrap_or(OsStr::new("config.json")))
    }

    /// Reads up to and with the command.
    fn globals(&mut self, args: &mut impl Iterator<Item = &'a OsStr>) -> Option<&'a str> {
        // A flag we do not know may take the word after it.
        let mut doubtful = false;
        while let Some(arg) = args.next() {
            if arg == "--" {
                return args.next()?.to_str();
            }
            let Some(flag) = Flag::parse(arg) else {
                let word = arg.to_str();
                if doubtful && !word.is_some_and(|word| COMMANDS.contains(&word)) {
                    doubtful = false;
                    continue;
                }
                return word;
            };
            if GLOBAL_VALUES.contains(&flag.name) {
                let value = flag.value.or_else(|| args.next());
                match flag.name {
                    "log" => self.log = value,
                    "log-format" => self.json = value == Some(OsStr::new("json")),
                    _ => {}
                }
                doubtful = false;
            } else {
                doubtful = flag.value.is_none() && !GLOBAL_ALONE.contains(&flag.name);
            }
        }
        None
    }

    /// Reads what follows `create` or `run`. The container is the last word. Where help is asked for
    /// it is edited as well: whether a runtime takes `--help=false` for that is its own affair.
    fn create(&mut self, args: &mut impl Iterator<Item = &'a OsStr>) {
        while let Some(arg) = args.next() {
            if arg == "--" {
                self.id = args.last().or(self.id);
                return;
            }
            let Some(flag) = Flag::parse(arg) else {
                self.id = Some(arg);
                continue;
            };
            let (name, value) = flag.expand();
            match name {
                "bundle" | "b" => self.bundle = value.or_else(|| args.next()),
                "config" | "f" => self.config = value.or_else(|| args.next()),
                _ if CREATE_VALUES.contains(&name) && value.is_none() => {
                    args.next();
                }
                _ => {}
            }
        }
    }
}

// === impl Flag ===

impl<'a> Flag<'a> {
    fn parse(arg: &'a OsStr) -> Option<Self> {
        let bytes = arg.as_bytes();
        let dashes = bytes.iter().take(2).take_while(|byte| **byte == b'-').count();
        let rest = bytes.get(dashes..).filter(|rest| dashes > 0 && !rest.is_empty())?;
        let end = rest.iter().position(|byte| *byte == b'=');
        let (name, value) = match end {
            Some(end) => (rest.get(..end)?, rest.get(end + 1..)),
            None => (rest, None),
        };
        // A name that is not UTF-8 is none that we know.
        let name = std::str::from_utf8(name).unwrap_or_default();
        Some(Self { name, value: value.map(OsStr::from_bytes), dashes })
    }

    /// Name and value, crun's joined short forms (`-bDIR`) taken apart.
    fn expand(&self) -> (&'a str, Option<&'a OsStr>) {
        if self.dashes == 1 && self.value.is_none() && !CREATE_VALUES.contains(&self.name) {
            for short in ["b", "f"] {
                if let Some(value) = self.name.strip_prefix(short).filter(|rest| !rest.is_empty()) {
                    return (short, Some(OsStr::new(value)));
                }
            }
        }
        (self.name, self.value)
    }
}

#[cfg(test)]
mod tests;

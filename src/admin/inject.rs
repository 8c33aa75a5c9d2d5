//! `divvy inject`: what a container's OCI config becomes when it asks for devices.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use divvy_cdi::{
    edit::{self, Change, Options},
    file::Trust,
    host::ThisHost,
    name::QualifiedName,
    oci::{Config, MAX_CONFIG_BYTES},
    problem::{Problem, Severity},
    registry::Registry,
    resolve,
};

use super::{Exit, Failure, fail, print, stdin, tell};

/// Print an OCI config with the edits of CDI devices.
///
/// The edited config goes to stdout, messages go to stderr, nothing else is written. Device nodes
/// are looked at on this host, as they are when a container is created; mount sources and hooks
/// that are missing here, and files that the hook would not trust, are only warned of. Fields that OCI does not know, and everything that is
/// not edited, stay as they are.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  divvy inject --device vendor.com/gpu=0 bundle/config.json
  divvy inject --spec-dir ./cdi --device vendor.com/gpu=0 --device vendor.com/net=1 - <config.json")]
pub(super) struct Inject {
    /// A directory of CDI specs, repeatable; a later one counts more
    #[arg(long, value_name = "DIR", default_values = divvy_cdi::registry::DEFAULT_DIRS)]
    spec_dir: Vec<PathBuf>,
    /// A device, by its CDI name, repeatable
    #[arg(long, value_name = "NAME", required = true)]
    device: Vec<String>,
    /// Also say, on stderr, what changed and which spec asked for it
    #[arg(short, long)]
    verbose: bool,
    /// The OCI config; - is stdin
    config: PathBuf,
}

/// Runs the command. Its answer is the config itself, whatever `--output` says.
pub(super) fn finish(command: &Inject) -> ExitCode {
    match command.run() {
        Ok(bytes) => print(&bytes, Exit::Ok).into(),
        Err(failure) => fail(&failure).into(),
    }
}

// === impl Inject ===

impl Inject {
    fn run(&self) -> Result<Vec<u8>, Failure> {
        let names = self.names()?;
        let registry = Registry::scan(&self.spec_dir, &Trust::Any);
        let resolution = resolve::resolve(&registry, &names)
            .map_err(|error| coded(error.code(), &error.to_string()))?;
        warn(registry.problems());
        self.warn_of_untrusted();
        let text = self.read()?;
        let shown = self.config.display();
        let config = Config::parse(&text)
            .map_err(|error| Failure::new(error.code(), format!("{shown}: {error}")))?;
        let options = Options { rootless: false, check_paths: false };
        let edited = edit::apply(&config, &resolution, &ThisHost, options).map_err(|error| {
            let failure = coded(error.code(), &error.to_string());
            // Every name was resolved: it is the specs that contradict each other.
            match failure.exit() {
                Exit::Unresolved => failure.ending(Exit::Invalid),
                _ => failure,
            }
        })?;
        for missing in edit::missing_paths(&resolution, &ThisHost) {
            tell(&format!("warning[{}]: {} ({})\n", missing.code(), missing.kind, missing.origin));
        }
        if self.verbose {
            tell(&summary(&edited.changes));
        }
        Ok(edited.bytes.into_owned())
    }

    /// Whoever names a directory answers for it, so its files are used whoever can write them. The
    /// hook does not use those.
    fn warn_of_untrusted(&self) {
        for problem in Registry::scan(&self.spec_dir, &Trust::of_process()).problems() {
            if problem.code == "UNTRUSTED" {
                tell(&format!("warning[UNTRUSTED]: {problem}; used here, refused by the hook\n"));
            }
        }
    }

    fn names(&self) -> Result<Vec<QualifiedName>, Failure> {
        let parse = |name: &String| {
            QualifiedName::parse(name)
                .map_err(|error| Failure::new("UNRESOLVED", format!("--device {error}")))
        };
        self.device.iter().map(parse).collect()
    }

    fn read(&self) -> Result<Vec<u8>, Failure> {
        if self.config != Path::new("-") {
            return divvy_cdi::file::read(&self.config, MAX_CONFIG_BYTES, &Trust::Any)
                .map_err(|error| Failure::of(error.code(), &error));
        }
        stdin(MAX_CONFIG_BYTES)
    }
}

/// The failure of a line that starts with its code.
fn coded(code: &'static str, line: &str) -> Failure {
    Failure::new(code, line.strip_prefix(code).map_or(line, |line| line.trim_start_matches(": ")))
}

fn warn(problems: &[Problem]) {
    for problem in problems {
        let severity = match problem.severity {
            Severity::Error => "error, file not used",
            Severity::Warning => "warning",
        };
        tell(&format!("{severity}[{}]: {problem}\n", problem.code));
    }
}

fn summary(changes: &[Change<'_>]) -> String {
    match changes {
        [] => "nothing changed: everything asked for is there already\n".to_owned(),
        changes => changes.iter().map(|change| format!("{change}\n")).collect(),
    }
}

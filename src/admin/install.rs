//! `divvy install`: puts the hook on this host, under the names that engines call it by.

use std::{
    io,
    path::{Path, PathBuf},
};

use divvy_cdi::file::{self, Durability, FileError, Trust};
use serde_json::json;

use super::{Answer, Exit, Failure, shown};
use crate::emit;

/// Put the hook on this host, in one step for every engine that calls it.
///
/// DIR/divvy-hook is what CDI specs name (--hook of divvy-node and divvy), DIR/divvy-runtime and its
/// siblings are what engines call. All lead to one file below DIR/versions, and the next install
/// leads them to another: a container that starts meanwhile gets the old or the new one, whole. The
/// settings are written where there are none.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  divvy install --to /usr/local/bin --from target/static/divvy-hook
  divvy install --to /opt/divvy")]
pub(super) struct Install {
    /// The directory on this host: root's, and nobody else's to write
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// The hook to install
    #[arg(long, value_name = "FILE", default_value = emit::HOOK)]
    from: PathBuf,
    /// The hook's settings, written where there are none
    #[arg(long, value_name = "FILE", default_value = "/etc/divvy/config.toml")]
    config: PathBuf,
}

/// The names that engines call the hook by, each a table of the settings.
const NAMES: [&str; 5] =
    ["divvy-runtime", "divvy-crio", "divvy-podman", "divvy-docker", "divvy-ctr"];

const HOOK: &str = "divvy-hook";
const VERSIONS: &str = "versions";
/// How many digits of its digest a version is named by.
const VERSION: usize = 16;
const SETTINGS: &str = include_str!("../../hooks/config/config.toml");

/// Many times what the hook has.
const MAX_BYTES: usize = 64 << 20;
const ELF: &[u8] = b"\x7fELF";

// === impl Install ===

impl Install {
    pub(super) fn run(&self) -> Result<Answer, Failure> {
        let failed = |error: FileError| Failure::of(error.code(), &error);
        let bytes = file::read(&self.from, MAX_BYTES, &Trust::of_process()).map_err(failed)?;
        if !bytes.starts_with(ELF) {
            let line = format!("--from {}: no program that can be run", self.from.display());
            return Err(Failure::new("USAGE", line));
        }
        let to = self.dir()?;
        let digest = divvy_hook::record::digest(&bytes);
        let version: String = digest.trim_start_matches("sha256:").chars().take(VERSION).collect();
        let (versions, program) = (to.join(VERSIONS), to.join(VERSIONS).join(&version).join(HOOK));
        for dir in [&to, &versions, &versions.join(&version)] {
            file::make_dir(dir, 0o755, Durability::Durable).map_err(failed)?;
            file::check_dir(dir, &Trust::of_process()).map_err(failed)?;
        }
        let there = file::read(&program, MAX_BYTES, &Trust::of_process());
        let fresh = !there.is_ok_and(|there| there == bytes);
        if fresh {
            file::replace(&program, &bytes, 0o755, Durability::Durable).map_err(failed)?;
        }
        let hook = to.join(HOOK);
        let before = std::fs::read_link(&hook).ok();
        let target = Path::new(VERSIONS).join(&version).join(HOOK);
        file::link(&hook, &target, Durability::Durable).map_err(failed)?;
        for name in NAMES {
            file::link(&to.join(name), Path::new(HOOK), Durability::Durable).map_err(failed)?;
        }
        let settings = self.settings().map_err(failed)?;
        sweep(&versions, [Some(target), before].into_iter().flatten());
        Ok(self.answer(&hook, &version, fresh, settings))
    }

    /// Where it goes, as every engine finds it.
    fn dir(&self) -> Result<PathBuf, Failure> {
        match self.to.is_absolute() && self.to.to_str().is_some() {
            true => Ok(self.to.clone()),
            false => {
                let to = self.to.display();
                let line = format!("--to {to}: not an absolute path in UTF-8, as specs need it");
                Err(Failure::new("USAGE", line))
            }
        }
    }

    /// Writes the settings where there are none; true when it did. A link to nothing is something.
    fn settings(&self) -> Result<bool, FileError> {
        let path = &self.config;
        match std::fs::symlink_metadata(path) {
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => {
                return Err(FileError::Io { path: path.clone(), doing: "read", source });
            }
        }
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            file::make_dir(dir, 0o755, Durability::Durable)?;
        }
        file::replace(path, SETTINGS.as_bytes(), 0o644, Durability::Durable)?;
        Ok(true)
    }

    fn answer(&self, hook: &Path, version: &str, fresh: bool, settings: bool) -> Answer {
        let (state, kept) = match (fresh, settings) {
            (true, true) => ("installed", "written"),
            (true, false) => ("installed", "left as it is"),
            (false, true) => ("was there before", "written"),
            (false, false) => ("was there before", "left as it is"),
        };
        let (dir, config) = (shown(&self.to), shown(&self.config));
        let text = format!(
            "hook      {} ({version}): {state}\nruntimes  {dir}/{{{}}}\nsettings  {config}: {kept}\n",
            shown(hook),
            NAMES.join(","),
        );
        let json = json!({
            "hook": shown(hook),
            "version": version,
            "fresh": fresh,
            "names": NAMES,
            "settings": { "path": config, "written": settings },
        });
        Answer { text, json, exit: Exit::Ok }
    }
}

/// Removes the versions that are neither in use now nor were before. What cannot be removed is in
/// nobody's way.
fn sweep(versions: &Path, keep: impl Iterator<Item = PathBuf>) {
    let of = |target: PathBuf| target.parent().and_then(Path::file_name).map(ToOwned::to_owned);
    let keep: Vec<_> = keep.filter_map(of).collect();
    let is_ours = |name: &str| name.len() == VERSION && name.bytes().all(|b| b.is_ascii_hexdigit());
    for entry in std::fs::read_dir(versions).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(is_ours) && !keep.contains(&name) {
            let _left = file::remove(&entry.path().join(HOOK), Durability::Volatile);
            let _left = std::fs::remove_dir(entry.path());
        }
    }
}

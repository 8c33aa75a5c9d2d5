//! The room is where everything is measured: a root directory of its own on tmpfs, in a mount namespace of its
//! own, so that paths, sizes and environment are the same everywhere and nothing of the host is touched.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::config::config;
use crate::nvidia;
use crate::workload::{Request, Workload};

/// Where the room is mounted, in this process's mount namespace only.
const ROOT: &str = "/mnt";
const BUNDLE: &str = "/run/bundle";

/// What the shim is called for each way of asking; the configuration gives each name its engine.
const SHIM: &str = "/bench/divvy-runtime";
const SHIM_RECORD: &str = "/bench/divvy-pods";

const SETTINGS: &str = r#"runtimes = ["/bench/empty"]

[handlers.divvy-runtime]
engine = "ctr"
annotations = true

[handlers.divvy-pods]
engine = "cri"
require_record = true
"#;

/// One program as it is started in the room.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) argv: Vec<String>,
    /// Whether it has several threads, as everything in Go.
    threads: bool,
}

/// What one whole process cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) milliseconds: f64,
    pub(crate) kib: u64,
}

#[derive(Debug)]
pub(crate) struct Room {
    root: PathBuf,
    config: String,
    /// Whether a program can be put before all other work of the machine.
    real_time: bool,
}

// === impl Room ===

impl Room {
    /// Makes the room and puts the programs of `target/` into it. Needs root and a single thread.
    pub(crate) fn new(target: &Path) -> Result<Self> {
        let nothing: Option<&str> = None;
        unshare(CloneFlags::CLONE_NEWNS)
            .context("the bench needs a mount namespace of its own: run it as root")?;
        mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?;
        mount(Some("tmpfs"), ROOT, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
            .context("no tmpfs for the room")?;
        let real_time = Command::new("chrt").args(["-f", "10", "true"]).output();
        let real_time = real_time.is_ok_and(|output| output.status.success());
        let room = Self { root: ROOT.into(), config: String::new(), real_time };
        for dir in ["usr", "proc", "tmp", "dev/nvidia-caps", "etc/divvy", "run", "var", "bench"] {
            fs::create_dir_all(room.path(dir))?;
        }
        symlink("/run", room.path("var/run"))?;
        for link in ["bin", "lib", "lib64"] {
            symlink(format!("usr/{link}"), room.path(link))?;
        }
        mount(Some("/usr"), &room.path("usr"), nothing, MsFlags::MS_BIND, nothing)?;
        mount(Some("proc"), &room.path("proc"), Some("proc"), MsFlags::empty(), nothing)?;
        room.make_nodes()?;
        for file in nvidia::files() {
            room.write(&file, "")?;
            fs::set_permissions(room.path(&file), fs::Permissions::from_mode(0o755))?;
        }
        room.write("/etc/divvy/config.toml", SETTINGS)?;
        for (from, to) in [
            ("bench/empty", "/bench/empty"),
            ("bench/empty-shim", "/bench/empty-shim"),
            ("bench/iofloor", "/bench/iofloor"),
            ("bench/iofloor-etc", "/bench/iofloor-etc"),
            ("bench/launch", "/bench/launch"),
            ("bench/go-lean", "/bench/go-lean"),
            ("static/divvy-hook", SHIM),
            ("static/divvy-hook", SHIM_RECORD),
        ] {
            let from = target.join(from);
            if from.exists() {
                room.install(&from, to)?;
            }
        }
        Ok(room)
    }

    /// Copies a program into the room.
    fn install(&self, from: &Path, to: &str) -> Result<()> {
        let to = self.path(to);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        Ok(fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?)
    }

    fn make_nodes(&self) -> Result<()> {
        // mknod's mode is cut by the umask, and the specs say 0666.
        nix::sys::stat::umask(Mode::from_bits_truncate(0o022));
        let nodes = nvidia::nodes().into_iter().chain([("/dev/null".to_owned(), 1, 3)]);
        for (path, major, minor) in nodes {
            let path = self.path(&path);
            mknod(&path, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(major, minor))
                .with_context(|| format!("cannot make {}", path.display()))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        }
        Ok(())
    }

    /// A path of the room as seen from outside.
    fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        self.root.join(inside.strip_prefix("/").unwrap_or(inside))
    }

    fn write(&self, inside: &str, content: &str) -> Result<()> {
        // /var/run is a link, which leads out of the room when it is followed from outside.
        let path = self.path(inside.replacen("/var/run", "/run", 1));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        write_in_place(&path, content.as_bytes())
    }

    /// Lays out a workload and returns the shim as it is called for it.
    pub(crate) fn furnish(&mut self, workload: &Workload, devices: &[String]) -> Result<Program> {
        for dir in ["etc/cdi", "run/cdi", "run/divvy", "run/bundle"] {
            let dir = self.path(dir);
            if dir.exists() {
                fs::remove_dir_all(&dir)?;
            }
            fs::create_dir(&dir)?;
        }
        for (path, content) in &workload.specs {
            self.write(path, content)?;
        }
        let names = devices.join(",");
        self.config = match workload.request {
            Request::Names => config(&[("cdi.k8s.io/bench", &names)]),
            Request::Nothing | Request::Record => config(&[]),
        };
        let shim = match workload.request {
            Request::Record => {
                crate::records::write(self, workload, devices)?;
                SHIM_RECORD
            }
            Request::Nothing | Request::Names => SHIM,
        };
        Ok(Program::shim(shim))
    }

    /// Where the records of the node side lie, from outside.
    pub(crate) fn run_dir(&self) -> PathBuf {
        self.path("run/divvy")
    }

    /// The text of a file in the room.
    pub(crate) fn read(&self, inside: &str) -> Result<String> {
        fs::read_to_string(self.path(inside)).with_context(|| format!("cannot read {inside}"))
    }

    /// Puts the unedited config back.
    fn reset(&self) -> Result<()> {
        self.write(&format!("{BUNDLE}/config.json"), &self.config)
    }

    /// The config as the last program left it.
    pub(crate) fn edited(&self) -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&self.read(&format!("{BUNDLE}/config.json"))?)?)
    }

    /// Runs a program in the room below a tool, in an environment of one variable.
    pub(crate) fn output(&self, tool: &[&str], program: &Program) -> Result<Output> {
        self.reset()?;
        let mut argv = match (self.real_time, program.threads) {
            (true, false) => vec!["chrt", "-f", "10", "chroot", ROOT],
            // Threads that wait for each other in loops would do so for ever.
            _ => vec!["nice", "-n", "-20", "chroot", ROOT],
        };
        argv.extend(tool);
        argv.extend(program.argv.iter().map(String::as_str));
        let (first, rest) = argv.split_first().context("an empty command")?;
        let path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
        let mut command = Command::new(first);
        command.args(rest).env_clear().envs(path.split_once('='));
        command.current_dir("/").output().with_context(|| format!("cannot run {argv:?}"))
    }

    /// One whole process, from its start to its end.
    pub(crate) fn run(&self, program: &Program) -> Result<Cost> {
        let output = self.output(&["/bench/launch"], program)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let fields: Vec<u64> =
            text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        let [0, nanoseconds, kib] = fields.as_slice() else {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("{:?} failed ({}): {errors}", program.argv, text.trim());
        };
        #[expect(clippy::cast_precision_loss, reason = "a process does not run for months")]
        Ok(Cost { milliseconds: *nanoseconds as f64 / 1e6, kib: *kib })
    }

    /// From here on the low-level runtime is the beginning of a program, which cannot be executed, so that the program under a tool
    /// comes back from exec and ends itself.
    pub(crate) fn break_runtime(&self) -> Result<()> {
        let path = self.path("bench/empty");
        fs::remove_file(&path)?;
        write_in_place(&path, b"\x7fELF")?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the room's files are this process's own and live for a minute"
)]
fn write_in_place(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

// === impl Program ===

impl Program {
    /// A shim called as containerd calls one.
    pub(crate) fn shim(path: &str) -> Self {
        let rest = [
            "--root",
            "/run/runc",
            "--log",
            "/run/bundle/log.json",
            "--log-format",
            "json",
            "create",
            "--bundle",
            BUNDLE,
            "--pid-file",
            "/run/bundle/init.pid",
            "train",
        ];
        let argv = [path].iter().chain(&rest).map(ToString::to_string).collect();
        Self { argv, threads: false }
    }

    /// The same shim, under the same name, of another build.
    pub(crate) fn of_build(&self, room: &Room, build: &Path, number: usize) -> Result<Self> {
        let mut argv = self.argv.clone();
        if let Some(path) = argv.first_mut() {
            *path = path.replacen("/bench/", &format!("/bench/other-{number}/"), 1);
            room.install(build, path)?;
        }
        Ok(Self { argv, threads: self.threads })
    }

    /// The Go reference, to which the names are arguments.
    pub(crate) fn go_lean(devices: &[String]) -> Self {
        let argv = ["/bench/go-lean".to_owned()].into_iter().chain(devices.iter().cloned());
        Self { argv: argv.collect(), threads: true }
    }
}

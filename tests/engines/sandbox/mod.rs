//! A sandbox: one set of container engines in a root filesystem, namespaces and cgroups of its own.
//!
//! Dropping it ends every process in it, and with the last one its mounts and its network are gone.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

pub mod cgroup;
pub mod inside;

pub use cgroup::View;
pub use inside::{Output, Run};

use crate::fixture::{self, Fixture};
use inside::Privileges;

/// Which end of the range of engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Debian 12: containerd 1.6, runc 1.1, crun 1.8, podman 4.3.
    Old,
    /// containerd 2.1, runc 1.3, crun 1.28, podman 5.8.
    New,
}

#[derive(Debug)]
pub struct Sandbox {
    process: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    root: PathBuf,
    cgroup: cgroup::Cgroup,
    _base: tempfile::TempDir,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

// === impl End ===

impl End {
    pub const ALL: [End; 2] = [End::Old, End::New];

    pub fn name(self) -> &'static str {
        match self {
            End::Old => "old",
            End::New => "new",
        }
    }
}

// === impl Sandbox ===

impl Sandbox {
    /// Starts an empty one. `/fixture` inside holds images and the root filesystem of bundles; `/programs` what this
    /// build has made.
    pub fn start(fixture: &Fixture, end: End, view: View) -> Result<Sandbox> {
        Self::start_as(fixture, end, view, Privileges::Kept)
    }

    /// Starts one in which unprivileged users run programs too, setuid ones among them.
    pub fn start_for_users(fixture: &Fixture, end: End, view: View) -> Result<Sandbox> {
        Self::start_as(fixture, end, view, Privileges::Gained)
    }

    fn start_as(
        fixture: &Fixture,
        end: End,
        view: View,
        privileges: Privileges,
    ) -> Result<Sandbox> {
        let programs = fixture::programs().context("a program has a folder")?;
        let base = folder()?;
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let cgroup = cgroup::Cgroup::create(&name)?;
        let mut binds = vec![
            (fixture.dir.path().to_owned(), "/fixture".into()),
            (programs.to_owned(), "/programs".into()),
        ];
        binds.extend_from_slice(&fixture.binds);
        let plan = inside::Plan {
            lower: fixture.engines.join(end.name()),
            base: base.path().to_owned(),
            binds,
            view,
            cgroup: cgroup.clone(),
            privileges,
        };
        let mut process = Command::new("unshare")
            .args([
                "--mount",
                "--propagation=private",
                "--net",
                "--ipc",
                "--uts",
                "--pid",
                "--fork",
                "--kill-child=KILL",
                "--",
            ])
            .arg(std::env::current_exe()?)
            .args(["--sandbox", &serde_json::to_string(&plan)?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run unshare")?;
        let requests = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().context("no standard output")?);
        let mut sandbox =
            Sandbox { process, requests, answers, root: PathBuf::new(), cgroup, _base: base };
        let mut ready = String::new();
        sandbox.answers.read_line(&mut ready)?;
        ensure!(ready == "ready\n", "the sandbox did not start");
        let parent = sandbox.process.id();
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
        sandbox.root = format!("/proc/{}/root", children.trim()).into();
        Ok(sandbox)
    }

    /// Runs a command to its end, which comes within 30 seconds.
    pub fn run(&mut self, argv: &[&str]) -> Result<Output> {
        self.finish(&Run::new(argv))
    }

    /// Runs a command that is to succeed, and gives its standard output.
    pub fn must(&mut self, argv: &[&str]) -> Result<String> {
        let output = self.run(argv)?;
        ensure!(
            output.code == 0,
            "{} ended with {}\n{}{}",
            argv.join(" "),
            output.code,
            output.stdout,
            output.stderr
        );
        Ok(output.stdout)
    }

    pub fn finish(&mut self, run: &Run) -> Result<Output> {
        self.ask(&inside::Request::Run(run.clone()))
    }

    /// Starts a daemon, with its output in `log`, and gives its process id inside.
    pub fn spawn(&mut self, argv: &[&str], log: &str) -> Result<u32> {
        let argv = argv.iter().map(ToString::to_string).collect();
        let started = self.ask(&inside::Request::Spawn { argv, log: log.into() })?;
        Ok(started.stdout.parse()?)
    }

    fn ask(&mut self, request: &inside::Request) -> Result<Output> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.requests.as_mut().context("the sandbox has ended")?.write_all(&line)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        match serde_json::from_str::<Result<Output, String>>(&answer)
            .context("the sandbox has ended")?
        {
            Ok(output) => Ok(output),
            Err(error) => bail!(error),
        }
    }

    /// Where the test finds a path of the sandbox. Do not go through its absolute links.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.root.join(inside.trim_start_matches('/'))
    }

    pub fn read(&self, inside: &str) -> Result<String> {
        fs::read_to_string(self.path(inside)).with_context(|| format!("cannot read {inside}"))
    }

    pub fn write(&self, inside: &str, text: &str) -> Result<()> {
        self.write_mode(inside, text.as_bytes(), 0o644)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "nothing in the sandbox is read while a test writes it"
    )]
    pub fn write_mode(&self, inside: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let path = self.path(inside);
        let dir = path.parent().context("a file has a folder")?;
        fs::create_dir_all(dir)?;
        fs::write(&path, bytes).with_context(|| format!("cannot write {inside}"))?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(mode))?)
    }

    pub fn exists(&self, inside: &str) -> bool {
        self.path(inside).symlink_metadata().is_ok()
    }

    /// A character device node of any number.
    pub fn device(&self, inside: &str, (major, minor): (u64, u64), mode: u32) -> Result<()> {
        let path = self.path(inside);
        fs::create_dir_all(path.parent().context("a device has a folder")?)?;
        inside::make_device(&path, major, minor, mode)
    }

    /// Waits until a command succeeds.
    pub fn until(&mut self, what: &str, argv: &[&str]) -> Result<Output> {
        let start = Instant::now();
        loop {
            let output = self.run(argv)?;
            if output.code == 0 {
                return Ok(output);
            }
            ensure!(
                start.elapsed() < Duration::from_secs(20),
                "{what} did not come: {}{}",
                output.stdout,
                output.stderr
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // The agent ends with its input, the first process with the agent, the rest with that.
        self.requests = None;
        let start = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) {
            if start.elapsed() > Duration::from_secs(10) {
                eprintln!("sandbox: killed, it did not end by itself");
                self.process.kill().ok();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if let Err(error) = self.cgroup.remove() {
            eprintln!("sandbox: {error:#}");
        }
    }
}

/// A temporary folder that the next run removes if this one is killed.
pub fn folder() -> Result<tempfile::TempDir> {
    let name = format!("{}{}-", cgroup::PREFIX, std::process::id());
    Ok(tempfile::Builder::new().prefix(&name).tempdir()?)
}

// === impl Run ===

impl Run {
    pub fn new(argv: &[&str]) -> Run {
        Run {
            argv: argv.iter().map(ToString::to_string).collect(),
            env: Vec::new(),
            dir: "/".into(),
            stdin: String::new(),
            limit: Duration::from_secs(30),
        }
    }

    pub fn env(mut self, key: &str, value: &str) -> Run {
        self.env.push((key.to_owned(), value.to_owned()));
        self
    }

    pub fn dir(mut self, dir: impl AsRef<Path>) -> Run {
        self.dir = dir.as_ref().to_owned();
        self
    }

    pub fn stdin(mut self, text: &str) -> Run {
        text.clone_into(&mut self.stdin);
        self
    }
}

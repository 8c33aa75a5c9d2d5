//! The inside of a sandbox: its first process, and the agent that sets it up and runs commands in it.

use std::fs;
use std::io::{self, BufRead, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::CloneFlags;
use nix::sys::signal::{Signal, killpg};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::Pid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use serde::{Deserialize, Serialize};

use super::cgroup::{Cgroup, View};

/// What a sandbox is made of.
#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The root filesystem of an engine set; nothing is written to it.
    pub lower: PathBuf,
    /// An empty folder of the host to mount on.
    pub base: PathBuf,
    /// Folders of the host seen read-only inside, by their path there.
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// The cgroup view, below the cgroup that is this sandbox's own.
    pub view: View,
    pub cgroup: Cgroup,
    pub privileges: Privileges,
}

/// Whether a setuid program gains privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Privileges {
    /// No: a system call may be filtered then.
    Kept,
    /// Yes, as on any machine.
    Gained,
}

/// One line of JSON to the agent; each is answered by one line.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    Run(Run),
    /// Started and left running, with its output in a file.
    Spawn {
        argv: Vec<String>,
        log: PathBuf,
    },
}

/// A command to run to its end, or until `limit` when its process group is killed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub dir: PathBuf,
    pub stdin: String,
    pub limit: Duration,
}

/// How a command ended. A signal counts as 128 + its number, as in a shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Character devices inside: name, major, minor. Those after `tty` are what tests hand to containers.
const DEVICES: [(&str, u64, u64); 9] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
    ("fuse", 10, 229),
    ("kmsg", 1, 11),
    ("net/tun", 10, 200),
];

/// The first process of the sandbox's process namespace: when it ends, the kernel ends all others.
pub fn first_process(plan: &str) -> Result<()> {
    let agent = Command::new("/proc/self/exe").args(["--sandbox-agent", plan]).spawn()?;
    loop {
        // Orphans of the engines become its children; each has to be waited for.
        let ended = nix::sys::wait::wait().context("wait")?;
        if ended.pid().is_some_and(|pid| u32::try_from(pid.as_raw()) == Ok(agent.id())) {
            return Ok(());
        }
    }
}

/// Sets the sandbox up, says so with a line, then answers requests until its input ends.
pub fn agent(plan: &str) -> Result<()> {
    let plan: Plan = serde_json::from_str(plan)?;
    set_up(&plan).context("cannot set up the sandbox")?;
    if plan.privileges == Privileges::Kept {
        allow_memory_locks().context("cannot filter setrlimit")?;
    }
    let mut out = io::stdout().lock();
    writeln!(out, "ready")?;
    out.flush()?;
    for line in io::stdin().lock().lines() {
        let answer = match serde_json::from_str(&line?)? {
            Request::Run(run) => finish(&run),
            Request::Spawn { argv, log } => spawn(&argv, &log),
        };
        serde_json::to_writer(&mut out, &answer.map_err(|error| format!("{error:#}")))?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

fn set_up(plan: &Plan) -> Result<()> {
    plan.cgroup.join(plan.view)?;
    nix::sched::unshare(CloneFlags::CLONE_NEWCGROUP)?;
    plan.cgroup.leave_root(plan.view)?;
    let root = plan.base.join("root");
    mount_on(Some("tmpfs"), &plan.base, "tmpfs", "mode=755")?;
    for dir in ["root", "upper", "work"] {
        folder(&plan.base.join(dir))?;
    }
    let base = plan.base.display();
    let layers =
        format!("lowerdir={},upperdir={base}/upper,workdir={base}/work", plan.lower.display());
    mount_on(Some("overlay"), &root, "overlay", &layers)?;
    mount_on(Some("proc"), &root.join("proc"), "proc", "")?;
    mount_on(Some("sysfs"), &root.join("sys"), "sysfs", "")?;
    plan.cgroup.mount(plan.view, &root.join("sys/fs/cgroup"))?;
    devices(&root.join("dev"))?;
    mount_on(Some("tmpfs"), &root.join("run"), "tmpfs", "mode=755")?;
    // Engines stack overlays of their own, which an overlay cannot hold.
    for (dir, options) in [("var/lib", "mode=755"), ("tmp", "mode=1777"), ("var/tmp", "mode=1777")]
    {
        mount_on(Some("tmpfs"), &root.join(dir), "tmpfs", options)?;
    }
    for (from, to) in &plan.binds {
        let to = root.join(to.strip_prefix("/")?);
        folder(&to)?;
        bind(from, &to)?;
    }
    std::env::set_current_dir(&root)?;
    nix::unistd::pivot_root(".", "oldroot").context("pivot_root")?;
    std::env::set_current_dir("/")?;
    umount2("/oldroot", MntFlags::MNT_DETACH)?;
    // What containerd and the kubelet need of a root: mounts propagate.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SHARED, None::<&str>)?;
    nix::unistd::sethostname("engines")?;
    let up = command(&["ip", "link", "set", "lo", "up"]).status()?;
    anyhow::ensure!(up.success(), "no loopback interface");
    Ok(())
}

/// crun 1.8 on cgroup v2 raises RLIMIT_MEMLOCK for BPF before it looks whether the kernel counts that (not since
/// 5.11). Root may do so, but not on a machine that withholds CAP_SYS_RESOURCE: there the call succeeds and does nothing.
fn allow_memory_locks() -> Result<()> {
    use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_MEMLOCK)?;
    if setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_ok() {
        return Ok(setrlimit(Resource::RLIMIT_MEMLOCK, soft, hard)?);
    }
    let is = |argument, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
    };
    let memory = u64::from(Resource::RLIMIT_MEMLOCK as u32);
    let rules = [
        (nix::libc::SYS_setrlimit, vec![SeccompRule::new(vec![is(0, memory)?])?]),
        (
            nix::libc::SYS_prlimit64,
            vec![SeccompRule::new(vec![
                is(0, 0)?,
                is(1, memory)?,
                SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?,
            ])?],
        ),
    ];
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(
        rules.into_iter().collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(0),
        arch,
    )?;
    let program: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}

fn devices(dev: &Path) -> Result<()> {
    mount_on(Some("tmpfs"), dev, "tmpfs", "mode=755")?;
    for dir in ["pts", "shm", "mqueue", "net"] {
        folder(&dev.join(dir))?;
    }
    for (name, major, minor) in DEVICES {
        make_device(&dev.join(name), major, minor, 0o666)?;
    }
    mount_on(Some("devpts"), &dev.join("pts"), "devpts", "newinstance,ptmxmode=0666,mode=0620")?;
    mount_on(Some("tmpfs"), &dev.join("shm"), "tmpfs", "mode=1777")?;
    mount_on(Some("mqueue"), &dev.join("mqueue"), "mqueue", "")?;
    symlink("pts/ptmx", dev.join("ptmx"))?;
    symlink("/proc/self/fd", dev.join("fd"))?;
    for (number, name) in ["stdin", "stdout", "stderr"].iter().enumerate() {
        symlink(format!("/proc/self/fd/{number}"), dev.join(name))?;
    }
    Ok(())
}

/// A character device whose mode is `mode` whatever the umask is.
pub fn make_device(path: &Path, major: u64, minor: u64, mode: u32) -> Result<()> {
    let at = || format!("mknod {}", path.display());
    mknod(path, SFlag::S_IFCHR, Mode::from_bits_truncate(mode), makedev(major, minor))
        .with_context(at)?;
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(path, permissions).with_context(at)
}

fn folder(path: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o755)
        .create(path)
        .with_context(|| format!("mkdir {}", path.display()))
}

fn mount_on(source: Option<&str>, target: &Path, kind: &str, options: &str) -> Result<()> {
    mount(source, target, Some(kind), MsFlags::empty(), Some(options))
        .with_context(|| format!("mount -t {kind} -o {options} {}", target.display()))
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    let at = || format!("mount --bind {} {}", from.display(), to.display());
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>).with_context(at)?;
    let read_only = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(None::<&str>, to, None::<&str>, read_only, None::<&str>).with_context(at)
}

fn command<S: AsRef<std::ffi::OsStr>>(argv: &[S]) -> Command {
    let (program, args) = argv.split_first().expect("a command has a name");
    let mut command = Command::new(program);
    // Nothing of the machine's environment decides what a test sees.
    command
        .args(args)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/usr/sbin")
        .env("HOME", "/root");
    command.env("LANG", "C.UTF-8").current_dir("/").stdin(Stdio::null());
    command
}

/// Starts a program. One that was just written may be open to write for another moment: in what another test forked
/// meanwhile, until that is another program.
fn start(command: &mut Command) -> io::Result<Child> {
    let begun = Instant::now();
    loop {
        match command.spawn() {
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy
                    && begun.elapsed() < Duration::from_secs(10) =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

fn finish(run: &Run) -> Result<Output> {
    // Files, not pipes: a daemon that a command leaves behind may hold them open for ever.
    let mut files = [anonymous("stdin")?, anonymous("stdout")?, anonymous("stderr")?];
    files[0].write_all(run.stdin.as_bytes())?;
    files[0].rewind()?;
    let [stdin, stdout, stderr] = &files;
    let mut command = command(&run.argv);
    command
        .envs(run.env.iter().map(|(key, value)| (key, value)))
        .current_dir(&run.dir)
        .stdin(stdin.try_clone()?)
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .process_group(0);
    let child = start(&mut command).with_context(|| format!("cannot start {:?}", run.argv))?;
    let status = wait(child, run.limit).with_context(|| format!("{:?}", run.argv))?;
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
    let [_, stdout, stderr] = &mut files;
    Ok(Output { code, stdout: text(stdout)?, stderr: text(stderr)? })
}

fn wait(mut child: Child, limit: Duration) -> Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > limit {
            killpg(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGKILL)?;
            child.wait()?;
            anyhow::bail!("still running after {limit:?}, killed");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn text(file: &mut fs::File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn anonymous(name: &str) -> Result<fs::File> {
    let path = Path::new("/run/.agent").with_extension(name);
    let file =
        fs::File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

fn spawn(argv: &[String], log: &Path) -> Result<Output> {
    let log = fs::File::options().create(true).append(true).open(log)?;
    let mut command = command(argv);
    let child = start(command.stdout(log.try_clone()?).stderr(log).process_group(0))?;
    Ok(Output { code: 0, stdout: child.id().to_string(), stderr: String::new() })
}

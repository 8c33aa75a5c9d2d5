//! MPS control daemons, as real processes: NVIDIA's own is stood in for by this program under its
//! name, which speaks its protocol.

use std::{
    io::{BufRead, BufReader},
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::Duration,
};

use divvy::{
    gpu::{ComputeMode, Gpus},
    mps::{Mps, MpsError, Process, Running, Setup},
};
use divvy_fake_nvml::{Layout, mps::Script};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use super::{
    Outcome, Test, clear, named,
    service::Service,
    support::{Fake, SOON, eventually, fake_as},
};

const GPUS: &[super::support::Gpu] = &[("H100-80GB", false)];
const CGROUPS: &str = "/sys/fs/cgroup";

/// What a daemon that does nothing is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(500);

pub(crate) fn tests() -> Vec<Test> {
    named(
        "mps",
        &[
            ("a daemon is ready, set up, apart, and gone when it is stopped", whole_life),
            ("a daemon outlives who started it, killed, and is adopted", outlives),
            ("what was started before a crash could note it is ended", unnoted),
            ("a pid that was given again is nobody's daemon", recycled),
            ("a daemon that died is started again where it was", died),
            ("a daemon that never comes leaves nothing", never_ready),
            ("one that comes late in the place of another was never told, and is ended", late),
            ("whether one listens cannot be told: no second beside it", crowded),
            ("what is left of a start holds no lock", lock),
            ("a daemon that dies at once, or speaks no sense, leaves nothing", senseless),
            ("a setting that is not kept is an error", refused),
            ("a daemon that runs and does not answer is left alone", deaf),
            ("a daemon that does not obey is killed", disobedient),
            ("one user's clients are served at a time", one_user),
            ("with multiUser all are served, as root", all_users),
            ("a driver without -M is told apart", no_multi_user),
            ("a host without cgroups is told", no_cgroup),
            ("daemons of one name in two directories are two", namesakes),
            ("what a crash left in the directories is no obstacle", leftovers),
            ("GPUs are exclusive while they are shared, and as before after", compute_mode),
            ("no name leads elsewhere, or to a socket that nobody can reach", names),
            ("a log that has grown is emptied", log),
            ("NVIDIA's own control daemon, where this machine has it", real),
        ],
    )
}

/// A fake host with one GPU, and where its daemons are.
struct World {
    fake: Fake,
    setup: Setup,
}

// === impl World ===

impl World {
    /// None where such daemons cannot be had, and why.
    fn new() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can give a daemon a /dev/shm of its own".to_owned());
        }
        if let Some(why) = clear::no_daemons(Path::new(CGROUPS)) {
            return Err(why);
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Not in /dev/shm, in whose place a daemon has another.
        let fake = fake_as(Layout::default(), tempfile::tempdir().unwrap(), GPUS, SOON);
        // Servers of other users find their program there.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(fake.host.root(), open).unwrap();
        fake.host.install_mps().unwrap();
        let setup = Setup {
            name: format!("test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed)),
            devices: vec![fake.uuid(0)],
            active_thread_percentage: Some(50),
            pinned_memory: [(fake.uuid(0), 2 << 30)].into(),
            multi_user: false,
            modes: [(fake.uuid(0), ComputeMode::Default)].into(),
        };
        Ok(Self { fake, setup })
    }

    fn dir(&self) -> PathBuf {
        self.fake.host.root().join("run/mps")
    }

    fn place(&self) -> PathBuf {
        self.dir().join(&self.setup.name)
    }

    fn script(&self, script: &Script) {
        self.fake.host.script_mps(script).unwrap();
    }

    fn with<T>(&self, patience: Duration, act: impl FnOnce(&Mps<'_>) -> T) -> T {
        let (gpus, dir) = (&self.fake.nvml, self.dir());
        act(&Mps { gpus, dir: &dir, cgroups: Path::new(CGROUPS), patience })
    }

    fn start(&self) -> Running {
        self.with(PATIENCE, |mps| mps.start(&self.setup)).unwrap()
    }

    fn ensure(&self, running: &mut Running) -> Result<bool, MpsError> {
        self.with(PATIENCE, |mps| mps.ensure(&self.setup, running))
    }

    fn stop(&self, running: Option<Process>) {
        self.with(PATIENCE, |mps| mps.stop(&self.setup, running)).unwrap();
        self.nothing_left();
    }

    /// The processes that have this daemon's pipes in their environment.
    fn processes(&self) -> Vec<u32> {
        clear::processes(&self.place().join("pipe").display().to_string())
    }

    #[track_caller]
    fn nothing_left(&self) {
        assert_eq!(self.processes(), [0; 0]);
        assert!(!self.place().exists(), "{}", self.place().display());
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(&self.setup.name), "{mounts}");
        assert_eq!(self.cgroups(), [""; 0]);
    }

    /// The cgroups that have this daemon's name.
    fn cgroups(&self) -> Vec<String> {
        let below = std::fs::read_dir(CGROUPS).unwrap().map(|entry| entry.unwrap().path());
        let all = std::iter::once(PathBuf::from(CGROUPS)).chain(below);
        let ours = all.filter_map(|root| std::fs::read_dir(root.join("divvy")).ok()).flatten();
        let names = ours.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(&format!("mps-{}-", self.setup.name))).collect()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.place().join("log/control.log")).unwrap_or_default()
    }

    /// Starts a client, as a container would: it has the daemon's pipes and its `/dev/shm`.
    fn client(&self, user: u32) -> Client {
        let access = self.with(PATIENCE, |mps| mps.access(&self.setup)).unwrap();
        let mut command = Command::new(self.fake.host.client());
        command.env("CUDA_MPS_PIPE_DIRECTORY", &access.pipe).uid(user);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let spawn = move || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let nothing: Option<&str> = None;
            mount(nothing, "/", nothing, MsFlags::MS_SLAVE | MsFlags::MS_REC, nothing).unwrap();
            mount(Some(&access.shm), "/dev/shm", nothing, MsFlags::MS_BIND, nothing).unwrap();
            let read_only = MsFlags::MS_BIND | MsFlags::MS_RDONLY;
            mount(Some(&access.pipe), &access.pipe, nothing, MsFlags::MS_BIND, nothing).unwrap();
            let remount = read_only | MsFlags::MS_REMOUNT;
            mount(nothing, &access.pipe, nothing, remount, nothing).unwrap();
            command.spawn().unwrap()
        };
        let mut child = thread::spawn(spawn).join().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Client { child, out }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        clear::clear(self.fake.host.root());
    }
}

/// A client that runs; it ends when this does.
struct Client {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

// === impl Client ===

impl Client {
    /// What it got: waits until it has.
    fn given(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

macro_rules! world {
    () => {
        match World::new() {
            Ok(world) => world,
            Err(why) => return Outcome::Skipped(why),
        }
    };
}

fn whole_life() -> Outcome {
    let world = world!();
    let running = world.start();
    assert_eq!(running.no_cgroup, None);
    let pid = running.process.pid;
    // In a session, a cgroup and a mount namespace of its own, with nothing of ours open.
    let session = nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(pid.cast_signed()))).unwrap();
    assert_eq!(session.as_raw(), pid.cast_signed());
    let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    assert!(cgroups.contains(&format!("/divvy/mps-{}-", world.setup.name)), "{cgroups}");
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/mnt")).unwrap();
    assert_ne!(namespace(&pid.to_string()), namespace("self"));
    let devices = format!("CUDA_VISIBLE_DEVICES=Some(\"{}\") fds=0,1,2\n", world.fake.uuid(0));
    assert!(world.log().contains(&devices), "{}", world.log());
    let mut client = world.client(1000);
    let given = client.given();
    let limits = format!("user=1000 percentage=50 memory={}=2G", world.fake.uuid(0));
    assert!(given.starts_with(&limits) && given.contains("shared=true"), "{given}");
    // Nothing of that is in the host's own.
    let segment = given.split("shm=").nth(1).unwrap().split(' ').next().unwrap();
    assert!(!Path::new("/dev/shm").join(segment).exists());
    client.end();
    // Sockets that every user reaches, in a directory that none can write or list from above.
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(world.place().join("pipe")), 0o755);
    assert_eq!(mode(world.place().join("log")), 0o700);
    assert_eq!(mode(world.dir()), 0o711);
    world.stop(Some(running.process));
    // Again, and knowing nothing.
    world.stop(Some(running.process));
    world.stop(None);
    Outcome::Done
}

/// What another process does when this program is called so: starts a daemon and tells.
pub(crate) fn starter(args: &[String]) -> Option<ExitCode> {
    let [verb, root, setup] = args else { return None };
    if verb != "mps-start" {
        return None;
    }
    let deadlines = divvy::gpu::nvml::Deadlines::default();
    let nvml =
        divvy::gpu::nvml::Nvml::open(Path::new(root), &divvy::gpu::Roots::default(), deadlines)
            .unwrap();
    let setup: Setup = serde_json::from_str(setup).unwrap();
    let dir = Path::new(root).join("run/mps");
    let mps = Mps { gpus: &nvml, dir: &dir, cgroups: Path::new(CGROUPS), patience: PATIENCE };
    println!("{}", serde_json::to_string(&mps.start(&setup).unwrap()).unwrap());
    loop {
        thread::sleep(PATIENCE);
    }
}

/// Has another process start the daemon, and ends that as systemd ends a service: with all that is in
/// its cgroup.
fn started_by_another(world: &World) -> Running {
    let service = Service::new(&world.setup.name);
    let mut starter = Command::new(std::env::current_exe().unwrap());
    starter.arg("mps-start").arg(world.fake.host.root());
    starter.arg(serde_json::to_string(&world.setup).unwrap());
    let mut starter = service.command(&starter).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(starter.stdout.take().unwrap()).read_line(&mut line).unwrap();
    service.end(starter.id());
    assert!(!starter.wait().unwrap().success());
    serde_json::from_str(&line).unwrap()
}

fn outlives() -> Outcome {
    let world = world!();
    let mut running = started_by_another(&world);
    let before = running.clone();
    let mut client = world.client(1000);
    assert!(client.given().starts_with("user=1000"));
    assert!(!world.ensure(&mut running).unwrap());
    assert_eq!(running, before);
    assert!(client.runs());
    client.end();
    world.stop(Some(running.process));
    Outcome::Done
}

fn unnoted() -> Outcome {
    let world = world!();
    started_by_another(&world);
    let mut client = world.client(1000);
    client.given();
    client.end();
    world.stop(None);
    // And by who begins anew.
    let left = started_by_another(&world);
    let running = world.start();
    assert_ne!(running.process, left.process);
    world.stop(Some(running.process));
    Outcome::Done
}

fn recycled() -> Outcome {
    let world = world!();
    let running = world.start();
    world.stop(Some(running.process));
    let mut innocent = Command::new("sleep").arg("600").spawn().unwrap();
    let mut given_again = running.clone();
    given_again.process.pid = innocent.id();
    world.stop(Some(given_again.process));
    assert_eq!(innocent.try_wait().unwrap(), None);
    assert!(world.ensure(&mut given_again).unwrap());
    assert_ne!(given_again.process.pid, innocent.id());
    world.stop(Some(given_again.process));
    assert_eq!(innocent.try_wait().unwrap(), None);
    innocent.kill().unwrap();
    innocent.wait().unwrap();
    Outcome::Done
}

fn kill(pid: u32) {
    let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}

fn died() -> Outcome {
    let world = world!();
    let mut running = world.start();
    let mut client = world.client(1000);
    client.given();
    let inode = |name: &str| std::fs::metadata(world.place().join(name)).unwrap().ino();
    let before = (inode("pipe"), inode("shm"), running.process);
    kill(running.process.pid);
    eventually("the end of the daemon", || {
        !std::fs::read_to_string(format!("/proc/{}/stat", running.process.pid))
            .is_ok_and(|stat| !stat.contains(") Z "))
    });
    assert!(world.ensure(&mut running).unwrap());
    assert_ne!(running.process, before.2);
    // Containers that run have these mounted.
    assert_eq!((inode("pipe"), inode("shm")), (before.0, before.1));
    let mut client = world.client(1000);
    assert!(client.given().contains("percentage=50"));
    client.end();
    assert!(!world.ensure(&mut running).unwrap());
    // The first daemon's server is left, and goes with the rest.
    assert!(world.processes().len() > 2, "{:?}", world.processes());
    world.stop(Some(running.process));
    Outcome::Done
}

#[track_caller]
fn fails<T: std::fmt::Debug>(result: Result<T, MpsError>, code: &str, says: &[&str]) {
    let error = result.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.code(), code, "{text}");
    for says in says {
        assert!(text.contains(says), "{says:?} is not in: {text}");
    }
}

fn never_ready() -> Outcome {
    let world = world!();
    world.script(&Script { never_ready: true, ..Script::default() });
    let started = world.with(SHORT, |mps| mps.start(&world.setup));
    let uuid = world.fake.uuid(0);
    fails(started, "MPS-START", &[&world.setup.name, &uuid, "log/control.log ends with"]);
    world.nothing_left();
    Outcome::Done
}

fn late() -> Outcome {
    let world = world!();
    let mut running = world.start();
    let mut client = world.client(1000);
    client.given();
    kill(running.process.pid);
    // Its server is left, which may have clients.
    eventually("the end of the daemon", || !world.processes().contains(&running.process.pid));
    drop(client);
    let before = world.processes();
    assert_eq!(before.len(), 1, "{before:?}");
    for (script, code) in [
        (Script { never_ready: true, ..Script::default() }, "MPS-START"),
        (Script { answer: Some("?".to_owned()), ..Script::default() }, "MPS-START"),
    ] {
        world.script(&script);
        let mut it = running.clone();
        fails(world.with(SHORT, |mps| mps.ensure(&world.setup, &mut it)), code, &[]);
        assert_eq!(it, running);
        assert_eq!(world.processes(), before);
    }
    world.script(&Script::default());
    assert!(world.ensure(&mut running).unwrap());
    let mut client = world.client(1000);
    assert!(client.given().contains("percentage=50"));
    client.end();
    world.stop(Some(running.process));
    Outcome::Done
}

fn crowded() -> Outcome {
    let world = world!();
    let first = world.start();
    kill(first.process.pid);
    // Nobody takes in whoever connects, and one more than its backlog does.
    let control = world.place().join("pipe/control");
    std::fs::remove_file(&control).unwrap();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = || socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let address = SocketAddrUnix::new(&control).unwrap();
    let listener = socket();
    bind(&listener, &address).unwrap();
    listen(&listener, 0).unwrap();
    let mut waiting = Vec::new();
    loop {
        let one = socket();
        match connect(&one, &address) {
            Ok(()) => waiting.push(one),
            Err(errno) => break assert_eq!(errno, rustix::io::Errno::AGAIN),
        }
    }
    let before = world.processes();
    let joined = world.with(PATIENCE, |mps| mps.join(&world.setup));
    fails(joined, "MPS-SILENT", &["its socket cannot be used", "is left alone"]);
    assert_eq!(world.processes(), before);
    drop((listener, waiting));
    let running = world.with(PATIENCE, |mps| mps.join(&world.setup)).unwrap();
    world.stop(Some(running.process));
    Outcome::Done
}

fn lock() -> Outcome {
    let world = world!();
    let path = world.fake.host.root().join("lock");
    let lock = std::fs::OpenOptions::new().append(true).create(true).open(&path).unwrap();
    lock.lock().unwrap();
    world.script(&Script { holds_output: true, ..Script::default() });
    // So long is waited for what it holds.
    let running = world.with(PATIENCE / 4, |mps| mps.start(&world.setup)).unwrap();
    drop(lock);
    std::fs::File::open(&path).unwrap().try_lock().unwrap();
    world.stop(Some(running.process));
    Outcome::Done
}

fn senseless() -> Outcome {
    let world = world!();
    let start = || world.with(PATIENCE, |mps| mps.start(&world.setup));
    world.script(&Script { dies_after: Some(1), ..Script::default() });
    fails(start(), "MPS-START", &["Segmentation fault"]);
    world.nothing_left();
    world.script(&Script { answer: Some("\u{7}?\n".to_owned()), ..Script::default() });
    fails(start(), "MPS-START", &["when asked for a percentage"]);
    world.nothing_left();
    std::fs::remove_file(world.fake.host.root().join("usr/bin/nvidia-cuda-mps-control")).unwrap();
    let error = start().unwrap_err();
    assert_eq!(error.code(), "NO-DRIVER", "{error}");
    world.nothing_left();
    Outcome::Done
}

fn refused() -> Outcome {
    let world = world!();
    for (command, setting) in [
        ("set_default_active_thread_percentage", "default_active_thread_percentage 50"),
        ("set_default_device_pinned_mem_limit", "default_device_pinned_mem_limit GPU-"),
    ] {
        world.script(&Script { refuses: Some(command.to_owned()), ..Script::default() });
        let started = world.with(PATIENCE, |mps| mps.start(&world.setup));
        fails(started, "MPS-SETTING", &[setting, "is what it says"]);
        world.nothing_left();
    }
    Outcome::Done
}

fn deaf() -> Outcome {
    let world = world!();
    let mut running = world.start();
    let before = running.clone();
    world.script(&Script { deaf: true, ..Script::default() });
    let ensured = world.with(SHORT, |mps| mps.ensure(&world.setup, &mut running));
    fails(ensured, "MPS-SILENT", &["does not answer", "it is left alone"]);
    assert_eq!(running, before);
    assert!(world.processes().contains(&running.process.pid));
    world.script(&Script::default());
    assert!(!world.ensure(&mut running).unwrap());
    // Another listens in its place.
    std::fs::remove_file(world.place().join("pipe/control")).unwrap();
    fails(world.ensure(&mut running), "MPS-SILENT", &["does not listen at its socket"]);
    world.stop(Some(running.process));
    Outcome::Done
}

fn disobedient() -> Outcome {
    let world = world!();
    let running = world.start();
    let mut client = world.client(1000);
    client.given();
    world.script(&Script { ignores_quit: true, ..Script::default() });
    world.with(SHORT, |mps| mps.stop(&world.setup, Some(running.process))).unwrap();
    drop(client);
    world.nothing_left();
    Outcome::Done
}

fn one_user() -> Outcome {
    let world = world!();
    let running = world.start();
    let (mut first, mut second) = (world.client(1000), world.client(1000));
    assert!(first.given().starts_with("user=1000"));
    assert!(second.given().starts_with("user=1000"));
    let mut other = world.client(2000);
    eventually("the other user's wait", || world.log().contains("push client to pending list"));
    first.end();
    assert!(other.runs());
    second.end();
    assert!(other.given().starts_with("user=2000"));
    other.end();
    world.stop(Some(running.process));
    Outcome::Done
}

fn all_users() -> Outcome {
    let mut world = world!();
    world.setup.multi_user = true;
    let running = world.start();
    let (mut one, mut other) = (world.client(1000), world.client(2000));
    assert!(one.given().starts_with("user=0 "));
    assert!(other.given().starts_with("user=0 "));
    world.stop(Some(running.process));
    Outcome::Done
}

fn no_multi_user() -> Outcome {
    let mut world = world!();
    world.setup.multi_user = true;
    world.script(&Script { single_user: true, ..Script::default() });
    let started = world.with(PATIENCE, |mps| mps.start(&world.setup));
    fails(started, "MPS-START", &["multiUser needs a driver"]);
    world.nothing_left();
    Outcome::Done
}

fn no_cgroup() -> Outcome {
    let world = world!();
    let (gpus, dir, empty) = (&world.fake.nvml, world.dir(), tempfile::tempdir().unwrap());
    let mps = Mps { gpus, dir: &dir, cgroups: empty.path(), patience: PATIENCE };
    let mut running = mps.start(&world.setup).unwrap();
    let why = running.no_cgroup.clone().unwrap();
    assert!(why.contains("no cgroups are mounted at"), "{why}");
    assert_eq!(world.cgroups(), [""; 0]);
    // Where they can be had later, it gets one.
    assert!(!world.ensure(&mut running).unwrap());
    assert_eq!(running.no_cgroup, None);
    assert_ne!(world.cgroups(), [""; 0]);
    world.stop(Some(running.process));
    Outcome::Done
}

fn namesakes() -> Outcome {
    let (one, mut other) = (world!(), world!());
    other.setup.name.clone_from(&one.setup.name);
    let (mut of_one, of_other) = (one.start(), other.start());
    let mut client = one.client(1000);
    client.given();
    other.with(PATIENCE, |mps| mps.stop(&other.setup, Some(of_other.process))).unwrap();
    assert!(client.runs());
    assert!(!one.ensure(&mut of_one).unwrap());
    client.end();
    one.stop(Some(of_one.process));
    Outcome::Done
}

fn leftovers() -> Outcome {
    let world = world!();
    let first = world.start();
    kill(first.process.pid);
    std::os::unix::fs::symlink("/nowhere", world.place().join("pipe/log")).unwrap();
    let running = world.start();
    assert!(world.client(1000).given().contains("shared=true"));
    world.stop(Some(running.process));
    Outcome::Done
}

fn compute_mode() -> Outcome {
    let mut world = world!();
    let gpu = world.fake.uuid(0);
    let mode = |world: &World| world.fake.inventory().gpus[0].compute_mode;
    for before in [ComputeMode::Default, ComputeMode::Prohibited] {
        world.fake.nvml.set_compute_mode(&gpu, before).unwrap();
        world.setup.modes = [(gpu.clone(), before)].into();
        let mut running = world.start();
        assert_eq!(mode(&world), ComputeMode::ExclusiveProcess);
        // Set back by somebody.
        world.fake.nvml.set_compute_mode(&gpu, ComputeMode::Default).unwrap();
        world.with(PATIENCE, |mps| mps.exclude(&world.setup)).unwrap();
        assert_eq!(mode(&world), ComputeMode::ExclusiveProcess);
        assert!(!world.ensure(&mut running).unwrap());
        world.stop(Some(running.process));
        assert_eq!(mode(&world), before);
        world.script(&Script { never_ready: true, ..Script::default() });
        let started = world.with(SHORT, |mps| mps.start(&world.setup));
        fails(started, "MPS-START", &["not ready"]);
        assert_eq!(mode(&world), before);
        world.script(&Script::default());
    }
    // What is left says how they were.
    let running = world.start();
    let left = world.with(PATIENCE, |mps| mps.left(&world.setup.name)).unwrap();
    assert_eq!(left, world.setup);
    world.stop(Some(running.process));
    Outcome::Done
}

fn names() -> Outcome {
    let mut world = world!();
    for (name, says) in [
        ("../x", "is no name"),
        ("a/b", "is no name"),
        ("", "is no name"),
        (".", "is no name"),
        (&"x".repeat(90), "has at most 107 bytes"),
    ] {
        name.clone_into(&mut world.setup.name);
        let error = world.with(PATIENCE, |mps| mps.start(&world.setup)).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains(says), "{name}: {error}: {source}");
        assert_eq!(error.code(), "UNWRITABLE");
    }
    Outcome::Done
}

fn log() -> Outcome {
    let world = world!();
    let mut running = world.start();
    let log = world.place().join("log/control.log");
    std::fs::OpenOptions::new().append(true).open(&log).unwrap().set_len(2 << 20).unwrap();
    assert!(!world.ensure(&mut running).unwrap());
    assert!(!world.ensure(&mut running).unwrap());
    assert!(std::fs::metadata(&log).unwrap().len() < 1 << 20);
    assert!(world.log().ends_with("2G\n"), "{}", world.log());
    world.stop(Some(running.process));
    Outcome::Done
}

/// Its daemon comes up without a GPU, and keeps what does not need one. No client comes, so nothing
/// is done to GPUs that are there.
fn real() -> Outcome {
    let mut world = world!();
    let real = Path::new("/usr/bin/nvidia-cuda-mps-control");
    if !real.is_file() {
        return Outcome::Skipped(format!("{} is not there", real.display()));
    }
    let place = world.fake.host.root().join("usr/bin/nvidia-cuda-mps-control");
    std::fs::remove_file(&place).unwrap();
    // No link: none leads out of a driver root.
    std::fs::copy(real, &place).unwrap();
    world.setup.pinned_memory.clear();
    let mut running = world.start();
    assert_eq!(running.no_cgroup, None);
    assert!(!world.ensure(&mut running).unwrap());
    kill(running.process.pid);
    eventually("the end of the daemon", || {
        world.with(PATIENCE, |mps| mps.ensure(&world.setup, &mut running)).unwrap()
    });
    assert!(world.log().contains("Cmd:set_default_active_thread_percentage 50"));
    world.stop(Some(running.process));
    let again = started_by_another(&world);
    world.stop(None);
    assert_ne!(again.process, running.process);
    // None that knows this device, so that what it does not keep is seen.
    world.setup.pinned_memory = [("GPU-none".to_owned(), 2 << 30)].into();
    let started = world.with(PATIENCE, |mps| mps.start(&world.setup));
    fails(started, "MPS-SETTING", &["default_device_pinned_mem_limit GPU-none 2048M", "nothing"]);
    world.nothing_left();
    Outcome::Done
}

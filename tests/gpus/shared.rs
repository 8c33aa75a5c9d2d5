//! Claims that are shared by MPS, through divvy's own programs: their containers become clients of a
//! control daemon, which none of those programs takes along when it ends.

macro_rules! world {
    () => {
        match World::new() {
            Ok(world) => world,
            Err(why) => return Outcome::Skipped(why),
        }
    };
}

mod crash;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
};

use divvy::gpu::ComputeMode;
use divvy_fake_nvml::{Layout, Rule, mps::Script};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    Outcome, Test, clear, named,
    service::Service,
    support::{self, Fake, Gpu, SOON, eventually, fake_as},
};

const GPUS: &[Gpu] = &[("H100-80GB", false), ("H100-80GB", true), ("H100-80GB", false)];

const DIVVY: &str = env!("CARGO_BIN_EXE_divvy");
const NODE: &str = env!("CARGO_BIN_EXE_divvy-node");

pub(crate) fn tests() -> Vec<Test> {
    named(
        "mps-claim",
        &[
            ("containers of a claim are clients, and nothing is left when it ends", whole_life),
            ("clients outlive divvy-node, killed, and the daemon is adopted", killed),
            ("a daemon that died, or was never noted, is brought back", brought_back),
            ("a partition is shared, and its GPU's compute mode stays", partition),
            ("a claim's two GPUs are one daemon's, in their order", two_gpus),
            ("a daemon that does not come up leaves nothing of the claim", refused),
            ("compute modes come back, whatever they were, and whoever changed them", modes),
            ("a daemon without a claim is ended, and its GPU as it was", orphan),
            ("a claim is ended where its GPUs are gone", missing),
            ("a GPU that faults after a reboot is made exclusive later", rebooted),
            ("an orphan that does not stop keeps no other", orphans),
            ("a prepare that is killed anywhere", crash::preparing),
            ("an unprepare that is killed anywhere", crash::ending),
            ("claims with shares of a GPU are one daemon's, until the last", shares),
            ("a daemon of shares that died, or is nobody's, is brought back or ended", shares_lost),
        ],
    )
}

struct World {
    fake: Fake,
}

impl Drop for World {
    fn drop(&mut self) {
        clear::clear(self.fake.host.root());
    }
}

/// A container that has a claim, as far as MPS is concerned.
struct Container {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

// === impl World ===

impl World {
    /// None where this cannot be had, and why.
    fn new() -> Result<Self, String> {
        let fake = fake_as(Layout::default(), tempfile::tempdir().unwrap(), GPUS, SOON);
        if let Some(why) = support::no_nodes(&fake) {
            return Err(why);
        }
        if let Some(why) = clear::no_daemons("/sys/fs/cgroup".as_ref()) {
            return Err(why);
        }
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(fake.host.root(), open).unwrap();
        fake.host.install_mps().unwrap();
        support::hook(fake.host.root());
        Ok(Self { fake })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fake.host.root().join(name)
    }

    /// Writes a claim of this name and UID: its requests, and how they are shared.
    fn claim(&self, requests: &str, kind: &str, mps: &str) {
        support::write(
            &self.path("claim.yaml"),
            &format!(
                "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n\
                 metadata: {{name: c, uid: {UID}}}\n\
                 spec:\n  devices:\n    requests: [{requests}]\n    config:\n    - opaque:\n        \
                 driver: gpu.divvy.dev\n        parameters: {{apiVersion: gpu.divvy.dev/v1alpha1, \
                 kind: {kind}, sharing: {{mps: {mps}}}}}\n"
            ),
        );
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.fake.host.root()).args(args);
        command.arg("--gpus").arg(format!("nvml:{}", self.fake.host.root().display()));
        command.arg("--hook").arg(self.path("divvy-hook"));
        for place in ["state", "cdi", "run"] {
            command.arg(format!("--{place}-dir")).arg(self.path("divvy").join(place));
        }
        command
    }

    /// Runs one of the programs; all that it said.
    #[track_caller]
    fn run(&self, program: &str, args: &[&str], succeeds: bool) -> String {
        let output = self.command(program, args).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert_eq!(output.status.success(), succeeds, "{args:?}: {said}");
        said
    }

    #[track_caller]
    fn prepare(&self) -> String {
        self.run(DIVVY, &["prepare", "-f", "claim.yaml"], true)
    }

    #[track_caller]
    fn unprepare(&self) {
        self.run(DIVVY, &["unprepare", "c"], true);
        self.nothing_left();
    }

    /// The pid of the claim's daemon, as the journal has it.
    #[track_caller]
    fn pid(&self) -> u32 {
        self.noted().unwrap()
    }

    fn noted(&self) -> Option<u32> {
        let entry = fs::read(self.path("divvy/state/claims").join(format!("{UID}.json"))).unwrap();
        let entry: serde_json::Value = serde_json::from_slice(&entry).unwrap();
        let steps = entry["steps"].as_array().unwrap();
        let pid = steps.iter().find_map(|step| step["mps"]["running"]["pid"].as_u64());
        pid.map(|pid| u32::try_from(pid).unwrap())
    }

    fn mode(&self, gpu: usize) -> u32 {
        self.fake.host.state().unwrap().gpus[gpu].compute_mode
    }

    #[track_caller]
    fn nothing_left(&self) {
        assert_eq!(fs::read_dir(self.path("divvy/run/mps")).map_or(0, Iterator::count), 0);
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(self.fake.host.root().to_str().unwrap()), "{mounts}");
        assert_eq!(self.processes(), [0; 0]);
        assert_eq!([self.mode(0), self.mode(1), self.mode(2)], [0; 3]);
        assert_eq!(self.fake.instances(), 0);
    }

    /// The processes that were told of pipes on this host.
    fn processes(&self) -> Vec<u32> {
        clear::processes(&self.fake.host.root().display().to_string())
    }

    /// The edits of a device of the claim's spec.
    fn edits(&self, device: usize) -> serde_json::Value {
        let path = self.path("divvy/cdi").join(format!("gpu.divvy.dev-claim_{UID}.json"));
        let spec: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        spec["devices"][device]["containerEdits"].clone()
    }

    /// Starts a client in a container with a device of the claim: with the mounts and the
    /// environment of its spec.
    fn container(&self, device: usize) -> Container {
        let edits = self.edits(device);
        let mut command = Command::new(self.fake.host.client());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        for variable in edits["env"].as_array().unwrap() {
            let (name, value) = variable.as_str().unwrap().split_once('=').unwrap();
            command.env(name, value);
        }
        let mounts = edits["mounts"].as_array().unwrap().clone();
        let spawn = move || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let nothing: Option<&str> = None;
            mount(nothing, "/", nothing, MsFlags::MS_SLAVE | MsFlags::MS_REC, nothing).unwrap();
            for one in mounts {
                let text = |key: &str| one[key].as_str().unwrap().to_owned();
                let (host, path) = (text("hostPath"), text("containerPath"));
                fs::create_dir_all(&path).unwrap();
                mount(Some(host.as_str()), path.as_str(), nothing, MsFlags::MS_BIND, nothing)
                    .unwrap();
                if one["options"][0] == "ro" {
                    let read_only = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
                    mount(nothing, path.as_str(), nothing, read_only, nothing).unwrap();
                }
            }
            command.spawn().unwrap()
        };
        let mut child = thread::spawn(spawn).join().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Container { child, out }
    }
}

const UID: &str = "0b8f2f4e-6a3c-4d3b-9c55-3f1f0d6f2a11";

/// One whole GPU, and one partition.
const WHOLE: &str = "{name: a, exactly: {deviceClassName: gpu.divvy.dev}}";
const PART: &str = "{name: a, exactly: {deviceClassName: mig.gpu.divvy.dev}}";

// === impl Container ===

impl Container {
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

impl Drop for Container {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Kills a process, and waits until it is gone but for its name.
fn end(pid: u32) {
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    eventually("the end of a process", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    });
}

fn whole_life() -> Outcome {
    let world = world!();
    let limits = "{defaultActiveThreadPercentage: 40, defaultPinnedDeviceMemoryLimit: 3Gi}";
    world.claim(WHOLE, "GpuConfig", limits);
    let said = world.prepare();
    assert!(said.contains("MPS, 40% of threads, 3Gi pinned memory"), "{said}");
    assert!(!said.contains("note"), "{said}");
    let pid = world.pid();
    assert_eq!(world.mode(0), 3, "EXCLUSIVE_PROCESS");
    let edits = world.edits(0);
    let mounts: Vec<(&str, &str)> = edits["mounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["containerPath"].as_str().unwrap(), one["options"][0].as_str().unwrap()))
        .collect();
    assert_eq!(mounts, [("/tmp/nvidia-mps", "ro"), ("/dev/shm", "rw")]);
    let (mut one, mut other) = (world.container(0), world.container(0));
    for container in [&mut one, &mut other] {
        let given = container.given();
        let uuid = world.fake.uuid(0);
        assert!(given.contains(&format!("percentage=40 memory={uuid}=3G ")), "{given}");
        assert!(given.contains("shared=true"), "{given}");
    }
    // Again: verified, the same, and nobody is disturbed.
    assert!(world.prepare().contains("verified"));
    assert_eq!(world.pid(), pid);
    assert!(one.runs() && other.runs());
    one.end();
    other.end();
    world.unprepare();
    Outcome::Done
}

fn killed() -> Outcome {
    let world = world!();
    world.claim(WHOLE, "GpuConfig", "{}");
    world.prepare();
    // Of those that divvy-node has started itself, not of what this test has: they could be in its
    // cgroup.
    for round in 0..2 {
        let before = world.pid();
        end(before);
        let service = Service::new(&format!("node-{}-{round}", std::process::id()));
        let mut node = service.command(&world.command(NODE, &[]));
        let mut node = node.stderr(Stdio::null()).spawn().unwrap();
        eventually("another daemon", || world.noted().is_some_and(|pid| pid != before));
        let pid = world.pid();
        let mut container = world.container(0);
        container.given();
        service.end(node.id());
        assert!(!node.wait().unwrap().success());
        let said = world.run(NODE, &["--once"], true);
        assert!(said.contains("claim default/c: in step"), "{said}");
        assert_eq!(world.pid(), pid);
        assert!(container.runs());
        container.end();
    }
    world.unprepare();
    Outcome::Done
}

fn brought_back() -> Outcome {
    let world = world!();
    world.claim(WHOLE, "GpuConfig", "{defaultActiveThreadPercentage: 10}");
    world.prepare();
    let pid = world.pid();
    let entry = world.path("divvy/state/claims").join(format!("{UID}.json"));
    let before = fs::read_to_string(&entry).unwrap();
    end(pid);
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("brought back in step"), "{said}");
    assert_ne!(world.pid(), pid);
    let mut container = world.container(0);
    assert!(container.given().contains("percentage=10"));
    // As after a crash that came between starting it and noting that.
    let started = world.pid();
    support::write(&entry, &before);
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("brought back in step"), "{said}");
    assert_eq!(world.pid(), started);
    assert!(container.runs());
    container.end();
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("in step") && !said.contains("back"), "{said}");
    world.unprepare();
    Outcome::Done
}

fn partition() -> Outcome {
    let world = world!();
    world.claim(PART, "MigDeviceConfig", "{defaultPinnedDeviceMemoryLimit: 1Gi}");
    world.prepare();
    assert_eq!(world.mode(1), 0, "a partition has no compute mode");
    let uuid = world.fake.inventory().gpus[1].partitions()[0].uuid.clone();
    let mut container = world.container(0);
    assert!(container.given().contains(&format!("memory={uuid}=1G ")));
    container.end();
    // Lost, and made again: as another, which only another daemon can serve.
    let pid = world.pid();
    world.fake.host.change(|state| state.gpus[1].instances.clear()).unwrap();
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("brought back in step"), "{said}");
    let other = world.fake.inventory().gpus[1].partitions()[0].uuid.clone();
    assert_ne!(world.pid(), pid);
    let mut container = world.container(0);
    let given = container.given();
    assert!(other != uuid && given.contains(&format!("memory={other}=1G ")), "{given}");
    container.end();
    world.unprepare();
    Outcome::Done
}

fn two_gpus() -> Outcome {
    let world = world!();
    let both = "{name: a, exactly: {deviceClassName: gpu.divvy.dev, count: 2}}";
    let limits = "{defaultPerDevicePinnedMemoryLimit: {'1': 2Gi}}";
    world.claim(both, "GpuConfig", limits);
    world.prepare();
    assert_eq!([world.mode(0), world.mode(1), world.mode(2)], [3, 0, 3]);
    let environment = fs::read(format!("/proc/{}/environ", world.pid())).unwrap();
    let devices = format!("CUDA_VISIBLE_DEVICES={},{}", world.fake.uuid(0), world.fake.uuid(2));
    let told = environment.split(|b| *b == 0).any(|one| one == devices.as_bytes());
    assert!(told, "{}", String::from_utf8_lossy(&environment));
    let (mut one, mut other) = (world.container(0), world.container(1));
    let limit = format!("memory={}=2G ", world.fake.uuid(2));
    assert!(one.given().contains(&limit) && other.given().contains(&limit));
    one.end();
    other.end();
    world.unprepare();
    Outcome::Done
}

fn refused() -> Outcome {
    let world = world!();
    world.claim(WHOLE, "GpuConfig", "{defaultActiveThreadPercentage: 10}");
    let set = "set_default_active_thread_percentage";
    for (script, code, says) in [
        (Script { refuses: Some(set.to_owned()), ..Script::default() }, "MPS-SETTING", "100.0"),
        (Script { answer: Some("?".to_owned()), ..Script::default() }, "MPS-START", "percentage"),
        (Script { dies_after: Some(0), ..Script::default() }, "MPS-START", "Segmentation"),
    ] {
        world.fake.host.script_mps(&script).unwrap();
        let said = world.run(DIVVY, &["prepare", "-f", "claim.yaml"], false);
        assert!(said.contains(code) && said.contains(says), "{said}");
        assert!(said.contains(&world.fake.uuid(0)), "{said}");
        world.nothing_left();
    }
    world.fake.host.script_mps(&Script::default()).unwrap();
    fs::remove_file(world.path("usr/bin/nvidia-cuda-mps-control")).unwrap();
    let said = world.run(DIVVY, &["prepare", "-f", "claim.yaml"], false);
    assert!(
        said.contains("NO-DRIVER") && said.contains("opt/bin/nvidia-cuda-mps-control"),
        "{said}"
    );
    world.nothing_left();
    Outcome::Done
}

fn modes() -> Outcome {
    let world = world!();
    world.claim(WHOLE, "GpuConfig", "{}");
    // PROHIBITED, by an administrator.
    world.fake.host.change(|state| state.gpus[0].compute_mode = 2).unwrap();
    world.prepare();
    assert_eq!(world.mode(0), 3);
    world.fake.host.change(|state| state.gpus[0].compute_mode = 0).unwrap();
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("brought back in step"), "{said}");
    assert_eq!(world.mode(0), 3);
    // It cannot be set back: said, and done the next time.
    let call = "nvmlDeviceSetComputeMode".to_owned();
    let rule = Rule { call, fail: Some(999), ..Rule::default() };
    world.fake.host.script(&[rule]).unwrap();
    let said = world.run(DIVVY, &["unprepare", "c"], false);
    assert!(said.contains("nvmlDeviceSetComputeMode"), "{said}");
    assert_eq!(world.processes(), [0; 0]);
    world.fake.host.script(&[]).unwrap();
    world.run(DIVVY, &["unprepare", "c"], true);
    assert_eq!(world.mode(0), 2);
    world.fake.host.change(|state| state.gpus[0].compute_mode = 0).unwrap();
    world.nothing_left();
    Outcome::Done
}

fn orphan() -> Outcome {
    let world = world!();
    world.claim(WHOLE, "GpuConfig", "{}");
    world.prepare();
    let mut container = world.container(0);
    container.given();
    container.end();
    let entry = world.path("divvy/state/claims").join(format!("{UID}.json"));
    let whole = fs::read(&entry).unwrap();
    support::write(&entry, "{");
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("its entry was made anew"), "{said}");
    assert_eq!(fs::read(&entry).unwrap(), whole);
    // Damaged, and not to be made anew without its record.
    support::write(&entry, "{");
    fs::remove_file(world.path("divvy/run/claims").join(format!("{UID}.json"))).unwrap();
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("no container gets its claim any more"), "{said}");
    assert!(
        said.contains(&format!("MPS control daemon {UID}-0: was there for no claim")),
        "{said}"
    );
    world.nothing_left();
    Outcome::Done
}

fn missing() -> Outcome {
    let world = world!();
    world.claim(WHOLE, "GpuConfig", "{}");
    world.prepare();
    let libraries = world.path("usr/lib/x86_64-linux-gnu");
    let away = world.path("usr/lib/away");
    fs::rename(&libraries, &away).unwrap();
    let said = world.run(DIVVY, &["unprepare", "c"], false);
    assert!(said.contains("GPUS-MISSING"), "{said}");
    // All but what only the driver can do.
    assert_eq!(world.processes(), [0; 0]);
    fs::rename(&away, &libraries).unwrap();
    assert_eq!(world.fake.inventory().gpus[0].compute_mode, ComputeMode::ExclusiveProcess);
    world.unprepare();
    Outcome::Done
}

fn rebooted() -> Outcome {
    let world = world!();
    world.claim(WHOLE, "GpuConfig", "{}");
    world.prepare();
    end(world.pid());
    clear::clear(&world.path("divvy/run"));
    fs::remove_dir_all(world.path("divvy/run")).unwrap();
    world.fake.host.change(|state| state.gpus[0].compute_mode = 0).unwrap();
    let path = world.path("divvy/state/claims").join(format!("{UID}.json"));
    let entry: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let boot = entry["boot"].as_str().unwrap();
    let before = fs::read_to_string(&path).unwrap().replace(boot, "the-boot-before");
    support::write(&path, &before);
    let call = "nvmlDeviceGetComputeMode".to_owned();
    world.fake.host.script(&[Rule { call, fail: Some(999), ..Rule::default() }]).unwrap();
    let said = world.run(NODE, &["--once"], false);
    assert!(said.contains("nvmlDeviceGetComputeMode"), "{said}");
    world.fake.host.script(&[]).unwrap();
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("brought back in step"), "{said}");
    assert_eq!(world.mode(0), 3);
    world.unprepare();
    Outcome::Done
}

fn orphans() -> Outcome {
    let world = world!();
    let both = "{name: a, exactly: {deviceClassName: gpu.divvy.dev}}, \
                {name: b, exactly: {deviceClassName: gpu.divvy.dev}}";
    world.claim(both, "GpuConfig", "{}");
    world.prepare();
    let call = "nvmlDeviceSetComputeMode".to_owned();
    let gpu = Some(world.fake.uuid(0));
    let rule = Rule { call, gpu, fail: Some(999), ..Rule::default() };
    // The first by name cannot be set back; the other is that of the claim.
    let run = world.path("divvy/run/mps");
    let (own, first) = (format!("{UID}-0"), "0-0");
    let note = fs::read_to_string(run.join(&own).join("daemon.json")).unwrap();
    let mut note: serde_json::Value = serde_json::from_str(&note).unwrap();
    note["modes"].as_object_mut().unwrap().remove(&world.fake.uuid(0));
    support::write(&run.join(&own).join("daemon.json"), &note.to_string());
    note["name"] = first.into();
    note["modes"] = serde_json::json!({ world.fake.uuid(0): "Default" });
    fs::create_dir(run.join(first)).unwrap();
    support::write(&run.join(first).join("daemon.json"), &note.to_string());
    fs::remove_file(world.path("divvy/state/claims").join(format!("{UID}.json"))).unwrap();
    world.fake.host.script(&[rule]).unwrap();
    let said = world.run(NODE, &["--once"], false);
    assert!(said.contains("ending the MPS control daemon 0-0"), "{said}");
    assert!(said.contains(&format!("{own}: was there for no claim")), "{said}");
    world.fake.host.script(&[]).unwrap();
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("0-0: was there for no claim"), "{said}");
    world.nothing_left();
    Outcome::Done
}

/// Writes a claim that was given a share of the first GPU.
fn share(world: &World, name: &str, number: u32, memory: &str) {
    let device = world.fake.inventory().devices().next().unwrap().name().to_string();
    support::write(
        &world.path(&format!("{name}.yaml")),
        &format!(
            "apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: {name}, uid: 0b8f2f4e-6a3c-4d3b-9c55-00000000000{number}}}
spec: {{devices: {{requests: [{WHOLE}]}}}}
status:
  allocation:
    devices:
      results:
      - request: a
        driver: gpu.divvy.dev
        pool: fake-gpus
        device: {device}
        shareID: 7c8f2f4e-6a3c-4d3b-9c55-00000000000{number}
        consumedCapacity: {{memory: {memory}}}
      config:
      - source: FromClass
        opaque:
          driver: gpu.divvy.dev
          parameters:
            apiVersion: gpu.divvy.dev/v1alpha1
            kind: GpuConfig
            sharing: {{mps: {{defaultActiveThreadPercentage: 30}}}}
"
        ),
    );
}

/// The environment and mounts of the device of a claim.
fn edits_of(world: &World, number: u32) -> String {
    let uid = format!("0b8f2f4e-6a3c-4d3b-9c55-00000000000{number}");
    let path = world.path("divvy/cdi").join(format!("gpu.divvy.dev-claim_{uid}.json"));
    let spec: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    spec["devices"][0]["containerEdits"].to_string()
}

/// The processes that are control daemons.
fn daemons(world: &World) -> Vec<u32> {
    let is_daemon = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("--serve")
    };
    world.processes().into_iter().filter(is_daemon).collect()
}

fn shares() -> Outcome {
    let world = world!();
    share(&world, "one", 1, "20Gi");
    share(&world, "two", 2, "30Gi");
    let said = world.run(DIVVY, &["prepare", "-f", "one.yaml"], true);
    assert!(said.contains("request a: 20Gi of memory is advisory"), "{said}");
    let first = daemons(&world);
    assert_eq!(first.len(), 1, "{first:?}");
    world.run(DIVVY, &["prepare", "-f", "two.yaml"], true);
    assert_eq!(daemons(&world), first);
    let limit = |megabytes| format!("\"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={megabytes}M\"");
    assert!(edits_of(&world, 1).contains(&limit(20480)), "{}", edits_of(&world, 1));
    assert!(edits_of(&world, 2).contains(&limit(30720)), "{}", edits_of(&world, 2));
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("one: in step") && said.contains("two: in step"), "{said}");
    // A third has no room, and leaves the others alone.
    share(&world, "three", 3, "40Gi");
    let said = world.run(DIVVY, &["prepare", "-f", "three.yaml"], false);
    assert!(said.contains("OVERLAP"), "{said}");
    world.run(DIVVY, &["unprepare", "one"], true);
    assert_eq!((daemons(&world), world.mode(0)), (first, 3));
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("two: in step"), "{said}");
    // As it was before the first, which the last never saw.
    world.run(DIVVY, &["unprepare", "two"], true);
    world.nothing_left();
    Outcome::Done
}

fn shares_lost() -> Outcome {
    let world = world!();
    for (name, number) in [("one", 1), ("two", 2)] {
        share(&world, name, number, "20Gi");
        world.run(DIVVY, &["prepare", "-f", &format!("{name}.yaml")], true);
    }
    let first = daemons(&world);
    end(first[0]);
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("one: brought back") && said.contains("two: brought back"), "{said}");
    let second = daemons(&world);
    assert_eq!(second.len(), 1, "{second:?}");
    assert_ne!(second, first);
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("one: in step") && said.contains("two: in step"), "{said}");
    assert_eq!(daemons(&world), second);
    // Nobody knows of it any more: neither the journal nor what it could be made anew from.
    for number in [1, 2] {
        let entry = format!("0b8f2f4e-6a3c-4d3b-9c55-00000000000{number}.json");
        support::write(&world.path("divvy/state/claims").join(&entry), "{");
        fs::remove_file(world.path("divvy/run/claims").join(&entry)).unwrap();
    }
    let said = world.run(NODE, &["--once"], true);
    assert!(said.contains("MPS control daemon shared_GPU-"), "{said}");
    world.nothing_left();
    Outcome::Done
}

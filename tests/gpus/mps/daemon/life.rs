//! A daemon's life: it outlives who started it, and is found again, or started again.

use std::{
    io::{BufRead, BufReader},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    thread,
};

use divvy::mps::{Mps, Running, Setup};

use super::{
    super::{
        host::{CGROUPS, end},
        service::Service,
    },
    PATIENCE, World, fails,
};
use crate::{Outcome, support::eventually};

pub(super) fn whole_life() -> Outcome {
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
    let devices = format!("CUDA_VISIBLE_DEVICES=Some(\"{}\") fds=0,1,2\n", world.host.fake.uuid(0));
    assert!(world.log().contains(&devices), "{}", world.log());
    let mut client = world.client(1000);
    let given = client.given();
    let limits = format!("user=1000 percentage=50 memory={}=2G", world.host.fake.uuid(0));
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
    starter.arg("mps-start").arg(world.host.fake.host.root());
    starter.arg(serde_json::to_string(&world.setup).unwrap());
    let mut starter = service.command(&starter).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(starter.stdout.take().unwrap()).read_line(&mut line).unwrap();
    service.end(starter.id());
    assert!(!starter.wait().unwrap().success());
    serde_json::from_str(&line).unwrap()
}

pub(super) fn outlives() -> Outcome {
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

pub(super) fn unnoted() -> Outcome {
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

pub(super) fn recycled() -> Outcome {
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

pub(super) fn died() -> Outcome {
    let world = world!();
    let mut running = world.start();
    let mut client = world.client(1000);
    client.given();
    let inode = |name: &str| std::fs::metadata(world.place().join(name)).unwrap().ino();
    let before = (inode("pipe"), inode("shm"), running.process);
    end(running.process.pid);
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

pub(super) fn namesakes() -> Outcome {
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

pub(super) fn leftovers() -> Outcome {
    let world = world!();
    let first = world.start();
    end(first.process.pid);
    std::os::unix::fs::symlink("/nowhere", world.place().join("pipe/log")).unwrap();
    let running = world.start();
    assert!(world.client(1000).given().contains("shared=true"));
    world.stop(Some(running.process));
    Outcome::Done
}

/// Its daemon comes up without a GPU, and keeps what does not need one. No client comes, so nothing
/// is done to GPUs that are there.
pub(super) fn real() -> Outcome {
    let mut world = world!();
    let real = Path::new("/usr/bin/nvidia-cuda-mps-control");
    if !real.is_file() {
        return Outcome::Skipped(format!("{} is not there", real.display()));
    }
    let place = world.host.path("usr/bin/nvidia-cuda-mps-control");
    std::fs::remove_file(&place).unwrap();
    // No link: none leads out of a driver root.
    std::fs::copy(real, &place).unwrap();
    world.setup.pinned_memory.clear();
    let mut running = world.start();
    assert_eq!(running.no_cgroup, None);
    assert!(!world.ensure(&mut running).unwrap());
    end(running.process.pid);
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

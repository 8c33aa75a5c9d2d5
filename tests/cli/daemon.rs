use std::{
    fs,
    io::{Read, Write},
    process::Child,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::support::{Ended, SMALL, WHOLE, World, claim, time_slicing};

fn prepared() -> World {
    let world = World::new();
    world.write("c.yaml", claim("a", SMALL, "") + &claim("b", WHOLE, &time_slicing("Short")));
    world.json(&["prepare", "-f", "c.yaml"]);
    world
}

/// What a reboot leaves: `/run` is empty, partitions and settings are gone, the boot is another.
fn reboot(world: &World) {
    for dir in ["cdi", "run"] {
        fs::remove_dir_all(world.path(dir)).unwrap();
    }
    fs::remove_file(world.path("node.state.json")).unwrap();
    for entry in fs::read_dir(world.path("state/claims")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some() {
            let text = fs::read_to_string(&path).unwrap();
            let boot = text.lines().find(|line| line.contains("\"boot\"")).unwrap();
            world.write(path.to_str().unwrap(), text.replace(boot, "  \"boot\": \"before\","));
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
}

#[track_caller]
fn soon(what: &str, is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn records(world: &World) -> usize {
    fs::read_dir(world.path("run/claims")).map_or(0, Iterator::count)
}

#[test]
fn once_brings_everything_back_after_a_reboot() {
    let world = prepared();
    let names = |world: &World| {
        let mut names: Vec<String> = world.json(&["devices"])["cdi"]["devices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|device| device["name"].to_string())
            .collect();
        names.sort();
        names
    };
    let before = names(&world);
    assert_eq!(before.len(), 2);
    reboot(&world);
    assert_eq!(names(&world).len(), 0);
    let once = world.node(&["--once"]).output().unwrap();
    assert!(once.status.success());
    let said = String::from_utf8(once.stderr).unwrap();
    assert!(said.contains("claim default/a: brought back in step"), "{said}");
    assert_eq!(names(&world), before);
    let run = divvy_hook::record::RunDir::new(world.path("run"));
    let record = run.local_claim("default", "a").unwrap().unwrap();
    assert_eq!(record.boot, divvy_hook::record::boot_id().unwrap());
    assert_eq!(world.json(&["devices"])["node"]["gpus"][0]["timeSlice"], "Short");
    // A second round has nothing to do.
    let before = world.snapshot();
    let once = world.node(&["--once"]).output().unwrap();
    assert!(String::from_utf8(once.stderr).unwrap().contains("claim default/b: in step"));
    assert_eq!(world.snapshot(), before);
}

#[test]
fn it_comes_round_on_sighup_and_ends_on_sigterm() {
    let world = prepared();
    reboot(&world);
    let mut child = world.spawn(&mut world.node(&["--interval", "3600"]));
    soon("the first round", || records(&world) == 2);
    fs::remove_dir_all(world.path("run")).unwrap();
    signal(&child, Signal::SIGHUP);
    soon("the second round", || records(&world) == 2);
    signal(&child, Signal::SIGTERM);
    assert!(child.wait().unwrap().success());
}

#[test]
fn it_comes_round_on_its_own() {
    let world = prepared();
    let mut child = world.spawn(&mut world.node(&["--interval", "1"]));
    std::thread::sleep(Duration::from_millis(300));
    fs::remove_dir_all(world.path("run")).unwrap();
    soon("a round", || records(&world) == 2);
    signal(&child, Signal::SIGTERM);
    assert!(child.wait().unwrap().success());
}

#[test]
fn claims_on_other_gpus_are_left_alone() {
    let world = prepared();
    world.write("other.toml", crate::support::NODE);
    fs::remove_dir_all(world.path("run")).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_divvy-node"));
    command.current_dir(world.path("")).args(["--once", "--gpus", "sim:other.toml"]);
    for dir in ["cdi", "run", "state"] {
        command.arg(format!("--{dir}-dir")).arg(world.path(dir));
    }
    let once = command.output().unwrap();
    assert!(once.status.success());
    assert!(String::from_utf8(once.stderr).unwrap().contains("claim default/a: on other GPUs"));
    assert_eq!(records(&world), 0);
}

#[test]
fn a_failure_is_told_once_for_as_long_as_it_is_the_same() {
    let world = prepared();
    world.write("state/claims/x.json", "{\"version\": 9}");
    let mut child = world.spawn(&mut world.node(&["--interval", "3600"]));
    // The claim that comes last, and its record's link, which is written last.
    let whole = || fs::read_dir(world.path("run/local/default")).map_or(0, Iterator::count) == 2;
    for _ in 0..3 {
        soon("a round", whole);
        std::thread::sleep(Duration::from_millis(100));
        // A round that is not quite over puts something more there.
        soon("nothing", || fs::remove_dir_all(world.path("run")).is_ok());
        signal(&child, Signal::SIGHUP);
    }
    soon("the last round", whole);
    signal(&child, Signal::SIGTERM);
    assert!(child.wait().unwrap().success());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said.matches("error[JOURNAL-NEWER]").count(), 1, "{said}");
}

/// The status line but for its words, and the body.
fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[.."HTTP/1.1 200".len()].to_owned(), body.to_owned())
}

#[test]
fn with_a_node_name_it_serves_the_kubelet_until_it_ends() {
    let world = prepared();
    // Nobody is there yet, which keeps it from nothing but claims.
    world.write(
        "kubeconfig",
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, \
         user: u}}]\nusers: [{name: u, user: {}}]\nclusters: [{name: c, cluster: {server: \
         'http://127.0.0.1:1'}}]\n",
    );
    let cluster =
        ["--node-name", "worker-1", "--kubeconfig", "kubeconfig", "--kubelet-dir", "kubelet"];
    // Whose port was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let http = free.local_addr().unwrap().to_string();
    drop(free);
    let cluster = [&cluster[..], &["--http", &http]].concat();
    reboot(&world);
    let mut child = world.spawn(&mut world.node(&cluster));
    let sockets = ["plugins_registry/gpu.divvy.dev-reg.sock", "plugins/gpu.divvy.dev/dra.sock"];
    let sockets = sockets.map(|socket| world.path("kubelet").join(socket));
    soon("its sockets", || sockets.iter().all(|socket| socket.exists()));
    soon("the first round", || records(&world) == 2);
    // Killed, it leaves its sockets, and the next one takes their place.
    signal(&child, Signal::SIGKILL);
    child.wait().unwrap();
    assert!(sockets.iter().all(|socket| socket.exists()));
    let mut child = world.spawn(&mut world.node(&cluster));
    soon("its sockets", || {
        sockets.iter().all(|socket| std::os::unix::net::UnixStream::connect(socket).is_ok())
    });
    let second = Ended::from(world.node(&cluster).output().unwrap());
    second.failed(1, "PLUGIN-SERVED", "another divvy-node");
    // Whoever connects and says nothing keeps nobody out.
    let silent: Vec<_> = (0..200).map(|_| std::net::TcpStream::connect(&http).unwrap()).collect();
    for (path, status) in [("healthz", 200), ("readyz", 503), ("metrics", 200), ("x", 404)] {
        let (line, text) = get(&http, path);
        assert_eq!(line, format!("HTTP/1.1 {status}"), "{path}: {text}");
        assert!(path != "metrics" || text.contains("\ndivvy_prepared_claims 2\n"), "{text}");
    }
    drop(silent);
    signal(&child, Signal::SIGTERM);
    assert!(child.wait().unwrap().success());
    assert!(!sockets.iter().any(|socket| socket.exists()));
    for wrong in
        [&["--kubeconfig", "x"][..], &["--node-name", "A_b"], &["--once", "--node-name", "a"]]
    {
        assert_eq!(world.node(wrong).output().unwrap().status.code(), Some(2), "{wrong:?}");
    }
}

//! A daemon that does not come up, does not answer, does not obey, or dies, leaves nothing behind.

use divvy_fake_nvml::mps::Script;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use super::{super::host::end, PATIENCE, SHORT, World, fails};
use crate::{Outcome, support::eventually};

pub(super) fn never_ready() -> Outcome {
    let world = world!();
    world.script(&Script { never_ready: true, ..Script::default() });
    let started = world.with(SHORT, |mps| mps.start(&world.setup));
    let uuid = world.host.fake.uuid(0);
    fails(started, "MPS-START", &[&world.setup.name, &uuid, "log/control.log ends with"]);
    world.nothing_left();
    Outcome::Done
}

pub(super) fn late() -> Outcome {
    let world = world!();
    let mut running = world.start();
    let mut client = world.client(1000);
    client.given();
    end(running.process.pid);
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

pub(super) fn crowded() -> Outcome {
    let world = world!();
    let first = world.start();
    end(first.process.pid);
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

pub(super) fn lock() -> Outcome {
    let world = world!();
    let path = world.host.path("lock");
    let lock = std::fs::OpenOptions::new().append(true).create(true).open(&path).unwrap();
    lock.lock().unwrap();
    world.script(&Script { holds_output: true, ..Script::default() });
    // So long is waited for what it holds.
    let running = world.with(PATIENCE / 4, |mps| mps.start(&world.setup)).unwrap();
    drop(lock);
    // Other tests start programs, and each of those has all files for a moment. What is left of this
    // start would have it for an hour.
    eventually("the lock", || std::fs::File::open(&path).unwrap().try_lock().is_ok());
    world.stop(Some(running.process));
    Outcome::Done
}

pub(super) fn senseless() -> Outcome {
    let world = world!();
    let start = || world.with(PATIENCE, |mps| mps.start(&world.setup));
    world.script(&Script { dies_after: Some(1), ..Script::default() });
    fails(start(), "MPS-START", &["Segmentation fault"]);
    world.nothing_left();
    world.script(&Script { answer: Some("\u{7}?\n".to_owned()), ..Script::default() });
    fails(start(), "MPS-START", &["when asked for a percentage"]);
    world.nothing_left();
    std::fs::remove_file(world.host.path("usr/bin/nvidia-cuda-mps-control")).unwrap();
    let error = start().unwrap_err();
    assert_eq!(error.code(), "NO-DRIVER", "{error}");
    world.nothing_left();
    Outcome::Done
}

pub(super) fn refused() -> Outcome {
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

pub(super) fn deaf() -> Outcome {
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

pub(super) fn disobedient() -> Outcome {
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

//! `divvy install`: the hook on a host, under the names that engines call it by.

use std::{fs, os::unix::fs::symlink, path::Path};

use crate::support::World;

/// A world with a hook to install, and what installing it says.
fn install(world: &World, hook: &[u8]) -> crate::support::Ended {
    world.write("new-hook", hook);
    let (to, from) = (world.path("opt"), world.path("new-hook"));
    let config = world.path("etc/config.toml");
    let [to, from, config] = [&to, &from, &config].map(|path| path.to_str().unwrap());
    world.divvy(&["install", "--to", to, "--from", from, "--config", config])
}

fn versions(world: &World) -> usize {
    fs::read_dir(world.path("opt/versions")).unwrap().count()
}

#[test]
fn every_name_leads_to_the_version_that_was_installed_last() {
    let world = World::new();
    for (turn, hook) in
        [b"\x7fELF one".as_slice(), b"\x7fELF two", b"\x7fELF three"].iter().enumerate()
    {
        let ended = install(&world, hook);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
        for name in [
            "divvy-hook",
            "divvy-runtime",
            "divvy-crio",
            "divvy-podman",
            "divvy-docker",
            "divvy-ctr",
        ] {
            let path = world.path("opt").join(name);
            assert_eq!(fs::read(&path).unwrap(), *hook, "{name}");
            assert!(path.symlink_metadata().unwrap().is_symlink(), "{name}");
        }
        // The one before stays for who is about to run it.
        assert_eq!(versions(&world), (turn + 1).min(2));
    }
    let again = install(&world, b"\x7fELF three");
    assert_eq!(again.code, Some(0));
    assert!(again.out.contains("was there before"), "{}", again.out);
    assert!(again.out.contains("left as it is"), "{}", again.out);
}

#[test]
fn settings_that_are_there_are_somebodys() {
    let world = World::new();
    assert_eq!(install(&world, b"\x7fELF").code, Some(0));
    let written = fs::read_to_string(world.path("etc/config.toml")).unwrap();
    assert_eq!(written, include_str!("../../hooks/config/config.toml"));
    world.write("etc/config.toml", "# mine\n");
    assert_eq!(install(&world, b"\x7fELF 2").code, Some(0));
    assert_eq!(fs::read_to_string(world.path("etc/config.toml")).unwrap(), "# mine\n");
    // Also a link to what is not there yet.
    fs::remove_file(world.path("etc/config.toml")).unwrap();
    symlink("elsewhere", world.path("etc/config.toml")).unwrap();
    assert_eq!(install(&world, b"\x7fELF 3").code, Some(0));
    assert!(!world.path("etc/elsewhere").exists());
}

#[test]
fn what_is_no_program_or_no_place_changes_nothing() {
    let world = World::new();
    let ended = install(&world, b"#!/bin/sh\n");
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.contains("no program that can be run"), "{}", ended.err);
    let hook = world.write("new-hook", b"\x7fELF");
    let ended = world.divvy(&["install", "--to", "opt", "--from", hook.to_str().unwrap()]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.contains("not an absolute path"), "{}", ended.err);
    assert!(!world.path("opt").exists());
    let ended = world.divvy(&["install", "--to", "/proc/none", "--from", "/nowhere"]);
    assert!(ended.err.contains("/nowhere"), "{}", ended.err);
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let world = World::new();
    fs::create_dir(world.path("opt")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(world.path("opt"), mode).unwrap();
    let ended = install(&world, b"\x7fELF");
    assert!(ended.err.contains("error[UNTRUSTED]"), "{}", ended.err);
    let there: Vec<_> = fs::read_dir(world.path("opt")).unwrap().collect();
    assert!(there.is_empty(), "{there:?}");
    assert!(!Path::new(&world.path("etc")).exists());
}

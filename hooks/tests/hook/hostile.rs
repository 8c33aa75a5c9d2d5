//! Any bytes anywhere: a clear error, no panic, no hang, and nothing on disk changed.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
};

use divvy_hook::record::Origin;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::{DEVICE, Host, annotate, has_device};

const CRI: &str = "[handlers.divvy-runtime]\nengine = 'cri'";
const CTR: &str = "[handlers.divvy-runtime]\nengine = 'ctr'\nannotations = true";
const LINE: &str = "create --bundle @/bundle ID";

fn fifo(path: &std::path::Path) {
    let _gone = fs::remove_file(path);
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
}

fn huge(path: &std::path::Path) {
    let _gone = fs::remove_file(path);
    File::create_new(path).unwrap().set_len(1 << 40).unwrap();
}

fn endless(path: &std::path::Path) {
    let _gone = fs::remove_file(path);
    symlink(path, path).unwrap();
}

#[test]
fn a_config_that_is_no_file() {
    let host = Host::new(CTR);
    let path = host.path("bundle/config.json");
    for make in [fifo, huge, endless] {
        make(&path);
        let line = host.shim(LINE).error("BUNDLE").to_owned();
        assert!(line.contains("bundle/config.json") && line.contains("--bundle"), "{line}");
    }
    fs::remove_file(&path).unwrap();
    host.shim(LINE).error("BUNDLE");
    fs::create_dir(&path).unwrap();
    host.shim(LINE).error("BUNDLE");
    host.shim("create --bundle @/nonexistent ID").error("BUNDLE");
    host.shim("create ID").error("BUNDLE");
    assert!(host.seen().is_none());
}

#[test]
fn a_config_that_is_none() {
    let host = Host::new(CTR);
    let deep = format!("{{\"cdi.k8s.io/x\":{}", "[".repeat(1 << 20));
    for bad in [
        "{\"annotations\":{\"cdi.k8s.io/x\":",
        "\\u0000",
        "cdi.k8s.io/",
        "{\"annotations\":[\"cdi.k8s.io/\"]}",
        "{\"annotations\":{\"cdi.k8s.io/x\":7}}",
        &deep,
    ] {
        host.write("bundle/config.json", bad);
        let outcome = host.shim(LINE);
        outcome.error("BUNDLE-INVALID");
        assert_eq!(host.read("bundle/config.json"), bad);
        assert!(host.seen().is_none());
    }
    // Where nothing is requested it is the low-level runtime's to complain.
    for bad in ["", "{", "[]", "\0"] {
        host.write("bundle/config.json", bad);
        assert_eq!(host.shim(LINE).status, 7, "{bad:?}");
    }
}

#[test]
fn a_record_that_is_none() {
    let host = Host::new(CRI);
    host.prepare_pod("p-1");
    let config = host.bundle("containerd", |_| {});
    let path = host.path("run/pods/p-1.json");
    for make in [fifo, huge, endless] {
        make(&path);
        let line = host.shim(LINE).error("UNREADABLE").to_owned();
        assert!(line.contains("pods/p-1.json"), "{line}");
    }
    fs::remove_file(&path).unwrap();
    for (bad, code) in [
        ("", "RECORD-INVALID"),
        ("{\"version\":1}", "RECORD-INVALID"),
        ("{\"version\":9}", "RECORD-VERSION"),
        ("\u{0}\u{1}", "RECORD-INVALID"),
    ] {
        host.write("run/pods/p-1.json", bad);
        let line = host.shim(LINE).error(code).to_owned();
        assert!(line.contains("pods/p-1.json"), "{line}");
    }
    assert_eq!(host.read("bundle/config.json"), config);
    assert!(host.seen().is_none());
}

/// Of two keys serde would take the last: here one without the device.
#[test]
fn a_record_with_a_key_twice() {
    let host = Host::new(CRI);
    host.prepare_pod("p-1");
    host.bundle("containerd", |_| {});
    let record = host.read("run/pods/p-1.json");
    host.write("run/pods/p-1.json", &record.replace("]}", "],\"main\":[]}"));
    let line = host.shim(LINE).error("RECORD-INVALID").to_owned();
    assert!(line.contains("duplicate key \"main\""), "{line}");

    let host = Host::new(CTR);
    host.prepare_claim(Origin::Local, "mine");
    host.bundle("ctr", |config| annotate(config, "divvy.dev/claim", "mine"));
    let record = host.read("run/claims/u-1.json");
    for (name, twice) in [
        ("gpu", record.replace("\"gpu\":[", "\"gpu\":[],\"gpu\":[")),
        (
            DEVICE,
            record.replace(
                "\"specs\":{",
                &format!("\"specs\":{{{DEVICE:?}:{{\"path\":\"/\",\"digest\":\"\"}},"),
            ),
        ),
    ] {
        host.write("run/claims/u-1.json", &twice);
        let line = host.shim(LINE).error("RECORD-INVALID").to_owned();
        assert!(line.contains(&format!("duplicate key {name:?}")), "{line}");
    }
    assert!(host.seen().is_none());
}

/// Who names a claim gets a device of it, or does not start.
#[test]
fn a_claim_without_a_device() {
    let host = Host::new(CTR);
    host.prepare_claim(Origin::Local, "mine");
    host.bundle("ctr", |config| annotate(config, "divvy.dev/claim", "mine"));
    let record = host.read("run/claims/u-1.json");
    let list = format!("[{DEVICE:?}]");
    for empty in [record.replace(&list, "[]"), record.replace(&format!("\"gpu\":{list}"), "")] {
        assert_ne!(empty, record);
        host.write("run/claims/u-1.json", &empty);
        let line = host.shim(LINE).error("RECORD-INVALID").to_owned();
        assert!(line.contains("claims/u-1.json") && line.contains("no device"), "{line}");
    }
    assert!(host.seen().is_none());
}

/// What such a link led to is lost. It does not mean that the pod has no record.
#[test]
fn a_record_or_directory_that_is_a_link_to_nothing() {
    let host = Host::new("[handlers.divvy-runtime]\nengine = 'cri'\nrequire_record = false");
    let config = host.bundle("containerd", |_| {});
    fs::create_dir(host.path("run/pods")).unwrap();
    let lost = |name: &str| {
        symlink("nothing", host.path(name)).unwrap();
        let line = host.shim(LINE).error("RECORD-INVALID").to_owned();
        let link = host.path(name);
        assert!(line.contains(&format!("{} is a link to something", link.display())), "{line}");
        fs::remove_file(link).unwrap();
    };
    lost("run/pods/p-1.json");
    fs::remove_dir(host.path("run/pods")).unwrap();
    lost("run/pods");
    host.write("config.toml", &host.read("config.toml").replace("/run\"", "/elsewhere/divvy\""));
    lost("elsewhere");
    assert_eq!(host.read("bundle/config.json"), config);
    assert!(host.seen().is_none());
}

#[test]
fn a_runtime_that_is_no_program_is_found_before_the_edit() {
    let host = Host::new(CRI);
    host.prepare_pod("p-1");
    let config = host.bundle("containerd", |_| {});
    for bad in ["", "#", "\u{7f}EL", "runc\n"] {
        host.write("runtime", bad);
        let executable = Permissions::from_mode(0o755);
        fs::set_permissions(host.path("runtime"), executable).unwrap();
        let line = host.shim(LINE).error("RUNTIME-NOT-FOUND").to_owned();
        assert!(line.contains("/runtime is neither a program"), "{line}");
        assert_eq!(host.read("bundle/config.json"), config);
    }
}

#[test]
fn a_record_that_is_a_link_to_a_good_one_is_read() {
    let host = Host::new(CRI);
    host.prepare_pod("p-1");
    host.bundle("containerd", |_| {});
    let path = host.path("run/pods/p-1.json");
    fs::rename(&path, host.path("elsewhere.json")).unwrap();
    symlink(host.path("elsewhere.json"), &path).unwrap();
    assert_eq!(host.shim(LINE).status, 7);
    assert!(has_device(&host.config()));
}

#[test]
fn a_spec_or_configuration_that_is_no_file() {
    let host = Host::new(CRI);
    host.prepare_pod("p-1");
    host.bundle("containerd", |_| {});
    for make in [fifo, huge, endless] {
        make(&host.path("cdi/claim.json"));
        host.shim(LINE).error("UNREADABLE");
    }
    for make in [fifo, huge, endless] {
        make(&host.path("config.toml"));
        // Nothing that needs the configuration is let through.
        let config = host.bundle("ctr", |config| annotate(config, "cdi.k8s.io/x", "v.com/c=d"));
        let line = host.shim(LINE).error("CONFIG-INVALID").to_owned();
        assert!(line.contains("config.toml"), "{line}");
        assert_eq!(host.read("bundle/config.json"), config);
    }
}

#[test]
fn a_directory_that_is_a_fifo_or_a_loop() {
    let host = Host::new(CRI);
    host.bundle("containerd", |_| {});
    for make in [fifo, endless] {
        fs::create_dir_all(host.path("run/pods")).unwrap();
        fs::remove_dir(host.path("run/pods")).unwrap();
        make(&host.path("run/pods"));
        assert_eq!(host.shim(LINE).status, 1);
        assert!(host.seen().is_none());
        fs::remove_file(host.path("run/pods")).unwrap();
    }
}

#[test]
fn annotations_of_any_bytes() {
    let host = Host::new(CTR);
    for value in ["\u{0}", "\n\n", "é=é", "a/b=c,", "=", ",,,,", &"x".repeat(1 << 20)] {
        for key in ["cdi.k8s.io/x", "divvy.dev/claim"] {
            host.bundle("ctr", |config| annotate(config, key, value));
            let outcome = host.shim(LINE);
            assert_eq!(outcome.status, 1);
            assert!(outcome.stderr.len() < 5000 && outcome.stderr.lines().count() == 1);
            assert!(!outcome.stderr.trim_end().contains(char::is_control), "{}", outcome.stderr);
        }
    }
}

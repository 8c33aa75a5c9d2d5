use oci_spec::runtime::Spec;

use crate::support::{SMALL, World, claim};

const CONFIG: &str = r#"{"ociVersion":"1.0.2","process":{"user":{"uid":0,"gid":0},"args":["sh"],"env":["A=1"],"cwd":"/"},
  "root":{"path":"rootfs"},"linux":{"unknown":[1,2]},"x-more":{"kept":true}}"#;

const SPEC: &str = "cdiVersion: 0.5.0\nkind: vendor.com/x\ndevices:\n- name: a\n  containerEdits:\n    \
                    env: [B=2]\n    deviceNodes:\n    - {path: /dev/x, hostPath: /dev/null}\n- name: b\n  \
                    containerEdits: {mounts: [{hostPath: /no/such, containerPath: /m, options: [bind]}]}\n\
                    containerEdits: {env: [G=1]}\n";

fn world() -> World {
    let world = World::new();
    world.write("specs/x.yaml", SPEC);
    world.write("config.json", CONFIG);
    world
}

#[test]
fn the_edited_config_is_valid_oci_and_keeps_what_it_does_not_know() {
    let world = world();
    let args = ["inject", "--spec-dir", "specs", "--device", "vendor.com/x=a", "config.json"];
    let ended = world.divvy(&args);
    let json: serde_json::Value = serde_json::from_str(ended.ok()).unwrap();
    assert_eq!(json["x-more"]["kept"], true);
    assert_eq!(json["linux"]["unknown"], serde_json::json!([1, 2]));
    assert_eq!(ended.err, "");
    let oci: Spec = serde_json::from_str(&ended.out).unwrap();
    let process = oci.process().clone().unwrap();
    assert_eq!(process.env().clone().unwrap(), ["A=1", "G=1", "B=2"]);
    let linux = oci.linux().clone().unwrap();
    assert_eq!(linux.devices().clone().unwrap()[0].path().to_str(), Some("/dev/x"));
    let rules = linux.resources().clone().unwrap().devices().clone().unwrap();
    assert_eq!((rules[0].major(), rules[0].minor(), rules[0].allow()), (Some(1), Some(3), true));
    assert_eq!(world.read("config.json"), CONFIG, "the file itself stays");
}

#[test]
fn a_config_comes_from_stdin_and_a_second_edit_changes_nothing() {
    let world = world();
    let args = ["inject", "-v", "--spec-dir", "specs", "--device", "vendor.com/x=a", "-"];
    let first = world.divvy_with(&args, CONFIG.as_bytes());
    assert!(first.err.contains("/process/env"), "{first:?}");
    let again = world.divvy_with(&args, first.ok().as_bytes());
    assert_eq!(again.ok(), first.out);
    assert_eq!(again.err, "nothing changed: everything asked for is there already\n");
}

#[test]
fn the_devices_of_a_prepared_claim_can_be_seen() {
    let world = world();
    world.write("c.yaml", claim("a", SMALL, ""));
    let answer = world.json(&["prepare", "-f", "c.yaml"]);
    let name = answer["claims"][0]["devices"][0]["cdi"].as_str().unwrap();
    let ended = world.divvy(&["inject", "--spec-dir", "cdi", "--device", name, "config.json"]);
    let oci: Spec = serde_json::from_str(ended.ok()).unwrap();
    assert!(ended.out.contains("/dev/nvidia1"), "{}", ended.out);
    assert!(ended.out.contains("/usr/share/divvy/simulated-driver"));
    assert!(oci.process().clone().unwrap().env().clone().unwrap().len() >= 3);
}

#[test]
fn exit_codes() {
    let world = world();
    let inject = |device: &str, config: &str| {
        world.divvy(&["inject", "--spec-dir", "specs", "--device", device, config])
    };
    inject("vendor.com/x=c", "config.json").failed(3, "UNRESOLVED", "nearest: vendor.com/x=a");
    let malformed = inject("foo", "config.json");
    malformed.failed(3, "UNRESOLVED", "--device \"foo\" is not a qualified CDI device name");
    assert_eq!(malformed.err.matches("foo").count(), 1, "{malformed:?}");
    inject("vendor.com/x=a", "none.json").failed(1, "UNREADABLE", "none.json: no such file");
    world.write("bad.json", "{\"ociVersion\": ");
    inject("vendor.com/x=a", "bad.json").failed(4, "BUNDLE-INVALID", "bad.json: line 1");
    world.write("specs/bad.yaml", "cdiVersion: 0.5.0\nkind: vendor.com/bad\ndevices:\n- name: z\n");
    inject("vendor.com/bad=z", "config.json").failed(4, "SPEC-INVALID", "bad.yaml:4");
    // A bad file hides no other, and is told of.
    let good = inject("vendor.com/x=a", "config.json");
    good.ok();
    assert!(good.err.starts_with("error, file not used[SPEC-INVALID]: specs/bad.yaml"), "{good:?}");
    let missing = inject("vendor.com/x=b", "config.json");
    missing.ok();
    assert!(missing.err.contains("warning[MOUNT-SOURCE]"), "{missing:?}");
    world.write("specs/y.yaml", SPEC);
    inject("vendor.com/x=a", "config.json").failed(3, "CONFLICT", "specs/x.yaml");
    for args in [
        &["inject", "--spec-dir", "specs", "config.json"][..],
        &["inject", "--device", "vendor.com/x=a"],
        &["inject", "--device", "vendor.com/x=a", "--what", "config.json"],
    ] {
        assert_eq!(world.divvy(args).code, Some(2), "{args:?}");
    }
}

#[test]
fn the_later_directory_counts() {
    let world = world();
    world.write("more/x.yaml", SPEC.replace("B=2", "B=3"));
    let args = |first: &'static str, second: &'static str| {
        [
            "inject",
            "--spec-dir",
            first,
            "--spec-dir",
            second,
            "--device",
            "vendor.com/x=a",
            "config.json",
        ]
    };
    assert!(world.divvy(&args("specs", "more")).ok().contains("B=3"));
    assert!(world.divvy(&args("more", "specs")).ok().contains("B=2"));
}

#[test]
fn two_specs_that_contradict_each_other_are_resolved_but_not_valid() {
    let world = world();
    let spec = "cdiVersion: 1.1.0\nkind: vendor.com/net\ndevices:\n- name: a\n  containerEdits: {netDevices: \
                [{hostInterfaceName: h0, name: eth1}]}\n- name: b\n  containerEdits: {netDevices: \
                [{hostInterfaceName: h1, name: eth1}]}\n";
    world.write("specs/net.yaml", spec);
    let both = ["--device", "vendor.com/net=a", "--device", "vendor.com/net=b"];
    let args = [&["inject", "--spec-dir", "specs"][..], &both, &["config.json"]].concat();
    world.divvy(&args).failed(4, "CONFLICT", "eth1");
}

#[test]
fn a_spec_that_the_hook_would_not_trust_is_used_and_told_of() {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};
    let world = world();
    std::fs::set_permissions(world.path("specs/x.yaml"), Permissions::from_mode(0o666)).unwrap();
    let args = ["inject", "--spec-dir", "specs", "--device", "vendor.com/x=a", "config.json"];
    let ended = world.divvy(&args);
    assert!(ended.ok().contains("B=2"));
    assert!(ended.err.starts_with("warning[UNTRUSTED]: specs/x.yaml: "), "{ended:?}");
}

//! Device nodes and the rules that allow them.

use serde_json::{Value, json};

use super::{FakeHost, UNCHECKED, edit_with, host, minimal, node, refusal};

fn edited(config: &Value, edits: &str, host: &FakeHost) -> Value {
    let text = edit_with(&config.to_string(), edits, host, UNCHECKED).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn devices(edits: &str, host: &FakeHost) -> Value {
    edited(&minimal(), edits, host)["linux"]["devices"].clone()
}

fn rules(config: &Value, edits: &str) -> Value {
    edited(config, edits, &host(&[]))["linux"]["resources"]["devices"].clone()
}

#[test]
fn the_host_gives_what_the_spec_leaves_open() {
    assert_eq!(
        devices("{deviceNodes: [{path: /dev/x}]}", &host(&[])),
        json!([{"path": "/dev/x", "type": "c", "major": 1, "minor": 3, "fileMode": 0o666}])
    );
    let disk = host(&[("/dev/real", Some(node('b', 8, 1, 0o640)))]);
    assert_eq!(
        devices("{deviceNodes: [{path: /dev/y, hostPath: /dev/real, uid: 0, gid: 5}]}", &disk),
        json!([{"path": "/dev/y", "type": "b", "major": 8, "minor": 1, "fileMode": 0o640, "uid": 0, "gid": 5}])
    );
    assert_eq!(
        devices(
            "{deviceNodes: [{path: /dev/x, type: c, major: 1, minor: 3, fileMode: 384}]}",
            &host(&[])
        ),
        json!([{"path": "/dev/x", "type": "c", "major": 1, "minor": 3, "fileMode": 384}])
    );
    let fifo = host(&[("/f", Some(node('p', 0, 0, 0o600)))]);
    let config = edited(&minimal(), "{deviceNodes: [{path: /f}]}", &fifo);
    assert_eq!(
        config["linux"],
        json!({"devices": [{"path": "/f", "type": "p", "major": 0, "minor": 0, "fileMode": 0o600}]})
    );
}

#[test]
fn the_process_owns_its_nodes_unless_it_is_root() {
    let mut config = minimal();
    config["process"]["user"] = json!({"uid": 1000, "gid": 2000});
    let found = edited(&config, "{deviceNodes: [{path: /dev/x}]}", &host(&[]));
    assert_eq!(found["linux"]["devices"][0]["uid"], 1000);
    assert_eq!(found["linux"]["devices"][0]["gid"], 2000);
    let found = edited(&config, "{deviceNodes: [{path: /dev/x, uid: 0, gid: 0}]}", &host(&[]));
    assert_eq!(found["linux"]["devices"][0]["uid"], 0);
}

#[test]
fn a_whole_spec_needs_no_node_but_one_that_is_there_must_be_it() {
    assert_eq!(
        devices(
            "{deviceNodes: [{path: /dev/none, type: c, major: 10, minor: 20}, {path: /f, type: p}]}",
            &host(&[])
        ),
        json!([
            {"path": "/dev/none", "type": "c", "major": 10, "minor": 20},
            {"path": "/f", "type": "p", "major": 0, "minor": 0},
        ])
    );
    let odd = host(&[
        ("/file", None),
        ("/dev/b", Some(node('b', 1, 3, 0o666))),
        ("/f", Some(node('p', 0, 0, 0o600))),
    ]);
    for (spec, expected) in [
        ("{path: /dev/none}", "DEVICE-GONE: device node \"/dev/none\": nothing is there ("),
        ("{path: /dev/none, type: c, minor: 20}", "DEVICE-GONE: "),
        ("{path: /dev/none, major: 1, minor: 20}", "DEVICE-GONE: "),
        ("{path: /file}", "DEVICE-GONE: device node \"/file\": not a device node ("),
        ("{path: /file, type: c, major: 1, minor: 3}", "DEVICE-GONE: "),
        (
            "{path: /dev/x, type: c, major: 1, minor: 5}",
            "DEVICE-CHANGED: device node \"/dev/x\": the spec says c 1:5, the host has c 1:3 \
             (device \"d\" of /etc/cdi/v.yaml); write the spec again",
        ),
        (
            "{path: /dev/x, type: b, major: 1, minor: 3}",
            "DEVICE-CHANGED: device node \"/dev/x\": the spec says b 1:3, the host has c 1:3 (",
        ),
        (
            "{path: /dev/x, type: b}",
            "DEVICE-CHANGED: device node \"/dev/x\": the spec says b, the host has c 1:3 (",
        ),
        (
            "{path: /dev/x, major: 9, minor: 9}",
            "DEVICE-CHANGED: device node \"/dev/x\": the spec says any type 9:9, ",
        ),
        (
            "{path: /dev/x, type: c, minor: 4}",
            "DEVICE-CHANGED: device node \"/dev/x\": the spec says c with minor 4, ",
        ),
        (
            "{path: /y, hostPath: /dev/b, type: c, major: 1, minor: 3}",
            "DEVICE-CHANGED: device node \"/dev/b\": ",
        ),
        ("{path: /dev/x, type: u}", "DEVICE-CHANGED: "),
        ("{path: /dev/x, type: p}", "DEVICE-CHANGED: "),
        ("{path: /f, type: c}", "DEVICE-CHANGED: "),
    ] {
        let line = refusal(&minimal(), &format!("{{env: [A=1], deviceNodes: [{spec}]}}"), &odd);
        assert!(line.starts_with(expected), "{spec}: {line}");
    }
}

#[test]
fn a_rule_follows_what_the_node_permits() {
    let rule = |access: Option<&str>| {
        let mut rule = json!({"allow": true, "type": "c", "major": 1, "minor": 3});
        if let Some(access) = access {
            rule["access"] = access.into();
        }
        json!([rule])
    };
    for (permissions, access) in [
        ("", Some("rwm")),
        ("permissions: ''", Some("rwm")),
        ("permissions: r", Some("r")),
        ("permissions: rr", Some("rr")),
        ("permissions: none", None),
    ] {
        let edits = format!("{{deviceNodes: [{{path: /dev/x, {permissions}}}]}}");
        assert_eq!(rules(&minimal(), &edits), rule(access), "{permissions}");
    }
    let unbuffered = "{deviceNodes: [{path: /dev/x, type: u, major: 1, minor: 3}]}";
    let found = edited(&minimal(), unbuffered, &host(&[]));
    assert_eq!(found["linux"]["devices"][0]["type"], "u");
    assert_eq!(found["linux"]["resources"], Value::Null);
}

#[test]
fn a_rule_that_is_in_force_is_not_added() {
    let edits = "{deviceNodes: [{path: /dev/x}]}";
    let ours = json!({"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm"});
    let deny = json!({"allow": false, "access": "rwm"});
    let with = |rules: Value| {
        let mut config = minimal();
        config["linux"] = json!({"resources": {"devices": rules, "pids": {"limit": 1}}});
        config
    };
    for there in [
        json!([deny, ours]),
        json!([deny, {"access": "mwr", "minor": 3, "major": 1, "type": "c", "allow": true}, {"allow": true, "type": "b", "major": 8, "minor": 0, "access": "r"}]),
        json!([{"allow": true, "access": "rwm"}]),
        json!([deny, {"allow": true, "type": "a", "access": "rwm"}]),
        json!([deny, {"allow": true, "type": "c", "major": 1, "access": "rwm"}]),
        json!([deny, {"allow": true, "type": "c", "major": -1, "minor": -1, "access": "rw"}, {"allow": true, "type": "c", "major": 1, "minor": 3, "access": "m"}]),
    ] {
        assert_eq!(rules(&with(there.clone()), edits), there);
    }
    for there in [
        json!([]),
        json!([deny]),
        json!([ours, deny]),
        json!([{"allow": true, "access": "rwm"}, deny]),
        json!([deny, {"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rw"}]),
        json!([deny, {"allow": true, "type": "c", "major": 1, "minor": 3}]),
        json!([deny, {"allow": true, "type": "b", "major": 1, "minor": 3, "access": "rwm"}]),
        json!([deny, {"allow": true, "type": "c", "minor": 7, "access": "rwm"}]),
    ] {
        let mut expected = there.as_array().unwrap().clone();
        expected.push(ours.clone());
        assert_eq!(rules(&with(there), edits), Value::Array(expected));
    }
}

#[test]
fn a_device_of_the_same_path_is_replaced_unless_it_is_the_same() {
    let mut config = minimal();
    let other = json!({"path": "/dev/y", "type": "c", "major": 5, "minor": 5});
    let same = json!({"minor": 3, "major": 1, "type": "c", "path": "/dev/x"});
    config["linux"] = json!({"devices": [same, other]});
    // An engine that looked at no mode is right all the same.
    let found = edited(&config, "{deviceNodes: [{path: /dev/x}]}", &host(&[]));
    assert_eq!(found["linux"]["devices"], json!([same, other]));
    let found = edited(&config, "{deviceNodes: [{path: /dev/x, fileMode: 384}]}", &host(&[]));
    assert_eq!(
        found["linux"]["devices"],
        json!([other, {"path": "/dev/x", "type": "c", "major": 1, "minor": 3, "fileMode": 384}])
    );
    config["linux"] =
        json!({"devices": [other, {"path": "/dev/x", "type": "c", "major": 9, "minor": 9}]});
    let found = edited(
        &config,
        "{deviceNodes: [{path: /dev/x}, {path: /dev/x, permissions: r}]}",
        &host(&[]),
    );
    assert_eq!(
        found["linux"]["devices"],
        json!([other, {"path": "/dev/x", "type": "c", "major": 1, "minor": 3, "fileMode": 0o666}])
    );
    assert_eq!(found["linux"]["resources"]["devices"].as_array().unwrap().len(), 1);
}

#[test]
fn numbers_that_a_cgroup_would_take_for_all_are_refused() {
    use super::super::{Options, apply};
    use crate::{
        oci::Config,
        resolve::{Origin, Part, Resolution, Scope},
        spec::{ContainerEdits, DeviceNode, DeviceType},
    };
    for (major, minor) in [(-1, -1), (1, -1), (1 << 32, 0)] {
        let node = DeviceNode {
            path: "/dev/none".to_owned(),
            kind: Some(DeviceType::Char),
            major,
            minor,
            ..DeviceNode::default()
        };
        let edits = ContainerEdits { device_nodes: vec![node], ..ContainerEdits::default() };
        let origin = Origin { file: "/etc/cdi/v.yaml".into(), scope: Scope::Global };
        let resolution = Resolution { parts: vec![Part { origin, edits }] };
        let config = Config::parse(b"{}").unwrap();
        let error = apply(&config, &resolution, &host(&[]), Options::default()).unwrap_err();
        assert_eq!(error.code(), "SPEC-INVALID");
    }
}

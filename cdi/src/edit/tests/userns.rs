//! Where the runtime cannot make device nodes.

use serde_json::{Value, json};

use super::{FakeHost, Options, UNCHECKED, changes, edit_with, host, minimal, node, resolution};
use crate::host::Node;

fn user_namespace() -> Value {
    let mut config = minimal();
    config["linux"] = json!({
        "namespaces": [{"type": "user"}],
        "uidMappings": [{"containerID": 0, "hostID": 100_000, "size": 65536}],
        "gidMappings": [{"containerID": 0, "hostID": 200_000, "size": 65536}],
    });
    config
}

fn outcome(config: &Value, edits: &str, host: &FakeHost) -> Result<Value, String> {
    let text = edit_with(&config.to_string(), edits, host, UNCHECKED).map_err(|e| e.to_string())?;
    Ok(serde_json::from_str(&text).unwrap())
}

#[test]
fn a_node_is_mounted_and_allowed() {
    let mut config = user_namespace();
    let native = json!({"path": "/dev/y", "type": "c", "major": 1, "minor": 3});
    let other = json!({"path": "/dev/z", "type": "c", "major": 1, "minor": 7});
    config["linux"]["devices"] = json!([native, other, native]);
    config["mounts"] = json!([{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}]);
    let edits = "{deviceNodes: [{path: /dev/y, hostPath: /dev/x}], mounts: [{hostPath: /h, containerPath: /c}]}";
    let found = outcome(&config, edits, &host(&[])).unwrap();
    assert_eq!(
        found["mounts"],
        json!([
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            {"destination": "/c", "source": "/h"},
            {"destination": "/dev/y", "type": "bind", "source": "/dev/x", "options": ["bind", "nosuid", "noexec"]},
        ])
    );
    assert_eq!(found["linux"]["devices"], json!([other]));
    assert_eq!(
        found["linux"]["resources"]["devices"],
        json!([{"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm"}])
    );
    let by = "by device \"d\" of /etc/cdi/v.yaml";
    let found = changes(&config, &resolution(edits, "{}"));
    assert!(found.contains(&format!("/linux/devices/2 removed {by}")), "{found:?}");
    assert!(found.contains(&format!("/mounts/2 added {by}")), "{found:?}");
}

#[test]
fn without_a_user_namespace_only_the_option_asks_for_it() {
    let text = minimal().to_string();
    let edits =
        "{deviceNodes: [{path: /dev/x}], mounts: [{hostPath: /h, containerPath: /c, type: bind}]}";
    let rootless = Options { rootless: true, ..UNCHECKED };
    let found = edit_with(&text, edits, &host(&[]), rootless).unwrap();
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["linux"]["devices"], Value::Null);
    assert_eq!(found["mounts"][1]["source"], "/dev/x");
    // Only a namespace of the container has ids to map.
    assert_eq!(found["mounts"][0]["options"], Value::Null);
}

#[test]
fn a_node_that_nobody_inside_can_open_is_refused() {
    let owned = |mode, uid, gid| Node { uid, gid, ..node('c', 1, 3, mode) };
    let edits = |permissions: &str| {
        format!("{{deviceNodes: [{{path: /dev/x, permissions: '{permissions}'}}]}}")
    };
    let try_it = |node, permissions: &str| {
        outcome(&user_namespace(), &edits(permissions), &host(&[("/dev/x", Some(node))]))
    };
    assert_eq!(
        try_it(owned(0o600, 0, 0), "").unwrap_err(),
        "USERNS-MODE: device node \"/dev/x\" has mode 0600 and owner 0:0 on the host, so a process \
         in a user namespace cannot open it to read and write (device \"d\" of /etc/cdi/v.yaml); \
         give the node a mode that lets others open it, or run without a user namespace"
    );
    for (node, permissions, good) in [
        (owned(0o666, 0, 0), "", true),
        (owned(0o664, 0, 0), "rwm", false),
        (owned(0o664, 0, 0), "r", true),
        (owned(0o662, 0, 0), "w", true),
        (owned(0o660, 0, 0), "m", true),
        (owned(0o600, 0, 0), "none", true),
        (owned(0o600, 100_000, 0), "", true),
        (owned(0o400, 100_000, 0), "", false),
        (owned(0o600, 165_536, 0), "", false),
        (owned(0o660, 0, 200_005), "", true),
        (owned(0o606, 0, 0), "rw", true),
    ] {
        assert_eq!(try_it(node, permissions).is_ok(), good, "{node:?} {permissions}");
    }
}

#[test]
fn a_caller_keeps_what_is_his() {
    let text = |annotation: &str| {
        let mut config = minimal();
        config["annotations"] = json!({"run.oci.keep_original_groups": annotation});
        config.to_string()
    };
    let rootless = Options { rootless: true, ..UNCHECKED };
    let try_it = |text: &str, node| {
        let host = host(&[("/dev/x", Some(node))]);
        edit_with(text, "{deviceNodes: [{path: /dev/x}]}", &host, rootless).is_ok()
    };
    let render = Node { uid: 65534, gid: 65534, ..node('c', 226, 128, 0o660) };
    assert!(!try_it(&text("0"), render));
    assert!(try_it(&text("1"), render));
    assert!(try_it(&text("0"), Node { uid: 0, ..render }));
}

#[test]
fn without_a_node_there_is_nothing_to_mount() {
    let edits = "{deviceNodes: [{path: /dev/none, type: c, major: 1, minor: 3}]}";
    let line = outcome(&user_namespace(), edits, &host(&[])).unwrap_err();
    assert!(line.starts_with("DEVICE-GONE: device node \"/dev/none\": nothing is there"), "{line}");
}

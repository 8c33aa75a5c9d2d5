//! A bundle: the folder that a low-level runtime makes a container of.

use anyhow::Result;
use serde_json::{Value, json};

use crate::sandbox::Sandbox;

/// Prints `opened` if the device can be opened, else why not.
pub const OPEN: &str = r#"dd if="$1" of=/dev/null count=0 2>&1 && echo opened"#;

/// A configuration like an engine's: no device is allowed but by a rule.
pub fn config(args: &[&str]) -> Value {
    let namespaces: Vec<Value> =
        ["pid", "ipc", "uts", "mount"].iter().map(|kind| json!({"type": kind})).collect();
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": {"uid": 0, "gid": 0},
            "args": args,
            "env": ["PATH=/bin"],
            "cwd": "/",
            "noNewPrivileges": true,
        },
        "root": {"path": "rootfs"},
        "hostname": "container",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
        ],
        "linux": {
            "namespaces": namespaces,
            "resources": {"devices": [{"allow": false, "access": "rwm"}]},
        },
    })
}

/// A configuration whose process opens one device.
pub fn opens(device: &str) -> Value {
    config(&["sh", "-c", OPEN, "sh", device])
}

/// Writes a bundle, with a root filesystem of its own.
pub fn write(sandbox: &mut Sandbox, dir: &str, config: &Value) -> Result<()> {
    sandbox.must(&["mkdir", "-p", dir])?;
    sandbox.must(&["cp", "-a", "/fixture/rootfs", dir])?;
    sandbox.write(&format!("{dir}/config.json"), &serde_json::to_string(config)?)
}

/// Adds a value to a list that may be absent.
pub fn push(config: &mut Value, pointer: &[&str], value: Value) {
    let mut at = config;
    for key in pointer {
        at = &mut at[*key];
    }
    match at {
        Value::Array(list) => list.push(value),
        absent => *absent = json!([value]),
    }
}

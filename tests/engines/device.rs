//! A device: what the tests hand to containers, and what a container finds of it.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::sandbox::Sandbox;

/// Number of a device that runtimes do not allow by default, and that can always be opened: FUSE's.
pub const NUMBER: (u64, u64) = (10, 229);
/// Where its node is on the host; containers see it elsewhere.
pub const NODE: &str = "/dev/test/gpu0";
/// Where containers see it.
pub const PATH: &str = "/dev/gpu0";
/// Its CDI name.
pub const NAME: &str = "vendor.com/gpu=gpu0";
/// A name that no spec defines.
pub const MISSING: &str = "vendor.com/gpu=gpu9";
/// Made by its hook, once for each container.
pub const HOOK_RAN: &str = "/run/hook-ran";

/// Prints what a container sees of the device: the node opened, the mount read, the variable.
pub const LOOK: &str =
    r#"(exec 3<>/dev/gpu0) 2>&1 && echo opened; cat /usr/lib/driver.txt 2>&1; echo "GPU=$GPU""#;
pub const SEEN: &str = "opened\ndriver 1.0\nGPU=gpu0\n";
/// Prints `untouched` in a container that has got nothing of it.
pub const NOTHING: &str =
    r#"[ ! -e /dev/gpu0 ] && [ ! -e /usr/lib/driver.txt ] && [ -z "$GPU" ] && echo untouched"#;

/// The spec: a node, a mount, a variable and a hook. Version 0.5.0, the newest that podman 4.3 reads.
pub fn spec() -> Value {
    json!({
        "cdiVersion": "0.5.0",
        "kind": "vendor.com/gpu",
        "devices": [{
            "name": "gpu0",
            "containerEdits": {
                "deviceNodes": [{"path": PATH, "hostPath": NODE}],
                "mounts": [{"hostPath": "/opt/driver.txt", "containerPath": "/usr/lib/driver.txt", "options": ["ro", "bind", "nosuid", "nodev"]}],
                "env": ["GPU=gpu0"],
                "hooks": [{"hookName": "createRuntime", "path": "/usr/bin/mkdir", "args": ["mkdir", "-p", HOOK_RAN]}],
            },
        }],
    })
}

/// Makes the device and what belongs to it, and defines it in /etc/cdi.
pub fn provide(sandbox: &Sandbox) -> Result<()> {
    sandbox.device(NODE, NUMBER, 0o666)?;
    sandbox.write("/opt/driver.txt", "driver 1.0\n")?;
    sandbox.write("/etc/cdi/vendor.json", &spec().to_string())
}

/// That its hook ran for the container just started.
pub fn hook_ran(sandbox: &Sandbox) -> Result<()> {
    ensure!(sandbox.exists(HOOK_RAN), "the device's hook did not run");
    Ok(std::fs::remove_dir(sandbox.path(Path::new(HOOK_RAN).to_str().unwrap_or_default()))?)
}

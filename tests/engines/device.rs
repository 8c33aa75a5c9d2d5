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
/// The file that defines it.
pub const SPEC: &str = "/etc/cdi/vendor.json";
/// Made by its hook, once for each container.
pub const HOOK_RAN: &str = "/run/hook-ran";

/// Prints what a container sees of the device: the node opened, the mount read, the variable.
pub const LOOK: &str =
    r#"(exec 3<>/dev/gpu0) 2>&1 && echo opened; cat /usr/lib/driver.txt 2>&1; echo "GPU=$GPU""#;
pub const SEEN: &str = "opened\ndriver 1.0\nGPU=gpu0\n";
/// Prints `untouched` in a container that has got nothing of it.
pub const NOTHING: &str =
    r#"[ ! -e /dev/gpu0 ] && [ ! -e /usr/lib/driver.txt ] && [ -z "$GPU" ] && echo untouched"#;

/// What nothing else ends with.
pub const MATCHED: i32 = 42;

/// The hook reads its input: crun 1.8 fails where one does not.
const HOOK: [&str; 3] = ["sh", "-c", "cat >/dev/null && mkdir -p /run/hook-ran"];

/// The spec: a node, a mount, a variable and a hook. Version 0.5.0, the newest that podman 4.3 reads.
pub fn spec() -> Value {
    json!({
        "cdiVersion": "0.5.0",
        "kind": "vendor.com/gpu",
        "devices": [{
            "name": "gpu0",
            "containerEdits": {
                "deviceNodes": [{"path": PATH, "hostPath": NODE}],
                "mounts": [{"hostPath": "/var/lib/vendor/driver.txt", "containerPath": "/usr/lib/driver.txt", "options": ["ro", "bind", "nosuid", "nodev"]}],
                "env": ["GPU=gpu0"],
                "hooks": [{"hookName": "createRuntime", "path": "/usr/bin/sh", "args": HOOK}],
            },
        }],
    })
}

/// A script that ends with [`MATCHED`] when the container sees all of it.
pub fn sees() -> String {
    expecting(LOOK, SEEN)
}

/// A script that ends with [`MATCHED`] when the container has got nothing of it.
pub fn sees_nothing() -> String {
    expecting(NOTHING, "untouched\n")
}

/// For containerd, which can lose the output of a container that ends at once, but not its exit code.
fn expecting(script: &str, output: &str) -> String {
    let output = output.trim_end();
    format!(r#"seen=$( {script} ); echo "$seen"; [ "$seen" = '{output}' ] && exit {MATCHED}"#)
}

/// Makes the device and what belongs to it, and defines it in /etc/cdi.
pub fn provide(sandbox: &Sandbox) -> Result<()> {
    sandbox.device(NODE, NUMBER, 0o666)?;
    sandbox.write("/var/lib/vendor/driver.txt", "driver 1.0\n")?;
    sandbox.write(SPEC, &spec().to_string())
}

/// That its hook ran for the container just started.
pub fn hook_ran(sandbox: &Sandbox) -> Result<()> {
    ensure!(sandbox.exists(HOOK_RAN), "the device's hook did not run");
    Ok(std::fs::remove_dir(sandbox.path(Path::new(HOOK_RAN).to_str().unwrap_or_default()))?)
}

/// That a message, all that the hook said and nothing else, is the one line about [`MISSING`] that a user can act on.
pub fn explained(message: &str) -> Result<()> {
    let complete = message.starts_with("divvy: UNRESOLVED");
    let found = [MISSING, "/etc/cdi", "/var/run/cdi"].iter().all(|word| message.contains(word));
    // podman takes these for its own errors.
    let mistaken = [
        "permission denied",
        "operation not permitted",
        "no such file or directory",
        "executable file not found",
    ]
    .iter()
    .any(|words| message.to_lowercase().contains(words));
    ensure!(
        complete && found && !mistaken && !message.contains('\n'),
        "not a good message: {message:?}"
    );
    Ok(())
}

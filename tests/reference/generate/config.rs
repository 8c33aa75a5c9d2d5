//! OCI configs as a runtime gets them, with what edits look at present, absent or odd.

use fastrand::Rng;
use serde_json::{Value, json};

use super::{once_in, pick, some};

/// A config; its devices name the nodes below `nodes`.
pub(crate) fn config(rng: &mut Rng, nodes: &str) -> Value {
    if once_in(rng, 20) {
        return json!({});
    }
    let mut config = json!({"ociVersion": "1.2.0", "root": {"path": "rootfs"}, "hostname": "h"});
    if !once_in(rng, 10) {
        config["process"] = process(rng);
    }
    if !once_in(rng, 6) {
        config["mounts"] = Value::Array(some(rng, 5, mount));
    }
    if !once_in(rng, 8) {
        config["linux"] = linux(rng, nodes);
    }
    if once_in(rng, 4) {
        config["hooks"] = hooks(rng);
    }
    if once_in(rng, 3) {
        config["annotations"] = json!({"a/b": "c"});
    }
    config
}

fn process(rng: &mut Rng) -> Value {
    const ENV: &[&str] = &["A=0", "A", "B=x=y", "PATH=/bin", "=x", "", "A=1", "C D=2"];
    let mut process = json!({"args": ["sh"], "cwd": "/"});
    if !once_in(rng, 10) {
        process["env"] = json!(some(rng, 4, |rng| pick(rng, ENV)));
    }
    if !once_in(rng, 10) {
        process["user"] = json!({
            "uid": pick(rng, &[0_u32, 0, 1000]),
            "gid": pick(rng, &[0_u32, 0, 2000]),
        });
        if rng.bool() {
            process["user"]["additionalGids"] = json!(some(rng, 3, |rng| rng.u32(..4) * 5));
        }
    }
    process
}

fn mount(rng: &mut Rng) -> Value {
    const TARGETS: &[&str] = &[
        "/proc",
        "/a",
        "/a/b",
        "/a/b/c",
        "/",
        "/dev",
        "/dev/pts",
        "/m",
        "rel",
        "/a/",
        "/sys/fs/cgroup",
    ];
    let mut mount = json!({"destination": pick(rng, TARGETS), "source": pick(rng, &["s", "/h"])});
    if rng.bool() {
        mount["type"] = json!(pick(rng, &["bind", "proc", "tmpfs"]));
    }
    if rng.bool() {
        mount["options"] = json!(some(rng, 2, |rng| pick(rng, &["ro", "rbind", "nosuid"])));
    }
    mount
}

fn linux(rng: &mut Rng, nodes: &str) -> Value {
    let mut linux = json!({"namespaces": [{"type": "mount"}, {"type": "pid"}]});
    if once_in(rng, 8) {
        linux["namespaces"] = json!([{"type": "user"}, {"type": "mount"}]);
    }
    let mapping = json!([{"containerID": 0, "hostID": 1000, "size": 65536}]);
    if once_in(rng, 6) {
        linux["uidMappings"] = mapping.clone();
    }
    if once_in(rng, 6) {
        linux["gidMappings"] = mapping;
    }
    if once_in(rng, 3) {
        let mut paths = ["/dev/x", "/dev/y", "/dev/fuse", "null"];
        rng.shuffle(&mut paths);
        let devices = paths[..rng.usize(..4)].iter().map(|path| {
            let path = if *path == "null" { format!("{nodes}/null") } else { (*path).to_owned() };
            json!({"path": path, "type": "c", "major": pick(rng, &[1, 10]), "minor": 3})
        });
        linux["devices"] = devices.collect();
    }
    if once_in(rng, 3) {
        linux["resources"] = json!({"devices": [{"allow": false, "access": "rwm"}]});
    } else if once_in(rng, 5) {
        linux["resources"] = json!({"memory": {"limit": 1}, "devices": [
            {"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm"},
            {"allow": true, "type": "b", "major": 7, "minor": 9, "access": "r"},
        ]});
    }
    if once_in(rng, 8) {
        linux["intelRdt"] = json!({"closID": "old", "memBwSchema": "MB:0=1"});
    }
    if once_in(rng, 8) {
        linux["netDevices"] = json!({"eth0": {"name": "old"}, "eth9": {}});
    }
    linux
}

fn hooks(rng: &mut Rng) -> Value {
    let hook = |rng: &mut Rng| json!({"path": pick(rng, &["/h", "/first"]), "args": ["a"]});
    json!({"prestart": some(rng, 1, hook), "createRuntime": some(rng, 2, |rng| json!({"path": pick(rng, &["/h", "/h2"])}))})
}

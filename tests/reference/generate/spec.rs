//! Specs as JSON trees: most are valid, some have one fault.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::{once_in, pick, some};

/// A document's tree, one in `faults` with a fault. Host paths are below `nodes`.
pub(crate) fn spec(rng: &mut Rng, nodes: &str, faults: usize) -> Value {
    let mut devices: Vec<Value> = (0..1 + rng.usize(..3)).map(|_| device(rng, nodes)).collect();
    if !once_in(rng, 10) {
        devices.sort_by_key(|device| device["name"].to_string());
        devices.dedup_by_key(|device| device["name"].to_string());
    }
    let mut spec = json!({
        "cdiVersion": version(rng),
        "kind": pick(rng, &["v.com/cc", "v.com/cc", "v.com/cc", "w.com/cc", "w.com/cc", "v/c", "v.com/c.c"]),
        "devices": devices,
    });
    if rng.bool() {
        spec["containerEdits"] = edits(rng, nodes);
    }
    if once_in(rng, 8) {
        spec["annotations"] = annotations(rng);
    }
    if once_in(rng, faults * 10) {
        spec["kind"] = json!(pick(rng, &["1v/c", "v.com", "v.com/", "v.com/c/d"]));
    }
    if once_in(rng, faults) {
        break_one(rng, &mut spec);
    }
    spec
}

fn version(rng: &mut Rng) -> &'static str {
    const OLD: &[&str] =
        &["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "v0.8.0", "1.0.0", "0.2.0", "1.2.0", "0.5"];
    if once_in(rng, 6) { pick(rng, OLD) } else { "1.1.0" }
}

fn device(rng: &mut Rng, nodes: &str) -> Value {
    let mut device = json!({"name": device_name(rng), "containerEdits": edits(rng, nodes)});
    if once_in(rng, 12) {
        device["annotations"] = annotations(rng);
    }
    device
}

/// A device's name; some need a newer version, few are wrong.
pub(crate) fn device_name(rng: &mut Rng) -> &'static str {
    const NAMES: &[&str] = &["d", "d", "e", "e", "f", "0", "g:1", "GPU-1", "all"];
    const ODD: &[&str] = &["", "a@b", "a-", "010", "yes", "~", "é", "1e3", "null", "1.10"];
    if once_in(rng, 30) { pick(rng, ODD) } else { pick(rng, NAMES) }
}

fn annotations(rng: &mut Rng) -> Value {
    let keys = ["k", "v.com/k", "bad key!!", "", "a_b", "010", "yes"];
    let pairs = some(rng, 2, |rng| (pick(rng, &keys).to_owned(), json!(text(rng))));
    Value::Object(pairs.into_iter().collect())
}

/// A text that a YAML writer has to think about.
fn text(rng: &mut Rng) -> &'static str {
    const TEXTS: &[&str] = &[
        "x",
        "a b",
        " a",
        "a ",
        "",
        "yes",
        "no",
        "010",
        "1.10",
        "~",
        "null",
        "a: b",
        "a:b",
        "a #b",
        "a#b",
        "#a",
        "-",
        "- a",
        "[a]",
        "{a}",
        "*a",
        "&a",
        "!a",
        "|",
        ">",
        "'",
        "\"",
        "%a",
        "@a",
        "`a",
        "a\nb",
        "a\n",
        "\n",
        "\ta",
        "é",
        "\u{1F600}",
        "a\\b",
        "0x1F",
        "1e3",
        "<<",
        "=",
        "---",
        "...",
        "? a",
        ": a",
        "a:",
        "2001-01-01",
        "\u{7f}",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "\u{1}",
        "x\r\ny",
        "key=a,b;c",
        "${A}",
        "0o17",
        ".5",
    ];
    pick(rng, TEXTS)
}

fn edits(rng: &mut Rng, nodes: &str) -> Value {
    let mut edits = Map::new();
    let mut put = |name: &str, list: Vec<Value>| {
        if !list.is_empty() {
            edits.insert(name.to_owned(), Value::Array(list));
        }
    };
    put("env", some(rng, 2, env));
    if rng.bool() {
        put("deviceNodes", some(rng, 2, |rng| node(rng, nodes)));
    }
    if once_in(rng, 3) {
        put("mounts", some(rng, 3, mount));
    }
    if once_in(rng, 4) {
        put("hooks", some(rng, 2, hook));
    }
    if once_in(rng, 8) {
        put("netDevices", some(rng, 2, net_device));
    }
    if once_in(rng, 8) {
        put("additionalGids", some(rng, 3, |rng| json!(rng.u32(..4) * 5)));
    }
    if once_in(rng, 12) {
        edits.insert("intelRdt".to_owned(), rdt(rng));
    }
    if edits.is_empty() && !once_in(rng, 20) {
        edits.insert("env".to_owned(), json!(["A=1"]));
    }
    Value::Object(edits)
}

fn env(rng: &mut Rng) -> Value {
    if once_in(rng, 40) {
        return json!(pick(rng, &["A", "=1", "", "a b"]));
    }
    json!(format!(
        "{}={}",
        pick(rng, &["A", "B", "PATH", "C D"]),
        if rng.bool() { "1" } else { text(rng) }
    ))
}

fn node(rng: &mut Rng, nodes: &str) -> Value {
    const HOSTS: &[&str] = &[
        "null", "null", "null", "null", "null", "zero", "zero", "disk", "disk", "pipe", "missing",
        "file", "link",
    ];
    const TYPES: &[&str] = &["c", "c", "c", "c", "c", "b", "b", "p", "u", "", "d"];
    let host = format!("{nodes}/{}", pick(rng, HOSTS));
    let mut node = json!({"path": host});
    if rng.bool() {
        node =
            json!({"path": pick(rng, &["/dev/x", "/dev/y", "/dev/x/", "dev/z"]), "hostPath": host});
    }
    let mut set = |name: &str, value: Value| node[name] = value;
    if once_in(rng, 4) {
        set("type", json!(pick(rng, TYPES)));
    }
    if once_in(rng, 4) {
        let (major, minor) = pick(
            rng,
            &[
                (1, 3),
                (1, 3),
                (1, 3),
                (1, 3),
                (1, 5),
                (1, 5),
                (7, 9),
                (0, 0),
                (0, 3),
                (9, 9),
                (-1, 0),
            ],
        );
        set("major", json!(major));
        set("minor", json!(minor));
    }
    if once_in(rng, 4) {
        set("fileMode", json!(pick(rng, &[0_u32, 0o600, 0o660, 0o7777, 0o100_644])));
    }
    if once_in(rng, 4) {
        set(
            "permissions",
            json!(pick(
                rng,
                &["r", "rw", "rwm", "rwm", "w", "none", "none", "rr", "", "", "x", "R"]
            )),
        );
    }
    if once_in(rng, 5) {
        set("uid", json!(pick(rng, &[0_u32, 1000, u32::MAX])));
    }
    if once_in(rng, 5) {
        set("gid", json!(pick(rng, &[0_u32, 44])));
    }
    node
}

fn mount(rng: &mut Rng) -> Value {
    const TARGETS: &[&str] = &[
        "/a",
        "/a/b",
        "/a/",
        "/a/b/c",
        "/",
        "rel/x",
        "..",
        "/a/../b",
        "//c",
        "/proc",
        "/usr/lib/x.so",
    ];
    let target = if once_in(rng, 40) {
        ""
    } else if once_in(rng, 3) {
        "/m"
    } else {
        pick(rng, TARGETS)
    };
    let mut mount =
        json!({"hostPath": pick(rng, &["/h", "/h2", "tmpfs", "/h"]), "containerPath": target});
    if rng.bool() {
        const OPTIONS: &[&str] = &["ro", "bind", "rbind", "nosuid", "idmap", "ridmap", "", "x=010"];
        mount["options"] = json!(some(rng, 3, |rng| pick(rng, OPTIONS)));
    }
    if once_in(rng, 4) {
        mount["type"] = json!(pick(rng, &["bind", "tmpfs", "", "none"]));
    }
    mount
}

fn hook(rng: &mut Rng) -> Value {
    const NAMES: &[&str] = &[
        "prestart",
        "createRuntime",
        "createContainer",
        "startContainer",
        "poststart",
        "poststop",
        "createRuntime",
    ];
    let name = if once_in(rng, 30) { "Prestart" } else { pick(rng, NAMES) };
    let mut hook = json!({"hookName": name, "path": pick(rng, &["/h", "/h2", "rel"])});
    if rng.bool() {
        hook["args"] = json!(some(rng, 3, text));
    }
    if once_in(rng, 4) {
        hook["env"] = Value::Array(some(rng, 2, env));
    }
    if once_in(rng, 4) {
        hook["timeout"] = json!(pick(rng, &[0_i64, 5, -3, 9_999_999_999]));
    }
    hook
}

fn net_device(rng: &mut Rng) -> Value {
    let host = pick(rng, &["eth0", "eth1", "eth2", "eth3", "eth4", "eth5"]);
    json!({"hostInterfaceName": host, "name": pick(rng, &["e0", "e1", "e2", "e3", "e4", "e5"])})
}

fn rdt(rng: &mut Rng) -> Value {
    let mut rdt = json!({});
    if rng.bool() {
        rdt["closID"] = json!(pick(rng, &["x", "x", "y", "/", ".", "a/b", ""]));
    }
    if rng.bool() {
        rdt["l3CacheSchema"] = json!("L3:0=f");
    }
    if once_in(rng, 3) {
        rdt["schemata"] = json!(some(rng, 2, |_| "MB:0=50"));
    }
    if once_in(rng, 3) {
        rdt["enableMonitoring"] = json!(rng.bool());
    }
    rdt
}

/// Puts one fault somewhere into the tree.
fn break_one(rng: &mut Rng, tree: &mut Value) {
    match tree {
        Value::Object(fields) if !fields.is_empty() => {
            let name = fields.keys().nth(rng.usize(..fields.len())).expect("there").clone();
            let here = once_in(rng, 3) || !(fields[&name].is_object() || fields[&name].is_array());
            match rng.u8(..8) {
                _ if !here => break_one(rng, &mut fields[&name]),
                0 => drop(fields.remove(&name)),
                1 => drop(fields.insert("foo".to_owned(), json!(1))),
                2 => {
                    let value = fields.remove(&name).expect("there");
                    fields.insert(name.to_uppercase(), value);
                }
                _ => fields[&name] = wrong_value(rng),
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = rng.usize(..items.len());
            let here = once_in(rng, 3) || !(items[at].is_object() || items[at].is_array());
            match rng.u8(..4) {
                _ if !here => break_one(rng, &mut items[at]),
                0 => items.push(items[at].clone()),
                1 => items.insert(at, Value::Null),
                _ => items[at] = wrong_value(rng),
            }
        }
        leaf => *leaf = wrong_value(rng),
    }
}

fn wrong_value(rng: &mut Rng) -> Value {
    let float = pick(rng, &[1.0, 1.5, 1e3, -2.5, 1e300]);
    match rng.u8(..9) {
        0 => Value::Null,
        1 => json!(rng.bool()),
        2 => json!(pick(rng, &[0_i64, 1, -1, (1 << 32), i64::MAX])),
        3 => json!(float),
        4 => json!([]),
        5 => json!({}),
        6 => json!(""),
        7 => json!([text(rng)]),
        _ => json!(text(rng)),
    }
}

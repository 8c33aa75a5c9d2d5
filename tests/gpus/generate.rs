//! `divvy generate` on fake hosts, beside what NVIDIA's container toolkit wrote there.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use divvy::gpu::Gpus;
use divvy_fake_nvml::{Layout, Rule};
use serde_json::Value;

use super::{
    Outcome, Test, named,
    support::{self, Fake, Gpu, SOON, fake, fake_as, folder, place},
};

pub(crate) fn tests() -> Vec<Test> {
    named(
        "generate",
        &[
            ("nothing that the toolkit finds is missing", side_by_side),
            ("MIG devices have the names that NVML counts by", mig),
            ("a version that cannot say it all is refused", versions),
            ("a file is whole, and of the past when the node has changed", written),
            (
                "a folder is made where it is missing, and none is used that others can write",
                folders,
            ),
            ("a node that does not answer has no spec", faulty),
        ],
    )
}

/// How a run ended.
struct Ended {
    code: i32,
    out: String,
    err: String,
}

fn generate(fake: &Fake, args: &[&str]) -> Ended {
    let root = fake.host.root();
    let output = Command::new(env!("CARGO_BIN_EXE_divvy"))
        .current_dir(root)
        .args(["generate", "--gpus", &format!("nvml:{}", root.display())])
        .arg("--hook")
        .arg(support::hook(root))
        .args(args)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended {
        code: output.status.code().unwrap(),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

#[track_caller]
fn spec(fake: &Fake, args: &[&str]) -> Value {
    let ended = generate(fake, &[&["-o", "json"], args].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    serde_json::from_str(&ended.out).unwrap()
}

fn texts<'a>(value: &'a Value, key: &str) -> Vec<&'a str> {
    value[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

/// What edits give, a line each: nodes, mounts, variables, links and the folders of libraries.
fn lines(edits: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    for node in items(edits, "deviceNodes") {
        let host = if node["hostPath"].is_null() { &node["path"] } else { &node["hostPath"] };
        lines.push(format!("node {} {}", text(&node["path"]), text(host)));
    }
    for mount in items(edits, "mounts") {
        lines.push(format!("mount {} {}", text(&mount["containerPath"]), text(&mount["hostPath"])));
    }
    lines.extend(texts(edits, "env").iter().map(|variable| format!("env {variable}")));
    for hook in items(edits, "hooks") {
        for pair in texts(hook, "args").windows(2) {
            match pair {
                ["--link", link] => lines.push(format!("link {link}")),
                ["--folder", folder] => lines.push(format!("folder {folder}")),
                _ => {}
            }
        }
    }
    lines
}

/// All that a spec gives, a line each, as `toolkit/` has it.
fn all_lines(spec: &Value, host: &Path) -> BTreeSet<String> {
    let mut all: BTreeSet<String> = lines(&spec["containerEdits"]).into_iter().collect();
    for device in items(spec, "devices") {
        let name = device["name"].as_str().unwrap();
        for line in lines(&device["containerEdits"]) {
            all.insert(format!("device {name} {}", line.trim_start_matches("node ")));
        }
    }
    let host = host.display().to_string();
    all.into_iter().map(|line| line.replace(&host, "HOST")).collect()
}

/// `toolkit/` has what `nvidia-ctk cdi generate` 1.17.8 wrote on these hosts (NVML's calls for MIG were
/// added to the fake one for it), in this form. It looks for DRM nodes on the machine itself.
fn side_by_side() -> Outcome {
    let theirs = [
        (Layout::Ubuntu, include_str!("toolkit/ubuntu.txt")),
        (Layout::Rhel, include_str!("toolkit/rhel.txt")),
        (Layout::Cos, include_str!("toolkit/cos.txt")),
    ];
    for (layout, theirs) in theirs {
        let fake = fake_as(layout, folder(), &[("H100-80GB", false), ("T4-16GB", false)], SOON);
        if let Some(why) = support::no_nodes(&fake) {
            return Outcome::Skipped(why);
        }
        // The toolkit was run on a host with these.
        let binaries = fake.host.root().join("usr/bin");
        fs::create_dir_all(&binaries).unwrap();
        for name in ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server"] {
            support::write(&binaries.join(name), "");
        }
        let ours = all_lines(&spec(&fake, &[]), fake.host.root());
        let theirs: BTreeSet<String> = theirs.lines().map(str::to_owned).collect();
        let missing: Vec<&String> = theirs.difference(&ours).collect();
        assert!(missing.is_empty(), "{layout:?}: {missing:#?}");
        // More: the links that a host without ldconfig lacks, and files that it looks for elsewhere.
        let known = |line: &&String| {
            line.starts_with("link ")
                || line.contains("/dri/")
                || line.contains("nvidia.icd ")
                || (layout == Layout::Cos && line.starts_with("mount /lib/firmware/"))
        };
        let more: Vec<&String> = ours.difference(&theirs).filter(|line| !known(line)).collect();
        assert!(more.is_empty(), "{layout:?}: {more:#?}");
    }
    Outcome::Done
}

const MIG: &[Gpu] = &[("H100-80GB", true), ("T4-16GB", false), ("H100-80GB", true)];

fn mig() -> Outcome {
    let fake = fake(MIG);
    if let Some(why) = support::no_nodes(&fake) {
        return Outcome::Skipped(why);
    }
    let uuid = fake.uuid(0);
    let mut made = Vec::new();
    // The one that lies behind the other is made first, and so is NVML's first.
    for start in [4, 0] {
        made.push(fake.nvml.create_partition(&uuid, "1g.10gb", place(start, 1)).unwrap());
    }
    let of_all = ["--names", "index", "--names", "uuid", "--names", "type-index"];
    let ended = generate(&fake, &of_all);
    assert!(ended.err.contains("is in MIG mode and has no MIG devices"), "{}", ended.err);
    let spec = spec(&fake, &of_all);
    let names: Vec<&str> = items(&spec, "devices").filter_map(|d| d["name"].as_str()).collect();
    made.sort_by_key(|partition| partition.gpu_instance);
    let (first, second, t4) = (&made[0].uuid, &made[1].uuid, &fake.uuid(1));
    assert_eq!(names, ["0:0", first, "mig0:0", "0:1", second, "mig0:1", "1", t4, "gpu1", "all"]);
    let nodes = |name: &str| -> Vec<String> {
        let device = items(&spec, "devices").find(|device| device["name"] == name).unwrap();
        let nodes = items(&device["containerEdits"], "deviceNodes");
        nodes.map(|node| node["path"].as_str().unwrap().to_owned()).collect()
    };
    // As the driver numbers them.
    let cap = 3 + made[0].gpu_instance * 9;
    let caps = [cap, cap + 1].map(|cap| format!("/dev/nvidia-caps/nvidia-cap{cap}"));
    let wanted = [&["/dev/nvidia0".to_owned()][..], &caps].concat();
    assert_eq!(nodes("0:0"), wanted);
    assert_eq!(nodes("mig0:0"), wanted);
    assert_eq!(nodes("gpu1"), ["/dev/nvidia1", "/dev/dri/card1", "/dev/dri/renderD129"]);
    let all = nodes("all");
    assert_eq!(all.iter().filter(|path| *path == "/dev/nvidia0").count(), 1, "{all:?}");
    assert_eq!(all.len(), 1 + 2 * 2 + 3, "{all:?}");
    Outcome::Done
}

fn versions() -> Outcome {
    let fake = fake(&[("T4-16GB", false)]);
    if let Some(why) = support::no_nodes(&fake) {
        return Outcome::Skipped(why);
    }
    let newest = spec(&fake, &[]);
    assert_eq!(newest["cdiVersion"], "0.7.0");
    let device = &newest["devices"][0]["containerEdits"];
    assert_eq!(device["additionalGids"], serde_json::json!([44, 105]));
    assert_eq!(device["deviceNodes"][1]["gid"], 44);
    assert!(device["deviceNodes"][0].get("major").is_none(), "a number would outlive the boot");
    let ended = generate(&fake, &["--cdi-version", "0.6.0", "-o", "json"]);
    let spec: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(spec["cdiVersion"], "0.5.0");
    assert!(!ended.out.contains("additionalGids"), "{}", ended.out);
    assert!(ended.err.contains("warning: before CDI 0.7.0"), "{}", ended.err);
    let file = fake.host.root().join("nvidia.yaml");
    let write = ["--write", file.to_str().unwrap()];
    let refused = generate(&fake, &[&["--cdi-version", "0.4.0"][..], &write].concat());
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("error[SPEC-VERSION]"), "{}", refused.err);
    assert!(refused.err.contains("hostPath needs CDI 0.5.0"), "{}", refused.err);
    for args in [["--cdi-version", "0.1.0"], ["--write", "nvidia.txt"]] {
        let refused = generate(&fake, &args);
        assert_eq!(refused.code, 2, "{}", refused.err);
    }
    assert!(!file.exists());
    Outcome::Done
}

/// The first line of a spec.
fn stamp(file: &Path) -> String {
    fs::read_to_string(file).unwrap().lines().next().unwrap().to_owned()
}

fn written() -> Outcome {
    let fake = fake(&[("H100-80GB", true), ("T4-16GB", false)]);
    if let Some(why) = support::no_nodes(&fake) {
        return Outcome::Skipped(why);
    }
    let file = |name: &str| -> PathBuf { fake.host.root().join(name) };
    let write = |name: &str| {
        let ended = generate(&fake, &["--write", name]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        stamp(&file(name))
    };
    let (yaml, _) = (write("nvidia.yaml"), write("nvidia.json"));
    let boot = divvy_hook::record::boot_id().unwrap();
    assert!(yaml.contains("driver 580.65.06") && yaml.contains(&boot), "{yaml}");
    let read = |name: &str| {
        let bytes = fs::read(file(name)).unwrap();
        divvy_cdi::spec::read(&file(name), &bytes).unwrap().spec
    };
    assert_eq!(read("nvidia.yaml"), read("nvidia.json"));
    assert_eq!(read("nvidia.yaml").devices.len(), 2 + 1);
    assert_eq!(write("nvidia.yaml"), yaml, "the same of the same");
    let uuid = fake.uuid(0);
    fake.nvml.create_partition(&uuid, "1g.10gb", place(0, 1)).unwrap();
    let changed = write("nvidia.yaml");
    assert_ne!(changed, yaml, "its MIG devices are others");
    fake.host.reload_driver("580.95.05").unwrap();
    assert!(write("nvidia.yaml").contains("driver 580.95.05"));
    let text = fs::read_to_string(file("nvidia.yaml")).unwrap();
    assert!(!text.contains("580.65.06"), "{text}");
    Outcome::Done
}

fn faulty() -> Outcome {
    let fake = fake(&[("T4-16GB", false), ("T4-16GB", false)]);
    if let Some(why) = support::no_nodes(&fake) {
        return Outcome::Skipped(why);
    }
    let (file, uuid) = (fake.host.root().join("nvidia.yaml"), fake.uuid(1));
    support::write(&file, "as it was");
    let call = "nvmlDeviceGetUUID".to_owned();
    let lost = Rule { call, gpu: Some(uuid), fail: Some(15), ..Rule::default() };
    fake.host.script(&[lost]).unwrap();
    let ended = generate(&fake, &["--write", "nvidia.yaml"]);
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("error[GPU-FAULT]"), "{}", ended.err);
    assert_eq!(fs::read_to_string(&file).unwrap(), "as it was");
    Outcome::Done
}

fn folders() -> Outcome {
    let fake = fake(&[("H100-80GB", false)]);
    if let Some(why) = support::no_nodes(&fake) {
        return Outcome::Skipped(why);
    }
    let root = fake.host.root();
    let set =
        |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let ended = generate(&fake, &["--write", "new/cdi/nvidia.yaml"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(mode(&root.join("new")), 0o755);
    assert_eq!(mode(&root.join("new/cdi")), 0o755);
    assert_eq!(mode(&root.join("new/cdi/nvidia.yaml")), 0o644);
    let before = fs::read(root.join("new/cdi/nvidia.yaml")).unwrap();
    for (folder, file) in [("new/cdi", "new/cdi/nvidia.yaml"), ("", "nvidia.yaml")] {
        let folder = root.join(folder);
        let was = mode(&folder);
        set(&folder, 0o777);
        let ended = generate(&fake, &["--write", file]);
        set(&folder, was);
        assert_eq!(ended.code, 1, "{file}: {}", ended.out);
        assert!(ended.err.starts_with("error[UNTRUSTED]: "), "{file}: {}", ended.err);
        assert!(ended.err.contains("everybody can write it"), "{file}: {}", ended.err);
    }
    assert_eq!(fs::read(root.join("new/cdi/nvidia.yaml")).unwrap(), before);
    assert!(!root.join("nvidia.yaml").exists());
    Outcome::Done
}

//! Containers that request devices, engine by engine.

use divvy_hook::record::Origin;
use serde_json::json;

use crate::support::{Host, annotate, has_device, spec};

const CRI: &str = "[handlers.divvy-runtime]\nengine = 'cri'";
const CRIO: &str = "[handlers.divvy-runtime]\nengine = 'crio'";
const CTR: &str = "[handlers.divvy-runtime]\nengine = 'ctr'\nannotations = true";

const CONTAINERD: &str =
    "--root /r --log @/log.json --log-format json create --bundle @/bundle --pid-file F ID";
/// conmon's line for CRI-O has no `--log`.
const CONMON: &str = "--root=/run/x --systemd-cgroup create --bundle @/bundle --pid-file F ID";

fn create(host: &Host, line: &str) {
    let outcome = host.shim(line);
    assert_eq!(outcome.status, 7, "{}", outcome.stderr);
    assert!(host.seen().is_some());
}

#[test]
fn a_container_of_a_pod_gets_its_devices_once() {
    for (handler, engine, line) in [(CRI, "containerd", CONTAINERD), (CRIO, "crio", CONMON)] {
        let host = Host::new(handler);
        host.prepare_pod("p-1");
        host.bundle(engine, |_| {});
        create(&host, line);
        assert!(has_device(&host.config()), "{engine}");
        let once = host.read("bundle/config.json");
        // Again, and nothing is written: the file is the same one.
        let inode = || {
            use std::os::unix::fs::MetadataExt as _;
            std::fs::metadata(host.path("bundle/config.json")).unwrap().ino()
        };
        let before = inode();
        create(&host, line);
        assert_eq!((host.read("bundle/config.json"), inode()), (once, before), "{engine}");
    }
}

#[test]
fn every_form_of_a_creation_is_edited_and_a_restore_is_not() {
    let host = Host::new(CTR);
    host.spec("v.json", &spec("v.com/gpu", "0", "GPU=0"));
    for (line, edited) in [
        ("create --bundle @/bundle ID", true),
        ("create --bundle=@/bundle ID", true),
        ("create -b @/bundle create", true),
        ("run -b @/bundle ID", true),
        ("run -bundle @/bundle ID", true),
        ("--debug --root /r run -b=@/bundle ID", true),
        ("run ../bundle ID -b @/bundle", true),
        ("restore --bundle @/bundle ID", false),
        ("start create", false),
    ] {
        host.bundle("ctr", |config| annotate(config, "cdi.k8s.io/x", "v.com/gpu=0"));
        create(&host, line);
        assert_eq!(has_device(&host.config()), edited, "{line}");
    }
    // crun's --config names another file of the bundle.
    let config = host.bundle("ctr", |config| annotate(config, "cdi.k8s.io/x", "v.com/gpu=0"));
    host.write("bundle/other.json", &config);
    create(&host, "run --bundle @/bundle -f other.json ID");
    assert!(!has_device(&host.config()));
    assert_ne!(host.read("bundle/other.json"), config);
}

#[test]
fn without_a_bundle_the_working_directory_is_the_bundle() {
    let host = Host::new(CTR);
    host.spec("v.json", &spec("v.com/gpu", "0", "GPU=0"));
    let config = host.bundle("ctr", |config| annotate(config, "cdi.k8s.io/x", "v.com/gpu=0"));
    // The harness calls in run/.
    host.write("run/config.json", &config);
    create(&host, "create ID");
    assert!(!has_device(&host.config()));
    assert_ne!(host.read("run/config.json"), config);
}

#[test]
fn a_sandbox_is_left_alone() {
    let host = Host::new(CRI);
    host.prepare_pod("p-1");
    let config = host.bundle("containerd-sandbox", |_| {});
    create(&host, CONTAINERD);
    assert_eq!(host.read("bundle/config.json"), config);
}

#[test]
fn the_error_is_the_same_line_on_both_channels() {
    let host = Host::new(CRI);
    let config = host.bundle("containerd", |_| {});
    let outcome = host.shim(CONTAINERD);
    let line = outcome.error("CLAIM-NOT-PREPARED");
    assert!(line.contains("container \"main\" of pod ml/train (p-1)"), "{line}");
    let log = host.read("log.json");
    let entry: serde_json::Value = serde_json::from_str(&log).unwrap();
    assert_eq!((&entry["level"], &entry["msg"]), (&json!("error"), &json!(line)));
    assert!(host.seen().is_none(), "the runtime must not be called");
    assert_eq!(host.read("bundle/config.json"), config);
    assert!(host.read("run/hook.log").contains(line));

    // As text where the engine wants no JSON, and nowhere else where it names no log.
    host.shim(&CONTAINERD.replace("json create", "text create").replace("log.json", "log.txt"));
    let text = host.read("log.txt");
    assert!(text.starts_with("time=\"2") && text.contains(" level=error msg=\"divvy: CLAIM-"));
    host.shim(&CONTAINERD.replace("@/log.json", "file:@/crun.log"));
    assert!(host.read("crun.log").contains("CLAIM-NOT-PREPARED"));
    for target in ["journald:x", "syslog:x", "@/no/such/dir/log", "@/run"] {
        host.shim(&CONTAINERD.replace("@/log.json", target)).error("CLAIM-NOT-PREPARED");
    }
}

/// CRI-O is not to be had in Debian: conmon's recorded call, and the text that it forwards.
#[test]
fn conmon_without_a_log_gets_the_error_by_standard_error() {
    let host = Host::new(CRIO);
    host.bundle("crio", |_| {});
    let outcome = host.shim(CONMON);
    let line = outcome.error("CLAIM-NOT-PREPARED");
    assert!(line.contains("pods/p-1.json"), "{line}");
    assert!(outcome.stdout.is_empty());
}

#[test]
fn a_claim_prepared_by_hand_is_named_by_docker_podman_and_ctr() {
    for engine in ["docker", "podman", "ctr"] {
        let allow = format!("[handlers.divvy-runtime]\nengine = '{engine}'\nannotations = true");
        let host = Host::new(&allow);
        host.prepare_claim(Origin::Local, "mine");
        host.bundle(engine, |config| annotate(config, "divvy.dev/claim", "mine"));
        create(&host, CONTAINERD);
        assert!(has_device(&host.config()), "{engine}");
        // No marker is left: what was asked is there, nothing else was added.
        let annotations = host.config()["annotations"].as_object().unwrap().clone();
        assert!(annotations.keys().all(|key| !key.contains("divvy") || key == "divvy.dev/claim"));
    }
}

#[test]
fn the_environment_requests_where_it_is_configured() {
    for (more, edited) in [("environment = ['DEV']", true), ("", false)] {
        let host = Host::new(&format!("[handlers.divvy-runtime]\nengine = 'docker'\n{more}"));
        host.spec("v.json", &spec("v.com/gpu", "0", "GPU=0"));
        host.bundle("docker", |config| {
            config["process"]["env"].as_array_mut().unwrap().push("DEV=v.com/gpu=0".into());
        });
        create(&host, CONTAINERD);
        assert_eq!(has_device(&host.config()), edited);
    }
}

#[test]
fn claims_and_annotations_come_together_and_doubles_collapse() {
    let host = Host::new("[handlers.divvy-runtime]\nengine = 'cri'");
    host.prepare_pod("p-1");
    host.spec("v.json", &spec("v.com/gpu", "0", "OTHER=1"));
    host.bundle("containerd", |config| {
        annotate(config, "cdi.k8s.io/x", "v.com/gpu=0,gpu.divvy.dev/claim=u-1-gpu0");
    });
    create(&host, CONTAINERD);
    let config = host.config();
    assert!(has_device(&config));
    let env = config["process"]["env"].as_array().unwrap();
    assert_eq!(env.iter().filter(|env| *env == "GPU=0").count(), 1);
    assert!(env.contains(&json!("OTHER=1")));
}

#[test]
fn what_cannot_be_had_is_said_and_nothing_is_written() {
    let host = Host::new(CTR);
    let (path, _) = host.spec("v.json", &spec("v.com/gpu", "0", "GPU=0"));
    let mut gone = spec("v.com/gone", "0", "GPU=0");
    gone["devices"][0]["containerEdits"]["deviceNodes"][0]["hostPath"] = "/dev/divvy-none".into();
    host.spec("gone.json", &gone);
    for (value, code, says) in [
        ("v.com/gpu=1", "UNRESOLVED", "v.com/gpu=1"),
        ("v.com/gone=0", "DEVICE-GONE", "/dev/divvy-none"),
        ("gpu=1", "REQUEST-INVALID", "cdi.k8s.io/x"),
    ] {
        let config = host.bundle("ctr", |config| annotate(config, "cdi.k8s.io/x", value));
        let outcome = host.shim(CONTAINERD);
        let line = outcome.error(code);
        assert!(line.contains(says), "{line}");
        assert!(host.seen().is_none());
        assert_eq!(host.read("bundle/config.json"), config);
        let left: Vec<_> = std::fs::read_dir(host.path("bundle")).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
    assert!(path.exists());
}

#[test]
fn a_prepared_claim_is_resolved_by_its_record_alone() {
    let host = Host::new(CRI);
    host.prepare_pod("p-1");
    // Neither a directory that is not read nor one full of rubbish matters.
    host.write("cdi/bad.json", "{");
    host.bundle("containerd", |_| {});
    create(&host, CONTAINERD);
    assert!(has_device(&host.config()));

    let unedited = host.bundle("containerd", |_| {});
    host.spec("claim.json", &spec("gpu.divvy.dev/claim", "u-1-gpu0", "GPU=1"));
    let line = host.shim(CONTAINERD).error("SPEC-CHANGED").to_owned();
    assert!(line.contains("claim.json") && line.contains("prepare it again"), "{line}");
    std::fs::remove_file(host.path("cdi/claim.json")).unwrap();
    host.shim(CONTAINERD).error("SPEC-MISSING");
    assert_eq!(host.read("bundle/config.json"), unedited);
}

#[test]
fn the_config_keeps_its_mode_and_what_nobody_knows() {
    use std::os::unix::fs::PermissionsExt as _;
    let host = Host::new(CTR);
    host.spec("v.json", &spec("v.com/gpu", "0", "GPU=0"));
    host.bundle("ctr", |config| {
        annotate(config, "cdi.k8s.io/x", "v.com/gpu=0");
        config["linux"]["x_unknown"] = json!({"deep": [1, null, 1.50]});
    });
    let path = host.path("bundle/config.json");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    create(&host, CONTAINERD);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o640);
    assert_eq!(host.config()["linux"]["x_unknown"], json!({"deep": [1, null, 1.50]}));
    assert!(has_device(&host.config()));
}

#[test]
fn without_a_runtime_the_bundle_stays_as_it_was() {
    let host = Host::new(CTR);
    host.spec("v.json", &spec("v.com/gpu", "0", "GPU=0"));
    let settings = host.read("config.toml");
    let ourselves = format!("{:?}", crate::support::HOOK);
    let runtime = format!("{:?}", host.path("runtime"));
    for (other, code) in [("\"/absent\"", "RUNTIME-NOT-FOUND"), (&ourselves, "RUNTIME-LOOP")] {
        host.write("config.toml", &settings.replace(&runtime, other));
        let config = host.bundle("ctr", |config| annotate(config, "cdi.k8s.io/x", "v.com/gpu=0"));
        host.shim(CONTAINERD).error(code);
        assert_eq!(host.read("bundle/config.json"), config);
    }
}

use std::{fs, os::unix::fs::PermissionsExt};

use divvy_cdi::spec;

use crate::support::{SMALL, WHOLE, World, claim, time_slicing};

#[test]
fn a_claim_is_prepared_as_it_is_allocated() {
    let world = World::new();
    world.write("c.yaml", claim("a", SMALL, ""));
    let answer = world.json(&["prepare", "-f", "c.yaml"]);
    let claim = &answer["claims"][0];
    assert_eq!(claim["name"], "a");
    assert_eq!(claim["fresh"], true);
    let uid = claim["uid"].as_str().unwrap();
    let cdi = format!("gpu.divvy.dev/claim={uid}-{SMALL}");
    assert_eq!(claim["devices"][0]["cdi"], *cdi);
    assert!(claim["devices"][0]["uuid"].as_str().unwrap().starts_with("MIG-"));

    let spec_path = world.path(&format!("cdi/gpu.divvy.dev-claim_{uid}.json"));
    assert_eq!(claim["spec"], *spec_path.display().to_string());
    assert_eq!(fs::metadata(&spec_path).unwrap().permissions().mode() & 0o7777, 0o644);
    let bytes = fs::read(&spec_path).unwrap();
    let parsed = spec::read(&spec_path, &bytes).unwrap();
    assert_eq!(parsed.warnings, []);
    assert_eq!(parsed.spec.kind, "gpu.divvy.dev/claim");
    assert_eq!(parsed.spec.devices.len(), 1);
    let nodes = &parsed.spec.devices[0].container_edits.device_nodes;
    let paths: Vec<_> = nodes.iter().map(|node| node.path.as_str()).collect();
    assert_eq!(paths[0], "/dev/nvidia1");
    assert!(paths[1].starts_with("/dev/nvidia-caps/nvidia-cap"), "{paths:?}");
    assert!(parsed.spec.container_edits.env.contains(&"NVIDIA_VISIBLE_DEVICES=void".to_owned()));
    assert_eq!(parsed.spec.container_edits.mounts[0].options[0], "ro");

    let run = divvy_hook::record::RunDir::new(world.path("run"));
    let record = run.local_claim("default", "a").unwrap().unwrap();
    assert_eq!(record.uid, uid);
    assert_eq!(record.requests["gpu"], [cdi.as_str()]);
    assert_eq!(record.specs[&cdi].path, spec_path);
    assert_eq!(record.specs[&cdi].digest, divvy_hook::record::digest(&bytes));
    assert!(record.consumers.is_empty());
}

#[test]
fn without_allocation_the_first_fit_is_given() {
    let world = World::new();
    world.write(
        "c.yaml",
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a, namespace: t}\n\
         spec:\n  devices:\n    requests:\n    - name: two\n      exactly:\n        deviceClassName: \
         mig.gpu.divvy.dev\n        count: 2\n        selectors: [{cel: {expression: \
         'device.attributes[\"gpu.divvy.dev\"].profile == \"3g.40gb\"'}}]\n    - name: one\n      \
         exactly: {deviceClassName: gpu.divvy.dev}\n",
    );
    let text = world.divvy(&["prepare", "-f", "c.yaml"]);
    let shown: Vec<&str> = text.ok().lines().skip(2).take(3).collect();
    assert!(shown[0].contains("two      gpu-0000-43-00-3g40gb-0  exclusive"), "{shown:?}");
    assert!(shown[1].contains("two      gpu-0000-43-00-3g40gb-4  exclusive"), "{shown:?}");
    assert!(shown[2].contains("one      gpu-0000-1b-00           exclusive"), "{shown:?}");
    world.divvy(&["unprepare", "t/a"]).ok();
    assert_eq!(world.left(), Vec::<String>::new());
}

#[test]
fn a_claim_prepared_twice_has_the_same_names_and_writes_nothing() {
    let world = World::new();
    world.write("c.yaml", claim("a", SMALL, "") + &claim("b", WHOLE, &time_slicing("Short")));
    let first = world.json(&["prepare", "-f", "c.yaml"]);
    let before = world.snapshot();
    let again = world.json(&["prepare", "-f", "c.yaml"]);
    assert_eq!(world.snapshot(), before);
    for index in 0..2 {
        assert_eq!(again["claims"][index]["fresh"], false);
        assert_eq!(again["claims"][index]["devices"], first["claims"][index]["devices"]);
    }
    assert!(world.divvy(&["prepare", "-f", "c.yaml"]).ok().contains("was prepared before"));
}

#[test]
fn preparing_again_brings_back_what_is_missing() {
    let world = World::new();
    world.write("c.yaml", claim("a", SMALL, ""));
    let first = world.json(&["prepare", "-f", "c.yaml"]);
    let before = world.snapshot();
    for dir in ["cdi", "run"] {
        fs::remove_dir_all(world.path(dir)).unwrap();
    }
    world.json(&["prepare", "-f", "c.yaml"]);
    assert_eq!(world.snapshot(), before);
    // The partition itself: a new one has a new UUID, and the names stay.
    fs::remove_file(world.path("node.state.json")).unwrap();
    let again = world.json(&["prepare", "-f", "c.yaml"]);
    assert_eq!(again["claims"][0]["devices"][0]["cdi"], first["claims"][0]["devices"][0]["cdi"]);
    let devices = world.json(&["devices"]);
    let partition = &devices["node"]["gpus"][1]["partitions"][0];
    assert_eq!(partition["uuid"], again["claims"][0]["devices"][0]["uuid"]);
}

#[test]
fn a_claim_that_has_changed_is_refused() {
    let world = World::new();
    world.write("c.yaml", claim("a", SMALL, ""));
    world.json(&["prepare", "-f", "c.yaml"]);
    let before = world.snapshot();
    world.write("d.yaml", claim("a", WHOLE, ""));
    let refused = world.divvy(&["prepare", "-f", "d.yaml"]);
    refused.failed(1, "CLAIM-PREPARED", "its manifest has changed since");
    let other = claim("a", WHOLE, "").replace("{name: a}", "{name: a, uid: other}");
    world.write("e.yaml", other);
    world.divvy(&["prepare", "-f", "e.yaml"]).failed(1, "CLAIM-PREPARED", "another UID");
    assert_eq!(world.snapshot(), before);
}

#[test]
fn directories_are_the_same_whatever_way_leads_there() {
    let world = World::new();
    world.write("c.yaml", claim("a", SMALL, ""));
    world.json(&["prepare", "-f", "c.yaml"]);
    for dir in ["cdi", "run"] {
        std::os::unix::fs::symlink(dir, world.path(&format!("link-to-{dir}"))).unwrap();
    }
    let prepare = |cdi: &str, run: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_divvy"));
        command.current_dir(world.path("")).args(["prepare", "-f", "c.yaml", "--gpus"]);
        command.args(["sim:node.toml", "--state-dir", "state", "--cdi-dir", cdi, "--run-dir", run]);
        command.output().unwrap()
    };
    for (cdi, run) in [("cdi", "run"), ("./run/../cdi", "run"), ("link-to-cdi", "link-to-run")] {
        let again = prepare(cdi, run);
        assert!(again.status.success(), "{cdi}: {again:?}");
        assert!(String::from_utf8_lossy(&again.stdout).contains("verified"), "{cdi}: {again:?}");
    }
    fs::create_dir(world.path("other")).unwrap();
    for (cdi, run, option) in [("other", "run", "--cdi-dir"), ("cdi", "other", "--run-dir")] {
        let refused = String::from_utf8(prepare(cdi, run).stderr).unwrap();
        assert!(refused.contains(&format!("{option} has changed since")), "{refused}");
    }
}

#[test]
fn what_overlaps_a_prepared_claim_is_refused_and_named() {
    let world = World::new();
    world.write("a.yaml", claim("a", WHOLE, "") + &claim("b", SMALL, ""));
    world.json(&["prepare", "-f", "a.yaml"]);
    let before = world.snapshot();
    world.write("c.yaml", claim("c", WHOLE, &time_slicing("Short")));
    world.divvy(&["prepare", "-f", "c.yaml"]).failed(1, "OVERLAP", "held by claim default/a");
    world.write("d.yaml", claim("d", "gpu-0000-43-00-7g80gb-0", ""));
    world.divvy(&["prepare", "-f", "d.yaml"]).failed(1, "OVERLAP", "held by claim default/b");
    assert_eq!(world.snapshot(), before);
}

#[test]
fn what_another_journal_has_prepared_is_in_the_way_and_not_called_foreign() {
    let world = World::new();
    world.write("a.yaml", claim("a", SMALL, ""));
    world.json(&["prepare", "-f", "a.yaml"]);
    fs::rename(world.path("state"), world.path("other")).unwrap();
    let refused = world.divvy(&["prepare", "-f", "a.yaml"]);
    refused.failed(
        1,
        "OVERLAP",
        "; this journal does not know it: another divvy state directory made it",
    );
    let devices = world.divvy(&["devices"]);
    assert!(
        devices.ok().contains("10.0 GiB              none that this journal knows\n"),
        "{devices:?}"
    );
}

#[test]
fn the_claims_of_a_file_are_prepared_all_or_none() {
    let world = World::new();
    world.write("c.yaml", claim("a", SMALL, "") + &claim("b", WHOLE, "") + &claim("c", WHOLE, ""));
    world.divvy(&["prepare", "-f", "c.yaml"]).failed(1, "OVERLAP", "default/c");
    assert_eq!(world.left(), Vec::<String>::new());
    // But what was prepared before stays.
    world.json(&["prepare", "-f", "c.yaml", "--name", "a"]);
    let before = world.snapshot();
    world.divvy(&["prepare", "-f", "c.yaml"]).failed(1, "OVERLAP", "default/c");
    assert_eq!(world.snapshot(), before);
}

#[test]
fn time_slices_are_set_and_put_back() {
    let world = World::new();
    world.write("c.yaml", claim("a", WHOLE, &time_slicing("Long")));
    let answer = world.json(&["prepare", "-f", "c.yaml"]);
    assert_eq!(answer["claims"][0]["devices"][0]["sharing"]["timeSlicing"], "Long");
    assert_eq!(world.json(&["devices"])["node"]["gpus"][0]["timeSlice"], "Long");
    world.divvy(&["unprepare", "a"]).ok();
    assert_eq!(world.json(&["devices"])["node"]["gpus"][0]["timeSlice"], "Default");
}

#[test]
fn a_claim_that_was_written_for_nvidias_driver_runs_unchanged() {
    let world = World::new();
    let class = |name: &str, kind: &str| {
        format!(
            "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: {name}}}\nspec: \
             {{selectors: [{{cel: {{expression: \"device.attributes['gpu.divvy.dev'].type == \
             '{kind}'\"}}}}]}}\n---\n"
        )
    };
    let text = "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: a}\nspec:\n  \
                devices:\n    requests:\n    - {name: ts-gpu, deviceClassName: gpu.nvidia.com}\n    \
                - {name: mig, deviceClassName: mig.nvidia.com}\n    config:\n    \
                - requests: [ts-gpu]\n      opaque:\n        driver: gpu.nvidia.com\n        \
                parameters:\n          apiVersion: resource.nvidia.com/v1beta1\n          \
                kind: GpuConfig\n          sharing:\n            strategy: TimeSlicing\n            \
                timeSlicingConfig: {interval: Long}\n";
    let text = class("gpu.nvidia.com", "gpu") + &class("mig.nvidia.com", "mig") + text;
    world.write("c.yaml", &text);
    let allocated = world.divvy(&["allocate", "-f", "c.yaml"]);
    let prepared = world.divvy_with(&["prepare", "-f", "-"], allocated.ok().as_bytes());
    assert!(prepared.ok().contains("time-sliced, Long"), "{prepared:?}");
    assert!(prepared.ok().contains("exclusive"), "{prepared:?}");
    assert_eq!(world.json(&["devices"])["node"]["gpus"][0]["timeSlice"], "Long");
    world.write("c.yaml", text.replace("[ts-gpu]", "[mig]"));
    world.divvy(&["unprepare", "a"]).ok();
    let wrong = world.divvy(&["prepare", "-f", "c.yaml"]);
    wrong.failed(4, "CONFIG-INVALID", "GpuConfig cannot be applied to gpu-0000-43-00-1g10gb-0");
}

#[test]
fn every_refusal_leaves_the_node_as_it_was() {
    let world = World::new();
    let mps = time_slicing("Short").replace("timeSlicing: {interval: Short}", "mps: {}");
    let mig = time_slicing("Short").replace("kind: GpuConfig", "kind: MigDeviceConfig");
    let named =
        time_slicing("Short").replace("        opaque", "        requests: [gpu]\n        opaque");
    let selector = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\nspec: \
                    {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.divvy.dev, \
                    selectors: [{cel: {expression: 'true ||'}}]}}]}}\n";
    for (text, exit, code, says) in [
        (claim("a", "gpu-0", ""), 1, "NO-DEVICE", "no device \"gpu-0\"; it has gpu-0000-1b-00"),
        (claim("a", "gpu-0000-43-00", ""), 1, "NO-DEVICE", "MIG mode"),
        (claim("a", WHOLE, "").replace("pool: n", "pool: m"), 1, "NO-DEVICE", "pool \"m\""),
        (claim("a", WHOLE, &mps), 4, "CONFIG-UNSUPPORTED", "runs no MPS control daemon"),
        (claim("a", SMALL, &mig), 4, "CONFIG-INVALID", "cannot be time-sliced"),
        (claim("a", WHOLE, &time_slicing("Fast")), 4, "CONFIG-INVALID", "Default, Short, Medium"),
        (claim("a", SMALL, &named), 4, "CONFIG-INVALID", "GpuConfig cannot be applied to"),
        (selector.to_owned(), 4, "SELECTOR-INVALID", "`true ||`: at 1:8 of the"),
        (claim("a", WHOLE, "").replace("gpu.divvy.dev", "x.y"), 4, "CLAIM-INVALID", "no device of"),
        (claim("A", WHOLE, ""), 4, "CLAIM-INVALID", "metadata.name"),
        ("kind: Pod\napiVersion: v1\n".to_owned(), 4, "CLAIM-INVALID", "it holds Pod"),
        (
            claim("a", WHOLE, "").replace("k8s.io/v1", "k8s.io/v1alpha2"),
            4,
            "CLAIM-VERSION",
            "v1alpha2",
        ),
    ] {
        world.write("c.yaml", &text);
        world.divvy(&["prepare", "-f", "c.yaml"]).failed(exit, code, says);
        assert_eq!(world.left(), Vec::<String>::new(), "{text}");
    }
    world.divvy(&["prepare", "-f", "none.yaml"]).failed(1, "UNREADABLE", "none.yaml: no such file");
    world.write("c.yaml", claim("a", WHOLE, ""));
    let named = world.divvy(&["prepare", "-f", "c.yaml", "--name", "b"]);
    named.failed(4, "CLAIM-INVALID", "it holds default/a");
}

#[test]
fn a_misspelled_field_never_gives_the_wrong_device() {
    let world = World::new();
    let text = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\nspec:\n  \
                devices:\n    requests:\n    - name: r\n      exactly:\n        deviceClassName: \
                mig.gpu.divvy.dev\n        sellectors: []\n";
    for (from, to, says) in [
        (
            "",
            "",
            "c.yaml:10:9: spec.devices.requests[0].exactly.sellectors: unknown field; did you mean selectors?",
        ),
        ("exactly:", "exactlyy:", "c.yaml:8:7: spec.devices.requests[0].exactlyy: unknown field"),
    ] {
        world.write("c.yaml", text.replacen(from, to, 1));
        world.divvy(&["prepare", "-f", "c.yaml"]).failed(4, "CLAIM-INVALID", says);
        assert_eq!(world.left(), Vec::<String>::new());
    }
}

#[test]
fn several_problems_of_a_file_are_all_shown() {
    let world = World::new();
    world.write("c.yaml", claim("A", WHOLE, "") + &claim("b", WHOLE, &time_slicing("Fast")));
    let ended = world.divvy(&["prepare", "-f", "c.yaml"]);
    ended.failed(4, "CLAIM-INVALID", "c.yaml:3:");
    assert!(ended.err.contains("error[CONFIG-INVALID]: c.yaml:"), "{ended:?}");
}

#[test]
fn manifests_come_from_stdin_too() {
    let world = World::new();
    let text = claim("a", WHOLE, "");
    assert!(world.divvy_with(&["prepare", "-f", "-"], text.as_bytes()).ok().contains("prepared"));
    let bad = world.divvy_with(&["prepare", "-f", "-"], b"a: [");
    bad.failed(4, "CLAIM-INVALID", "standard input:1:");
    world.divvy_with(&["unprepare", "-f", "-"], text.as_bytes()).ok();
    assert_eq!(world.left(), Vec::<String>::new());
}

#[test]
fn the_examples_are_what_they_say() {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let node = fs::read(examples.join("h100x2.toml")).unwrap();
    let mut seen = 0;
    for entry in fs::read_dir(examples.join("claims")).unwrap() {
        let world = World::new();
        world.write("node.toml", &node);
        let path = entry.unwrap().path();
        // Of another driver: the tests of `--devices` have it.
        if path.ends_with("small-white-cat.yaml") {
            continue;
        }
        world.json(&["prepare", "-f", path.to_str().unwrap()]);
        world.divvy(&["unprepare", "-f", path.to_str().unwrap()]).ok();
        assert_eq!(world.left(), Vec::<String>::new(), "{}", path.display());
        seen += 1;
    }
    assert_eq!(seen, 4);
}

#[test]
fn a_claim_of_pods_is_not_prepared_by_hand() {
    let world = World::new();
    let reserved = claim("a", SMALL, "")
        .replace("status:\n", "status:\n  reservedFor: [{resource: pods, name: web-0, uid: u}]\n");
    world.write("c.yaml", reserved);
    let refused = world.divvy(&["prepare", "-f", "c.yaml"]);
    refused.failed(4, "CLAIM-UNSUPPORTED", "reserved for Pod web-0");
    assert_eq!(world.left(), Vec::<String>::new());
}

#[test]
fn a_node_that_others_could_have_written_is_refused() {
    let world = World::new();
    world.write("c.yaml", claim("a", SMALL, ""));
    let open = |name: &str, mode| {
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    open("node.toml", 0o666);
    world.divvy(&["prepare", "-f", "c.yaml"]).failed(1, "UNTRUSTED", "node.toml");
    open("node.toml", 0o644);
    world.json(&["prepare", "-f", "c.yaml"]);
    open("node.state.json", 0o666);
    world.divvy(&["devices"]).failed(1, "UNTRUSTED", "node.state.json");
    open("node.state.json", 0o644);
}

use crate::support::{SMALL, WHOLE, World, claim};

#[test]
fn the_node_is_shown_with_what_is_on_it() {
    let world = World::new();
    world.write("c.yaml", claim("a", SMALL, "") + &claim("b", WHOLE, ""));
    world.json(&["prepare", "-f", "c.yaml"]);
    let ended = world.divvy(&["devices", "--spec-dir", "cdi"]);
    let text = ended.ok();
    let shown: Vec<&str> = text.lines().take(6).collect();
    assert_eq!(
        shown,
        [
            "Node n, driver sim 580.65.06",
            "  DEVICE                     WHAT                        MEMORY    TIME SLICE  CLAIM",
            "  gpu-0000-1b-00             NVIDIA H100 80GB HBM3       79.6 GiB  Default     default/b",
            "  gpu-0000-43-00             NVIDIA H100 80GB HBM3, MIG  79.6 GiB",
            "    gpu-0000-43-00-1g10gb-0  1g.10gb                     10.0 GiB              default/a",
            "  gpu-0000-43-00 has room for 6 × 1g.10gb or 1 × 1g.10gb+me or 3 × 1g.20gb or 2 × 2g.20gb or 1 × 3g.40gb",
        ]
    );
    assert!(text.contains("looked in cdi (2 files)"), "{text}");
    assert!(!text.contains("Problems"), "{text}");
    let json = world.json(&["devices"]);
    assert_eq!(json["node"]["gpus"][0]["claims"], serde_json::json!(["default/b"]));
    assert_eq!(json["node"]["gpus"][1]["partitions"][0]["claims"][0], "default/a");
    assert_eq!(json["node"]["gpus"][1]["room"]["1g.10gb"], 6);
    assert_eq!(json["cdi"]["devices"].as_array().unwrap().len(), 2);
}

#[test]
fn cdi_devices_that_do_not_count_say_why() {
    let world = World::new();
    let spec =
        "cdiVersion: 0.3.0\nkind: v.com/x\ndevices:\n- name: a\n  containerEdits: {env: [A=b]}\n";
    world.write("low/one.yaml", spec);
    world.write("high/one.yaml", spec);
    let args = ["devices", "--spec-dir", "low", "--spec-dir", "high", "--spec-dir", "none"];
    let ended = world.divvy(&args);
    let text = ended.ok();
    assert!(text.contains("v.com/x=a  high/one.yaml\n"), "{text}");
    assert!(text.contains("low/one.yaml (does not count: high/one.yaml does)"), "{text}");
    assert!(text.contains("low (1 file), high (1 file), none (missing)"), "{text}");
    world.write("high/two.yaml", spec);
    let ended = world.divvy(&args);
    let text = ended.ok();
    assert!(text.contains("high/one.yaml (unusable: high/two.yaml defines it too)"), "{text}");
    assert!(text.contains("Problems\n  error[CONFLICT]: high/one.yaml"), "{text}");
}

#[test]
fn the_directories_are_those_of_the_hooks_configuration() {
    let world = World::new();
    let spec =
        "cdiVersion: 0.3.0\nkind: v.com/x\ndevices:\n- name: a\n  containerEdits: {env: [A=b]}\n";
    let dir = world.write("vendor/x.yaml", spec).parent().unwrap().display().to_string();
    world.write("config.toml", format!("spec_dirs = [{dir:?}]\n"));
    let args = ["devices", "--config", "config.toml"];
    let json = world.json(&args);
    assert_eq!(json["cdi"]["devices"][0]["name"], "v.com/x=a");
    assert_eq!(json["cdi"]["directories"][0]["path"], *dir);
    world.write("config.toml", "spec-dirs = []\n");
    world.divvy(&args).failed(4, "CONFIG-INVALID", "config.toml:1: spec-dirs");
}

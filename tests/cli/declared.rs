//! `--devices FILE`: devices of the host other than GPUs, by hand.

#![expect(clippy::disallowed_methods, reason = "a test writes its own input")]

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use crate::support::{Ended, WHOLE, World, claim};

const CATS: &str = "examples/devices/cats.yaml";
const CLAIM: &str = "examples/claims/small-white-cat.yaml";

/// A world with this file of devices, `d.yaml`.
fn world(file: &str) -> World {
    let world = World::new();
    world.write("d.yaml", file);
    world.write("c.yaml", example(CLAIM));
    world
}

fn example(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn command(world: &World, binary: &str, args: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command.current_dir(world.path("")).args(args).args(["--devices", "d.yaml"]);
    for dir in ["cdi", "run", "state"] {
        command.arg(format!("--{dir}-dir")).arg(world.path(dir));
    }
    command
}

/// `divvy`, with the file's devices.
fn divvy(world: &World, args: &[&str]) -> Ended {
    let more: &[&str] = if args[0] == "devices" { &["--config", "hook.toml"] } else { &[] };
    let mut command = command(world, env!("CARGO_BIN_EXE_divvy"), &[args, more].concat());
    command.output().unwrap().into()
}

fn json(world: &World, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(divvy(world, &[args, &["-o", "json"]].concat()).ok()).unwrap()
}

/// `divvy-node --once`, with the file's devices; what it said.
fn once(world: &World) -> String {
    let ended = command(world, env!("CARGO_BIN_EXE_divvy-node"), &["--once"]).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    String::from_utf8(ended.stderr).unwrap()
}

/// What is left of claims, beside the copy of the file that divvy-node keeps.
fn left(world: &World) -> Vec<String> {
    world.left().into_iter().filter(|path| !path.contains("state/devices/")).collect()
}

#[test]
fn the_small_white_cat_is_allocated_prepared_given_and_ended() {
    let world = world(&example(CATS));
    let allocated = json(&world, &["allocate", "-f", "c.yaml"]);
    let result = &allocated["status"]["allocation"]["devices"]["results"][0];
    assert_eq!(
        (&result["device"], &result["driver"]),
        (&"cat-0".into(), &"resource-driver.example.com".into())
    );
    let listed = divvy(&world, &["devices"]);
    assert!(listed.ok().contains("driver resource-driver.example.com, declared"), "{listed:?}");
    assert!(listed.ok().contains("color=\"white\" size=\"small\""), "{listed:?}");
    let prepared = json(&world, &["prepare", "-f", "c.yaml"]);
    let uid = prepared["claims"][0]["uid"].as_str().unwrap().to_owned();
    let name = format!("resource-driver.example.com/claim={uid}-cat-0");
    assert_eq!(prepared["claims"][0]["devices"][0]["cdi"], name.as_str());
    let listed = json(&world, &["devices"]);
    assert_eq!(listed["declared"][0]["devices"][0]["claims"][0], "default/small-white-cat");
    assert_eq!(listed["cdi"]["devices"][0]["name"], name.as_str());
    // A second one like it finds none.
    let second = example(CLAIM).replace("name: small-white-cat", "name: second");
    world.write("e.yaml", second);
    let none = divvy(&world, &["prepare", "-f", "e.yaml"]);
    none.failed(1, "NO-DEVICE", "held by claim default/small-white-cat");
    // What its container would be given.
    let config = r#"{"ociVersion": "1.0.0", "process": {"args": ["sh"]}, "linux": {}}"#;
    world.write("config.json", config);
    let spec_dir = world.path("cdi").display().to_string();
    let inject = ["inject", "--device", &name, "--spec-dir", &spec_dir, "config.json"];
    let injected = world.divvy(&inject);
    assert!(injected.ok().contains("CAT_NAME=Snow"), "{injected:?}");
    assert!(once(&world).contains("claim default/small-white-cat: in step"));
    // Ending it needs neither the file nor its name.
    fs::remove_file(world.path("d.yaml")).unwrap();
    let ended = world.divvy(&["unprepare", "small-white-cat"]);
    assert_eq!(ended.ok(), "claim default/small-white-cat: ended\n");
    assert_eq!(left(&world), Vec::<String>::new());
}

#[test]
fn a_cat_that_several_may_pet_is_given_so_often() {
    let world = world(&example(CATS));
    let request = "exactly: {deviceClassName: resource-driver.example.com, selectors: [{cel: \
                   {expression: 'device.allowMultipleAllocations'}}]}";
    for name in ["a", "b", "c", "d"] {
        let text = format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\nspec: \
             {{devices: {{requests: [{{name: r, {request}}}]}}}}\n"
        );
        world.write(&format!("claim-{name}.yaml"), text);
        let prepared = divvy(&world, &["prepare", "-f", &format!("claim-{name}.yaml")]);
        match name {
            "d" => prepared.failed(1, "NO-DEVICE", "laps"),
            _ => assert!(prepared.ok().contains("cat-2"), "{prepared:?}"),
        }
    }
}

#[test]
fn a_file_that_goes_bad_is_said_to_be() {
    let world = world(&example(CATS));
    divvy(&world, &["devices"]).ok();
    assert!(!world.path("state/devices").exists(), "a listing keeps nothing");
    once(&world);
    world.write("d.yaml", "driver: resource-driver.example.com\n");
    divvy(&world, &["devices"]).failed(4, "DEVICES-INVALID", "d.yaml");
    let ended = command(&world, env!("CARGO_BIN_EXE_divvy-node"), &["--once"]).output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("DEVICES-INVALID") && said.contains("still counts"), "{said}");
    // No devices are said in words.
    let none = example(CATS).split("devices:").next().unwrap().to_owned() + "devices: []\n";
    world.write("d.yaml", none);
    assert_eq!(once(&world), "");
}

#[test]
fn a_crash_is_gone_on_with() {
    let world = world(&example(CATS));
    divvy(&world, &["prepare", "-f", "c.yaml"]).ok();
    let dir = "state/drivers/resource-driver.example.com/claims";
    let entry = fs::read_dir(world.path(dir)).unwrap().next().unwrap().unwrap().path();
    let half = fs::read_to_string(&entry).unwrap().replace("\"done\"", "\"started\"");
    fs::write(&entry, half).unwrap();
    assert!(once(&world).contains("was left half done, and is ended"));
    assert_eq!(left(&world), Vec::<String>::new());
    // A reboot.
    divvy(&world, &["prepare", "-f", "c.yaml"]).ok();
    for dir in ["cdi", "run"] {
        fs::remove_dir_all(world.path(dir)).unwrap();
    }
    assert!(once(&world).contains("brought back in step"));
    assert_eq!(json(&world, &["devices"])["cdi"]["devices"].as_array().unwrap().len(), 1);
    // GPUs of the same state directory are none of its business.
    assert!(world.node(&["--once"]).output().unwrap().stderr.is_empty());
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_place() {
    let world = world(&example(CATS).replace("{string: white}", "{text: white}"));
    divvy(&world, &["allocate", "-f", "c.yaml"]).failed(
        4,
        "DEVICES-INVALID",
        "d.yaml:7:26: devices[0].attributes.color.text: unknown field; known are string, int, bool, version",
    );
    world.write("d.yaml", example(CATS));
    fs::set_permissions(world.path("d.yaml"), fs::Permissions::from_mode(0o646)).unwrap();
    divvy(&world, &["devices"]).failed(1, "UNTRUSTED", "d.yaml");
    fs::remove_file(world.path("d.yaml")).unwrap();
    divvy(&world, &["devices"]).failed(1, "UNREADABLE", "d.yaml");
}

#[test]
fn what_the_host_has_not_is_named_when_it_is_to_be_given() {
    let world =
        world(&example("examples/devices/host.yaml").replace("/dev/xdma0_user", "/dev/no-xdma"));
    let text = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: f}\nspec: {devices: \
                {requests: [{name: r, exactly: {deviceClassName: host.example.com}}]}}\n";
    world.write("f.yaml", text);
    let ended = divvy(&world, &["prepare", "-f", "f.yaml"]);
    ended.failed(1, "DEVICE-GONE", "fpga-0: device node /dev/no-xdma is not there");
    assert_eq!(left(&world), Vec::<String>::new());
}

#[test]
fn by_hand_a_claim_is_one_drivers() {
    let world = world(&example(CATS));
    let both = world.divvy(&["prepare", "-f", "c.yaml", "--devices", "d.yaml"]);
    both.failed(2, "USAGE", "by hand a claim is one driver's");
    let two = divvy(&world, &["prepare", "-f", "c.yaml", "--devices", "d.yaml"]);
    two.failed(2, "USAGE", "one file counts");
    // The same name, first on the file's devices and then on GPUs.
    divvy(&world, &["prepare", "-f", "c.yaml"]).ok();
    world.write("g.yaml", claim("small-white-cat", WHOLE, ""));
    world.divvy(&["prepare", "-f", "g.yaml"]).failed(
        1,
        "CLAIM-PREPARED",
        "on devices of driver resource-driver.example.com",
    );
    divvy(&world, &["unprepare", "small-white-cat"]).ok();
    world.divvy(&["prepare", "-f", "g.yaml"]).ok();
}

#[test]
fn configuration_of_a_driver_that_takes_none_is_refused() {
    let world = world(&example(CATS));
    let of = |driver: &str| {
        let config = format!("{{driver: {driver}, parameters: {{apiVersion: x/v1, kind: Y}}}}");
        example(CLAIM) + &format!("    config: [{{opaque: {config}}}]\n")
    };
    world.write("c.yaml", of("resource-driver.example.com"));
    let ended = divvy(&world, &["prepare", "-f", "c.yaml"]);
    ended.failed(4, "CONFIG-UNSUPPORTED", "take no configuration");
    // Another driver's is none of ours.
    world.write("c.yaml", of("gpu.divvy.dev"));
    divvy(&world, &["prepare", "-f", "c.yaml"]).ok();
}

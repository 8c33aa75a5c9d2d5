//! Many at once: all that fits is prepared, nothing is given twice, and what somebody else has is
//! neither taken nor ended.

use std::{fs, process::Child};

use crate::support::{Ended, SMALL, WHOLE, World, claim};

/// A claim for whatever fits.
fn unallocated(name: &str, class: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\n\
         spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: {class}}}}}]}}}}\n"
    )
}

fn ended(children: Vec<Child>) -> Vec<Ended> {
    children.into_iter().map(|child| child.wait_with_output().unwrap().into()).collect()
}

#[test]
fn as_many_as_fit_are_prepared_at_once() {
    let world = World::new();
    world.write("node.toml", "node = \"n\"\n[[gpu]]\nmodel = \"H100-80GB\"\ncount = 4\n[[gpu]]\nmodel = \"H100-80GB\"\nmig = true\n");
    let names: Vec<String> =
        (0..4).map(|n| format!("whole-{n}")).chain((0..7).map(|n| format!("part-{n}"))).collect();
    for name in &names {
        let class = if name.starts_with("whole") { "gpu.divvy.dev" } else { "mig.gpu.divvy.dev" };
        world.write(&format!("{name}.yaml"), unallocated(name, class));
    }
    for round in 0..3 {
        let prepare = |name: &String| {
            world.spawn(&mut world.command(&["prepare", "-f", &format!("{name}.yaml")]))
        };
        for ended in ended(names.iter().map(prepare).collect()) {
            assert_eq!(ended.code, Some(0), "round {round}: {ended:?}");
        }
        let end = |name: &String| world.spawn(&mut world.command(&["unprepare", name]));
        for ended in ended(names.iter().map(end).collect()) {
            assert_eq!(ended.code, Some(0), "round {round}: {ended:?}");
        }
        assert_eq!(world.left(), Vec::<String>::new());
    }
}

#[test]
fn mig_mode_is_switched_to_and_fro_under_many_hands() {
    let world = World::new();
    let claims: Vec<String> = (0..3).map(|n| format!("c{n}")).collect();
    for (n, name) in claims.iter().enumerate() {
        world.write(&format!("{name}.yaml"), claim(name, &format!("{WHOLE}-1g10gb-{n}"), ""));
    }
    for round in 0..8 {
        let both = |name: &String| {
            let (divvy, file) = (env!("CARGO_BIN_EXE_divvy"), format!("{name}.yaml"));
            let places = "--gpus sim:node.toml --state-dir state --cdi-dir cdi --run-dir run";
            let script = format!(
                "{divvy} prepare -f {file} --switch-mig {places} && {divvy} unprepare {name} {places}"
            );
            let mut shell = std::process::Command::new("/bin/sh");
            world.spawn(shell.current_dir(world.path("")).args(["-c", &script]))
        };
        for ended in ended(claims.iter().map(both).collect()) {
            assert_eq!(ended.code, Some(0), "round {round}: {ended:?}");
        }
        assert_eq!(world.left(), Vec::<String>::new());
        let devices = world.json(&["devices"]);
        assert_eq!(devices["node"]["gpus"][0]["mig"], false, "round {round}");
    }
}

#[test]
fn what_another_journal_gave_away_is_not_adopted() {
    let world = World::new();
    world.write("a.yaml", claim("a", SMALL, ""));
    world.json(&["prepare", "-f", "a.yaml"]);
    fs::rename(world.path("state"), world.path("other")).unwrap();
    world.write("b.yaml", claim("b", SMALL, ""));
    for more in [&[][..], &["--adopt-mig"]] {
        let refused = world.divvy(&[&["prepare", "-f", "b.yaml"], more].concat());
        refused.failed(1, "OVERLAP", "another divvy state directory made it");
    }
}

#[test]
fn what_another_journal_gave_away_is_passed_over_where_there_is_more() {
    let world = World::new();
    let any = |name: &str, class: &str| {
        format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\nspec: \
             {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: {class}}}}}]}}}}\n"
        )
    };
    world.write("node.toml", "node = \"n\"\n[[gpu]]\nmodel = \"H100-80GB\"\ncount = 2\n[[gpu]]\nmodel = \"H100-80GB\"\nmig = true\n");
    for (class, second) in [("gpu.divvy.dev", "gpu-0000-43-00"), ("mig.gpu.divvy.dev", "-1g10gb-1")]
    {
        for records in [true, false] {
            world.write("a.yaml", any("a", class));
            world.write("b.yaml", any("b", class));
            world.json(&["prepare", "-f", "a.yaml"]);
            fs::rename(world.path("state"), world.path("other")).unwrap();
            if !records {
                // Its spec alone tells.
                fs::rename(world.path("run"), world.path("away")).unwrap();
            }
            let given = world.json(&["prepare", "-f", "b.yaml"]);
            let device = given["claims"][0]["devices"][0]["device"].as_str().unwrap();
            assert!(device.ends_with(second), "{device}, records: {records}");
            world.divvy(&["unprepare", "b"]).ok();
            if !records {
                fs::remove_dir_all(world.path("run")).unwrap();
                fs::rename(world.path("away"), world.path("run")).unwrap();
            }
            fs::remove_dir_all(world.path("state")).unwrap();
            fs::rename(world.path("other"), world.path("state")).unwrap();
            world.divvy(&["unprepare", "a"]).ok();
            assert_eq!(world.left(), Vec::<String>::new());
        }
    }
}

#[test]
fn a_whole_gpu_of_another_journal_is_not_given_and_who_looks_on_is_in_nobodys_way() {
    let world = World::new();
    let looks_on = claim("on", WHOLE, "").replace("device: gpu", "adminAccess: true, device: gpu");
    world.write("a.yaml", claim("a", WHOLE, ""));
    world.write("on.yaml", looks_on);
    world.write("b.yaml", claim("b", WHOLE, ""));
    world.json(&["prepare", "-f", "on.yaml"]);
    fs::rename(world.path("state"), world.path("other")).unwrap();
    world.json(&["prepare", "-f", "b.yaml"]);
    world.divvy(&["unprepare", "b"]).ok();
    fs::remove_dir_all(world.path("state")).unwrap();
    fs::rename(world.path("other"), world.path("state")).unwrap();
    world.json(&["prepare", "-f", "a.yaml"]);
    fs::rename(world.path("state"), world.path("other")).unwrap();
    let refused = world.divvy(&["prepare", "-f", "b.yaml"]);
    refused.failed(1, "OVERLAP", "is held by claim default/a (");
    refused.failed(1, "OVERLAP", "another divvy state directory made it");
}

#[test]
fn what_somebody_removed_from_the_index_is_back_after_a_round() {
    let world = World::new();
    world.write("a.yaml", claim("a", WHOLE, ""));
    world.write("b.yaml", claim("b", WHOLE, ""));
    world.json(&["prepare", "-f", "a.yaml"]);
    let boot = fs::read_dir(world.path("state/index")).unwrap().next().unwrap().unwrap();
    fs::remove_dir_all(boot.path().join("gpus")).unwrap();
    assert!(world.node(&["--once"]).status().unwrap().success());
    world.divvy(&["prepare", "-f", "b.yaml"]).failed(1, "OVERLAP", "default/a");
}

#[test]
fn whatever_lies_among_the_entries_is_set_aside() {
    let world = World::new();
    world.write("a.yaml", claim("a", SMALL, ""));
    world.json(&["prepare", "-f", "a.yaml"]);
    fs::create_dir(world.path("state/claims/dir")).unwrap();
    fs::create_dir(world.path("state/claims/x.json")).unwrap();
    for name in ["..json", "a\u{1b}b.json", "-.json"] {
        world.write(&format!("state/claims/{name}"), "");
    }
    world.write("state/claims/large.json", vec![b' '; (1 << 20) + 1]);
    // As after a reboot.
    fs::remove_dir_all(world.path("state/index")).unwrap();
    for _ in 0..2 {
        let once = world.node(&["--once"]).output().unwrap();
        assert_eq!(once.status.code(), Some(0), "{once:?}");
    }
    assert_eq!(fs::read_dir(world.path("state/claims")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(world.path("state/damaged")).unwrap().count(), 6);
    world.divvy(&["unprepare", "a"]).ok();
}

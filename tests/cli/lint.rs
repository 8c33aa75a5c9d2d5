use crate::support::World;

const GOOD: &str =
    "cdiVersion: 1.0.0\nkind: v.com/x\ndevices:\n- name: a\n  containerEdits: {env: [A=b]}\n";

#[test]
fn a_good_file_is_said_to_be_good() {
    let world = World::new();
    world.write("good.yaml", GOOD);
    assert_eq!(
        world.divvy(&["lint", "good.yaml"]).ok(),
        "good.yaml: valid, 1 device, CDI 1.0.0, its fields need 0.3.0\n0 errors, 0 warnings\n"
    );
    let json = world.json(&["lint", "good.yaml"]);
    assert_eq!((&json["errors"], &json["valid"][0]["needs"]), (&0.into(), &"0.3.0".into()));
}

#[test]
fn every_problem_of_every_path_is_listed() {
    let world = World::new();
    world.write("specs/good.yaml", GOOD);
    world.write("specs/twin.yaml", GOOD);
    world.write(
        "bad.json",
        r#"{"cdiVersion":"0.3.0","kind":"x","devices":[{"name":"a b"}],"oops":1}"#,
    );
    let ended = world.divvy(&["lint", "bad.json", "specs", "none.yaml"]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    for says in [
        "error[SPEC-INVALID]: bad.json:1:",
        "error[CONFLICT]: specs/good.yaml",
        "error[CONFLICT]: specs/twin.yaml",
        "error[UNREADABLE]: none.yaml: no such file",
    ] {
        assert!(ended.out.contains(says), "{says}: {}", ended.out);
    }
    assert!(
        ended.out.lines().filter(|line| line.contains("bad.json")).count() >= 3,
        "{}",
        ended.out
    );
    let json = world.divvy(&["lint", "bad.json", "-o", "json"]);
    assert_eq!(json.code, Some(4));
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["problems"][0]["code"], "SPEC-INVALID");
    assert!(json["problems"][0]["at"]["line"].is_u64());
}

#[test]
fn an_empty_directory_is_not_passed_over_in_silence() {
    let world = World::new();
    std::fs::create_dir(world.path("specs")).unwrap();
    assert!(
        world.divvy(&["lint", "specs"]).ok().starts_with("warning[EMPTY]: specs: no spec file")
    );
}

#[test]
fn common_mistakes_are_called_what_they_are() {
    let world = World::new();
    let said = |name: &str, text: &str| {
        world.write(name, text);
        let ended = world.divvy(&["lint", name]);
        assert_eq!(ended.code, Some(4), "{ended:?}");
        ended.out
    };
    let claim = crate::support::claim("a", "b", "");
    assert_eq!(
        said("claim.yaml", &(claim.clone() + &claim)),
        "error[SPEC-INVALID]: claim.yaml: \"ResourceClaim\" of \"resource.k8s.io/v1\" is a Kubernetes \
         manifest, not a CDI spec\n1 error, 0 warnings\n"
    );
    for (text, says) in [
        (GOOD.replace("v.com/x", "x"), "missing class, a kind is vendor/class\n"),
        ("cdiVersion: 1.0.0\nkind: v.com/x\ndevices: []\n".to_owned(), "at least one device must"),
        ("{\"cdiVersion\": \"1.0.0\",".to_owned(), "neither JSON nor YAML: "),
    ] {
        let out = said("bad.json", &text);
        assert!(out.starts_with("error[SPEC-INVALID]: bad.json:"), "{out}");
        assert!(out.contains(says), "{out}");
    }
}

#[test]
fn what_cannot_be_read_ends_as_it_does_elsewhere() {
    let world = World::new();
    assert_eq!(world.divvy(&["lint", "none.yaml"]).code, Some(1));
    assert_eq!(world.divvy(&["prepare", "-f", "none.yaml"]).code, Some(1));
    world.write("bad.json", "{bad");
    assert_eq!(world.divvy(&["lint", "none.yaml", "bad.json"]).code, Some(4));
}

#[test]
fn a_name_begins_no_line_of_its_own() {
    let world = World::new();
    world.write("specs/a\nb.json", "{bad");
    world.write("specs/c\n0 errors.yaml", GOOD);
    let ended = world.divvy(&["lint", "specs"]);
    assert!(ended.out.contains("specs/a\\nb.json:1:"), "{ended:?}");
    assert!(ended.out.contains("specs/c\\n0 errors.yaml: valid"), "{ended:?}");
    let devices = world.divvy(&["devices", "--spec-dir", "specs"]);
    assert!(devices.ok().contains("specs/c\\n0 errors.yaml\n"), "{devices:?}");
}

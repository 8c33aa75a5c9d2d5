use super::*;

fn spec(bytes: &[u8]) -> Result<Parsed, Vec<String>> {
    let shown = |problems: Vec<Problem>| problems.iter().map(ToString::to_string).collect();
    read(Path::new("x.yaml"), bytes).map_err(shown)
}

/// A spec of one device, with these lines in its edits.
fn with_edits(version: &str, edits: &str) -> Result<Parsed, Vec<String>> {
    spec(
        format!(
            "cdiVersion: {version}\nkind: v.com/cc\ndevices:\n- name: d\n  containerEdits:\n{}",
            edits.lines().map(|line| format!("    {line}\n")).collect::<String>()
        )
        .as_bytes(),
    )
}

fn good(version: &str, edits: &str) -> (Spec, Vec<String>) {
    let parsed = with_edits(version, edits).unwrap_or_else(|errors| panic!("{edits}: {errors:#?}"));
    (parsed.spec, parsed.warnings.iter().map(ToString::to_string).collect())
}

/// The one error of a spec, which must hold these words.
#[track_caller]
fn bad(result: Result<Parsed, Vec<String>>, words: &str) {
    let errors = result.expect_err(words);
    assert!(errors.len() == 1 && errors[0].contains(words), "wanted {words:?}: {errors:#?}");
}

fn top(lines: &str) -> Result<Parsed, Vec<String>> {
    spec(
        format!("{lines}\nkind: v.com/cc\ndevices: [{{name: d, containerEdits: {{env: [A=1]}}}}]")
            .as_bytes(),
    )
}

#[test]
fn every_field_is_read() {
    let yaml = br#"
cdiVersion: "1.1.0"
kind: v.com/cc.x
annotations: {a.b/c: d}
containerEdits:
  env: [A=1]
devices:
- name: d0
  annotations:
    k: "1"
  containerEdits:
    env: [B=2, "C="]
    deviceNodes:
    - {path: /dev/a, hostPath: /dev/b, type: c, major: 1, minor: 3, fileMode: 0660, permissions: rw, uid: 0, gid: 5}
    - path: /dev/c
    netDevices:
    - {hostInterfaceName: eth0, name: e0}
    hooks:
    - {hookName: createContainer, path: /bin/h, args: [h, x], env: [D=3], timeout: 5}
    mounts:
    - {hostPath: /a, containerPath: /b, type: tmpfs, options: [ro, bind]}
    intelRdt: {closID: x, l3CacheSchema: l3, memBwSchema: mb, schemata: [s], enableMonitoring: true}
    additionalGids: [7, 8]
"#;
    let Parsed { spec, warnings } = spec(yaml).unwrap();
    assert_eq!(warnings, []);
    let json = serde_json::to_value(&spec).unwrap();
    let wanted = serde_json::json!({
        "cdiVersion": "1.1.0",
        "kind": "v.com/cc.x",
        "annotations": {"a.b/c": "d"},
        "containerEdits": {"env": ["A=1"]},
        "devices": [{
            "name": "d0",
            "annotations": {"k": "1"},
            "containerEdits": {
                "env": ["B=2", "C="],
                "deviceNodes": [
                    {"path": "/dev/a", "hostPath": "/dev/b", "type": "c", "major": 1, "minor": 3,
                     "fileMode": 432, "permissions": "rw", "uid": 0, "gid": 5},
                    {"path": "/dev/c"}
                ],
                "netDevices": [{"hostInterfaceName": "eth0", "name": "e0"}],
                "hooks": [{"hookName": "createContainer", "path": "/bin/h", "args": ["h", "x"],
                           "env": ["D=3"], "timeout": 5}],
                "mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "tmpfs",
                            "options": ["ro", "bind"]}],
                "intelRdt": {"closID": "x", "l3CacheSchema": "l3", "memBwSchema": "mb",
                             "schemata": ["s"], "enableMonitoring": true},
                "additionalGids": [7, 8]
            }
        }]
    });
    assert_eq!(json, wanted);
    // And what was written is read again as the same.
    let again = read(Path::new("x"), &serde_json::to_vec(&spec).unwrap()).unwrap();
    assert_eq!(again.spec, spec);
}

// --- C: versions and documents ---

#[test]
fn c1_to_c3_versions() {
    for version in Version::ALL {
        for text in [version.to_string(), format!("v{version}")] {
            let parsed = top(&format!("cdiVersion: {text}")).unwrap();
            assert_eq!(parsed.spec.version, version);
        }
    }
    for text in ["vv0.3.0", "V0.3.0", "\"0.3\"", "0.3.1", "1.0.0+x", "\"\""] {
        bad(top(&format!("cdiVersion: {text}")), "is no version of CDI");
    }
    bad(top(""), "cdiVersion: is missing");
    bad(top("cdiVersion: 0.1.0"), "older than 0.3.0");
    bad(top("cdiVersion: v0.2.0"), "older than 0.3.0");
}

#[test]
fn c2_a_newer_version_has_its_own_code_and_no_unknown_fields() {
    for text in ["1.2.0", "v2.0.0", "1.1.1"] {
        let bytes = format!(
            "cdiVersion: {text}\nkind: v.com/cc\nnew: 1\ndevices: [{{name: d, new: 2, containerEdits: {{env: [A=1]}}}}]"
        );
        let errors = read(Path::new("x"), bytes.as_bytes()).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:#?}");
        assert_eq!(errors[0].code, "SPEC-VERSION");
        assert!(errors[0].message.contains("newer than 1.1.0"));
    }
}

#[test]
fn c4_to_c15_each_field_needs_its_version() {
    for (too_old, enough, edits) in [
        ("0.3.0", "0.4.0", "mounts: [{hostPath: /a, containerPath: /b, type: bind}]"),
        ("0.4.0", "0.5.0", "deviceNodes: [{path: /a, hostPath: /x}]"),
        ("0.6.0", "0.7.0", "additionalGids: [5]"),
        ("0.6.0", "0.7.0", "additionalGids: [0]"),
        ("0.6.0", "0.7.0", "intelRdt: {}"),
        ("1.0.0", "1.1.0", "intelRdt: {schemata: []}"),
        ("1.0.0", "1.1.0", "intelRdt: {enableMonitoring: true}"),
        ("1.0.0", "1.1.0", "netDevices: [{hostInterfaceName: a, name: b}]"),
    ] {
        bad(with_edits(too_old, edits), &format!("needs {enough}"));
        good(enough, edits);
    }
    for (version, edits) in [
        ("0.3.0", "mounts: [{hostPath: /a, containerPath: /b, type: \"\"}]"),
        ("0.4.0", "deviceNodes: [{path: /a, hostPath: \"\"}]"),
        ("0.7.0", "intelRdt: {enableMonitoring: false}"),
        ("0.3.0", "{env: [A=1], netDevices: []}"),
        ("0.3.0", "deviceNodes: [{path: /a, permissions: none}]"),
    ] {
        good(version, edits);
    }
    let device = |version: &str, name: &str| {
        spec(format!("cdiVersion: {version}\nkind: v.com/cc\ndevices: [{{name: \"{name}\", containerEdits: {{env: [A=1]}}}}]").as_bytes())
    };
    bad(device("0.4.0", "0"), "a device name with a digit first needs 0.5.0");
    assert!(device("0.5.0", "0").is_ok());
    assert!(device("0.3.0", "a:b").is_ok());
    bad(top("cdiVersion: 0.5.0\nannotations: {k: \"1\"}"), "annotations needs 0.6.0");
    assert!(top("cdiVersion: 0.5.0\nannotations: {}").is_ok());
    let kind = |version: &str, kind: &str| {
        spec(format!("cdiVersion: {version}\nkind: {kind}\ndevices: [{{name: d, containerEdits: {{env: [A=1]}}}}]").as_bytes())
    };
    bad(kind("0.5.0", "v/c.d"), "a class with a dot needs 0.6.0");
    assert!(kind("0.3.0", "v.com/c").is_ok());
    // The newest wins.
    bad(
        with_edits("0.3.0", "{additionalGids: [5], netDevices: [{hostInterfaceName: a, name: b}]}"),
        "netDevices needs 1.1.0",
    );
}

#[test]
fn c13_and_c17_unknown_fields_name_the_known_one() {
    bad(
        with_edits("1.1.0", "{env: [A=1], intelRdt: {enableCMT: true}}"),
        "CDI 0.7.0 to 1.0.0 had it",
    );
    bad(
        with_edits("0.7.0", "{env: [A=1], intelRdt: {enableMBM: true}}"),
        "CDI 0.7.0 to 1.0.0 had it",
    );
    bad(with_edits("0.5.0", "{env: [A=1], mount: []}"), "did you mean \"mounts\"?");
    bad(with_edits("0.5.0", "{env: [A=1], DeviceNodes: []}"), "it is spelled \"deviceNodes\"");
    bad(with_edits("0.5.0", "{env: [A=1], zzz: []}"), "known are env, deviceNodes");
    bad(top("cdiVersion: 0.5.0\nfoo: 1"), "x.yaml:2:1: unknown field \"foo\"");
    bad(with_edits("0.5.0", "deviceNodes: [{path: /a, mode: 1}]"), "unknown field \"mode\"");
}

#[test]
fn c18_a_key_twice() {
    bad(
        top("cdiVersion: 0.5.0\ncdiVersion: 0.5.0"),
        "x.yaml:2:1: the key \"cdiVersion\" is there twice",
    );
    bad(with_edits("0.5.0", "env: [A=1]\nenv: [B=1]"), "the key \"env\" is there twice");
    let json = r#"{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[{"name":"d","name":"d","containerEdits":{"env":["A=1"]}}]}"#;
    bad(spec(json.as_bytes()), "x.yaml:1:63: device \"d\": the key \"name\" is there twice");
    bad(top("cdiVersion: 0.6.0\nannotations:\n  a: b\n  a: c"), "the key \"a\" is there twice");
}

#[test]
fn c19_one_other_spelling_is_taken() {
    let (spec, warnings) = good("0.7.0", "additionalGIDs: [5]");
    assert_eq!(spec.devices[0].container_edits.additional_gids, [5]);
    assert!(warnings.len() == 1 && warnings[0].contains("additionalGIDs"), "{warnings:?}");
    bad(with_edits("0.7.0", "{additionalGids: [5], additionalGIDs: [5]}"), "is there twice");
    let lower = spec_of_lower_case();
    assert!(lower.unwrap_err().iter().any(|error| error.contains("it is spelled \"cdiVersion\"")));
}

fn spec_of_lower_case() -> Result<Parsed, Vec<String>> {
    spec(b"CDIVersion: 0.5.0\nkind: v.com/cc\ndevices: [{name: d, containerEdits: {env: [A=1]}}]")
}

#[test]
fn c21_only_one_document() {
    let one =
        "cdiVersion: 0.5.0\nkind: v.com/cc\ndevices: [{name: d, containerEdits: {env: [A=1]}}]\n";
    bad(spec(format!("{one}---\n{one}").as_bytes()), "a second document");
    assert!(spec(format!("---\n{one}---\n").as_bytes()).is_ok());
    assert!(spec(format!("{one}...\n").as_bytes()).is_ok());
    let json = r#"{"cdiVersion":"0.5.0","kind":"v.com/cc","devices":[{"name":"d","containerEdits":{"env":["A=1"]}}]}"#;
    assert!(spec(json.as_bytes()).is_ok());
    for garbage in ["x", "}", "{}", ",", "\n]"] {
        assert!(spec(format!("{json}{garbage}").as_bytes()).is_err(), "{garbage}");
    }
}

#[test]
fn c22_yaml_and_json_by_content() {
    let json = "\u{feff}{\n\t\"cdiVersion\":\t\"0.5.0\", \"kind\": \"v.com/cc\",\n\t\"devices\": [{\"name\": \"d\",\n\t\t\"containerEdits\": {\"env\": [\"A=1\"]}}]}";
    assert!(spec(json.as_bytes()).is_ok(), "{:?}", spec(json.as_bytes()));
    assert!(spec(&json.as_bytes()[3..]).is_ok());
    assert!(spec(format!("# a comment\n{}", &json[3..]).as_bytes()).is_ok());
    let anchors = "cdiVersion: 0.5.0\nkind: v.com/cc\ndevices:\n- name: a\n  containerEdits: &e {env: [A=1]}\n- name: b\n  containerEdits: *e\n- name: c\n  containerEdits: {<<: *e, mounts: []}\n";
    let spec = spec(anchors.as_bytes()).unwrap().spec;
    assert!(spec.devices.iter().all(|device| device.container_edits.env == ["A=1"]));
}

#[test]
fn c23_a_word_without_quotes_keeps_its_spelling_and_warns() {
    for (text, warns) in [
        ("010", true),
        ("yes", true),
        ("1e3", true),
        ("1.10", true),
        ("True", true),
        ("ab", false),
        ("\"010\"", false),
        ("\"yes\"", false),
    ] {
        let bytes = format!(
            "cdiVersion: 0.5.0\nkind: v.com/cc\ndevices: [{{name: {text}, containerEdits: {{env: [A=1]}}}}]"
        );
        let Parsed { spec, warnings } = spec(bytes.as_bytes()).unwrap();
        assert_eq!(spec.devices[0].name, text.trim_matches('"'));
        assert_eq!(warnings.len(), usize::from(warns), "{warnings:?}");
    }
}

#[test]
fn c25_numbers() {
    for (field, bad_value) in [
        ("gid", "-1"),
        ("uid", "4294967296"),
        ("major", "\"1\""),
        ("minor", "1.5"),
        ("fileMode", "\"0660\""),
        ("fileMode", "-1"),
        ("fileMode", "4294967296"),
        ("major", "true"),
        ("major", "9223372036854775808"),
        ("uid", "[1]"),
    ] {
        let edits = format!("deviceNodes: [{{path: /a, {field}: {bad_value}}}]");
        bad(with_edits("0.5.0", &edits), &format!("containerEdits.deviceNodes[0].{field}"));
    }
    for (text, mode) in
        [("0660", 0o660), ("0o660", 0o660), ("0x1F", 31), ("1e2", 100), ("438", 438)]
    {
        let (spec, _) = good("0.5.0", &format!("deviceNodes: [{{path: /a, fileMode: {text}}}]"));
        assert_eq!(spec.devices[0].container_edits.device_nodes[0].file_mode, Some(mode));
    }
    let (spec, _) = good("0.5.0", "deviceNodes: [{path: /a, fileMode: null, uid: ~, gid: 0}]");
    let node = &spec.devices[0].container_edits.device_nodes[0];
    assert_eq!((node.file_mode, node.uid, node.gid), (None, None, Some(0)));
    bad(with_edits("0.5.0", "deviceNodes: [{path: /a, major: -1}]"), "-1 is no device number");
}

#[test]
fn c26_edits_of_the_whole_spec() {
    for good in ["null", "{}", "{env: null}"] {
        assert!(top(&format!("cdiVersion: 0.5.0\ncontainerEdits: {good}")).is_ok());
    }
    bad(top("cdiVersion: 0.5.0\ncontainerEdits: []"), "must be an object, not a list");
}

#[test]
fn c27_null_elements() {
    for list in ["deviceNodes", "hooks", "mounts", "netDevices", "env", "additionalGids"] {
        bad(
            with_edits("1.1.0", &format!("{list}: [null]")),
            &format!("device \"d\": containerEdits.{list}[0]: null is no element"),
        );
    }
    bad(
        spec(b"cdiVersion: 0.5.0\nkind: v.com/cc\ndevices: [null]"),
        "devices[0]: null is no element",
    );
}

#[test]
fn files_without_a_spec() {
    for nothing in ["", "\n", "# only this\n", "null", "~\n", "---\n", "\u{feff}"] {
        bad(spec(nothing.as_bytes()), "no spec: the file is empty");
    }
    for other in ["[]", "x", "1", "- a"] {
        assert!(spec(other.as_bytes()).unwrap_err()[0].contains("must be an object"), "{other}");
    }
    let errors = spec(b"{}").unwrap_err();
    assert_eq!(errors.len(), 3, "{errors:#?}");
}

// --- D: values ---

#[test]
fn d1_to_d3_devices() {
    let head = "cdiVersion: 0.5.0\nkind: v.com/cc\ncontainerEdits: {env: [A=1]}\n";
    for none in ["", "devices: []", "devices: null"] {
        bad(spec(format!("{head}{none}").as_bytes()), "at least one device");
    }
    let twice = "devices: [{name: d, containerEdits: {env: [A=1]}}, {name: d, containerEdits: {env: [A=1]}}]";
    bad(
        spec(format!("{head}{twice}").as_bytes()),
        "x.yaml:4:59: device \"d\": name: the name is taken by devices[0]",
    );
    for empty in
        ["{name: d, containerEdits: {}}", "{name: d}", "{name: d, containerEdits: {env: []}}"]
    {
        bad(spec(format!("{head}devices: [{empty}]").as_bytes()), "a device without edits");
    }
    good("0.7.0", "intelRdt: {}");
}

#[test]
fn d5_to_d16_values() {
    for (edits, words) in [
        ("env: [A]", "env[0]: \"A\" is not KEY=value"),
        ("env: [=1]", "is not KEY=value"),
        ("env: [\"\"]", "is not KEY=value"),
        ("deviceNodes: [{path: \"\"}]", "path: must not be empty"),
        ("deviceNodes: [{}]", "path: is missing"),
        ("deviceNodes: [{path: /a, type: char}]", "no device type"),
        ("deviceNodes: [{path: /a, type: C}]", "no device type"),
        ("deviceNodes: [{path: /a, permissions: R}]", "only r, w and m"),
        ("deviceNodes: [{path: /a, permissions: r w}]", "only r, w and m"),
        ("deviceNodes: [{path: /a, permissions: rwmnone}]", "only r, w and m"),
        ("hooks: [{hookName: Prestart, path: /a}]", "is no hook"),
        ("hooks: [{hookName: \"\", path: /a}]", "is no hook"),
        ("hooks: [{path: /a}]", "hookName: is missing"),
        ("hooks: [{hookName: poststop, path: \"\"}]", "path: must not be empty"),
        ("hooks: [{hookName: poststop, path: /a, env: [A]}]", "hooks[0].env[0]"),
        (
            "mounts: [{hostPath: \"\", containerPath: /a, options: [bind]}]",
            "hostPath: must not be empty",
        ),
        ("mounts: [{hostPath: /a, options: [bind]}]", "containerPath: is missing"),
        (
            "netDevices: [{hostInterfaceName: a, name: b}, {hostInterfaceName: a, name: c}]",
            "netDevices[1].hostInterfaceName: \"a\" is taken by netDevices[0]",
        ),
        (
            "netDevices: [{hostInterfaceName: a, name: b}, {hostInterfaceName: c, name: b}]",
            "netDevices[1].name",
        ),
        ("netDevices: [{hostInterfaceName: a, name: \"\"}]", "must not be empty"),
        ("intelRdt: {closID: a/b}", "closID"),
        ("intelRdt: {closID: ..}", "closID"),
    ] {
        bad(with_edits("1.1.0", edits), words);
    }
    for edits in [
        "env: [A=, \" =1\", A=b=c]",
        "deviceNodes: [{path: /a, type: \"\", permissions: \"\"}, {path: /b, type: u, major: 1, permissions: rr}, {path: /c, type: p}, {path: /d, permissions: none}]",
        "hooks: [{hookName: createRuntime, path: /a}, {hookName: startContainer, path: /a}, {hookName: poststart, path: /a}]",
        "intelRdt: {closID: /}",
    ] {
        let (_, warnings) = good("1.1.0", edits);
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}

#[test]
fn what_cdi_asks_for_and_nobody_enforces_warns() {
    for (edits, words) in [
        ("deviceNodes: [{path: dev/null}]", "deviceNodes[0].path: \"dev/null\" is not absolute"),
        ("hooks: [{hookName: poststop, path: relative/p}]", "not absolute"),
        ("hooks: [{hookName: poststop, path: /p, timeout: 0}]", "not above 0"),
        ("hooks: [{hookName: poststop, path: /p, timeout: -1}]", "not above 0"),
        ("hooks: [{hookName: prestart, path: /p}]", "deprecated"),
        ("mounts: [{hostPath: /a, containerPath: b, options: [bind]}]", "not absolute"),
        ("mounts: [{hostPath: /a, containerPath: /b}]", "mounts[0]: a mount without type"),
        ("netDevices: [{hostInterfaceName: a/b toolong, name: b}]", "Linux"),
        ("env: [\"A=\\0\"]", "NUL"),
        ("additionalGids: [0]", "skipped"),
        ("deviceNodes: [{path: /a, fileMode: 10000}]", "octal"),
    ] {
        let (_, warnings) = good("1.1.0", edits);
        assert!(warnings.len() == 1 && warnings[0].contains(words), "{words}: {warnings:?}");
    }
    let name = "n".repeat(64);
    let bytes = format!(
        "cdiVersion: 0.5.0\nkind: v.com/cc\ndevices: [{{name: {name}, containerEdits: {{env: [A=1]}}}}]"
    );
    assert!(spec(bytes.as_bytes()).unwrap().warnings[0].message.contains("63"));
}

#[test]
fn d23_annotations_off_the_rule_of_kubernetes_are_warned_of() {
    let warnings = |pair: String| {
        let parsed = top(&format!("cdiVersion: 0.6.0\nannotations: {{{pair}}}")).expect("a spec");
        parsed.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for key in ["bad key!!", "-a", "a-", "a/b/c", "/a", "UP..x/a", "_x/a", "a/"] {
        let found = warnings(format!("\"{key}\": v"));
        assert!(found.len() == 1 && found[0].contains("annotations["), "{key}: {found:?}");
    }
    for key in ["a", "A.b-c_d", "EXAMPLE.com/Name"] {
        assert_eq!(warnings(format!("{key}: v")), [""; 0]);
    }
    let long = warnings(format!("a: {}", "v".repeat(256 << 10)));
    assert!(long.len() == 1 && long[0].contains("at most 262144"), "{long:?}");
}

#[test]
fn all_errors_of_a_file_are_listed_in_its_order() {
    let yaml = b"cdiVersion: 0.3.0\nkind: 1v/c\ndevices:\n- name: d0\n  containerEdits:\n    env: [X]\n    deviceNodes:\n    - path: /a\n      hostPath: /b\n- name: d1\n  contanerEdits: {}\n- name: d2\n  containerEdits:\n    mounts: {}\n    hooks:\n    - hookName: never\n      path: [x]\n";
    let errors = spec(yaml).unwrap_err();
    let wanted = [
        "x.yaml:1:13: cdiVersion: declares 0.3.0, but deviceNodes[].hostPath needs 0.5.0",
        "x.yaml:2:7: kind: \"1v/c\": vendor \"1v\": must start with a letter",
        "x.yaml:6:11: device \"d0\": containerEdits.env[0]: \"X\" is not KEY=value",
        "x.yaml:10:3: device \"d1\": containerEdits: a device without edits; the edits of the whole spec do not count",
        "x.yaml:11:3: device \"d1\": unknown field \"contanerEdits\": did you mean \"containerEdits\"?",
        "x.yaml:14:13: device \"d2\": containerEdits.mounts: must be a list, not an object",
        "x.yaml:16:17: device \"d2\": containerEdits.hooks[0].hookName: \"never\" is no hook: prestart, createRuntime, createContainer, startContainer, poststart, poststop",
        "x.yaml:17:13: device \"d2\": containerEdits.hooks[0].path: must be a text, not a list",
    ];
    assert_eq!(errors, wanted);
}

#[test]
fn a_million_errors_are_not_kept() {
    let head = "{\"cdiVersion\":\"0.5.0\",\"kind\":\"v/c\",\"devices\":[{\"name\":\"d\",\"containerEdits\":{\"env\":[";
    let bytes = format!("{head}{}\"A=1\"]}}}}]}}", "\"x\",".repeat(100_000));
    let errors = spec(bytes.as_bytes()).unwrap_err();
    assert_eq!(errors.len(), 101);
    assert_eq!(errors[100], "x.yaml: and more like these");
}

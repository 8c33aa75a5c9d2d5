//! What edits do to the text: environment, hooks, groups, RDT, interfaces, and everything else.

use serde_json::{Value, json};

use super::{UNCHECKED, changes, edit, edit_with, host, minimal, refusal, resolution};

#[test]
fn a_variable_is_replaced_in_its_place_and_a_new_one_is_appended() {
    let mut config = minimal();
    config["process"]["env"] = json!(["A=0", "B", "A=1", "Cü=\"\\"]);
    let edited = edit(&config, "{env: ['N=1', A=dev, 'Cü=2', B=3, N=2]}");
    assert_eq!(edited["process"]["env"], json!(["A=0", "B=3", "A=dev", "Cü=2", "N=2"]));
}

#[test]
fn a_variable_of_the_device_stands_where_the_file_put_it() {
    let text = minimal().to_string();
    let config = crate::oci::Config::parse(text.as_bytes()).unwrap();
    let both = resolution("{env: [A=d, B=1]}", "{env: [A=g, C=1]}");
    let edited = super::apply(&config, &both, &host(&[]), UNCHECKED).unwrap();
    let value: Value = serde_json::from_slice(&edited.bytes).unwrap();
    assert_eq!(value["process"]["env"], json!(["PATH=/bin", "A=d", "C=1", "B=1"]));
    assert_eq!(
        changes(&minimal(), &both),
        [
            "/process/env/1 added by device \"d\" of /etc/cdi/v.yaml",
            "/process/env/2 added by global edits of /etc/cdi/v.yaml",
            "/process/env/3 added by device \"d\" of /etc/cdi/v.yaml",
        ]
    );
}

#[test]
fn every_other_byte_stays() {
    let before = "\t{ \"zeta\" : [1.50, -0e0,\"\\u00e9\\/\"] ,\r\n  \"ociVersion\":\"9.9\", \
                  \"process\":{\"cwd\":\"/\",\"user\":{ }, \"env\":[ \"A\\u003d1\" ], \"new\":{}},\
                  \"linux\":{},\"linux.x\":null, \"root\":{\"path\":\"r\"}}\n ";
    let after =
        edit_with(before, "{env: [B=2], additionalGids: [7]}", &host(&[]), UNCHECKED).unwrap();
    let expected = before
        .replace("[ \"A\\u003d1\" ]", "[ \"A\\u003d1\", \"B=2\" ]")
        .replace("{ }", "{\"additionalGids\":[7] }");
    assert_eq!(after, expected);
}

#[test]
fn a_pretty_config_stays_pretty() {
    let before = "{\n  \"process\": {\n    \"cwd\": \"/\",\n    \"user\": {\n      \"uid\": 0,\n      \
                  \"gid\": 0\n    },\n    \"env\": [\n      \"A=1\"\n    ]\n  },\n  \
                  \"ociVersion\": \"1.0.0\"\n}\n";
    let after =
        edit_with(before, "{env: [B=2], additionalGids: [7]}", &host(&[]), UNCHECKED).unwrap();
    assert_eq!(
        after,
        "{\n  \"process\": {\n    \"cwd\": \"/\",\n    \"user\": {\n      \"uid\": 0,\n      \
         \"gid\": 0,\n      \"additionalGids\":[7]\n    },\n    \"env\": [\n      \"A=1\",\n      \
         \"B=2\"\n    ]\n  },\n  \"ociVersion\": \"1.0.0\"\n}\n"
    );
}

#[test]
fn what_is_missing_is_made() {
    let edits = "{env: [A=1], additionalGids: [0, 7, 7], deviceNodes: [{path: /dev/x}], \
                 mounts: [{hostPath: /h, containerPath: /c}], intelRdt: {closID: q}, \
                 hooks: [{hookName: poststop, path: /bin/h}], \
                 netDevices: [{hostInterfaceName: eth1, name: e0}]}";
    let null = r#"{"ociVersion":"1.2.0","process":null,"mounts":null,"linux":null,"hooks":null}"#;
    let inner = r#"{"ociVersion":"1.2.0","process":{"user":null,"env":null,"cwd":""},"mounts":[],
        "linux":{"devices":null,"resources":null,"netDevices":null,"intelRdt":null},
        "hooks":{"poststop":null}}"#;
    let mut expected = json!({
        "ociVersion": "1.2.0",
        "process": {"user": {"uid": 0, "gid": 0, "additionalGids": [7]}, "cwd": "", "env": ["A=1"]},
        "mounts": [{"destination": "/c", "source": "/h"}],
        "hooks": {"poststop": [{"path": "/bin/h"}]},
        "linux": {
            "devices": [{"path": "/dev/x", "type": "c", "major": 1, "minor": 3, "fileMode": 438}],
            "resources": {"devices": [
                {"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm"},
            ]},
            "netDevices": {"eth1": {"name": "e0"}},
            "intelRdt": {"closID": "q"},
        },
    });
    for before in [r#"{"ociVersion":"1.2.0"}"#, null, inner] {
        let after = edit_with(before, edits, &host(&[]), UNCHECKED).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&after).unwrap(), expected, "{before}");
    }
    // An edit of the environment alone still makes a process that is one.
    let after =
        edit_with(r#"{"ociVersion":"1.2.0"}"#, "{env: [A=1]}", &host(&[]), UNCHECKED).unwrap();
    expected["process"]["user"].as_object_mut().unwrap().remove("additionalGids");
    assert_eq!(serde_json::from_str::<Value>(&after).unwrap()["process"], expected["process"]);
}

#[test]
fn hooks_keep_their_order_in_their_lists_and_none_runs_twice() {
    let mut config = minimal();
    let there = json!({"timeout": 5, "path": "/bin/a", "args": ["a", "x"], "env": []});
    config["hooks"] = json!({"createRuntime": [there.clone()], "poststop": [{"path": "/bin/z"}]});
    let edited = edit(
        &config,
        "{hooks: [{hookName: createRuntime, path: /bin/b, env: [A=1], timeout: 0}, \
          {hookName: createRuntime, path: /bin/a, args: [a, x], timeout: 5}, \
          {hookName: createRuntime, path: /bin/b, env: [A=1], timeout: 0}, \
          {hookName: prestart, path: /bin/p}, {hookName: createContainer, path: /bin/c}, \
          {hookName: startContainer, path: /bin/s}, {hookName: poststart, path: /bin/t}, \
          {hookName: poststop, path: /bin/z, args: [other]}]}",
    );
    assert_eq!(
        edited["hooks"],
        json!({
            "createRuntime": [there, {"path": "/bin/b", "env": ["A=1"], "timeout": 0}],
            "poststop": [{"path": "/bin/z"}, {"path": "/bin/z", "args": ["other"]}],
            "prestart": [{"path": "/bin/p"}],
            "createContainer": [{"path": "/bin/c"}],
            "startContainer": [{"path": "/bin/s"}],
            "poststart": [{"path": "/bin/t"}],
        })
    );
}

#[test]
fn groups_are_added_once_and_root_never() {
    let mut config = minimal();
    config["process"]["user"]["additionalGids"] = json!([10, 0]);
    let edited = edit(&config, "{additionalGids: [0, 10, 5, 4294967295, 5]}");
    assert_eq!(edited["process"]["user"]["additionalGids"], json!([10, 0, 5, 4_294_967_295_u32]));
    assert_eq!(edit(&minimal(), "{additionalGids: [0]}"), minimal());
}

#[test]
fn rdt_is_replaced_whole_by_the_last_one() {
    let mut config = minimal();
    config["linux"] = json!({"intelRdt": {"closID": "old", "l3CacheSchema": "L3"}});
    let edited =
        edit(&config, "{intelRdt: {memBwSchema: MB, enableMonitoring: true, schemata: [x]}}");
    let expected = json!({"memBwSchema": "MB", "enableMonitoring": true, "schemata": ["x"]});
    assert_eq!(edited["linux"]["intelRdt"], expected);
    let both = resolution("{intelRdt: {closID: d}}", "{intelRdt: {closID: g}}");
    assert_eq!(
        changes(&config, &both),
        ["/linux/intelRdt replaced by device \"d\" of /etc/cdi/v.yaml"]
    );
    assert_eq!(
        edit(&edited, "{intelRdt: {schemata: [x], memBwSchema: MB, enableMonitoring: true}}"),
        edited
    );
}

#[test]
fn an_interface_has_one_name_and_a_name_one_interface() {
    let mut config = minimal();
    config["linux"] =
        json!({"netDevices": {"eth1": {"name": "a", "x": 1}, "eth2": {}, "eth3": {"name": "c"}}});
    let nets = "{netDevices: [{hostInterfaceName: eth1, name: b}, {hostInterfaceName: eth3, name: c}, {hostInterfaceName: e/~4, name: d}]}";
    let edited = edit(&config, nets);
    assert_eq!(
        edited["linux"]["netDevices"],
        json!({"eth1": {"name": "b"}, "eth2": {}, "eth3": {"name": "c", }, "e/~4": {"name": "d"}})
    );
    assert_eq!(
        changes(&config, &resolution(nets, "{}")),
        [
            "/linux/netDevices/eth1 replaced by device \"d\" of /etc/cdi/v.yaml",
            "/linux/netDevices/e~1~04 added by device \"d\" of /etc/cdi/v.yaml",
        ]
    );
    // One interface for two devices.
    let both = resolution(
        "{netDevices: [{hostInterfaceName: eth1, name: e9}]}",
        "{netDevices: [{hostInterfaceName: eth1, name: e0}]}",
    );
    let text = minimal().to_string();
    let parsed = crate::oci::Config::parse(text.as_bytes()).unwrap();
    let error = super::apply(&parsed, &both, &host(&[]), UNCHECKED).unwrap_err();
    assert!(
        error.to_string().starts_with("CONFLICT: network interface \"eth1\" is asked"),
        "{error}"
    );
    // Two interfaces of one name: among the new ones, with an old one, with one that keeps its own.
    for (there, wanted) in
        [(json!({}), "e0"), (json!({"eth9": {"name": "e0"}}), "e0"), (json!({"eth9": {}}), "eth9")]
    {
        config["linux"]["netDevices"] = there;
        let both = resolution(
            &format!("{{netDevices: [{{hostInterfaceName: eth1, name: {wanted}}}]}}"),
            "{netDevices: [{hostInterfaceName: eth2, name: e0}]}",
        );
        let text = config.to_string();
        let parsed = crate::oci::Config::parse(text.as_bytes()).unwrap();
        let error = super::apply(&parsed, &both, &host(&[]), UNCHECKED).unwrap_err();
        assert_eq!(error.code(), "CONFLICT");
        assert!(error.to_string().contains("would both be"), "{error}");
    }
    let line = refusal(
        &json!({"ociVersion": "1", "linux": {"netDevices": {"eth9": {"name": "e0"}}}}),
        "{netDevices: [{hostInterfaceName: eth1, name: e0}]}",
        &host(&[]),
    );
    assert_eq!(
        line,
        "CONFLICT: network interfaces \"eth9\" and \"eth1\" would both be \"e0\" in the container \
         (device \"d\" of /etc/cdi/v.yaml); request only one of them"
    );
}

#[test]
fn nothing_to_do_borrows_the_text() {
    let mut config = minimal();
    config["process"]["env"] = json!(["A=1"]);
    let text = config.to_string();
    let parsed = crate::oci::Config::parse(text.as_bytes()).unwrap();
    let same = resolution("{env: [A=1]}", "{}");
    let edited = super::apply(&parsed, &same, &host(&[]), UNCHECKED).unwrap();
    assert!(edited.changes.is_empty());
    assert_eq!(edited.bytes.as_ptr(), text.as_ptr());
}

#[test]
fn blanks_are_not_multiplied() {
    let items = vec!["\"A=1\""; 1000].join(",");
    let blanks = " ".repeat(1 << 20);
    let before = format!(
        "{{\"ociVersion\":\"1\",\"process\":{{\"cwd\":\"/\",\"user\":{{}},\"env\":[{blanks}{items}]}}}}"
    );
    let after = edit_with(&before, "{env: [B=1]}", &host(&[]), UNCHECKED).unwrap();
    assert!(after.len() < before.len() + 100);
}

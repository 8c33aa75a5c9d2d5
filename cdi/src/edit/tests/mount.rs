//! Mounts: their order and what they replace.

use serde_json::{Value, json};

use super::{changes, edit, minimal, resolution};

fn destinations(config: &Value) -> Vec<&str> {
    config["mounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["destination"].as_str().unwrap())
        .collect()
}

fn with(destinations: &[&str]) -> Value {
    let mut config = minimal();
    config["mounts"] =
        destinations.iter().map(|path| json!({"destination": path, "source": "old"})).collect();
    config
}

fn mounts(destinations: &[&str]) -> String {
    let list: Vec<_> = destinations
        .iter()
        .map(|path| format!("{{hostPath: /h, containerPath: '{path}'}}"))
        .collect();
    format!("{{mounts: [{}]}}", list.join(", "))
}

#[test]
fn all_mounts_are_sorted_by_depth_once_one_is_new() {
    let config = with(&["/a/b/c", "/z", "/a/b/", "/", "//x//y/..", "rel", "rel/dst", "/p/./q"]);
    let found = edit(&config, &mounts(&["/n/m", "/k", "/../r"]));
    assert_eq!(
        destinations(&found),
        [
            "rel",
            "/z",
            "/",
            "//x//y/..",
            "rel/dst",
            "/k",
            "/../r",
            "/a/b/",
            "/p/./q",
            "/n/m",
            "/a/b/c"
        ]
    );
    // Nothing is new, nothing moves: the engine that put them there knew why.
    let config = with(&["/a/b/c", "/z"]);
    let same = "{mounts: [{hostPath: old, containerPath: /z}]}";
    assert_eq!(edit(&config, same), config);
}

#[test]
fn one_mount_a_destination_and_the_last_one_counts() {
    let found = edit(
        &with(&["/a", "/b", "/a/"]),
        "{mounts: [{hostPath: /1, containerPath: /a}, {hostPath: /2, containerPath: /c}, {hostPath: /3, containerPath: /a, type: bind, options: [ro]}]}",
    );
    assert_eq!(
        found["mounts"],
        json!([
            {"destination": "/b", "source": "old"},
            {"destination": "/a/", "source": "old"},
            {"destination": "/c", "source": "/2"},
            {"destination": "/a", "type": "bind", "source": "/3", "options": ["ro"]},
        ])
    );
}

#[test]
fn a_mount_that_is_there_stays_where_it_is() {
    let mut config = with(&["/a"]);
    let there = json!({"type": "", "options": ["ro", "bind"], "source": "/h", "destination": "/c"});
    config["mounts"].as_array_mut().unwrap().push(there);
    assert_eq!(
        edit(&config, "{mounts: [{hostPath: /h, containerPath: /c, options: [ro, bind]}]}"),
        config
    );
    // With a member that we do not know it is another mount.
    config["mounts"][1]["uidMappings"] = json!([]);
    assert_ne!(
        edit(&config, "{mounts: [{hostPath: /h, containerPath: /c, options: [ro, bind]}]}"),
        config
    );
}

#[test]
fn bind_mounts_are_id_mapped_in_a_user_namespace() {
    let mut config = minimal();
    let map = json!([{"containerID": 0, "hostID": 100_000, "size": 65536}]);
    config["linux"] =
        json!({"namespaces": [{"type": "user"}], "uidMappings": map, "gidMappings": map});
    let options = |config: &Value, mount: &str| {
        let found =
            edit(config, &format!("{{mounts: [{{hostPath: /h, containerPath: /c, {mount}}}]}}"));
        found["mounts"][0]["options"].clone()
    };
    for (mount, expected) in [
        ("options: [bind, ro]", json!(["bind", "ro", "idmap"])),
        ("options: [rbind]", json!(["rbind", "ridmap"])),
        ("options: [rbind, bind]", json!(["rbind", "bind", "idmap"])),
        ("type: bind", json!(["idmap"])),
        ("type: bind, options: [rbind]", json!(["rbind", "ridmap"])),
        ("type: tmpfs", Value::Null),
        ("type: tmpfs, options: [size=1]", json!(["size=1"])),
        ("options: [bind, ridmap]", json!(["bind", "ridmap"])),
        ("options: [rbind, idmap]", json!(["rbind", "idmap"])),
    ] {
        assert_eq!(options(&config, mount), expected, "{mount}");
    }
    // Their type is said there, for crun.
    let edits = "{mounts: [{hostPath: /h, containerPath: /c, options: [rbind]}]}";
    assert_eq!(edit(&config, edits)["mounts"][0]["type"], "bind");
    assert_eq!(edit(&minimal(), edits)["mounts"][0]["type"], Value::Null);
    assert_eq!(options(&minimal(), "type: bind"), Value::Null);
    // A namespace that is joined has no mappings here, and runc would refuse the option.
    config["linux"]["uidMappings"] = json!([]);
    assert_eq!(options(&config, "type: bind"), Value::Null);
}

#[test]
fn a_change_of_the_order_has_an_origin_too() {
    let found = changes(&with(&["/a/b", "/c", "/d"]), &resolution(&mounts(&["/d", "/n"]), "{}"));
    let by = "by device \"d\" of /etc/cdi/v.yaml";
    assert_eq!(
        found,
        [
            format!("/mounts reordered {by}"),
            format!("/mounts/1 replaced {by}"),
            format!("/mounts/2 added {by}"),
        ]
    );
}

use super::*;
use std::path::Path;

const NODE: &str = "{path: /dev/d, hostPath: /dev/h, type: c, major: 1, minor: 3, fileMode: 438}";

/// A spec whose devices `a` and `b` have these texts as their edits.
fn spec_of(version: &str, a: &str, b: &str) -> String {
    format!(
        "cdiVersion: {version}\nkind: v.com/c\ndevices:\n- name: a\n  containerEdits: {a}\n\
         - name: b\n  containerEdits: {b}\n"
    )
}

fn nodes(nodes: &str) -> String {
    format!("{{deviceNodes: [{nodes}]}}")
}

#[test]
fn leaves_out_what_nobody_wants_and_is_plain() {
    let text = spec_of("0.5.0", &nodes(NODE), &nodes(NODE));
    let all = super::super::read(Path::new("x"), text.as_bytes()).unwrap().spec;
    let skimmed = skim(text.as_bytes(), |name| name == "b").unwrap();
    assert_eq!(skimmed.devices, &all.devices[1..]);
    assert_eq!(skim(text.as_bytes(), |_| true).unwrap(), all);
}

#[test]
fn reads_a_device_that_is_not_plain() {
    for other in ["{env: [A=b]}", "{deviceNodes: [{path: /dev/d}], mounts: []}"] {
        let text = spec_of("0.5.0", other, &nodes(NODE));
        assert_eq!(skim(text.as_bytes(), |name| name == "b").unwrap().devices.len(), 2, "{other}");
    }
}

/// What is wrong with a device that nobody wants makes the whole spec wrong, as in Go.
#[test]
fn never_takes_a_spec_that_is_invalid() {
    let broken = [
        "{}",
        "{path: ''}",
        "{hostPath: /dev/h}",
        "{path: /dev/d, path: /dev/e}",
        "null",
        "{path: /dev/d, major: -1}",
        "{path: /dev/d, major: 4294967296}",
        "{path: /dev/d, type: x}",
        "{path: /dev/d, permissions: rwx}",
        "{path: /dev/d, uid: 1.5}",
        "{path: /dev/d, gid: -1}",
        "{path: /dev/d, what: 1}",
        "{path: [/dev/d]}",
        "[]",
        "1",
    ];
    for node in broken {
        let text = spec_of("0.5.0", &nodes(node), &nodes(NODE));
        let full = super::super::read(Path::new("x"), text.as_bytes());
        assert!(full.is_err(), "{node}");
        assert_eq!(skim(text.as_bytes(), |name| name == "b"), None, "{node}");
    }
    let old = spec_of("0.3.0", &nodes(NODE), &nodes("{path: /dev/d}"));
    assert_eq!(skim(old.as_bytes(), |name| name == "b"), None, "hostPath needs 0.5.0");
    let twice = spec_of("0.5.0", &nodes(NODE), &nodes(NODE)).replace("name: a", "name: b");
    assert_eq!(skim(twice.as_bytes(), |name| name == "b"), None);
    let digit = spec_of("0.4.0", &nodes("{path: /dev/d}"), &nodes("{path: /dev/d}"));
    let digit = digit.replace("name: a", "name: 0a");
    assert_eq!(skim(digit.as_bytes(), |name| name == "b"), None, "a digit needs 0.5.0");
    assert_eq!(skim(b"", |_| false), None);
}

use std::os::unix::fs::MetadataExt;

use super::*;
use crate::spec::read;

fn spec() -> Spec {
    let bytes = br#"{"cdiVersion":"1.0.0","kind":"v.com/c","devices":[{"name":"d","containerEdits":
        {"env":["A=1"],"deviceNodes":[{"path":"/dev/x","hostPath":"/dev/y","fileMode":438}]}}]}"#;
    read(Path::new("x"), bytes).unwrap().spec
}

#[test]
fn a_written_spec_is_compact_readable_and_of_the_lowest_version() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.json", "a.yaml", "v1.2.yaml"] {
        let path = write(dir.path(), name, &spec()).unwrap();
        assert_eq!(path, dir.path().join(name));
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(
            String::from_utf8(bytes.clone()).unwrap(),
            "{\"cdiVersion\":\"0.5.0\",\"kind\":\"v.com/c\",\"devices\":[{\"name\":\"d\",\
             \"containerEdits\":{\"env\":[\"A=1\"],\"deviceNodes\":[{\"path\":\"/dev/x\",\
             \"hostPath\":\"/dev/y\",\"fileMode\":438}]}}]}\n"
        );
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o644);
        let again = read(&path, &bytes).unwrap().spec;
        assert_eq!(again, Spec { version: Version::V0_5_0, ..spec() });
        assert!(remove(dir.path(), name).unwrap());
        assert!(!remove(dir.path(), name).unwrap());
    }
}

#[test]
fn a_spec_that_is_there_already_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json");
    let inode = || std::fs::metadata(&path).unwrap().ino();
    let (bytes, wrote) = keep(dir.path(), "a.json", &spec()).unwrap();
    assert!(wrote && std::fs::read(&path).unwrap() == bytes);
    let before = inode();
    assert_eq!(keep(dir.path(), "a.json", &spec()).unwrap(), (bytes.clone(), false));
    assert_eq!(inode(), before);
    let mut other = spec();
    other.devices[0].name = "e".to_owned();
    assert!(keep(dir.path(), "a.json", &other).unwrap().1);
    assert_ne!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn an_invalid_spec_is_refused_with_all_reasons_and_nothing_changes() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.json", &spec()).unwrap();
    let mut bad = spec();
    bad.kind = "1v/c".to_owned();
    bad.devices[0].container_edits.env.push("X".to_owned());
    let error = write(dir.path(), "a.json", &bad).unwrap_err().to_string();
    let reasons = "is invalid: kind: \"1v/c\": vendor \"1v\": must start with a letter; \
                   device \"d\": containerEdits.env[1]: \"X\" is not KEY=value";
    assert!(error.ends_with(reasons), "{error}");
    assert!(std::fs::read_to_string(dir.path().join("a.json")).unwrap().contains("v.com/c"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let mut large = spec();
    large.devices[0].container_edits.env.push(format!("A={}", "x".repeat(MAX_SPEC_BYTES)));
    assert!(matches!(write(dir.path(), "a.json", &large), Err(WriteError::TooLarge { .. })));
}

#[test]
fn a_name_stays_in_its_directory_and_is_found_by_readers() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("{}.json", "x".repeat(251));
    let names = [
        "",
        ".json",
        ".yaml",
        "a",
        "a.yml",
        "a.JSON",
        "../a.json",
        "a/b.json",
        "/a.json",
        ".a.json",
        "a\0.json",
        "a\n.json",
        &long,
    ];
    for name in names {
        let error = write(dir.path(), name, &spec()).unwrap_err();
        assert!(matches!(error, WriteError::Name { .. }), "{name}: {error}");
        assert!(remove(dir.path(), name).is_err(), "{name}");
    }
    let missing = dir.path().join("none");
    assert!(matches!(write(&missing, "a.json", &spec()), Err(WriteError::File(_))));
}

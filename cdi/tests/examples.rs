//! The examples are what they teach: specs without an error or a warning.

use std::path::Path;

#[test]
fn examples_are_clean() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut read = 0;
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension == "md") {
            continue;
        }
        let parsed = divvy_cdi::spec::read(&path, &std::fs::read(&path).unwrap()).unwrap();
        assert!(parsed.warnings.is_empty(), "{:#?}", parsed.warnings);
        let needs = divvy_cdi::spec::Version::required_by(&parsed.spec);
        assert_eq!(parsed.spec.version, needs, "{}: declares more than it needs", path.display());
        read += 1;
    }
    assert_eq!(read, 3);
}

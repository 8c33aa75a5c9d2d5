//! Documents: both readers give the same tree, and a spec that is read is valid and goes back to
//! itself.
#![no_main]

use std::path::Path;

use divvy_cdi::{
    doc,
    name::QualifiedName,
    problem::Severity,
    resolve,
    spec::{self, Version},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert_eq!(doc::read(bytes), doc::read_in_full(bytes));
    let file = Path::new("x.yaml");
    let parsed = match spec::read(file, bytes) {
        Ok(parsed) => parsed,
        Err(problems) => {
            assert!(problems.iter().any(|problem| problem.severity == Severity::Error));
            return;
        }
    };
    let spec = parsed.spec;
    assert!(spec.version >= Version::required_by(&spec));
    assert!(spec::check(&spec).iter().all(|violation| violation.severity != Severity::Error));
    let text = serde_json::to_vec(&spec).unwrap();
    let again = spec::read(file, &text).expect("what was read can be written").spec;
    assert_eq!(again, spec);
    for device in &spec.devices {
        let name = QualifiedName::parse(&format!("{}={}", spec.kind, device.name)).unwrap();
        let resolution = resolve::from_spec(file, bytes, &[name]).expect("a device of the file");
        let own = resolution.parts.last().expect("no device is without edits");
        assert_eq!(own.edits, device.container_edits);
    }
});

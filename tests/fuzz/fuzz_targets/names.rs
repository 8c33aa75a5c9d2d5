//! Names and request annotations: what is accepted is exactly its parts, and goes back to itself.
#![no_main]

use divvy_cdi::{
    annotation,
    name::{self, QualifiedName},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (plugin, id) = text.split_at(text.floor_char_boundary(text.len() / 2));
    if let Ok(key) = annotation::key(plugin, id) {
        assert!(key.starts_with(annotation::PREFIX) && key.len() <= annotation::PREFIX.len() + 63);
    }
    let Ok(parsed) = QualifiedName::parse(text) else {
        // A refusal has words, however odd the name.
        assert!(!QualifiedName::parse(text).unwrap_err().to_string().is_empty());
        let pairs = [("cdi.k8s.io/x", text)];
        if let Ok(names) = annotation::parse(pairs.into_iter()) {
            let again = annotation::value(&names);
            let again = annotation::parse([("cdi.k8s.io/x", &*again)].into_iter());
            assert_eq!(again.unwrap(), names);
        }
        return;
    };
    let (vendor, class, device) = (parsed.vendor(), parsed.class(), parsed.device());
    assert_eq!(text, format!("{vendor}/{class}={device}"));
    assert_eq!(parsed.kind(), format!("{vendor}/{class}"));
    assert!(text.is_ascii() && !text.contains(char::is_whitespace));
    name::check_kind(parsed.kind()).unwrap();
    name::check_device(device).unwrap();
});

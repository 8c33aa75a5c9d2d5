//! Our answers to the vectors' questions.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use divvy_cdi::{annotation, host::Host, name::QualifiedName, spec};
use serde_json::{Value, json};

use crate::{
    divvy::{inject, list, parse},
    model::{Answer, Ask},
};

/// Our answer to a vector, its files laid out below `root`.
pub(crate) fn answer(ask: &Ask, root: &Path, host: &dyn Host) -> Answer {
    match ask {
        Ask::Name(name) => result(
            QualifiedName::parse(name)
                .map(|name| json!([name.vendor(), name.class(), name.device()]))
                .map_err(|error| error.to_string()),
        ),
        Ask::Key { plugin, device } => {
            result(annotation::key(plugin, device).map(|key| json!(key)).map_err(|e| e.to_string()))
        }
        Ask::Value(devices) => {
            let names: Result<Vec<_>, _> =
                devices.iter().map(|name| QualifiedName::parse(name)).collect();
            result(names.map(|names| json!(annotation::value(&names))).map_err(|e| e.to_string()))
        }
        Ask::Annotations(annotations) => {
            let pairs = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            result(annotation::parse(pairs).map(|names| json!(names)).map_err(|e| e.to_string()))
        }
        Ask::Spec(document) => parse(&document.bytes()),
        Ask::List(tree) => list(&tree.directories(root)),
        Ask::Inject(asked) => {
            let config = asked.config.to_string();
            let dirs = asked.tree.directories(root);
            inject(&dirs, &asked.devices, config.as_bytes(), host)
        }
        Ask::Write { name, spec } => write(&root.join("run"), name, &spec.bytes()),
    }
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> Answer {
    fs::create_dir_all(dir).expect("made");
    let parsed = match spec::read(Path::new("spec.json"), bytes) {
        Ok(parsed) => parsed,
        Err(_) => return parse(bytes),
    };
    result(spec::write(dir, name, &parsed.spec).map_err(|error| error.to_string()).map(|path| {
        let mode = fs::metadata(&path).expect("written").permissions().mode() & 0o7777;
        let spec = parse(&fs::read(&path).expect("written"));
        json!({"path": path, "mode": format!("{mode:04o}"), "spec": spec})
    }))
}

fn result(result: Result<Value, String>) -> Answer {
    match result {
        Ok(value) => Answer::Accepts(value),
        Err(error) => Answer::Refuses(error),
    }
}

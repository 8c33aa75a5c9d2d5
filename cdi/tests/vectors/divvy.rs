//! Our answers to the questions that the vectors and the comparison ask.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use divvy_cdi::{
    edit::{self, Options},
    file::Trust,
    host::Host,
    name::QualifiedName,
    oci::Config,
    problem::Severity,
    registry::Registry,
    resolve, spec,
};
use serde_json::{Value, json};

use crate::model::Answer;

/// Reads and validates a document.
pub(crate) fn parse(bytes: &[u8]) -> Answer {
    match spec::read(Path::new("spec.json"), bytes) {
        Ok(parsed) => Answer::Accepts(serde_json::to_value(parsed.spec).expect("serialises")),
        Err(problems) => {
            assert!(!problems.is_empty(), "refused without a reason");
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Answer::Refuses(lines.join("\n"))
        }
    }
}

/// What the directories hold: devices that can be had, specs by priority, files with an error.
pub(crate) fn list(dirs: &[PathBuf]) -> Answer {
    let registry = Registry::scan(dirs, &Trust::Any);
    let devices: Vec<&str> = registry.devices().map(|device| device.name.as_str()).collect();
    let specs = registry.specs().iter();
    let mut specs: Vec<String> =
        specs.map(|spec| format!("{} {}", spec.priority, spec.path.display())).collect();
    specs.sort();
    let errors = registry.problems().iter().filter(|p| p.severity == Severity::Error);
    let rejected: BTreeSet<&Path> = errors.map(|problem| problem.file.as_path()).collect();
    Answer::Accepts(json!({"devices": devices, "specs": specs, "rejected": rejected}))
}

/// The config with the devices, by way of the registry and by way of the hook's shorter look.
pub(crate) fn inject(
    dirs: &[PathBuf],
    devices: &[String],
    config: &[u8],
    host: &dyn Host,
) -> Answer {
    let config = match Config::parse(config) {
        Ok(config) => config,
        Err(error) => return Answer::Refuses(format!("config: {error}")),
    };
    let names: Result<Vec<_>, _> = devices.iter().map(|name| QualifiedName::parse(name)).collect();
    let names = match names {
        Ok(names) => names,
        Err(error) => return Answer::Refuses(error.to_string()),
    };
    let registry = Registry::scan(dirs, &Trust::Any);
    let resolution = resolve::resolve(&registry, &names);
    let looked_up = resolve::lookup(dirs, &names, &Trust::Any);
    match (&resolution, &looked_up) {
        (Ok(scanned), Ok(looked_up)) => assert_eq!(scanned, looked_up, "scan and look-up differ"),
        (Err(scanned), Err(looked_up)) => {
            assert_eq!(scanned.to_string(), looked_up.to_string(), "scan and look-up differ");
        }
        differ => panic!("scan and look-up differ: {differ:?}"),
    }
    let resolution = match resolution {
        Ok(resolution) => resolution,
        Err(error) => return Answer::Refuses(error.to_string()),
    };
    let options = Options { rootless: false, check_paths: false };
    match edit::apply(&config, &resolution, host, options) {
        Ok(edited) => {
            again(&edited.bytes, &resolution, host);
            Answer::Accepts(serde_json::from_slice(&edited.bytes).expect("JSON"))
        }
        Err(error) => Answer::Refuses(error.to_string()),
    }
}

/// A second injection changes nothing.
fn again(edited: &[u8], resolution: &resolve::Resolution, host: &dyn Host) {
    let config = Config::parse(edited).expect("what we wrote is a config");
    let options = Options { rootless: false, check_paths: false };
    let again = edit::apply(&config, resolution, host, options).expect("what went once goes twice");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&again.bytes), text(edited), "a second injection changes something");
}

/// Without what the Go types write or leave out by themselves: nulls, empty texts, lists and
/// objects, the number 0 where 0 is unset, a `v` before a version.
pub(crate) fn plain(value: &Value) -> Value {
    fn keep(key: &str, value: &Value) -> bool {
        match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty() || key == "intelRdt",
            Value::Bool(yes) => *yes || key != "enableMonitoring",
            Value::Number(number) => {
                number.as_i64() != Some(0) || !matches!(key, "major" | "minor")
            }
        }
    }
    match value {
        Value::Object(fields) => {
            let mut kept: serde_json::Map<String, Value> =
                fields.iter().map(|(key, value)| (key.clone(), plain(value))).collect();
            if let Some(Value::Object(user)) = kept.get_mut("user") {
                user.retain(|_, id| id.as_i64() != Some(0));
            }
            if let Some(Value::String(version)) = kept.get_mut("cdiVersion") {
                *version = version.strip_prefix('v').unwrap_or(version).to_owned();
            }
            kept.retain(|key, value| keep(key, value));
            Value::Object(kept)
        }
        Value::Array(items) => Value::Array(items.iter().map(plain).collect()),
        leaf => leaf.clone(),
    }
}

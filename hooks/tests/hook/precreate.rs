//! The precreate filter, with the hook that reports its failures.

use std::{fs, process::Command};

use divvy_hook::record::Origin;
use serde_json::Value;

use crate::support::{HOOK, Host, annotate, engine_config, has_device, spec};

const ON: &str = "[handlers.precreate]\nengine = 'podman'\nannotations = true";

fn podman(change: impl FnOnce(&mut Value)) -> String {
    let mut config = engine_config("podman");
    change(&mut config);
    config.to_string()
}

#[test]
fn the_config_is_edited_from_input_to_output() {
    let host = Host::new(ON);
    host.prepare_claim(Origin::Local, "mine");
    host.spec("v.json", &spec("v.com/gpu", "0", "GPU=0"));
    for (key, value) in [("divvy.dev/claim", "mine"), ("cdi.k8s.io/x", "v.com/gpu=0")] {
        let config = podman(|config| annotate(config, key, value));
        let outcome = host.hook(&["precreate"], config.as_bytes());
        assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""));
        let edited: Value = serde_json::from_slice(&outcome.stdout).unwrap();
        assert!(has_device(&edited));
        let again = host.hook(&["precreate"], &outcome.stdout);
        assert_eq!(again.stdout, outcome.stdout);
    }
}

#[test]
fn what_requests_nothing_comes_out_as_it_went_in() {
    let host = Host::new(ON);
    let config = podman(|_| {}).replace(',', " ,\n");
    let outcome = host.hook(&["precreate"], config.as_bytes());
    assert_eq!((outcome.status, outcome.stdout), (0, config.into_bytes()));
}

/// Calls the report hook of a failed config as the low-level runtime would.
fn report(host: &Host, config: &Value) -> String {
    let hooks = config["hooks"]["createRuntime"].as_array().unwrap();
    let hook = hooks.last().unwrap();
    assert_eq!(hook["path"], fs::canonicalize(HOOK).unwrap().to_str().unwrap());
    let mut args = hook["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    assert_eq!(args.next(), Some("divvy-hook"));
    let outcome = host.call(Command::new(hook["path"].as_str().unwrap()).args(args), b"{}");
    assert_eq!(outcome.status, 1);
    outcome.stderr
}

#[test]
fn a_failure_is_reported_by_a_hook_of_a_valid_config() {
    let host = Host::new(ON);
    let config = podman(|config| annotate(config, "cdi.k8s.io/x", "v.com/gpu=0"));
    let outcome = host.hook(&["precreate"], config.as_bytes());
    assert_eq!(outcome.status, 0);
    let line = outcome.stderr.trim_end();
    assert!(line.starts_with("divvy: UNRESOLVED: "), "{line}");
    let mut failing: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    let file = failing["hooks"]["createRuntime"][0]["args"][4].as_str().unwrap().to_owned();
    assert!(file.starts_with(host.path("run/errors").to_str().unwrap()), "{file}");
    assert_eq!(report(&host, &failing).trim_end(), line);
    // Said once and cleared away, where these settings have it.
    assert!(!std::path::Path::new(&file).exists());
    // But for the hook it is the config that came in.
    failing.as_object_mut().unwrap().remove("hooks");
    assert_eq!(failing, serde_json::from_str::<Value>(&config).unwrap());
}

#[test]
fn where_no_file_can_be_written_the_text_is_an_argument() {
    let host = Host::new(ON);
    host.write("run/errors", "no directory");
    let config = podman(|config| annotate(config, "cdi.k8s.io/x", "v.com/gpu=0,v.com/\"$(x)="));
    let outcome = host.hook(&["precreate"], config.as_bytes());
    assert_eq!(outcome.status, 0);
    let failing: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!(failing["hooks"]["createRuntime"][0]["args"][4], "--text");
    assert_eq!(report(&host, &failing), outcome.stderr);
}

#[test]
fn an_image_with_annotations_gets_no_device() {
    let host = Host::new("[handlers.precreate]\nengine = 'podman'");
    host.spec("v.json", &spec("v.com/gpu", "0", "GPU=0"));
    let config = podman(|config| annotate(config, "cdi.k8s.io/x", "v.com/gpu=0"));
    let outcome = host.hook(&["precreate"], config.as_bytes());
    let failing: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert!(!has_device(&failing));
    assert!(report(&host, &failing).starts_with("divvy: REQUEST-REFUSED: "));
}

#[test]
fn what_is_no_config_fails() {
    let host = Host::new(ON);
    for bad in ["{\"annotations\":{\"cdi.k8s.io/x\":7}}", "\\u", "[\"cdi.k8s.io/\"]"] {
        let outcome = host.hook(&["precreate"], bad.as_bytes());
        outcome.error("BUNDLE-INVALID");
        assert!(outcome.stdout.is_empty());
    }
    let huge = vec![b' '; (16 << 20) + 1];
    let outcome = host.hook(&["precreate"], &huge);
    outcome.error("INPUT");
    assert!(outcome.stdout.is_empty());
}

#[test]
fn texts_that_nobody_reports_do_not_pile_up() {
    let host = Host::new(ON);
    let config = podman(|config| annotate(config, "cdi.k8s.io/x", "v.com/gpu=0"));
    fs::create_dir(host.path("run/errors")).unwrap();
    for old in 0..100 {
        host.write(&format!("run/errors/{old:020}-1.txt"), "old");
    }
    let outcome = host.hook(&["precreate"], config.as_bytes());
    let failing: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!(fs::read_dir(host.path("run/errors")).unwrap().count(), 64);
    assert!(report(&host, &failing).starts_with("divvy: UNRESOLVED: "));
}

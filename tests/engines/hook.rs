//! The hook, installed in a sandbox under the names that engines call it by.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use divvy_hook::record::{
    ClaimRecord, Consumer, DeviceRef, Driver, Origin, PodRecord, RunDir, SpecRef, VERSION, boot_id,
    digest,
};

use crate::device;
use crate::fixture::Fixture;
use crate::sandbox::Sandbox;

/// Where names of the shim are installed.
pub const DIR: &str = "/usr/local/bin";

/// Installs the hook with a handler for each (name, engine, other keys), as /etc/divvy/config.toml says them.
pub fn install(
    sandbox: &Sandbox,
    fixture: &Fixture,
    handlers: &[(&str, &str, &str)],
) -> Result<()> {
    let mut config = String::new();
    for (name, engine, keys) in handlers {
        config += &format!("[handlers.{name}]\nengine = {engine:?}\n{keys}\n");
    }
    let names: Vec<&str> = handlers.iter().map(|(name, ..)| *name).collect();
    install_as(sandbox, fixture, &names, &config)
}

/// Installs the hook under names as hooks/config/README.md says: one binary, and links to it.
pub fn install_as(
    sandbox: &Sandbox,
    fixture: &Fixture,
    names: &[&str],
    config: &str,
) -> Result<()> {
    sandbox.write_mode(&path("divvy-hook"), &std::fs::read(&fixture.hook)?, 0o755)?;
    for name in names {
        std::os::unix::fs::symlink("divvy-hook", sandbox.path(&path(name)))?;
    }
    sandbox.write("/etc/divvy/config.toml", config)
}

/// A file of hooks/config, which is what we tell people to use.
pub fn documented(name: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks/config").join(name);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

pub fn path(name: &str) -> String {
    format!("{DIR}/{name}")
}

/// A runtime that puts the bundle's configuration aside, as before.json, and becomes an installed name of the shim.
pub fn keeping(name: &str) -> String {
    format!(
        r#"#!/bin/sh
last=
for word in "$@"; do
  if [ "$last" = --bundle ]; then cp "$word/config.json" "$word/before.json"; fi
  last=$word
done
exec {} "$@"
"#,
        path(name)
    )
}

/// Records that a container of a pod has the device of [`device::spec`].
pub fn record_pod(sandbox: &Sandbox, (uid, name): (&str, &str), container: &str) -> Result<()> {
    let device = DeviceRef {
        name: device::NAME.into(),
        path: device::SPEC.into(),
        digest: digest(sandbox.read(device::SPEC)?.as_bytes()),
    };
    run_dir(sandbox).write_pod(&PodRecord {
        version: VERSION,
        uid: uid.into(),
        namespace: "default".into(),
        name: name.into(),
        boot: boot_id()?,
        containers: BTreeMap::from([(container.to_owned(), vec![device])]),
    })?;
    Ok(())
}

/// Records a claim `default/NAME` that has the device of [`device::spec`], asked for by hand or by the cluster's API.
pub fn record_claim(sandbox: &Sandbox, name: &str, origin: Origin) -> Result<()> {
    let spec = SpecRef {
        path: device::SPEC.into(),
        digest: digest(sandbox.read(device::SPEC)?.as_bytes()),
    };
    let pod = || Consumer {
        kind: "Pod".into(),
        uid: "uid-of-another-pod".into(),
        name: "another".into(),
    };
    run_dir(sandbox).write_claim(&ClaimRecord {
        version: VERSION,
        origin,
        uid: format!("uid-of-{name}"),
        namespace: "default".into(),
        name: name.into(),
        driver: Driver { name: "gpu.divvy.dev".into(), version: "0.1.0".into() },
        boot: boot_id()?,
        requests: BTreeMap::from([("gpu".into(), vec![device::NAME.into()])]),
        specs: BTreeMap::from([(device::NAME.into(), spec)]),
        consumers: if origin == Origin::Api { vec![pod()] } else { Vec::new() },
        stamp: None,
    })?;
    Ok(())
}

fn run_dir(sandbox: &Sandbox) -> RunDir {
    RunDir::new(sandbox.path("/run/divvy"))
}

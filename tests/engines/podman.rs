//! The hook under podman: as its runtime, and as its precreate hook.

use anyhow::{Result, ensure};
use divvy_hook::record::Origin;
use serde_json::json;

use crate::Test;
use crate::device::{self, LOOK, NOTHING, SEEN};
use crate::direct::{CRUN, RUNC, short};
use crate::fixture::{self, ANNOTATED, Fixture, IMAGE};
use crate::hook;
use crate::sandbox::{End, Output, Run, Sandbox, View};

/// Where podman's configuration is.
const CONFIG: &str = "/etc/containers/containers.conf";
/// A folder of hooks that no other engine reads.
const HOOKS: &str = "/etc/divvy/oci-hooks.d";

/// The shim that listens to annotations and to a variable.
const LISTENING: &str = "divvy-podman";
/// The shim as it is when nothing is said.
const DEAF: &str = "divvy-deaf";

/// A podman that has the images loaded, and the low-level runtime of its shims.
struct Podman {
    sandbox: Sandbox,
    end: End,
    runtime: &'static str,
}

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for end in End::ALL {
        for view in View::ALL {
            for runtime in [RUNC, CRUN] {
                // crun makes podman's parent group in this one as well.
                let controller = if runtime == CRUN { "cpuset" } else { "devices" };
                let mut add = |name: &str, test: fn(Podman) -> Result<()>| {
                    let name = format!(
                        "podman::{name}::{}::{}::{}",
                        end.name(),
                        short(runtime),
                        view.name()
                    );
                    let body =
                        move |fixture: &Fixture| test(Podman::start(fixture, end, view, runtime)?);
                    tests.push(Test::new(name, body).in_view(view, controller));
                };
                add("native_cdi", native_cdi);
                add("runtime_by_path", runtime_by_path);
                add("runtime_by_table", runtime_by_table);
                add("image_asks", image_asks);
                add("claims_by_name", claims_by_name);
                add("environment", environment);
                add("documented_configuration", documented_configuration);
                add("precreate", precreate);
                add("precreate_fails", precreate_fails);
            }
        }
    }
    tests
}

// === impl Podman ===

impl Podman {
    fn start(fixture: &Fixture, end: End, view: View, runtime: &'static str) -> Result<Podman> {
        let sandbox = Sandbox::start(fixture, end, view)?;
        device::provide(&sandbox)?;
        let runtime_key = format!("runtime = {runtime:?}\n");
        let listening = format!("{runtime_key}annotations = true\nenvironment = [\"DEVICES\"]\n");
        let handlers = [
            (LISTENING, "podman", listening.as_str()),
            (DEAF, "podman", &runtime_key),
            ("precreate", "podman", &listening),
        ];
        hook::install(&sandbox, fixture, &handlers)?;
        let mut podman = Podman { sandbox, end, runtime };
        podman.configure("")?;
        for image in [IMAGE, ANNOTATED] {
            let archive = format!("/fixture/{}", fixture::archive(image));
            podman.sandbox.must(&["podman", "load", "--quiet", "--input", &archive])?;
        }
        Ok(podman)
    }

    /// Sets `[engine]`'s keys and tables.
    fn configure(&self, engine: &str) -> Result<()> {
        self.sandbox.write(CONFIG, &settings(engine))
    }

    /// Runs a container, with podman's own options and those of `run`.
    fn run(&mut self, podman: &[&str], run: &[&str], image: &str, script: &str) -> Result<Output> {
        let parts: [&[&str]; 5] = [
            &["podman"],
            podman,
            &["run", "--rm", "--pull=never"],
            run,
            &[image, "sh", "-c", script],
        ];
        self.sandbox.finish(&Run::new(&parts.concat()).env("PODMAN_IGNORE_CGROUPSV1_WARNING", "1"))
    }

    fn shim(&mut self, name: &str, run: &[&str], image: &str, script: &str) -> Result<Output> {
        self.run(&[&format!("--runtime={}", hook::path(name))], run, image, script)
    }

    fn asking(&self, name: &str) -> String {
        asking(self.end, name)
    }

    fn nothing_is_left(&mut self) -> Result<()> {
        let left = self.sandbox.must(&["podman", "ps", "--all", "--quiet"])?;
        ensure!(left.is_empty(), "containers are left: {left}");
        Ok(())
    }
}

/// A containers.conf with these keys and tables of `[engine]`. The rest is what a sandbox without CAP_SYS_RESOURCE and,
/// on the v2 view, with few controllers needs.
pub fn settings(engine: &str) -> String {
    format!(
        "[containers]\ndefault_ulimits = [\"nofile=1024:4096\", \"nproc=1024:4096\"]\npids_limit = 0\n\
         netns = \"host\"\n\
         [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n{engine}\n"
    )
}

/// The option that requests a device: with podman 4.3 a variable, since its annotations may be an image's.
pub fn asking(end: End, name: &str) -> String {
    match end {
        End::Old => format!("--env=DEVICES={name}"),
        End::New => format!("--annotation=cdi.k8s.io/test={name}"),
    }
}

/// The control.
fn native_cdi(mut podman: Podman) -> Result<()> {
    let runtime = format!("--runtime={}", podman.runtime);
    let device = format!("--device={}", device::NAME);
    let output = podman.run(&[&runtime], &[&device], IMAGE, LOOK)?;
    ensure!(output.stdout == SEEN, "{output:?}");
    Ok(())
}

fn runtime_by_path(mut podman: Podman) -> Result<()> {
    let wanted = podman.asking(device::NAME);
    let missing = podman.asking(device::MISSING);
    let output = podman.shim(LISTENING, &[&wanted], IMAGE, LOOK)?;
    ensure!(output.code == 0 && output.stdout == SEEN, "{output:?}");
    device::hook_ran(&podman.sandbox)?;
    let output = podman.shim(LISTENING, &[], IMAGE, NOTHING)?;
    ensure!(output.stdout == "untouched\n", "{output:?}");
    // On top of native CDI.
    let device = format!("--device={}", device::NAME);
    let output = podman.shim(LISTENING, &[&wanted, &device], IMAGE, LOOK)?;
    ensure!(output.code == 0 && output.stdout == SEEN, "{output:?}");
    let output = podman.shim(LISTENING, &[&missing], IMAGE, LOOK)?;
    unresolved(&output)?;
    podman.nothing_is_left()
}

/// The runtime's name from containers.conf; the table of those that log JSON decides by which way an error arrives.
fn runtime_by_table(mut podman: Podman) -> Result<()> {
    let wanted = podman.asking(device::NAME);
    let missing = podman.asking(device::MISSING);
    for json in [true, false] {
        let names =
            if json { r#"["crun", "runc", "divvy-podman"]"# } else { r#"["crun", "runc"]"# };
        podman.configure(&format!(
            "runtime = {LISTENING:?}\nruntime_supports_json = {names}\n\
             [engine.runtimes]\n{LISTENING} = [{:?}]\n",
            hook::path(LISTENING)
        ))?;
        let output = podman.run(&[], &[&wanted], IMAGE, LOOK)?;
        ensure!(output.code == 0 && output.stdout == SEEN, "{output:?}");
        let output = podman.run(&[], &[&missing], IMAGE, LOOK)?;
        unresolved(&output)?;
        podman.nothing_is_left()?;
    }
    Ok(())
}

/// That podman shows our message whole, as one of the runtime's.
pub fn unresolved(output: &Output) -> Result<()> {
    ensure!(output.code == 126, "{output:?}");
    let start = output.stderr.find("divvy: UNRESOLVED").unwrap_or_default();
    let (before, ours) = output.stderr.split_at(start);
    ensure!(before.contains("OCI runtime error"), "{output:?}");
    device::explained(ours.trim_end())
}

/// An image whose manifest has our annotations. podman 4.3 copies them into the container's configuration, where nothing
/// tells them from those of the command line: so none count there, whatever the configuration says.
fn image_asks(mut podman: Podman) -> Result<()> {
    hook::record_claim(&podman.sandbox, "local", Origin::Local)?;
    for handler in [DEAF, LISTENING] {
        let output = podman.shim(handler, &[], ANNOTATED, NOTHING)?;
        match podman.end {
            End::Old => refused(&output)?,
            End::New => ensure!(output.stdout == "untouched\n", "{output:?}"),
        }
    }
    podman.nothing_is_left()
}

fn refused(output: &Output) -> Result<()> {
    ensure!(output.code == 126 && output.stdout.is_empty(), "{output:?}");
    ensure!(output.stderr.contains("divvy: REQUEST-REFUSED: annotation"), "{output:?}");
    Ok(())
}

fn claims_by_name(mut podman: Podman) -> Result<()> {
    hook::record_claim(&podman.sandbox, "local", Origin::Local)?;
    hook::record_claim(&podman.sandbox, "of-a-pod", Origin::Api)?;
    for (name, code) in [
        ("local", ""),
        ("default/local", ""),
        ("of-a-pod", "CLAIM-NOT-PREPARED"),
        ("absent", "CLAIM-NOT-PREPARED"),
        ("../x", "REQUEST-INVALID"),
    ] {
        let claim = format!("--annotation=divvy.dev/claim={name}");
        let output = podman.shim(LISTENING, &[&claim], IMAGE, LOOK)?;
        match (podman.end, code) {
            (End::Old, _) => refused(&output)?,
            (_, "") => ensure!(output.code == 0 && output.stdout == SEEN, "{output:?}"),
            _ => ensure!(output.code == 126 && output.stderr.contains(code), "{name}: {output:?}"),
        }
        let output = podman.shim(DEAF, &[&claim], IMAGE, LOOK)?;
        refused(&output)?;
    }
    podman.nothing_is_left()
}

fn environment(mut podman: Podman) -> Result<()> {
    let variable = format!("--env=DEVICES={}", device::NAME);
    let output = podman.shim(LISTENING, &[&variable], IMAGE, LOOK)?;
    ensure!(output.code == 0 && output.stdout == SEEN, "{output:?}");
    let output = podman.shim(DEAF, &[&variable], IMAGE, NOTHING)?;
    ensure!(output.stdout == "untouched\n", "{output:?}");
    Ok(())
}

/// The files that we tell people to use.
fn documented_configuration(mut podman: Podman) -> Result<()> {
    let config = format!("runtimes = [{:?}]\n{}", podman.runtime, hook::documented("config.toml")?);
    let config =
        config.replace("#environment = [\"DIVVY_DEVICES\"]", "environment = [\"DIVVY_DEVICES\"]");
    podman.sandbox.write("/etc/divvy/config.toml", &config)?;
    for (place, file) in
        [("90-divvy", "podman.conf"), ("91-divvy-precreate", "podman-precreate.conf")]
    {
        let place = format!("/etc/containers/containers.conf.d/{place}.conf");
        podman.sandbox.write(&place, &hook::documented(file)?)?;
    }
    podman
        .sandbox
        .write(&format!("{HOOKS}/10-divvy.json"), &hook::documented("podman-precreate.json")?)?;
    let variable = format!("--env=DIVVY_DEVICES={}", device::NAME);
    let output = podman.run(&["--runtime=divvy"], &[&variable], IMAGE, LOOK)?;
    ensure!(output.code == 0 && output.stdout == SEEN && output.stderr.is_empty(), "{output:?}");
    let output = podman.run(&["--runtime=divvy"], &[], IMAGE, NOTHING)?;
    ensure!(output.stdout == "untouched\n" && output.stderr.is_empty(), "{output:?}");
    Ok(())
}

/// Configures podman's precreate hook.
fn precreate_hook(podman: &Podman, path: &str, timeout: u32) -> Result<()> {
    let hook = json!({
        "version": "1.0.0",
        "hook": {"path": path, "args": [path, "precreate"], "timeout": timeout},
        "when": {"always": true},
        "stages": ["precreate"],
    });
    podman.sandbox.write(&format!("{HOOKS}/10-divvy.json"), &hook.to_string())
}

fn precreate(mut podman: Podman) -> Result<()> {
    let wanted = podman.asking(device::NAME);
    precreate_hook(&podman, &hook::path("divvy-hook"), 10)?;
    let hooks = format!("--hooks-dir={HOOKS}");
    let runtime = format!("--runtime={}", podman.runtime);
    let output = podman.run(&[&runtime, &hooks], &[&wanted], IMAGE, LOOK)?;
    ensure!(output.code == 0 && output.stdout == SEEN && output.stderr.is_empty(), "{output:?}");
    device::hook_ran(&podman.sandbox)?;
    let output = podman.run(&[&runtime, &hooks], &[], IMAGE, NOTHING)?;
    ensure!(output.stdout == "untouched\n" && output.stderr.is_empty(), "{output:?}");
    Ok(())
}

fn precreate_fails(mut podman: Podman) -> Result<()> {
    let missing = podman.asking(device::MISSING);
    let hooks = format!("--hooks-dir={HOOKS}");
    let runtime = format!("--runtime={}", podman.runtime);
    precreate_hook(&podman, &hook::path("divvy-hook"), 10)?;
    let output = podman.run(&[&runtime, &hooks], &[&missing], IMAGE, LOOK)?;
    ensure!(output.code != 0 && output.stdout.is_empty(), "{output:?}");
    if podman.runtime == RUNC {
        // The report hook's text; crun drops it, and the log has it.
        ensure!(output.stderr.contains("divvy: UNRESOLVED"), "{output:?}");
    }
    let log = podman.sandbox.read("/run/divvy/hook.log")?;
    ensure!(log.contains("divvy: UNRESOLVED"), "{log}");

    // A hook that hangs: podman ends it, and starts nothing.
    let slow = hook::path("slow");
    podman.sandbox.write_mode(&slow, b"#!/bin/sh\nexec sleep 30\n", 0o755)?;
    precreate_hook(&podman, &slow, 1)?;
    let output = podman.run(&[&runtime, &hooks], &[], IMAGE, LOOK)?;
    ensure!(output.code != 0 && output.stdout.is_empty(), "{output:?}");
    podman.nothing_is_left()
}

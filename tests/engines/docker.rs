//! The hook under docker, as a runtime of its daemon.

use anyhow::{Context, Result, ensure};
use divvy_hook::record::Origin;
use serde_json::{Value, json};

use crate::Test;
use crate::device::{self, LOOK, NOTHING, SEEN};
use crate::direct::RUNC;
use crate::fixture::{Fixture, IMAGE};
use crate::hook;
use crate::sandbox::{End, Output, Sandbox, View};

const LOG: &str = "/tmp/dockerd.log";

/// The runtime of hooks/config/docker-daemon.json, which listens to annotations and to a variable here.
const LISTENING: &str = "divvy";
/// One whose handler has its defaults.
const DEAF: &str = "deaf";
/// One that is called with words of docker's own before the command.
const WORDY: &str = "wordy";
/// One in docker's newer form, which names containerd's options.
const BY_OPTIONS: &str = "by-options";
/// One that puts the bundle's configuration aside before the shim is called.
const KEEP: &str = "keep";

/// An image whose author asks for devices, in its labels and its environment.
const ASKING: &str = "localhost/asking:1";

/// What `docker exec` sees: its environment is made of docker's own configuration, in which native CDI's edits are not
/// either.
const EXECUTED: &str = "opened\ndriver 1.0\nGPU=\n";

/// A running dockerd that has the images.
struct Docker {
    sandbox: Sandbox,
    end: End,
}

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for end in End::ALL {
        for view in View::ALL {
            let mut add = |name: &str, test: fn(Docker) -> Result<()>| {
                let name = format!("docker::{name}::{}::{}", end.name(), view.name());
                let body = move |fixture: &Fixture| test(Docker::start(fixture, end, view)?);
                tests.push(Test::new(name, body).in_view(view, "devices"));
            };
            add("requests", requests);
            add("defaults", defaults);
            add("restart", restart);
            if end == End::New {
                add("claims_by_name", claims_by_name);
                add("on_top_of_native_cdi", on_top_of_native_cdi);
            }
        }
    }
    tests
}

// === impl Docker ===

impl Docker {
    fn start(fixture: &Fixture, end: End, view: View) -> Result<Docker> {
        let mut sandbox = Sandbox::start(fixture, end, view)?;
        device::provide(&sandbox)?;
        let runtime = format!("runtime = {RUNC:?}\n");
        let listening = format!("{runtime}annotations = true\nenvironment = [\"DEVICES\"]\n");
        hook::install(
            &sandbox,
            fixture,
            &[("divvy-docker", "docker", &listening), ("divvy-deaf", "docker", &runtime)],
        )?;
        let keep = hook::path(KEEP);
        sandbox.write_mode(&keep, hook::keeping("divvy-docker").as_bytes(), 0o755)?;
        sandbox.write("/etc/docker/daemon.json", &configuration(end)?.to_string())?;
        sandbox.spawn(&["dockerd"], LOG)?;
        sandbox.until("dockerd", &["docker", "version"])?;
        let (label, variable) = (
            format!("LABEL cdi.k8s.io/image={}", device::NAME),
            format!("ENV DEVICES={}", device::NAME),
        );
        for (image, asking) in
            [(IMAGE, &[][..]), (ASKING, &["--change", &label, "--change", &variable])]
        {
            let import = ["docker", "import", "--change", "ENV PATH=/bin"];
            sandbox.must(&[&import, asking, &["/fixture/layer.tar", image]].concat())?;
        }
        Ok(Docker { sandbox, end })
    }

    fn run(
        &mut self,
        runtime: &str,
        options: &[&str],
        image: &str,
        script: &str,
    ) -> Result<Output> {
        let run = ["docker", "run", "--rm", "--network=host", "--runtime", runtime];
        self.sandbox.run(&[&run, options, &[image, "sh", "-c", script]].concat())
    }

    /// The option that requests a device; docker has `--annotation` since 24.
    fn asking(&self, name: &str) -> String {
        match self.end {
            End::Old => format!("--env=DEVICES={name}"),
            End::New => format!("--annotation=cdi.k8s.io/test={name}"),
        }
    }

    /// That a container does not start, and docker shows our message whole and as one line.
    fn refused(&mut self, runtime: &str, option: &str) -> Result<String> {
        let output = self.run(runtime, &[option], IMAGE, LOOK)?;
        ensure!(output.code == 125 && output.stdout.is_empty(), "{output:?}");
        let (_, ours) = output
            .stderr
            .split_once("OCI runtime create failed: ")
            .with_context(|| format!("{output:?}"))?;
        let line = ours.lines().next().unwrap_or_default();
        // containerd 1.6 adds its kind of error.
        let line = line.strip_suffix(": unknown.").unwrap_or(line).to_owned();
        let left = self.sandbox.must(&["docker", "ps", "--all", "--quiet"])?;
        // docker removes it in its own time.
        if !left.is_empty() {
            self.sandbox.until(
                "the end of the container",
                &["sh", "-c", "[ -z \"$(docker ps --all --quiet)\" ]"],
            )?;
        }
        Ok(line)
    }
}

/// What we tell people to use, with more names for the hook, and what a sandbox without a network and systemd needs.
fn configuration(end: End) -> Result<Value> {
    let mut config: Value = serde_json::from_str(&hook::documented("docker-daemon.json")?)?;
    let shim = hook::path("divvy-docker");
    config["runtimes"][DEAF] = json!({"path": hook::path("divvy-deaf")});
    config["runtimes"][WORDY] = json!({"path": shim, "runtimeArgs": ["--debug"]});
    config["runtimes"][KEEP] = json!({"path": hook::path(KEEP)});
    if end == End::New {
        config["runtimes"][BY_OPTIONS] =
            json!({"runtimeType": "io.containerd.runc.v2", "options": {"BinaryName": shim}});
    }
    config["bridge"] = "none".into();
    config["iptables"] = false.into();
    config["ip6tables"] = false.into();
    config["exec-opts"] = json!(["native.cgroupdriver=cgroupfs"]);
    Ok(config)
}

fn requests(mut docker: Docker) -> Result<()> {
    let wanted = docker.asking(device::NAME);
    let missing = docker.asking(device::MISSING);
    let runtimes: &[&str] =
        if docker.end == End::Old { &[LISTENING, WORDY] } else { &[LISTENING, WORDY, BY_OPTIONS] };
    for runtime in runtimes {
        let output = docker.run(runtime, &[&wanted], IMAGE, LOOK)?;
        ensure!(output.code == 0 && output.stdout == SEEN, "{runtime}: {output:?}");
        device::hook_ran(&docker.sandbox)?;
        let output = docker.run(runtime, &[], IMAGE, NOTHING)?;
        ensure!(output.stdout == "untouched\n", "{runtime}: {output:?}");
        device::explained(&docker.refused(runtime, &missing)?)?;
    }
    let variable = format!("--env=DEVICES={}", device::NAME);
    let output = docker.run(LISTENING, &[&variable], IMAGE, LOOK)?;
    ensure!(output.code == 0 && output.stdout == SEEN, "{output:?}");
    Ok(())
}

/// A handler with its defaults listens to no variable, and says so of annotations. An image's labels never count.
fn defaults(mut docker: Docker) -> Result<()> {
    let variable = format!("--env=DEVICES={}", device::NAME);
    for (options, image) in [(&[variable.as_str()][..], IMAGE), (&[], ASKING)] {
        let output = docker.run(DEAF, options, image, NOTHING)?;
        ensure!(output.stdout == "untouched\n", "{output:?}");
    }
    let output = docker.run(LISTENING, &["--env=DEVICES="], ASKING, NOTHING)?;
    ensure!(output.stdout == "untouched\n", "{output:?}");
    if docker.end == End::New {
        let line = docker.refused(DEAF, &docker.asking(device::NAME))?;
        ensure!(line.starts_with("divvy: REQUEST-REFUSED: annotation"), "{line}");
        ensure!(line.contains("annotations = true"), "{line}");
    }
    Ok(())
}

/// A container keeps its device when its limits change, and has it again when it is started again.
fn restart(mut docker: Docker) -> Result<()> {
    let wanted = docker.asking(device::NAME);
    let run =
        ["docker", "run", "--detach", "--network=host", "--name=container", "--runtime", LISTENING];
    docker.sandbox.must(&[&run, &[wanted.as_str(), IMAGE, "sleep", "1000"][..]].concat())?;
    let look = ["docker", "exec", "container", "sh", "-c", LOOK];
    let seen = docker.sandbox.must(&look)?;
    ensure!(seen == EXECUTED, "{seen}");
    // The rules of devices are written anew with every change.
    let update = docker.sandbox.run(&["docker", "update", "--cpu-shares=512", "container"])?;
    let seen = docker.sandbox.must(&look)?;
    ensure!(seen == EXECUTED, "{update:?}: {seen}");
    docker.sandbox.must(&["docker", "restart", "--time=0", "container"])?;
    let seen = docker.sandbox.must(&look)?;
    ensure!(seen == EXECUTED, "{seen}");
    Ok(())
}

fn claims_by_name(mut docker: Docker) -> Result<()> {
    hook::record_claim(&docker.sandbox, "local", Origin::Local)?;
    hook::record_claim(&docker.sandbox, "of-a-pod", Origin::Api)?;
    let claim = |name: &str| format!("--annotation=divvy.dev/claim={name}");
    let output = docker.run(LISTENING, &[&claim("local")], IMAGE, LOOK)?;
    ensure!(output.code == 0 && output.stdout == SEEN, "{output:?}");
    for (runtime, name, code) in [
        (LISTENING, "of-a-pod", "CLAIM-NOT-PREPARED"),
        (LISTENING, "absent", "CLAIM-NOT-PREPARED"),
        (DEAF, "local", "REQUEST-REFUSED"),
    ] {
        let line = docker.refused(runtime, &claim(name))?;
        ensure!(line.starts_with(&format!("divvy: {code}: ")), "{name}: {line}");
    }
    Ok(())
}

/// Where docker has done the same edits, the configuration stays as it is, byte for byte.
fn on_top_of_native_cdi(mut docker: Docker) -> Result<()> {
    let (device, wanted) = (format!("--device={}", device::NAME), docker.asking(device::NAME));
    // The control.
    let output = docker.run("runc", &[&device], IMAGE, LOOK)?;
    ensure!(output.code == 0 && output.stdout == SEEN, "{output:?}");
    let run = ["docker", "run", "--detach", "--network=host", "--runtime", KEEP, &device, &wanted];
    let id = docker.sandbox.must(&[&run, &[IMAGE, "sleep", "1000"][..]].concat())?;
    let id = id.trim_end();
    let seen = docker.sandbox.must(&["docker", "exec", id, "sh", "-c", LOOK])?;
    ensure!(seen == EXECUTED, "{seen}");
    let bundle = format!("/run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/{id}");
    let read = |name: &str| docker.sandbox.read(&format!("{bundle}/{name}"));
    let (before, after) = (read("before.json")?, read("config.json")?);
    ensure!(before == after, "{before}\nbecame\n{after}");
    Ok(())
}

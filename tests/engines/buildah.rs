//! The hook under buildah, which builds images: as its runtime. It passes on an environment, and neither annotations nor
//! what a precreate hook says.

use anyhow::{Result, ensure};

use crate::Test;
use crate::device::{self, LOOK, NOTHING, SEEN};
use crate::direct::{CRUN, RUNC, short};
use crate::fixture::{self, ANNOTATED, Fixture, IMAGE};
use crate::hook;
use crate::podman;
use crate::sandbox::{End, Output, Sandbox, View};

/// The shim that listens to a variable, and as it is when nothing is said.
const LISTENING: &str = "divvy-podman";
const DEAF: &str = "divvy-deaf";

/// Where buildah and CRI-O look for hooks by themselves.
const HOOKS: &str = "/usr/share/containers/oci/hooks.d/10-divvy.json";

/// A buildah that has the images loaded, and the low-level runtime of its shims.
struct Buildah {
    sandbox: Sandbox,
    view: View,
    runtime: &'static str,
}

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for end in End::ALL {
        for view in View::ALL {
            for runtime in [RUNC, CRUN] {
                let mut add = |name: &str, test: fn(Buildah) -> Result<()>| {
                    let name = format!(
                        "buildah::{name}::{}::{}::{}",
                        end.name(),
                        short(runtime),
                        view.name()
                    );
                    let body =
                        move |fixture: &Fixture| test(Buildah::start(fixture, end, view, runtime)?);
                    tests.push(Test::new(name, body).in_view(view, "devices"));
                };
                add("run", run);
                add("build", build);
                if end == End::New {
                    add("native_cdi", native_cdi);
                }
            }
            let name = format!("buildah::precreate::{}::{}", end.name(), view.name());
            let body =
                move |fixture: &Fixture| precreate(Buildah::start(fixture, end, view, RUNC)?);
            tests.push(Test::new(name, body).in_view(view, "devices"));
        }
    }
    tests
}

// === impl Buildah ===

impl Buildah {
    fn start(fixture: &Fixture, end: End, view: View, runtime: &'static str) -> Result<Buildah> {
        let mut sandbox = Sandbox::start(fixture, end, view)?;
        device::provide(&sandbox)?;
        let runtime_key = format!("runtime = {runtime:?}\n");
        let listening = format!("{runtime_key}annotations = true\nenvironment = [\"DEVICES\"]\n");
        hook::install(
            &sandbox,
            fixture,
            &[(LISTENING, "podman", &listening), (DEAF, "podman", &runtime_key)],
        )?;
        sandbox.write("/etc/containers/containers.conf", &podman::settings(""))?;
        for (image, container) in [(IMAGE, "plain"), (ANNOTATED, "annotated")] {
            let archive = format!("oci-archive:/fixture/{}", fixture::archive(image));
            sandbox.must(&["buildah", "from", "--quiet", "--name", container, &archive])?;
        }
        Ok(Buildah { sandbox, view, runtime })
    }

    /// Runs a script in one of the containers.
    fn run(
        &mut self,
        runtime: &str,
        options: &[&str],
        container: &str,
        script: &str,
    ) -> Result<Output> {
        let run = ["buildah", "run", "--runtime", runtime];
        self.sandbox.run(&[&run, options, &["--", container, "sh", "-c", script]].concat())
    }

    fn shim(
        &mut self,
        name: &str,
        options: &[&str],
        container: &str,
        script: &str,
    ) -> Result<Output> {
        self.run(&hook::path(name), options, container, script)
    }

    /// Builds an image with one instruction besides its base.
    fn build(&mut self, options: &[&str], instructions: &str) -> Result<Output> {
        let file = format!("FROM {IMAGE}\n{instructions}\n");
        self.sandbox.write("/tmp/context/Containerfile", &file)?;
        let build = ["buildah", "build", "--pull-never", "--no-cache"];
        self.sandbox.run(&[&build, options, &["/tmp/context"]].concat())
    }
}

fn run(mut buildah: Buildah) -> Result<()> {
    let wanted = format!("--env=DEVICES={}", device::NAME);
    let missing = format!("--env=DEVICES={}", device::MISSING);
    // A container keeps what mounts made in its root, so first those that are to find nothing there.
    for (name, options) in [(LISTENING, &[][..]), (DEAF, &[wanted.as_str()])] {
        let output = buildah.shim(name, options, "plain", NOTHING)?;
        ensure!(output.stdout == "untouched\n", "{name}: {output:?}");
    }
    // Annotations are of the image that is made, whether its base or the caller says them: none reaches a runtime.
    let annotation = format!("cdi.k8s.io/test={}", device::NAME);
    buildah.sandbox.must(&["buildah", "config", "--annotation", &annotation, "plain"])?;
    for container in ["plain", "annotated"] {
        let output = buildah.shim(LISTENING, &[], container, NOTHING)?;
        ensure!(output.stdout == "untouched\n", "{container}: {output:?}");
    }
    let output = buildah.shim(LISTENING, &[&wanted], "plain", LOOK)?;
    ensure!(output.code == 0 && output.stdout == SEEN, "{output:?}");
    device::hook_ran(&buildah.sandbox)?;
    let output = buildah.shim(LISTENING, &[&missing], "plain", LOOK)?;
    ensure!(output.code != 0 && output.stdout.is_empty(), "{output:?}");
    let ours = output.stderr.find("divvy: ").and_then(|at| output.stderr.get(at..));
    device::explained(ours.unwrap_or_default().lines().next().unwrap_or_default())
}

/// The instructions of a build get the variable by ENV. With chroot isolation no runtime is called, so nothing is there.
fn build(mut buildah: Buildah) -> Result<()> {
    let shim = format!("--runtime={}", hook::path(LISTENING));
    let asking = |name: &str, then: &str| format!("ENV DEVICES={name}\nRUN {then}");
    let sees = format!("{LOOK}; [ \"$GPU\" = gpu0 ]");
    let instructions = asking(device::NAME, &sees);
    let output = buildah.build(&[&shim], &instructions)?;
    ensure!(output.code == 0 && output.stdout.contains("opened\ndriver 1.0"), "{output:?}");
    let output = buildah.build(&[&shim], &asking(device::MISSING, "true"))?;
    ensure!(output.code != 0 && output.stderr.contains("divvy: UNRESOLVED"), "{output:?}");
    let output =
        buildah.build(&[&shim, "--isolation=chroot"], &asking(device::MISSING, NOTHING))?;
    ensure!(output.code == 0 && output.stdout.contains("untouched"), "{output:?}");
    Ok(())
}

/// The control: buildah 1.43 writes a rule without access for its own --device, which runc refuses whatever the spec
/// says, and the kernel too with cgroup v1.
fn native_cdi(mut buildah: Buildah) -> Result<()> {
    let device = format!("--device={}", device::NAME);
    let output = buildah.run(buildah.runtime, &[&device], "plain", LOOK)?;
    if buildah.runtime == CRUN && buildah.view == View::V2 {
        ensure!(output.code == 0 && output.stdout == SEEN, "{output:?}");
    } else {
        ensure!(output.code != 0 && output.stdout.is_empty(), "{output:?}");
    }
    Ok(())
}

/// The control: buildah takes no precreate hook, and runs nothing while one lies where it looks.
fn precreate(mut buildah: Buildah) -> Result<()> {
    buildah.sandbox.write(HOOKS, &hook::documented("podman-precreate.json")?)?;
    let output = buildah.run(buildah.runtime, &[], "plain", "true")?;
    ensure!(output.code != 0 && output.stderr.contains("unknown stage"), "{output:?}");
    Ok(())
}

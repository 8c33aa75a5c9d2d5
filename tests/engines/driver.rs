//! A claim on a fake driver: what a container finds of its libraries, under runc, crun and podman.

use anyhow::{Context, Result, ensure};
use divvy_fake_nvml::{FakeHost, Layout};
use serde_json::json;

use crate::Test;
use crate::bundle;
use crate::container::PROVIDE;
use crate::direct::{CRUN, RUNC, short};
use crate::fixture::{self, Fixture};
use crate::hook;
use crate::sandbox::{End, Output, Run, Sandbox, View};

const BUNDLE: &str = "/tmp/bundle";
const SHIM: &str = "divvy-runtime";
/// Where the host with the driver is.
pub const HOST: &str = "/opt/host";

pub const CLAIM: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu}
spec: {devices: {requests: [{name: a, exactly: {deviceClassName: gpu.divvy.dev}}]}}
";

/// Gives the driver two libraries more, which a program needs and which no loader finds by itself.
const ADD: &str = r#"set -e
for name in libselinux.so.1 libpcre2-8.so.0; do
  cp "$(readlink -f /usr/lib/*-linux-gnu/$name)" "$1/${name%.so*}.so.580.65.06"
done"#;

/// Prints what a container sees of the driver.
const LOOK: &str = r#"
/bin/probe --version | head -n 1
for name in libcuda.so libcuda.so.1 libnvidia-ml.so.1 libGLX_indirect.so.0; do
  [ -f "$1/$name" ] && echo "$name"
done
(echo x >"$1/libcuda.so.1") 2>/dev/null || echo read-only
head -n 1 /usr/bin/nvidia-smi
[ -S /run/nvidia-persistenced/socket ] && echo socket
[ -f /lib/firmware/nvidia/580.65.06/gsp_ga10x.bin ] && echo firmware
[ -c /dev/nvidia0 ] && [ -c /dev/nvidiactl ] && echo nodes
grep -c "$1/libnvidia-ml.so.1" /etc/ld.so.cache
echo "$NVIDIA_VISIBLE_DEVICES"
"#;
const SEEN: [&str; 9] = [
    "coreutils",
    "libcuda.so\nlibcuda.so.1\nlibnvidia-ml.so.1\nlibGLX_indirect.so.0\n",
    "read-only",
    "#!/bin/sh",
    "socket",
    "firmware",
    "nodes",
    "\n1\n",
    "void",
];

/// How a container gets the GPU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// By a claim, through the shim.
    Claim,
    /// By the name that the node's spec has for it, from podman itself.
    Name,
}

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for end in End::ALL {
        for view in View::ALL {
            for runtime in [RUNC, CRUN] {
                for &layout in layouts(end) {
                    let name = format!(
                        "driver::{layout:?}::{}::{}::{}",
                        end.name(),
                        short(runtime),
                        view.name()
                    )
                    .to_lowercase();
                    let run = move |fixture: &Fixture| {
                        direct(Sandbox::start(fixture, end, view)?, fixture, runtime, layout)
                    };
                    tests.push(Test::new(name, run).in_view(view, "devices"));
                }
            }
        }
    }
    for view in View::ALL {
        let run = move |fixture: &Fixture| podman(fixture, End::New, view, By::Claim);
        let name = format!("driver::podman::new::crun::{}", view.name());
        tests.push(Test::new(name, run).in_view(view, "cpuset"));
        for end in End::ALL {
            let run = move |fixture: &Fixture| podman(fixture, end, view, By::Name);
            let name = format!("driver::generate::{}::crun::{}", end.name(), view.name());
            tests.push(Test::new(name, run).in_view(view, "cpuset"));
        }
    }
    tests
}

fn layouts(end: End) -> &'static [Layout] {
    match end {
        End::Old => &[Layout::Debian],
        End::New => &[Layout::Container, Layout::NixOs],
    }
}

/// Prepares a claim on a fake host; the folder of the driver's libraries.
fn prepare(
    sandbox: &mut Sandbox,
    fixture: &Fixture,
    runtime: &str,
    layout: Layout,
) -> Result<String> {
    let keys = format!("annotations = true\nruntime = {runtime:?}");
    hook::install(sandbox, fixture, &[(SHIM, "ctr", &keys)])?;
    let host = FakeHost::make_as(layout, &sandbox.path(HOST), &[("H100-80GB", false)])?;
    let libraries = layout.libraries(&host.state()?.driver);
    let folder = host.root().join(layout.root()).join(&libraries);
    let added = std::process::Command::new("sh").args(["-c", ADD, "sh"]).arg(&folder).status()?;
    ensure!(added.success(), "the libraries of a program");
    let divvy = std::fs::read(env!("CARGO_BIN_EXE_divvy"))?;
    sandbox.write_mode(&hook::path("divvy"), &divvy, 0o755)?;
    sandbox.write("/tmp/claim.yaml", CLAIM)?;
    let gpus = format!("nvml:{HOST}");
    let said = sandbox.must(&[
        &hook::path("divvy"),
        "prepare",
        "-f",
        "/tmp/claim.yaml",
        "--gpus",
        &gpus,
    ])?;
    ensure!(said.contains("claim default/gpu: prepared"), "{said}");
    Ok(format!("/{libraries}"))
}

/// That a container saw all of it.
fn seen(output: &Output) -> Result<()> {
    for text in SEEN {
        ensure!(output.stdout.contains(text), "{text:?} is missing: {output:?}");
    }
    Ok(())
}

fn direct(mut sandbox: Sandbox, fixture: &Fixture, runtime: &str, layout: Layout) -> Result<()> {
    let folder = prepare(&mut sandbox, fixture, runtime, layout)?;
    let mut config = bundle::config(&["sh", "-c", LOOK, "sh", &folder]);
    bundle::write(&mut sandbox, BUNDLE, &config)?;
    let root = format!("{BUNDLE}/rootfs");
    sandbox.must(&["bash", "-c", PROVIDE, "bash", &root])?;
    sandbox.must(&["rm", "-r", &format!("{root}/opt/driver")])?;
    let run = [&*hook::path(SHIM), "run", "--bundle", BUNDLE, "c"];
    // The control: without the claim nothing of it is there.
    let output = sandbox.run(&run)?;
    ensure!(SEEN[..2].iter().all(|text| !output.stdout.contains(text)), "{output:?}");

    config["annotations"] = json!({"divvy.dev/claim": "gpu"});
    for _ in 0..2 {
        sandbox.write(&format!("{BUNDLE}/config.json"), &serde_json::to_string(&config)?)?;
        seen(&sandbox.run(&run)?)?;
    }
    // A part of the driver that is gone stops a container, which would fail later and say less.
    let spec = sandbox.must(&["sh", "-c", "cat /var/run/cdi/*.json"])?;
    let spec: serde_json::Value = serde_json::from_str(&spec)?;
    let args = spec["containerEdits"]["hooks"][0]["args"].as_array().context("no hook")?;
    let mut mounts = args.iter().filter_map(|arg| arg.as_str()?.strip_prefix(HOST));
    let gone = mounts.next().and_then(|mount| mount.split("::").next()).context("no mount")?;
    let gone = format!("{HOST}{gone}");
    std::fs::remove_file(sandbox.path(&gone))?;
    sandbox.write(&format!("{BUNDLE}/config.json"), &serde_json::to_string(&config)?)?;
    let output = sandbox.run(&run)?;
    ensure!(output.code != 0 && output.stdout.is_empty(), "{output:?}");
    let said = format!("CONTAINER-MOUNT: {gone}");
    // crun says no more of a hook than that it failed.
    ensure!(runtime == CRUN || output.stderr.contains(&said), "{output:?}");
    ensure!(sandbox.read("/run/divvy/hook.log")?.contains(&said), "{output:?}");
    Ok(())
}

fn podman(fixture: &Fixture, end: End, view: View, by: By) -> Result<()> {
    let mut sandbox = Sandbox::start(fixture, end, view)?;
    let folder = prepare(&mut sandbox, fixture, CRUN, Layout::Container)?;
    let (divvy, gpus) = (hook::path("divvy"), format!("nvml:{HOST}"));
    // podman 4.3 reads no newer CDI.
    let to = ["--write", "/etc/cdi/nvidia.yaml", "--cdi-version", "0.5.0"];
    sandbox.must(&[&[&*divvy, "generate", "--gpus", &gpus], &to[..]].concat())?;
    sandbox.write(
        "/etc/containers/containers.conf",
        "[containers]\ndefault_ulimits = [\"nofile=1024:4096\", \"nproc=1024:4096\"]\npids_limit = 0\n\
         netns = \"host\"\n[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n",
    )?;
    let archive = format!("/fixture/{}", fixture::archive(fixture::IMAGE));
    sandbox.must(&["podman", "load", "--quiet", "--input", &archive])?;
    // What a program needs of glibc comes from the host here.
    let root = "/tmp/provided";
    sandbox.must(&["mkdir", "-p", &format!("{root}/bin")])?;
    sandbox.must(&["bash", "-c", PROVIDE, "bash", root])?;
    let (runtime, ask) = match by {
        By::Claim => (hook::path(SHIM), "--annotation=divvy.dev/claim=gpu"),
        By::Name => (CRUN.to_owned(), "--device=nvidia.com/gpu=0"),
    };
    let mut argv = vec!["podman".to_owned(), format!("--runtime={runtime}")];
    argv.extend(["run", "--rm", "--pull=never", ask].map(Into::into));
    for entry in std::fs::read_dir(sandbox.path(root))? {
        let name = entry?.file_name();
        let name = name.to_str().context("a name")?;
        match name {
            "bin" => argv.push(format!("--volume={root}/bin/probe:/bin/probe:ro")),
            "lib" | "lib64" => argv.push(format!("--volume={root}/{name}:/{name}")),
            _ => {}
        }
    }
    argv.extend([fixture::IMAGE, "sh", "-c", LOOK, "sh", &folder].map(Into::into));
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    seen(&sandbox.finish(&Run::new(&argv).env("PODMAN_IGNORE_CGROUPSV1_WARNING", "1"))?)
}

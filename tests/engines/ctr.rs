//! The hook under `ctr`: containerd without Kubernetes.

use anyhow::{Result, ensure};

use crate::Test;
use crate::containerd::Containerd;
use crate::device::{self, MATCHED, sees, sees_nothing};
use crate::fixture::{ANNOTATED, Fixture, IMAGE};
use crate::hook;
use crate::sandbox::{End, Output};

const HANDLERS: [(&str, &str, &str); 2] = [
    ("divvy-ctr", "ctr", "annotations = true\nruntime = \"/usr/sbin/runc\""),
    ("divvy-deaf", "ctr", "annotations = false\nruntime = \"/usr/sbin/runc\""),
];

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for end in End::ALL {
        let name = |what: &str| format!("ctr::{what}::{}", end.name());
        tests.push(Test::new(name("hundred_runs"), move |fixture| {
            hundred_runs(&mut start(fixture, end)?)
        }));
        tests.push(Test::new(name("untrusted_requests"), move |fixture| {
            untrusted_requests(&mut start(fixture, end)?)
        }));
        tests.push(Test::new(name("error"), move |fixture| error(&mut start(fixture, end)?)));
    }
    tests
}

fn start(fixture: &Fixture, end: End) -> Result<Containerd> {
    let containerd = Containerd::start(fixture, end, &[], true)?;
    device::provide(&containerd.sandbox)?;
    hook::install(&containerd.sandbox, fixture, &HANDLERS)?;
    Ok(containerd)
}

fn run(
    containerd: &mut Containerd,
    handler: &str,
    request: &str,
    image: &str,
    script: &str,
) -> Result<Output> {
    let binary = hook::path(handler);
    let annotation = ["--annotation", request];
    let mut argv = vec!["ctr", "--namespace", "k8s.io", "run", "--rm", "--runc-binary", &binary];
    if !request.is_empty() {
        argv.extend(annotation);
    }
    argv.extend([image, "c", "sh", "-c", script]);
    containerd.sandbox.run(&argv)
}

fn hundred_runs(containerd: &mut Containerd) -> Result<()> {
    let request = format!("cdi.k8s.io/test={}", device::NAME);
    for turn in 0..100 {
        let output = run(containerd, "divvy-ctr", &request, IMAGE, &sees())?;
        ensure!(output.code == MATCHED, "turn {turn}: {output:?}");
        device::hook_ran(&containerd.sandbox)?;
    }
    Ok(())
}

fn untrusted_requests(containerd: &mut Containerd) -> Result<()> {
    let output = run(containerd, "divvy-ctr", "", IMAGE, &sees_nothing())?;
    ensure!(output.code == MATCHED, "{output:?}");
    // The image asks, not the caller.
    let output = run(containerd, "divvy-ctr", "", ANNOTATED, &sees_nothing())?;
    ensure!(output.code == MATCHED, "{output:?}");
    // The configuration does not listen to annotations.
    let request = format!("cdi.k8s.io/test={}", device::NAME);
    let output = run(containerd, "divvy-deaf", &request, IMAGE, &sees_nothing())?;
    ensure!(output.code == 1 && output.stdout.is_empty(), "{output:?}");
    ensure!(output.stderr.contains("divvy: REQUEST-REFUSED"), "{output:?}");
    Ok(())
}

fn error(containerd: &mut Containerd) -> Result<()> {
    let request = format!("cdi.k8s.io/test={}", device::MISSING);
    let output = run(containerd, "divvy-ctr", &request, IMAGE, &sees())?;
    ensure!(output.code == 1, "{output:?}");
    let message = output
        .stderr
        .split_once("OCI runtime create failed: ")
        .map(|(_, message)| message.trim_end());
    device::explained(message.unwrap_or_default())?;
    Ok(())
}

//! The hook as CRI-O calls it. Debian has no CRI-O, so its part is played: the configuration's annotations and the
//! command lines are those that CRI-O 1.35 was seen to give to conmon, and conmon is real.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::Test;
use crate::bundle;
use crate::device::{self, LOOK, NOTHING, SEEN};
use crate::direct::{CRUN, RUNC, short};
use crate::fixture::Fixture;
use crate::hook;
use crate::sandbox::{End, Output, Run, Sandbox, View};

const BUNDLE: &str = "/run/containers/storage/overlay-containers/c/userdata";
const SHIM: &str = "divvy-crio";
const POD: &str = "uid-of-pod";
const ROOT: &str = "/run/runtime";
/// What conmon tells CRI-O.
const SYNC: &str = "/tmp/sync";

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for (end, runtime) in [(End::Old, RUNC), (End::Old, CRUN), (End::New, RUNC), (End::New, CRUN)] {
        let mut add = |name: &str, test: fn(&mut Sandbox) -> Result<()>| {
            let name = format!("crio::{name}::{}::{}", end.name(), short(runtime));
            tests.push(Test::new(name, move |fixture| test(&mut start(fixture, end, runtime)?)));
        };
        add("life", life);
        add("requests", requests);
        add("error", error);
    }
    tests
}

fn start(fixture: &Fixture, end: End, runtime: &str) -> Result<Sandbox> {
    let sandbox = Sandbox::start(fixture, end, View::with_controllers()?)?;
    device::provide(&sandbox)?;
    let keys = format!("runtime = {runtime:?}\nrequire_record = false");
    hook::install(&sandbox, fixture, &[(SHIM, "crio", &keys)])?;
    Ok(sandbox)
}

/// A container's configuration. `own` are the annotations of the container; the pod's are merged into the plain keys.
fn config(script: &str, kind: &str, own: &Value, pod: &Value) -> Value {
    let mut config = bundle::config(&["sh", "-c", script]);
    let labels = json!({
        "io.kubernetes.container.name": "gpu",
        "io.kubernetes.pod.name": "pod",
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": POD,
    });
    let mut annotations = json!({
        "io.container.manager": "cri-o",
        "io.kubernetes.cri-o.ContainerType": kind,
        "io.kubernetes.cri-o.ContainerName": "gpu",
        "io.kubernetes.cri-o.Labels": labels.to_string(),
        "io.kubernetes.cri-o.Annotations": own.to_string(),
    });
    for source in [own, pod] {
        for (key, value) in source.as_object().into_iter().flatten() {
            annotations[key] = value.clone();
        }
    }
    config["annotations"] = annotations;
    config
}

fn asks(name: &str) -> Value {
    json!({"cdi.k8s.io/test": name})
}

/// Calls the shim as conmon does, and gives the container's output.
fn create(sandbox: &mut Sandbox, config: &Value) -> Result<Output> {
    bundle::write(sandbox, BUNDLE, config)?;
    let root = format!("--root={ROOT}");
    let pid = format!("{BUNDLE}/pidfile");
    let argv = [&hook::path(SHIM), &root, "create", "--bundle", BUNDLE, "--pid-file", &pid, "c"];
    sandbox.finish(&Run::new(&argv).dir(BUNDLE))
}

/// Starts and deletes it as CRI-O does itself, with the root as a word of its own.
fn finish(sandbox: &mut Sandbox) -> Result<String> {
    let shim = hook::path(SHIM);
    sandbox.must(&[&shim, "--root", ROOT, "state", "c"])?;
    sandbox.must(&[&shim, "--root", ROOT, "start", "c"])?;
    let done = format!("{BUNDLE}/rootfs/done");
    sandbox.until("the container's output", &["cat", &done])?;
    let output = sandbox.read(&format!("{BUNDLE}/rootfs/out"))?;
    sandbox.must(&[&shim, "--root", ROOT, "delete", "--force", "c"])?;
    sandbox.must(&["rm", "-rf", BUNDLE])?;
    Ok(output)
}

fn keeping(script: &str) -> String {
    format!("{{ {script}; }} >/out; : >/done")
}

fn life(sandbox: &mut Sandbox) -> Result<()> {
    hook::record_pod(sandbox, (POD, "pod"), "gpu")?;
    let output = create(sandbox, &config(&keeping(LOOK), "container", &json!({}), &json!({})))?;
    ensure!(output.code == 0 && output.stderr.is_empty(), "{output:?}");
    let seen = finish(sandbox)?;
    ensure!(seen == SEEN, "{seen}");
    device::hook_ran(sandbox)
}

fn requests(sandbox: &mut Sandbox) -> Result<()> {
    let wanted = asks(device::NAME);
    for (own, pod, script, expected) in [
        (&wanted, &json!({}), LOOK, SEEN),
        // Any pod author writes these.
        (&json!({}), &wanted, NOTHING, "untouched\n"),
        (&Value::Null, &wanted, NOTHING, "untouched\n"),
    ] {
        let output = create(sandbox, &config(&keeping(script), "container", own, pod))?;
        ensure!(output.code == 0, "{output:?}");
        let seen = finish(sandbox)?;
        ensure!(seen == expected, "{own} {pod}: {seen}");
    }
    // The pod's own container is left alone, whatever its record and annotations say.
    hook::record_pod(sandbox, (POD, "pod"), "gpu")?;
    let pause = config(&keeping(NOTHING), "sandbox", &wanted, &wanted);
    create(sandbox, &pause)?;
    let after = sandbox.read(&format!("{BUNDLE}/config.json"))?;
    ensure!(
        pause == after.as_str() || serde_json::to_string(&pause)? == after,
        "the sandbox was edited: {after}"
    );
    finish(sandbox)?;
    Ok(())
}

/// The message as CRI-O reads it from conmon: `container create failed: MESSAGE`.
fn error(sandbox: &mut Sandbox) -> Result<()> {
    let config = config(LOOK, "container", &asks(device::MISSING), &json!({}));
    let output = create(sandbox, &config)?;
    ensure!(output.code == 1 && output.stdout.is_empty(), "{output:?}");
    device::explained(output.stderr.trim_end())?;
    let arguments = format!("--root={ROOT}");
    let shim = hook::path(SHIM);
    let conmon = [
        "conmon",
        "--bundle",
        BUNDLE,
        "--cid",
        "c",
        "--cuuid",
        "c",
        "--name",
        "c",
        "--runtime",
        &shim,
        "--runtime-arg",
        &arguments,
        "--conmon-pidfile",
        "/tmp/conmon.pid",
        "--container-pidfile",
        "/tmp/pid",
        "--log-path",
        "k8s-file:/tmp/log",
        "--exit-dir",
        "/tmp",
        "--persist-dir",
        "/tmp",
        "--socket-dir-path",
        "/tmp",
        "--sync",
    ];
    let script = format!("exec 3>{SYNC}; _OCI_SYNCPIPE=3 \"$@\" </dev/null >/dev/null 2>&1");
    let argv: Vec<&str> = ["sh", "-c", &script, "sh"].into_iter().chain(conmon).collect();
    sandbox.run(&argv)?;
    let told: Value = serde_json::from_str(&sandbox.read(SYNC)?).context("conmon's answer")?;
    device::explained(told["message"].as_str().unwrap_or_default().trim_end())
}

//! The hook under containerd's CRI, as the kubelet calls it.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::Test;
use crate::containerd::{Container, Containerd, Pod};
use crate::device::{self, MATCHED, sees, sees_nothing};
use crate::fixture::{ANNOTATED, Fixture};
use crate::hook;
use crate::sandbox::End;

/// Handlers of the shim: one of a RuntimeClass, one that is a node's default runtime.
const CLASS: &str = "divvy-class";
const DEFAULT: &str = "divvy-default";
/// The low-level runtime, without divvy.
const PLAIN: &str = "plain";
/// The shim, but the bundle's configuration is kept as the engine wrote it.
const KEEP: &str = "keep";

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    let mut add =
        |name: &str, end: End, runtime: &'static str, test: fn(Containerd) -> Result<()>| {
            let native = name.contains("native");
            let name = format!(
                "cri::{name}::{}::{}",
                end.name(),
                runtime.rsplit('/').next().unwrap_or_default()
            );
            tests.push(Test::new(name, move |fixture| test(start(fixture, end, runtime, native)?)));
        };
    for (end, runtime) in [(End::Old, RUNC), (End::New, RUNC), (End::New, CRUN)] {
        add("pod_record", end, runtime, pod_record);
        add("record_required", end, runtime, record_required);
        add("container_annotation", end, runtime, container_annotation);
        add("foreign_annotations", end, runtime, foreign_annotations);
        add("error", end, runtime, error);
    }
    for end in End::ALL {
        add("documented_configuration", end, RUNC, documented_configuration);
    }
    add("native_cdi_is_dropped", End::Old, RUNC, native_cdi_is_dropped);
    for runtime in [RUNC, CRUN] {
        add("native_cdi", End::New, runtime, native_cdi);
        add("on_top_of_native_cdi", End::New, runtime, on_top_of_native_cdi);
        add("native_cdi_in_user_namespace", End::New, runtime, native_cdi_in_user_namespace);
        add("user_namespace", End::New, runtime, user_namespace);
    }
    tests
}

const RUNC: &str = "/usr/sbin/runc";
const CRUN: &str = "/usr/bin/crun";

/// `native` is whether the engine itself does what CDI names ask for, where it can.
fn start(fixture: &Fixture, end: End, runtime: &str, native: bool) -> Result<Containerd> {
    let (class, default, keep) = (hook::path(CLASS), hook::path(DEFAULT), hook::path(KEEP));
    let handlers = [(PLAIN, runtime), (CLASS, class.as_str()), (DEFAULT, &default), (KEEP, &keep)];
    let containerd = Containerd::start(fixture, end, &handlers, native)?;
    let sandbox = &containerd.sandbox;
    device::provide(sandbox)?;
    let keys = format!("runtime = {runtime:?}\n");
    let optional = format!("{keys}require_record = false\n");
    hook::install(
        sandbox,
        fixture,
        &[(CLASS, "cri", &keys), (DEFAULT, "cri", &optional), ("divvy-runtime", "cri", "")],
    )?;
    sandbox.write_mode(&keep, hook::keeping(DEFAULT).as_bytes(), 0o755)?;
    Ok(containerd)
}

fn annotated(name: &str) -> Value {
    json!({"cdi.k8s.io/test": name})
}

/// A container gets what the pod's record says of it; its neighbour and the sandbox get nothing.
fn pod_record(mut containerd: Containerd) -> Result<()> {
    let pod = Pod::new("recorded", CLASS);
    hook::record_pod(&containerd.sandbox, (&pod.uid(), pod.name), "gpu")?;
    let sandbox = containerd.pod(&pod)?;
    let ended = containerd.run(&pod, &sandbox, &Container::new("gpu", sees()))?;
    ensure!(ended.code == MATCHED, "{ended:?}");
    device::hook_ran(&containerd.sandbox)?;
    let ended = containerd.run(&pod, &sandbox, &Container::new("neighbour", sees_nothing()))?;
    ensure!(ended.code == MATCHED, "{ended:?}");
    let config = containerd.config(&sandbox)?;
    ensure!(!config.contains(device::PATH), "the sandbox was edited: {config}");
    Ok(())
}

/// A RuntimeClass's container waits for the record, a default runtime's does not.
fn record_required(mut containerd: Containerd) -> Result<()> {
    let pod = Pod::new("class", CLASS);
    let sandbox = containerd.pod(&pod)?;
    let container = Container::new("gpu", sees());
    let Err((message, _)) = containerd.start_container(&pod, &sandbox, &container)? else {
        anyhow::bail!("started without a record");
    };
    let told = [pod.uid().as_str(), "/run/divvy/pods"].iter().all(|word| message.contains(word));
    ensure!(told && message.contains("CLAIM-NOT-PREPARED"), "{message}");
    hook::record_pod(&containerd.sandbox, (&pod.uid(), pod.name), "gpu")?;
    // As the kubelet tries again, with another attempt's name.
    let container = Container { attempt: 1, ..container };
    let ended = containerd.run(&pod, &sandbox, &container)?;
    ensure!(ended.code == MATCHED, "{ended:?}");

    let pod = Pod::new("default", DEFAULT);
    let sandbox = containerd.pod(&pod)?;
    let ended = containerd.run(&pod, &sandbox, &Container::new("c", sees_nothing()))?;
    ensure!(ended.code == MATCHED, "{ended:?}");
    Ok(())
}

fn container_annotation(mut containerd: Containerd) -> Result<()> {
    let pod = Pod::new("annotation", DEFAULT);
    let sandbox = containerd.pod(&pod)?;
    let container =
        Container { annotations: annotated(device::NAME), ..Container::new("c", sees()) };
    let ended = containerd.run(&pod, &sandbox, &container)?;
    ensure!(ended.code == MATCHED, "{ended:?}");
    Ok(())
}

/// What a pod's or an image's author writes requests nothing.
fn foreign_annotations(mut containerd: Containerd) -> Result<()> {
    hook::record_claim(&containerd.sandbox, "local", divvy_hook::record::Origin::Local)?;
    let wishes = json!({"cdi.k8s.io/test": device::NAME, "divvy.dev/claim": "local"});
    let pod = Pod { annotations: wishes.clone(), ..Pod::new("wishes", DEFAULT) };
    let sandbox = containerd.pod(&pod)?;
    let ended = containerd.run(&pod, &sandbox, &Container::new("pod", sees_nothing()))?;
    ensure!(ended.code == MATCHED, "{ended:?}");
    let container = Container { image: ANNOTATED, ..Container::new("image", sees_nothing()) };
    let ended = containerd.run(&pod, &sandbox, &container)?;
    ensure!(ended.code == MATCHED, "{ended:?}");
    Ok(())
}

/// The message arrives whole where `kubectl describe` shows it.
fn error(mut containerd: Containerd) -> Result<()> {
    let pod = Pod::new("error", DEFAULT);
    let sandbox = containerd.pod(&pod)?;
    let container =
        Container { annotations: annotated(device::MISSING), ..Container::new("c", sees()) };
    let Err((message, id)) = containerd.start_container(&pod, &sandbox, &container)? else {
        anyhow::bail!("started without its device");
    };
    let ours = message.split_once("OCI runtime create failed: ").map(|(_, ours)| ours);
    device::explained(ours.with_context(|| format!("not from the runtime: {message}"))?)?;
    let ended = containerd.ended(&pod, "c", &id)?;
    ensure!(ended.reason == "StartError" && ended.code == 128, "{ended:?}");
    ensure!(ended.message == message, "{ended:?}\n{message}");
    Ok(())
}

/// The control for the old end: the CRI's own field is unknown to containerd 1.6, and nobody says so.
fn native_cdi_is_dropped(mut containerd: Containerd) -> Result<()> {
    let pod = Pod::new("dropped", PLAIN);
    let sandbox = containerd.pod(&pod)?;
    let container = Container { cdi: &[device::NAME], ..Container::new("c", sees_nothing()) };
    let ended = containerd.run(&pod, &sandbox, &container)?;
    ensure!(ended.code == MATCHED, "{ended:?}");
    Ok(())
}

/// The control for the new end.
fn native_cdi(mut containerd: Containerd) -> Result<()> {
    let pod = Pod::new("native", PLAIN);
    let sandbox = containerd.pod(&pod)?;
    let container = Container { cdi: &[device::NAME], ..Container::new("c", sees()) };
    let ended = containerd.run(&pod, &sandbox, &container)?;
    ensure!(ended.code == MATCHED, "{ended:?}");
    Ok(())
}

/// Where the engine has done the same edits, the configuration stays as it is, byte for byte.
fn on_top_of_native_cdi(mut containerd: Containerd) -> Result<()> {
    let pod = Pod::new("both", KEEP);
    let sandbox = containerd.pod(&pod)?;
    let annotations = annotated(device::NAME);
    let container =
        Container { annotations, cdi: &[device::NAME], ..Container::new("c", "sleep 60") };
    let started = containerd.start_container(&pod, &sandbox, &container)?;
    let id = started.map_err(|(message, _)| anyhow::anyhow!(message))?;
    let after = containerd.config(&id)?;
    let before = containerd.bundle_file(&id, "before.json")?;
    ensure!(before == after, "edited again:\n{before}\n{after}");
    let config: Value = serde_json::from_str(&after)?;
    let devices = config["linux"]["devices"].as_array().context("no devices")?;
    ensure!(devices.iter().filter(|node| node["path"] == device::PATH).count() == 1, "{after}");
    ensure!(after.matches("GPU=gpu0").count() == 1, "{after}");
    Ok(())
}

/// The control: there, runc binds the host's node of the container's path, whatever the spec says, and crun 1.28 dies of
/// a mount without a type, which CDI specs need not give.
fn native_cdi_in_user_namespace(mut containerd: Containerd) -> Result<()> {
    let pod = Pod { user_namespace: true, ..Pod::new("mapped", PLAIN) };
    let sandbox = containerd.pod(&pod)?;
    let container = Container { cdi: &[device::NAME], ..Container::new("c", sees()) };
    let Err((message, _)) = containerd.start_container(&pod, &sandbox, &container)? else {
        anyhow::bail!("native CDI works in a user namespace now: say so in the documentation");
    };
    ensure!(
        message.contains("mount src=/dev/gpu0") || message.contains("sync socket"),
        "{message}"
    );
    Ok(())
}

/// A container in a user namespace opens a device that it sees at another path than the host.
fn user_namespace(mut containerd: Containerd) -> Result<()> {
    let pod = Pod { user_namespace: true, ..Pod::new("mapped", DEFAULT) };
    let sandbox = containerd.pod(&pod)?;
    let container =
        Container { annotations: annotated(device::NAME), ..Container::new("c", sees()) };
    let ended = containerd.run(&pod, &sandbox, &container)?;
    ensure!(ended.code == MATCHED, "{ended:?}");

    // A node that only root may open is of no use there, and is refused before the container starts.
    containerd.sandbox.must(&["chmod", "0600", device::NODE])?;
    let container = Container { name: "private", ..container };
    let Err((message, _)) = containerd.start_container(&pod, &sandbox, &container)? else {
        anyhow::bail!("started with a device that it cannot open");
    };
    ensure!(message.contains("USERNS-MODE") && message.contains(device::NODE), "{message}");
    Ok(())
}

/// The files that we tell people to use. Here the low-level runtime is found, not configured.
fn documented_configuration(mut containerd: Containerd) -> Result<()> {
    let pod = Pod::new("documented", "divvy");
    hook::record_pod(&containerd.sandbox, (&pod.uid(), pod.name), "gpu")?;
    let sandbox = containerd.pod(&pod)?;
    let ended = containerd.run(&pod, &sandbox, &Container::new("gpu", sees()))?;
    ensure!(ended.code == MATCHED, "{ended:?}");
    let container =
        Container { annotations: annotated(device::NAME), ..Container::new("annotated", sees()) };
    let ended = containerd.run(&pod, &sandbox, &container)?;
    ensure!(ended.code == MATCHED, "{ended:?}");
    Ok(())
}

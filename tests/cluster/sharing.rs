//! GPUs that the containers of a claim share: by turns, and through MPS.

use anyhow::{Context, Result, ensure};

use crate::claims::GPUS;
use crate::manifest::{ANY, Pod, by_name, claim, look_and_stay, pod};
use crate::node::Node;
use crate::pods::SOON;
use crate::{Test, group};

/// Settings in our form and in that of NVIDIA's driver.
const TURNS: [(&str, &str); 2] = [
    ("gpu.divvy.dev/v1alpha1, kind: GpuConfig", "sharing: {timeSlicing: {interval: Short}}"),
    (
        "resource.nvidia.com/v1beta1, kind: GpuConfig",
        "sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}",
    ),
];

/// Looks for a daemon of MPS beside the devices.
const CLIENT: &str = r#"[ -S "$CUDA_MPS_PIPE_DIRECTORY/control" ] && echo /dev/daemon"#;

pub fn tests() -> Vec<Test> {
    group(GPUS, [("sharing::turns", turns), ("sharing::mps", mps), ("sharing::refused", refused)])
}

fn configured(version_and_kind: &str, settings: &str) -> String {
    format!(
        "{ANY}, config: [{{requests: [gpu], opaque: {{driver: gpu.divvy.dev, \
         parameters: {{apiVersion: {version_and_kind}, {settings}}}}}}}]"
    )
}

fn turns(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    for ((kind, settings), length) in TURNS.into_iter().zip(["1", "3"]) {
        let pod = Pod {
            name: "turns",
            claims: &[by_name("turns")],
            init: &[],
            containers: &[("a", &stay, &["claim0"]), ("b", &stay, &["claim0"])],
            more: "",
        };
        node.apply(&[claim("turns", &configured(kind, settings)), pod.manifest()].concat())?;
        for container in ["a", "b"] {
            node.sees_claim("turns", container, "turns")?;
        }
        let host = node.host();
        let gpus = host.state()?.gpus;
        let slices = gpus.iter().map(|gpu| host.time_slice(&gpu.uuid));
        let slices: Vec<String> = slices.collect::<Result<_, _>>()?;
        let set = slices.iter().filter(|slice| *slice == length).count();
        ensure!(set == 1, "{slices:?} and {length} wanted");
        node.delete_pods(&["turns"])?;
        node.kubectl(&["delete", "resourceclaim", "turns"], "")?;
    }
    Ok(())
}

fn mps(node: &mut Node) -> Result<()> {
    let script = format!("{CLIENT}\n{}", look_and_stay());
    let settings = "sharing: {mps: {defaultActiveThreadPercentage: 50}}";
    let devices = configured("gpu.divvy.dev/v1alpha1, kind: GpuConfig", settings);
    let pod = Pod {
        name: "mps",
        claims: &[by_name("mps")],
        init: &[],
        containers: &[("a", &script, &["claim0"]), ("b", &script, &["claim0"])],
        more: "",
    };
    node.apply(&[claim("mps", &devices), pod.manifest()].concat())?;
    for container in ["a", "b"] {
        let mut seen = node.seen("mps", container)?;
        ensure!(seen.remove("/dev/daemon"), "{container} finds no daemon: {seen:?}");
        ensure!(seen == node.nodes_of(&node.allocated("mps")?)?, "{container}: {seen:?}");
    }
    Ok(())
}

/// What cannot be understood stops the pod, with an event that says why; another claim of the same moment is served.
fn refused(node: &mut Node) -> Result<()> {
    let wrong = configured(
        "gpu.divvy.dev/v1alpha1, kind: GpuConfig",
        "sharing: {timeSlicing: {interval: Tiny}}",
    );
    let stay = look_and_stay();
    node.apply(&[claim("wrong", &wrong), pod("wrong", by_name("wrong"), &stay)].concat())?;
    node.apply(&[claim("right", ANY), pod("right", by_name("right"), &stay)].concat())?;
    node.sees_claim("right", "c", "right")?;
    let said = node.wait("an event of the wrong claim", SOON, &["divvy-node"], |node| {
        let events = node.events("wrong")?;
        Ok(events.into_iter().find(|event| event.contains("FailedPrepareDynamicResources")))
    })?;
    ensure!(said.contains("Tiny") && said.contains("Short"), "{said}");
    said.find("Tiny").context("it says what is wrong").map(|_| ())
}

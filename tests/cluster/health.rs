//! GPUs that fall ill, and get well: what schedulers, pods and the kubelet make of it.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::claims::GPUS;
use crate::driver::{DRIVER, PROGRAM};
use crate::manifest::{by_name, claim, look_and_stay, pod};
use crate::node::Node;
use crate::pods::SOON;
use crate::{Test, group};

pub fn tests() -> Vec<Test> {
    group(
        GPUS,
        [("health::xid", xid), ("health::evicted", evicted), ("health::restarted", restarted)],
    )
}

/// The GPU of the tests, by its place on the host: the old one, of which there is one.
const OLD: usize = 3;
/// A GPU beside it.
const OTHER: &str = "NVIDIA H100 80GB HBM3";
/// Its device.
const DEVICE: &str = "gpu-0000-61-00";

// === impl Node ===

impl Node {
    /// The taints of a device, as `name=value:effect`; none where there is no such device.
    fn taints_of(&self, device: &str) -> Result<Option<Vec<String>>> {
        let devices = self.devices()?;
        let Some(found) = devices.iter().find(|one| one["name"] == device) else {
            return Ok(None);
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let taint = |taint: &Value| {
            let key = text(&taint["key"]).replace(&format!("{DRIVER}/"), "");
            format!("{key}={}:{}", text(&taint["value"]), text(&taint["effect"]))
        };
        Ok(Some(found["taints"].as_array().into_iter().flatten().map(taint).collect()))
    }

    fn until_taints(&mut self, device: &str, wanted: &[&str]) -> Result<()> {
        self.wait(&format!("{device} to have the taints {wanted:?}"), SOON, &[PROGRAM], |node| {
            let taints = node.taints_of(device)?;
            ensure!(taints.as_deref().is_some_and(|taints| taints == wanted), "{taints:?}");
            Ok(Some(()))
        })
    }

    /// Waits until the kubelet says so of the device that a pod has; its message.
    fn until_health(&mut self, pod: &str, health: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/default/pods/{pod}");
        self.wait(&format!("{pod} to have a device that is {health}"), SOON, &[PROGRAM], |node| {
            let status = node.api.get(&path)?["status"]["containerStatuses"][0].take();
            let resource = status["allocatedResourcesStatus"][0]["resources"][0].clone();
            ensure!(resource["health"] == health, "{status:#}");
            Ok(Some(resource["message"].as_str().unwrap_or_default().to_owned()))
        })
    }

    /// Waits until the driver's metrics have these lines.
    fn until_metrics(&mut self, lines: &[&str]) -> Result<()> {
        const GET: &str = "exec 3<>/dev/tcp/127.0.0.1/9400
            printf 'GET /metrics HTTP/1.1\\r\\nHost: node\\r\\nConnection: close\\r\\n\\r\\n' >&3
            cat <&3";
        self.wait("the metrics to tell", SOON, &[PROGRAM], |node| {
            let metrics = node.sandbox.must(&["bash", "-c", GET])?;
            let told: Vec<&str> = metrics.lines().filter(|line| line.contains("gpu")).collect();
            let missing = lines.iter().find(|line| !told.contains(line));
            ensure!(missing.is_none(), "{missing:?} is not in {told:#?}");
            Ok(Some(()))
        })
    }

    fn old_gpu(&self) -> Result<String> {
        Ok(self.host().state()?.gpus[OLD].uuid.clone())
    }

    /// Another load of the driver, after which no XID counts any more.
    fn reset(&mut self) -> Result<()> {
        Ok(self.host().reload_driver("580.65.06")?)
    }
}

/// A claim for that GPU; with a toleration of this key, if any.
fn for_old(name: &str, tolerated: Option<&str>) -> String {
    for_product(name, "Tesla T4", tolerated)
}

fn for_product(name: &str, product: &str, tolerated: Option<&str>) -> String {
    let toleration = tolerated.map(|key| {
        format!(", tolerations: [{{key: {DRIVER}/{key}, operator: Exists, effect: NoSchedule}}]")
    });
    let toleration = toleration.unwrap_or_default();
    let expression = format!("device.attributes['{DRIVER}'].productName == '{product}'");
    let devices = format!(
        "requests: [{{name: gpu, exactly: {{deviceClassName: {DRIVER}, selectors: [{{cel: {{expression: \
         \"{expression}\"}}}}]{toleration}}}}}]"
    );
    [claim(name, &devices), pod(name, by_name(name), &look_and_stay())].concat()
}

/// A GPU with an XID stays its pod's, is shown there, and is given to nobody who does not tolerate that.
fn xid(node: &mut Node) -> Result<()> {
    let before = node.devices()?;
    node.apply(&[for_old("has", None), for_product("other", OTHER, None)].concat())?;
    node.sees_claim("has", "c", "has")?;
    node.sees_claim("other", "c", "other")?;
    for pod in ["has", "other"] {
        ensure!(node.until_health(pod, "Healthy")?.is_empty());
    }
    let others = node.container("other")?;
    let gpu = node.old_gpu()?;
    // One that is the application's doing does nothing.
    node.host().xid(&gpu, 31)?;
    node.host().xid(&gpu, 95)?;
    node.until_taints(DEVICE, &["xid=95:NoSchedule"])?;
    let is_other = |device: &&Value| device["name"] != DEVICE;
    let (now, then) = (node.devices()?, before.clone());
    ensure!(now.iter().filter(is_other).eq(then.iter().filter(is_other)), "others are tainted");
    let says = node.until_health("has", "Unhealthy")?;
    ensure!(says.starts_with("XID 95, uncontained memory error: "), "{says}");
    ensure!(node.container("has")?.is_some(), "its container was ended");
    ensure!(node.until_health("other", "Healthy")?.is_empty());
    ensure!(others.is_some() && node.container("other")? == others, "the other's was");
    node.delete_pods(&["has", "other"])?;
    // Nobody is given it, but who tolerates that.
    node.apply(&for_old("not", None))?;
    node.until_unschedulable("not")?;
    node.apply(&for_old("may", Some("xid")))?;
    node.sees_claim("may", "c", "may")?;
    node.delete_pods(&["may"])?;
    node.kubectl(&["delete", "resourceclaim", "has", "other", "may"], "")?;
    node.reset()?;
    node.sees_claim("not", "c", "not")?;
    ensure!(node.until_health("not", "Healthy")?.is_empty());
    node.until_taints(DEVICE, &[])?;
    node.delete_pods(&["not"])?;
    node.wait("it to be as before", SOON, &[PROGRAM], |node| {
        Ok((node.devices()? == before).then_some(()))
    })
}

/// With that effect a pod loses what is of no use to it, and keeps what works.
fn evicted(node: &mut Node) -> Result<()> {
    let before = node.devices()?;
    node.stop(PROGRAM, "TERM")?;
    node.start_driver(&["--broken-gpu-effect", "NoExecute", "--http", "127.0.0.1:9400"])?;
    node.apply(&for_old("loses", None))?;
    node.sees_claim("loses", "c", "loses")?;
    node.host().change(|state| state.gpus[OLD].health.remap_pending = true)?;
    node.until_taints(DEVICE, &["memory-remap-pending=:NoSchedule"])?;
    node.until_health("loses", "Unhealthy")?;
    ensure!(node.container("loses")?.is_some(), "its container was ended for what may wait");
    node.host().change(|state| state.gpus[OLD].lost = true)?;
    node.until_gone_within("loses", SOON)?;
    node.kubectl(&["delete", "resourceclaim", "loses"], "")?;
    // Nobody has it, and it is there all the same: somebody may have been given it meanwhile.
    let taints = ["memory-remap-pending=:NoSchedule", "unavailable=:NoExecute"];
    node.until_taints(DEVICE, &taints)?;
    let gpu = node.old_gpu()?;
    // What keeps the slices may see a GPU fall before what keeps its health does.
    node.until_metrics(&[
        &format!("divvy_device_taints{{key=\"{DRIVER}/unavailable\",effect=\"NoExecute\"}} 1"),
        &format!(
            "divvy_device_taints{{key=\"{DRIVER}/memory-remap-pending\",effect=\"NoSchedule\"}} 1"
        ),
        &format!("divvy_gpu_ailments{{gpu=\"{gpu}\",cause=\"lost\"}} 1"),
    ])?;
    node.reset()?;
    node.until_taints(DEVICE, &[])?;
    node.stop(PROGRAM, "TERM")?;
    node.start_driver(&[])?;
    node.wait("it to be as before", SOON, &[PROGRAM], |node| {
        Ok((node.devices()? == before).then_some(()))
    })
}

/// What is known of GPUs outlives the driver, and goes with the boot; so does what was published of a lost one.
fn restarted(node: &mut Node) -> Result<()> {
    let before = node.devices()?;
    let gpu = node.old_gpu()?;
    node.host().xid(&gpu, 79)?;
    node.until_taints(DEVICE, &["xid=79:NoSchedule"])?;
    node.host().change(|state| state.gpus[0].lost = true)?;
    node.until_taints("gpu-0000-1b-00", &["unavailable=:NoSchedule"])?;
    let slices = node.devices()?;
    node.stop(PROGRAM, "KILL")?;
    node.start_driver(&[])?;
    node.wait("the driver to be at work", SOON, &[PROGRAM], |node| {
        Ok(node.end_of_log(PROGRAM).contains("XID 79").then_some(()))
    })?;
    std::thread::sleep(crate::slices::LOOKED);
    let (now, then) = (node.devices()?, slices);
    let changed: Vec<_> = now.iter().zip(&then).filter(|(now, then)| now != then).collect();
    ensure!(now.len() == then.len() && changed.is_empty(), "a restart changed {changed:#?}");
    node.reset()?;
    node.wait("it to be as before", SOON, &[PROGRAM], |node| {
        Ok((node.devices()? == before).then_some(()))
    })
}

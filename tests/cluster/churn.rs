//! Fifty pods that come and go all the time, some of them by force: every one of them gets what is its own alone, none is
//! stuck, and nothing is left.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::claims::GPUS;
use crate::manifest::{ANY, by_template, pod, selecting, template};
use crate::node::Node;
use crate::pods::BUNDLES;
use crate::{Test, group};

/// How long, in seconds, by DIVVY_CHURN; a release is tried for 300.
const SECONDS: u64 = 60;
const PODS: usize = 50;
/// How long those that are there at the end may take to come to theirs: fifty, of which ten have devices at once.
const END: Duration = Duration::from_secs(240);

pub fn tests() -> Vec<Test> {
    group(GPUS, [("churn::fifty_pods", fifty_pods)])
}

fn fifty_pods(node: &mut Node) -> Result<()> {
    let profile = |profile: &str| {
        let is = format!(r#"device.attributes["gpu.divvy.dev"].profile == "{profile}""#);
        selecting("mig.gpu.divvy.dev", &is)
    };
    let kinds = [
        ("gpu", ANY.to_owned()),
        ("small", profile("1g.5gb")),
        ("medium", profile("2g.10gb")),
        ("small", String::new()),
        ("large", profile("3g.20gb")),
    ];
    for (name, devices) in kinds.iter().filter(|(_, devices)| !devices.is_empty()) {
        node.apply(&template(name, devices))?;
    }
    #[expect(clippy::disallowed_methods, reason = "who runs the test says how long")]
    let seconds = match std::env::var("DIVVY_CHURN") {
        Ok(seconds) => seconds.parse().context("DIVVY_CHURN is no number of seconds")?,
        Err(_) => SECONDS,
    };
    let (start, mut made, mut done) = (Instant::now(), 0, 0);
    loop {
        let pods = node.api.list("/api/v1/namespaces/default/pods")?;
        node.each_has_its_own()?;
        let of =
            |phase: &'static str| pods.iter().filter(move |pod| pod["status"]["phase"] == phase);
        ensure!(of("Failed").count() == 0, "{:?}", of("Failed").next());
        let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let live = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
        // What has run to its end goes, and one that runs is deleted by force.
        let ended: Vec<String> = of("Succeeded").filter(live).map(name).collect();
        let running = of("Running").find(live).map(name);
        let over = start.elapsed() > Duration::from_secs(seconds);
        if over && pods.is_empty() {
            break;
        }
        ensure!(
            start.elapsed() < Duration::from_secs(seconds) + END,
            "{} pods are stuck, the first is\n{}",
            pods.len(),
            pods.first().map(|pod| node.story(&name(pod))).unwrap_or_default()
        );
        done += ended.len();
        node.delete(&ended, &["--grace-period=1"])?;
        if let Some(running) = running.filter(|_| !over && made % 3 == 0) {
            node.delete(&[running], &["--force", "--grace-period=0"])?;
        }
        let more = if over { 0 } else { PODS.saturating_sub(pods.len()) };
        let manifests = (made..made + more).map(|at| {
            let (kind, _) = &kinds[at % kinds.len()];
            pod(&format!("churn-{at}"), by_template(kind), "ls /dev/nvidia*; sleep 1")
        });
        let manifests: String = manifests.collect();
        if !manifests.is_empty() {
            node.apply(&manifests)?;
        }
        made += more;
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("cluster: {made} pods in {:?}, {done} ran to their end", start.elapsed());
    ensure!(done > PODS / 2, "only {done} of {made} pods ran to their end");
    Ok(())
}

// === impl Node ===

impl Node {
    fn delete(&mut self, pods: &[String], how: &[&str]) -> Result<()> {
        if pods.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = pods.iter().map(String::as_str).collect();
        // One of them may have gone.
        let delete = ["delete", "pod", "--wait=false", "--ignore-not-found"];
        self.kubectl(&[&delete[..], how, &names].concat(), "").map(|_| ())
    }

    /// That no two containers that run have one device: a GPU that is not in MIG mode, or a partition's capability.
    fn each_has_its_own(&self) -> Result<()> {
        let shared: Vec<String> = self
            .host()
            .state()?
            .gpus
            .iter()
            .filter(|gpu| gpu.mig)
            .map(|gpu| format!("/dev/nvidia{}", gpu.minor))
            .collect();
        let mut had: BTreeMap<String, (u32, String)> = BTreeMap::new();
        for bundle in fs::read_dir(self.sandbox.path(BUNDLES)).into_iter().flatten().flatten() {
            let read = |name: &str| fs::read_to_string(bundle.path().join(name));
            // One that is being made or removed does not run.
            let (Ok(config), Ok(pid)) = (read("config.json"), read("init.pid")) else { continue };
            let Ok(config) = serde_json::from_str::<Value>(&config) else { continue };
            let pid = pid.trim().parse()?;
            if !self.runs(pid) {
                continue;
            }
            let pod = &config["annotations"]["io.kubernetes.cri.sandbox-name"];
            let devices = config["linux"]["devices"].as_array();
            for device in devices.into_iter().flatten() {
                let path = device["path"].as_str().unwrap_or_default();
                let digits = path.strip_prefix("/dev/nvidia").unwrap_or_default();
                let gpu = digits.parse::<u32>().is_ok() && !shared.iter().any(|one| one == path);
                if !gpu && !path.starts_with("/dev/nvidia-caps/") {
                    continue;
                }
                // The other may have ended since it was looked at.
                match had.insert(path.to_owned(), (pid, pod.to_string())) {
                    Some((other, of)) if self.runs(other) && self.runs(pid) => {
                        anyhow::bail!("{path} is given to {of} and to {pod}")
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

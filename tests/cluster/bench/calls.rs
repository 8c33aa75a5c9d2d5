//! The kubelet's calls, made by us: claims that were allocated by hand, one and many.

use anyhow::{Context, Result, bail, ensure};
use divvy::plugin::proto::dra_v1::{
    Claim, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
    dra_plugin_client::DraPluginClient,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::{Report, median, timed};
use crate::driver::DRIVER;
use crate::node::{NAME, Node};
use crate::pods::SOON;

const NAMESPACE: &str = "bench";
const ROUNDS: usize = 21;
const CLIENTS: usize = 8;
/// How many claims are prepared and stay so.
const HELD: [usize; 4] = [0, 100, 300, 1000];
/// Claims of one call where their time does not count.
const BATCH: usize = 50;
/// At a time at which nothing but noise is to differ.
const GROWTH: f64 = 1.3;

/// The kubelet's side of the driver's socket.
struct Kubelet {
    runtime: Runtime,
    client: DraPluginClient<Channel>,
}

/// They would end what is not theirs: one claims that no pod uses, the other what it did not have prepared.
const STILL: [&str; 2] = ["kube-controller-manager", "kubelet"];

pub(super) fn measure(node: &mut Node, report: &mut Report) -> Result<()> {
    // The label is for claims that only look on.
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": NAMESPACE, "labels": {"resource.kubernetes.io/admin-access": "true"}}});
    node.api.send("POST", "/api/v1/namespaces", &namespace)?;
    let account = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default");
    node.wait("a service account", SOON, &[STILL[0]], |node| node.api.find(&account))?;
    STILL.iter().try_for_each(|program| node.signal(program, "STOP"))?;
    let measured = with_claims(node, report);
    let delete = ["delete", "pods", "--all", "--namespace", NAMESPACE];
    node.kubectl(&[&delete[..], &["--force", "--grace-period=0"]].concat(), "")?;
    STILL.iter().try_for_each(|program| node.signal(program, "CONT"))?;
    node.kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"], "")?;
    measured
}

fn with_claims(node: &mut Node, report: &mut Report) -> Result<()> {
    let devices = node.devices()?;
    let whole = |device: &&Value| device["attributes"]["type"]["string"] == "gpu";
    let names = devices.iter().filter(whole).filter_map(|device| device["name"].as_str());
    let names: Vec<String> = names.take(CLIENTS).map(str::to_owned).collect();
    ensure!(names.len() == CLIENTS, "no eight GPUs in {names:?}");
    let claims: Result<Vec<Claim>> =
        names.iter().map(|name| allocated(node, &format!("whole-{name}"), name, false)).collect();
    let claims = claims?;
    let kubelet = Kubelet::connect(node)?;

    one(node, &kubelet, &claims[0], report)?;
    at_once(&kubelet, &claims, report)?;
    held(node, &kubelet, &claims[0], &names, report)
}

/// One claim after the other.
fn one(node: &mut Node, kubelet: &Kubelet, claim: &Claim, report: &mut Report) -> Result<()> {
    let api = r#"{operation="prepare",phase="api"}"#;
    let reads = |node: &mut Node| -> Result<(f64, f64)> {
        let of = |part: &str| format!("divvy_claim_phase_duration_seconds_{part}{api}");
        Ok((node.metric(&of("sum"))?, node.metric(&of("count"))?))
    };
    let empty = median_of(|| timed(|| kubelet.prepare(&[])))?;
    let before = reads(node)?;
    let (mut prepares, mut agains, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        prepares.push(timed(|| kubelet.prepare(std::slice::from_ref(claim)))?);
        ends.push(timed(|| kubelet.unprepare(std::slice::from_ref(claim)))?);
    }
    let after = reads(node)?;
    let read = (after.0 - before.0) / (after.1 - before.1) * 1e3;
    kubelet.prepare(std::slice::from_ref(claim))?;
    for _ in 0..ROUNDS {
        agains.push(timed(|| kubelet.prepare(std::slice::from_ref(claim)))?);
    }
    kubelet.unprepare(std::slice::from_ref(claim))?;
    let whole = median(prepares);
    report.line("prepare by gRPC, beside the API read", whole - read, 5.0, "ms", "");
    report.aside(
        "the whole call",
        whole,
        "ms",
        " (peer 12 to 17; 175 with its API limits as shipped)",
    );
    report.aside("of it the API read, mean", read, "ms", "");
    report.aside("an empty call", empty, "ms", "");
    report.aside("prepare again", median(agains), "ms", " (peer 4 to 7)");
    report.aside("unprepare", median(ends), "ms", " (peer 4 to 5)");
    Ok(())
}

/// As many claims as GPUs, from as many clients.
fn at_once(kubelet: &Kubelet, claims: &[Claim], report: &mut Report) -> Result<()> {
    let (mut one, mut all) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        one.push(timed(|| kubelet.prepare(&claims[..1]))?);
        kubelet.unprepare(claims)?;
        all.push(timed(|| kubelet.prepare_at_once(claims))?);
        kubelet.unprepare(claims)?;
    }
    let (one, all) = (median(one), median(all));
    report.line("8 claims of 8 clients, to one claim", all / one, 3.0, "x", "peer 45");
    report.aside("all of them done after", all, "ms", "");
    Ok(())
}

/// One claim beside many that are prepared.
fn held(
    node: &mut Node,
    kubelet: &Kubelet,
    claim: &Claim,
    gpus: &[String],
    report: &mut Report,
) -> Result<()> {
    let mut held: Vec<Claim> = Vec::new();
    let mut times = Vec::new();
    for wanted in HELD {
        while held.len() < wanted {
            let batch: Result<Vec<Claim>> = (held.len()..(held.len() + BATCH).min(wanted))
                .map(|number| {
                    let gpu = &gpus[number % gpus.len()];
                    allocated(node, &format!("looks-on-{number}"), gpu, true)
                })
                .collect();
            let batch = batch?;
            kubelet.prepare(&batch)?;
            held.extend(batch);
        }
        let mut prepares = Vec::new();
        for _ in 0..ROUNDS {
            prepares.push(timed(|| kubelet.prepare(std::slice::from_ref(claim)))?);
            kubelet.unprepare(std::slice::from_ref(claim))?;
        }
        times.push((wanted, median(prepares)));
    }
    let ([(_, first), ..], Some((_, last))) = (&times[..], times.last()) else { bail!("no times") };
    let most = HELD[HELD.len() - 1];
    report.line(
        &format!("prepare with {most} claims held, to none"),
        last / first,
        GROWTH,
        "x",
        "peer 60 at 300",
    );
    for (held, time) in &times {
        report.aside(&format!("with {held} held"), *time, "ms", "");
    }
    report.aside("memory with them", node.memory("VmRSS")?, "MB", " (peer 90 with 300)");
    for batch in held.chunks(BATCH) {
        kubelet.unprepare(batch)?;
    }
    Ok(())
}

/// A claim that was given this device, and the reference that the kubelet would have of it.
fn allocated(node: &Node, name: &str, device: &str, admin: bool) -> Result<Claim> {
    let path = format!("/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims");
    let (mut request, mut result) = (
        json!({"deviceClassName": DRIVER}),
        json!({"request": "gpu", "driver": DRIVER, "pool": NAME, "device": device}),
    );
    if admin {
        request["adminAccess"] = true.into();
        result["adminAccess"] = true.into();
    }
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}},
    });
    let mut claim = node.api.send("POST", &path, &claim)?;
    // The pod is known to the driver before its claim is prepared; many that look on are somebody else's.
    let reserved = match admin {
        true => {
            json!({"apiGroup": "bench.divvy.dev", "resource": "looks", "name": name, "uid": name})
        }
        false => json!({"resource": "pods", "name": name, "uid": pod(node, name)?}),
    };
    let uid = claim["metadata"]["uid"].as_str().context("a UID")?.to_owned();
    claim["status"] = json!({
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [reserved],
    });
    node.api.send("PUT", &format!("{path}/{name}/status"), &claim)?;
    Ok(Claim { namespace: NAMESPACE.to_owned(), uid, name: name.to_owned() })
}

/// The UID of a pod of this node that uses the claim of its name.
fn pod(node: &Node, name: &str) -> Result<String> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": NAME,
            "resourceClaims": [{"name": "d", "resourceClaimName": name}],
            "containers": [{
                "name": "c", "image": "localhost/busybox:1", "resources": {"claims": [{"name": "d"}]},
            }],
        },
    });
    let pod = node.api.send("POST", &format!("/api/v1/namespaces/{NAMESPACE}/pods"), &pod)?;
    Ok(pod["metadata"]["uid"].as_str().context("a UID")?.to_owned())
}

// === impl Kubelet ===

impl Kubelet {
    fn connect(node: &Node) -> Result<Self> {
        let runtime = Runtime::new()?;
        let socket = node.sandbox.path(&format!("/var/lib/kubelet/plugins/{DRIVER}/dra.sock"));
        let socket = format!("unix://{}", socket.display());
        let client = runtime.block_on(DraPluginClient::connect(socket))?;
        Ok(Self { runtime, client })
    }

    fn prepare(&self, claims: &[Claim]) -> Result<()> {
        self.runtime.block_on(prepare(self.client.clone(), claims.to_vec()))
    }

    /// A call for each.
    fn prepare_at_once(&self, claims: &[Claim]) -> Result<()> {
        self.runtime.block_on(async {
            let mut calls = JoinSet::new();
            for claim in claims {
                calls.spawn(prepare(self.client.clone(), vec![claim.clone()]));
            }
            while let Some(done) = calls.join_next().await {
                done??;
            }
            Ok(())
        })
    }

    fn unprepare(&self, claims: &[Claim]) -> Result<()> {
        let request = NodeUnprepareResourcesRequest { claims: claims.to_vec() };
        let mut client = self.client.clone();
        let answer = self.runtime.block_on(client.node_unprepare_resources(request))?;
        let answers = answer.into_inner().claims.into_values();
        let error = answers.map(|answer| answer.error).find(|error| !error.is_empty());
        error.map_or(Ok(()), |error| bail!(error))
    }
}

async fn prepare(mut client: DraPluginClient<Channel>, claims: Vec<Claim>) -> Result<()> {
    let request = NodePrepareResourcesRequest { claims };
    let answers = client.node_prepare_resources(request).await?.into_inner().claims;
    let error = answers.into_values().map(|answer| answer.error).find(|error| !error.is_empty());
    error.map_or(Ok(()), |error| bail!(error))
}

fn median_of(mut act: impl FnMut() -> Result<f64>) -> Result<f64> {
    Ok(median((0..ROUNDS).map(|_| act()).collect::<Result<Vec<_>>>()?))
}

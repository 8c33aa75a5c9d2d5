//! Devices by divvy's runtime shim, which a RuntimeClass names, where containerd's own CDI is off.

use anyhow::{Context, Result, ensure};

use crate::claims::GPUS;
use crate::driver::PROGRAM;
use crate::manifest::{ANY, LOOK, Pod, by_name, by_template, claim, look_and_stay, template};
use crate::node::{NAME, Node};
use crate::pods::SOON;
use crate::rolling::NEXT;
use crate::{Test, group};

const CLASS: &str = "runtimeClassName: divvy";
/// Where the kubelet looks for static pods, every 20 s.
const MANIFESTS: &str = "/etc/kubernetes/manifests";

pub fn tests() -> Vec<Test> {
    group(
        GPUS,
        [
            ("shim::containers", containers),
            ("shim::pods_of_one_claim", pods_of_one_claim),
            ("shim::user_namespace", user_namespace),
            ("shim::beside_native", beside_native),
            ("shim::static_pod", static_pod),
            ("shim::two_instances", two_instances),
        ],
    )
}

/// Does something while containerd's own CDI is off.
fn alone(node: &mut Node, run: fn(&mut Node) -> Result<()>) -> Result<()> {
    node.restart_containerd(false)?;
    let done = run(node);
    done.and(node.restart_containerd(true))
}

fn containers(node: &mut Node) -> Result<()> {
    alone(node, |node| {
        let stay = look_and_stay();
        let containers = [("a", &*stay, &["claim0"][..]), ("none", &*stay, &[])];
        let pod = |name, more| {
            Pod {
                name,
                claims: &[by_template("each")],
                init: &[("before", LOOK, &["claim0"])],
                containers: &containers,
                more,
            }
            .manifest()
        };
        node.apply(&[template("each", ANY), pod("ours", CLASS), pod("plain", "")].concat())?;
        let claim = node.until_claim_of("ours")?;
        for container in ["before", "a"] {
            node.sees_claim("ours", container, &claim)?;
            // The control: who does not ask for the shim gets nothing here.
            let plain = node.seen("plain", container)?;
            ensure!(plain.is_empty(), "without the shim {container} sees {plain:?}");
        }
        let none = node.seen("ours", "none")?;
        ensure!(none.is_empty(), "a container without the claim sees {none:?}");
        node.delete_pods(&["ours", "plain"])
    })
}

/// The second pod's claim is not prepared again, and it gets it all the same.
fn pods_of_one_claim(node: &mut Node) -> Result<()> {
    alone(node, |node| {
        let stay = look_and_stay();
        node.apply(&claim("shared", ANY))?;
        for name in ["first", "second"] {
            let containers = [("c", &*stay, &["claim0"][..])];
            let claims = &[by_name("shared")];
            node.apply(
                &Pod { name, claims, init: &[], containers: &containers, more: CLASS }.manifest(),
            )?;
            node.sees_claim(name, "c", "shared")?;
        }
        node.delete_pods(&["first", "second"])
    })
}

fn user_namespace(node: &mut Node) -> Result<()> {
    alone(node, |node| {
        let more = format!("{CLASS}\nhostUsers: false");
        let containers = [("c", LOOK, &["claim0"][..])];
        let claims = &[by_name("mine")];
        let pod =
            Pod { name: "own-users", claims, init: &[], containers: &containers, more: &more };
        node.apply(&[claim("mine", ANY), pod.manifest()].concat())?;
        node.sees_claim("own-users", "c", "mine")?;
        node.delete_pods(&["own-users"])
    })
}

/// Both do it, and nothing is there twice.
fn beside_native(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    let containers = [("c", &*stay, &["claim0"][..])];
    let claims = &[by_name("mine")];
    let pod = Pod { name: "both", claims, init: &[], containers: &containers, more: CLASS };
    node.apply(&[claim("mine", ANY), pod.manifest()].concat())?;
    node.sees_claim("both", "c", "mine").map(|_| ())
}

/// A pod of a file, which the kubelet lets have no claims: it waits for no record.
fn static_pod(node: &mut Node) -> Result<()> {
    let stay = look_and_stay();
    let containers = [("c", &*stay, &[][..])];
    let pod = Pod { name: "static", claims: &[], init: &[], containers: &containers, more: CLASS };
    let file = format!("{MANIFESTS}/static.yaml");
    node.sandbox.must(&["mkdir", "-p", MANIFESTS])?;
    node.sandbox.write(&file, pod.manifest().trim_start_matches("---"))?;
    let name = format!("static-{NAME}");
    let seen = node.seen(&name, "c");
    node.sandbox.must(&["rm", &file])?;
    ensure!(seen?.is_empty(), "a static pod sees a GPU");
    node.until_gone_within(&name, SOON)
}

/// While the driver is updated two instances keep the pods' records, and none takes away what the other wrote: a container
/// that starts again finds its own.
fn two_instances(node: &mut Node) -> Result<()> {
    node.stop(PROGRAM, "TERM")?;
    node.start_driver(&["--pod-uid=first"])?;
    alone(node, |node| {
        let stay = look_and_stay();
        let containers = [("c", &*stay, &["claim0"][..])];
        let names = ["before", "between"];
        let start = |node: &mut Node, name: &'static str| {
            let claims = &[by_name(name)];
            let pod = Pod { name, claims, init: &[], containers: &containers, more: CLASS };
            let pod = pod.manifest().replace("restartPolicy: Never", "restartPolicy: Always");
            node.apply(&[claim(name, ANY), pod].concat())?;
            node.sees_claim(name, "c", name).map(drop)
        };
        start(node, "before")?;
        node.start_next()?;
        start(node, "between")?;
        for (restarts, instances) in [(1, &[PROGRAM, NEXT][..]), (2, &[NEXT])] {
            if instances.len() == 1 {
                node.stop(PROGRAM, "TERM")?;
            }
            // A round of each.
            for instance in instances {
                node.signal(instance, "HUP")?;
            }
            std::thread::sleep(crate::slices::LOOKED);
            for name in names {
                let process = node.container(name)?.context("its container runs")?.to_string();
                node.sandbox.must(&["bash", "-c", &format!("kill -9 {process}")])?;
                let path = format!("/api/v1/namespaces/default/pods/{name}");
                node.wait(&format!("{name} to start again"), SOON, instances, |node| {
                    let status = node.api.get(&path)?["status"]["containerStatuses"][0].take();
                    let again = status["restartCount"] == restarts && status["started"] == true;
                    Ok(again.then_some(()))
                })?;
                node.sees_claim(name, "c", name)?;
            }
        }
        node.delete_pods(&names)
    })?;
    node.stop(NEXT, "TERM")?;
    node.start_driver(&[])
}

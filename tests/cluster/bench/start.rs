//! The driver's start: until the kubelet has it, until its slices are there, and what it keeps in memory then.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{HTTP, Report, median, milliseconds};
use crate::Gpus;
use crate::driver::{DRIVER, HOST, KUBECONFIG, PROGRAM};
use crate::node::{NAME, Node};
use crate::pods::SOON;

const STARTS: usize = 5;
/// The kubelet looks at its folder of plugins so often.
const LOOP: f64 = 1000.0;
/// The kubelet has seen by then that the driver has gone: else that is what its next look is for.
const FORGOTTEN: Duration = Duration::from_millis(2500);
const IDLE: Duration = Duration::from_secs(8);
/// A large node.
const MANY: Gpus = &[("H100-80GB", true); 16];

/// The times of one start, ms.
struct Start {
    socket: f64,
    registered: f64,
    published: f64,
}

/// Leaves the driver running.
pub(super) fn measure(node: &mut Node, report: &mut Report) -> Result<()> {
    let devices = node.devices()?.len();
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        if node.pid(PROGRAM).is_some() {
            node.stop(PROGRAM, "TERM")?;
        }
        node.kubectl(&["delete", "resourceslices", "--all"], "")?;
        std::thread::sleep(FORGOTTEN);
        starts.push(start(node, devices)?);
    }
    let of = |time: fn(&Start) -> f64| median(starts.iter().map(time).collect());
    let published = of(|start| start.published);
    report.line(
        "start until the slices are published",
        published,
        500.0,
        "ms",
        "peer 1100 to 1190",
    );
    let registered = of(|start| start.registered);
    let most = LOOP + 300.0;
    report.line(
        "start until the kubelet has registered it",
        registered,
        most,
        "ms",
        "peer 830 to 920",
    );
    report.aside("until its socket is there", of(|start| start.socket), "ms", " (peer 81 to 136)");
    std::thread::sleep(IDLE);
    report.line("memory of the idle driver", node.memory("VmRSS")?, 20.0, "MB", "peer 57");
    report.aside("of it its own and not of files", node.memory("RssAnon")?, "MB", " (peer 13)");
    Ok(())
}

/// The devices of a large node, and what a start does where they are published.
pub(super) fn measure_many(node: &mut Node, report: &mut Report) -> Result<()> {
    node.provide(MANY)?;
    let (devices, before) = (node.devices()?.len(), node.slices()?);
    let mut times = Vec::new();
    for _ in 0..STARTS {
        node.stop(PROGRAM, "TERM")?;
        node.kubectl(&["delete", "resourceslices", "--all"], "")?;
        let begun = spawn(node)?;
        let published = |node: &mut Node| Ok((node.devices()?.len() == devices).then_some(()));
        node.wait("all slices", SOON, &[PROGRAM], published)?;
        times.push(milliseconds(begun.elapsed()));
    }
    let what = format!("{devices} devices of {} GPUs published after", MANY.len());
    report.line(&what, median(times), 1000.0, "ms", &format!("{} slices", before.len()));
    report.aside("memory of the driver", node.memory("VmRSS")?, "MB", "");
    let published = node.slices()?;
    node.stop(PROGRAM, "TERM")?;
    node.start_driver(&[])?;
    std::thread::sleep(IDLE);
    let changed = node.slices()?.iter().filter(|slice| !published.contains(slice)).count();
    report.line("slices sent again by an unchanged start", changed as f64, 0.0, "", "");
    Ok(())
}

fn spawn(node: &mut Node) -> Result<Instant> {
    let gpus = format!("nvml:{HOST}");
    let args = ["--gpus", &gpus, "--node-name", NAME, "--kubeconfig", KUBECONFIG, "--http", HTTP];
    let begun = Instant::now();
    node.spawn_path(PROGRAM, "/programs/divvy-node", &args)?;
    Ok(begun)
}

/// Until these many devices are published.
fn start(node: &mut Node, devices: usize) -> Result<Start> {
    let registrations = node.registrations(DRIVER);
    let begun = spawn(node)?;
    let (mut socket, mut registered, mut published) = (None, None, None);
    let path = format!("/var/lib/kubelet/plugins/{DRIVER}/dra.sock");
    while socket.is_none() || registered.is_none() || published.is_none() {
        let now = milliseconds(begun.elapsed());
        if socket.is_none() && node.sandbox.exists(&path) {
            socket = Some(now);
        }
        if registered.is_none() && node.registrations(DRIVER) > registrations {
            registered = Some(now);
        }
        if published.is_none() && node.devices()?.len() == devices {
            published = Some(now);
        }
        ensure!(begun.elapsed() < SOON, "no start\n{}", node.end_of_log(PROGRAM));
        std::thread::sleep(Duration::from_millis(2));
    }
    let [socket, registered, published] =
        [socket, registered, published].map(Option::unwrap_or_default);
    Ok(Start { socket, registered, published })
}

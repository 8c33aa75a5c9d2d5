//! Claims that are shared by MPS, through divvy's own programs: their containers become clients of a
//! control daemon, which none of those programs takes along when it ends.

mod crash;
mod life;
mod lost;
mod share;

use std::{fs, process::Command};

use super::host::{Bind, Client, Host};
use crate::{
    Test, named,
    support::{self, Gpu},
};

const GPUS: &[Gpu] = &[("H100-80GB", false), ("H100-80GB", true), ("H100-80GB", false)];

const DIVVY: &str = env!("CARGO_BIN_EXE_divvy");
const NODE: &str = env!("CARGO_BIN_EXE_divvy-node");

const UID: &str = "0b8f2f4e-6a3c-4d3b-9c55-3f1f0d6f2a11";

/// One whole GPU, and one partition.
const WHOLE: &str = "{name: a, exactly: {deviceClassName: gpu.divvy.dev}}";
const PART: &str = "{name: a, exactly: {deviceClassName: mig.gpu.divvy.dev}}";

pub(crate) fn tests() -> Vec<Test> {
    named(
        "mps-claim",
        &[
            (
                "containers of a claim are clients, and nothing is left when it ends",
                life::whole_life,
            ),
            ("clients outlive divvy-node, killed, and the daemon is adopted", life::killed),
            ("a daemon that died, or was never noted, is brought back", life::brought_back),
            ("a partition is shared, and its GPU's compute mode stays", life::partition),
            ("a claim's two GPUs are one daemon's, in their order", life::two_gpus),
            ("a daemon that does not come up leaves nothing of the claim", life::refused),
            ("compute modes come back, whatever they were, and whoever changed them", life::modes),
            ("a daemon without a claim is ended, and its GPU as it was", lost::orphan),
            ("a claim is ended where its GPUs are gone", lost::missing),
            ("a GPU that faults after a reboot is made exclusive later", lost::rebooted),
            ("an orphan that does not stop keeps no other", lost::orphans),
            ("a prepare that is killed anywhere", crash::preparing),
            ("an unprepare that is killed anywhere", crash::ending),
            ("claims with shares of a GPU are one daemon's, until the last", share::shares),
            (
                "a daemon of shares that died, or is nobody's, is brought back or ended",
                share::shares_lost,
            ),
        ],
    )
}

struct World {
    host: Host,
}

impl World {
    /// None where this cannot be had, and why.
    fn new() -> Result<Self, String> {
        let host = Host::new(GPUS)?;
        support::hook(host.fake.host.root());
        Ok(Self { host })
    }

    /// Writes a claim of this name and UID: its requests, and how they are shared.
    fn claim(&self, requests: &str, kind: &str, mps: &str) {
        support::write(
            &self.host.path("claim.yaml"),
            &format!(
                "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n\
                 metadata: {{name: c, uid: {UID}}}\n\
                 spec:\n  devices:\n    requests: [{requests}]\n    config:\n    - opaque:\n        \
                 driver: gpu.divvy.dev\n        parameters: {{apiVersion: gpu.divvy.dev/v1alpha1, \
                 kind: {kind}, sharing: {{mps: {mps}}}}}\n"
            ),
        );
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        support::command(&self.host.fake, program, args)
    }

    /// Runs one of the programs; all that it said.
    #[track_caller]
    fn run(&self, program: &str, args: &[&str], succeeds: bool) -> String {
        let output = self.command(program, args).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert_eq!(output.status.success(), succeeds, "{args:?}: {said}");
        said
    }

    #[track_caller]
    fn prepare(&self) -> String {
        self.run(DIVVY, &["prepare", "-f", "claim.yaml"], true)
    }

    #[track_caller]
    fn unprepare(&self) {
        self.run(DIVVY, &["unprepare", "c"], true);
        self.nothing_left();
    }

    /// The pid of the claim's daemon, as the journal has it.
    #[track_caller]
    fn pid(&self) -> u32 {
        self.noted().unwrap()
    }

    fn noted(&self) -> Option<u32> {
        let entry =
            fs::read(self.host.path("divvy/state/claims").join(format!("{UID}.json"))).unwrap();
        let entry: serde_json::Value = serde_json::from_slice(&entry).unwrap();
        let steps = entry["steps"].as_array().unwrap();
        let pid = steps.iter().find_map(|step| step["mps"]["running"]["pid"].as_u64());
        pid.map(|pid| u32::try_from(pid).unwrap())
    }

    fn mode(&self, gpu: usize) -> u32 {
        self.host.fake.host.state().unwrap().gpus[gpu].compute_mode
    }

    #[track_caller]
    fn nothing_left(&self) {
        assert_eq!(fs::read_dir(self.host.path("divvy/run/mps")).map_or(0, Iterator::count), 0);
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(self.host.fake.host.root().to_str().unwrap()), "{mounts}");
        assert_eq!(self.processes(), [0; 0]);
        assert_eq!([self.mode(0), self.mode(1), self.mode(2)], [0; 3]);
        assert_eq!(self.host.fake.instances(), 0);
    }

    /// The processes that were told of pipes on this host.
    fn processes(&self) -> Vec<u32> {
        self.host.processes("")
    }

    /// The edits of a device of the claim's spec.
    fn edits(&self, device: usize) -> serde_json::Value {
        let path = self.host.path("divvy/cdi").join(format!("gpu.divvy.dev-claim_{UID}.json"));
        let spec: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        spec["devices"][device]["containerEdits"].clone()
    }

    /// Starts a client in a container with a device of the claim: with the mounts and the
    /// environment of its spec.
    fn container(&self, device: usize) -> Client {
        let edits = self.edits(device);
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let bind = |one: &serde_json::Value| Bind {
            host: text(&one["hostPath"]).into(),
            path: text(&one["containerPath"]).into(),
            read_only: one["options"][0] == "ro",
        };
        let binds = edits["mounts"].as_array().unwrap().iter().map(bind).collect();
        let variables: Vec<String> = edits["env"].as_array().unwrap().iter().map(text).collect();
        let variables = variables.iter().map(|variable| variable.split_once('=').unwrap());
        self.host.client(binds, |command| command.envs(variables))
    }
}

/// The processes that are control daemons.
fn daemons(world: &World) -> Vec<u32> {
    let is_daemon = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("--serve")
    };
    world.processes().into_iter().filter(is_daemon).collect()
}

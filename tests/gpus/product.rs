//! The product on NVML: claims prepared, kept in step and ended by its own programs.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use divvy::{
    claim::{Claim, Manifests},
    gpu::{Gpus, nvml::Deadlines},
    journal::{Call, Journal},
    pool::Pool,
    prepare::{Node, Reconciled},
};
use divvy_fake_nvml::Rule;
use divvy_hook::record::{Origin, RunDir};

use super::{
    Outcome, Test, named,
    support::{self, Fake, Gpu, NEVER, SOON, eventually, fake, fake_with},
};

const GPUS: &[Gpu] = &[("H100-80GB", false), ("H100-80GB", true)];

/// A partition, and a time-sliced GPU.
const CLAIMS: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: part}
spec:
  devices:
    requests:
    - {name: a, exactly: {deviceClassName: mig.gpu.divvy.dev}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: turns}
spec:
  devices:
    requests:
    - {name: a, exactly: {deviceClassName: gpu.divvy.dev}}
    config:
    - opaque:
        driver: gpu.divvy.dev
        parameters: {apiVersion: gpu.divvy.dev/v1alpha1, kind: GpuConfig, sharing: {timeSlicing: {interval: Long}}}
";

pub(crate) fn tests() -> Vec<Test> {
    named(
        "product",
        &[
            ("claims are prepared and ended, and nothing is left", there_and_back),
            ("what graphics lack is a warning", driver_files),
            ("what is left of a lost partition is replaced", half_lost),
            ("claims are brought back after a reload of the driver", reload),
            ("eight claims on eight GPUs wait for none of each other", eight_at_once),
            ("a claim that shows gets the nodes for it", displayed),
            ("what a GPU that does not answer in time may have made is ended later", silent),
            ("what could not be undone at once is ended later", half_made),
        ],
    )
}

/// A fake host with claims on it.
struct World {
    fake: Fake,
}

impl World {
    /// With the claims prepared; or why that cannot be done here.
    fn prepared() -> Result<Self, String> {
        Self::prepared_on(Self { fake: fake(GPUS) }).map(|(world, _)| world)
    }

    /// With the claims prepared on this host, and what was said.
    fn prepared_on(world: Self) -> Result<(Self, String), String> {
        if let Some(why) = support::no_nodes(&world.fake) {
            return Err(why);
        }
        support::write(&world.path("claims.yaml"), CLAIMS);
        support::hook(world.fake.host.root());
        let said = world.run(env!("CARGO_BIN_EXE_divvy"), &["prepare", "-f", "claims.yaml"], true);
        Ok((world, said))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fake.host.root().join(name)
    }

    /// Runs one of the programs on this host; what it said.
    #[track_caller]
    fn run(&self, program: &str, args: &[&str], gpus: bool) -> String {
        let mut command = Command::new(program);
        command.current_dir(self.fake.host.root()).args(args);
        if gpus {
            command.arg("--gpus").arg(format!("nvml:{}", self.fake.host.root().display()));
            command.arg("--hook").arg(self.path("divvy-hook"));
        }
        for place in ["--state-dir", "--cdi-dir", "--run-dir"] {
            command.arg(place).arg(self.path("divvy").join(place.trim_start_matches('-')));
        }
        let Output { status, stdout, stderr } = command.output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{args:?}: {said}");
        said
    }

    /// UUID of the only partition of the second GPU.
    fn partition(&self) -> String {
        let there = self.fake.inventory().gpus[1].partitions().to_vec();
        assert_eq!(there.len(), 1, "{there:?}");
        there[0].uuid.clone()
    }

    /// All that containers are given.
    fn specs(&self) -> String {
        let entries = fs::read_dir(self.path("divvy/cdi-dir")).unwrap();
        entries.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect()
    }

    /// All that the hook finds them by.
    fn records(&self) -> String {
        let entries = fs::read_dir(self.path("divvy/run-dir/claims")).unwrap();
        entries.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect()
    }

    fn assert_whole(&self) {
        assert!(self.specs().contains(&format!("={}\"", self.partition())), "{}", self.specs());
        assert_eq!(self.fake.host.time_slice(&self.fake.uuid(0)).unwrap(), "3");
    }

    fn end(&self) {
        self.run(env!("CARGO_BIN_EXE_divvy"), &["unprepare", "-f", "claims.yaml"], false);
        assert_eq!(self.fake.instances(), 0);
        assert_eq!(self.fake.host.time_slice(&self.fake.uuid(0)).unwrap(), "0");
        assert_eq!(self.specs(), "");
    }
}

fn there_and_back() -> Outcome {
    let world = match World::prepared() {
        Ok(world) => world,
        Err(why) => return Outcome::Skipped(why),
    };
    world.assert_whole();
    let specs = world.specs();
    for node in ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap147", "/dev/nvidiactl"]
    {
        assert!(specs.contains(&format!("\"path\":\"{node}\"")), "{node}: {specs}");
    }
    let root = world.fake.host.root().display().to_string();
    for text in [
        &format!(
            "\"--mount\",\"{root}/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06\
             ::/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06\""
        ),
        &format!("\"hookName\":\"createContainer\",\"path\":\"{root}/divvy-hook\""),
        "\"--link\",\"libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so\"",
        "\"--folder\",\"/usr/lib/x86_64-linux-gnu\"],\"env\":[\"DIVVY_HOOK=container\"]",
        "NVIDIA_VISIBLE_DEVICES=void",
    ] {
        assert!(specs.contains(text), "{text}: {specs}");
    }
    assert!(!specs.contains("mps/"), "no socket of MPS where nobody shares by it: {specs}");
    world.end();
    Outcome::Done
}

fn displayed() -> Outcome {
    let fake = fake(&[("T4-16GB", false)]);
    if let Some(why) = support::no_nodes(&fake) {
        return Outcome::Skipped(why);
    }
    let world = World { fake };
    support::hook(world.fake.host.root());
    let claims = CLAIMS.split("---").nth(1).unwrap();
    let shown = claims.replace("kind: GpuConfig,", "kind: GpuConfig, display: true,");
    for (claims, shows) in [(claims, false), (&shown, true)] {
        support::write(&world.path("claims.yaml"), claims);
        world.run(env!("CARGO_BIN_EXE_divvy"), &["prepare", "-f", "claims.yaml"], true);
        for text in ["/dev/dri/card0", "/dev/dri/renderD128", "dri/by-path/pci-0000:1b:00.0-card"] {
            assert_eq!(world.specs().contains(text), shows, "{text}: {}", world.specs());
        }
        // Verified, and the same.
        let said = world.run(env!("CARGO_BIN_EXE_divvy-node"), &["--once"], true);
        assert!(said.contains("claim default/turns: in step"), "{said}");
        world.end();
    }
    Outcome::Done
}

fn driver_files() -> Outcome {
    let world = World { fake: fake(GPUS) };
    fs::remove_dir_all(world.path("usr/share/vulkan")).unwrap();
    match World::prepared_on(world) {
        Err(why) => Outcome::Skipped(why),
        Ok((world, said)) => {
            assert_eq!(said.matches("warning: the driver has no Vulkan").count(), 1, "{said}");
            world.end();
            Outcome::Done
        }
    }
}

fn half_lost() -> Outcome {
    let world = match World::prepared() {
        Ok(world) => world,
        Err(why) => return Outcome::Skipped(why),
    };
    let before = world.partition();
    world.fake.host.change(|state| state.gpus[1].instances[0].compute.clear()).unwrap();
    let said = world.run(env!("CARGO_BIN_EXE_divvy-node"), &["--once"], true);
    assert!(said.contains("claim default/part: brought back in step"), "{said}");
    assert_ne!(world.partition(), before);
    world.assert_whole();
    world.end();
    Outcome::Done
}

fn reload() -> Outcome {
    let world = match World::prepared() {
        Ok(world) => world,
        Err(why) => return Outcome::Skipped(why),
    };
    let stamped =
        |version: &str| world.records().matches(&format!("\"driver\":\"{version}\"")).count();
    assert_eq!(stamped("580.65.06"), 2, "{}", world.records());
    let mig = format!("\"mig\":[\"{} ", world.fake.uuid(1));
    assert!(world.records().contains(&mig), "{}", world.records());
    world.fake.host.reload_driver("580.95.05").unwrap();
    let said = world.run(env!("CARGO_BIN_EXE_divvy-node"), &["--once"], true);
    for claim in ["part", "turns"] {
        assert!(said.contains(&format!("claim default/{claim}: brought back in step")), "{said}");
    }
    assert_eq!((stamped("580.65.06"), stamped("580.95.05")), (0, 2), "{}", world.records());
    assert!(!world.specs().contains("580.65.06"), "{}", world.specs());
    world.assert_whole();
    world.end();
    Outcome::Done
}

/// The claim of a partition of a GPU.
fn part_of(gpu: &divvy::gpu::Gpu, pool: &str) -> Claim {
    let device = format!("{}-1g10gb-0", divvy::gpu::DeviceName::Gpu { pci: gpu.pci });
    let text = format!(
        "{{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {{name: {device}}}, spec: \
         {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: c}}}}]}}}}, status: \
         {{allocation: {{devices: {{results: [{{request: r, driver: gpu.divvy.dev, pool: {pool}, \
         device: {device}}}]}}}}}}}}"
    );
    Manifests::parse("c.yaml".as_ref(), text.as_bytes(), "gpu.divvy.dev").unwrap().claims.remove(0)
}

/// Runs `act` on the node of a fake host, in this process.
fn on_node<T>(fake: &Fake, act: impl FnOnce(Node<'_>) -> T) -> T {
    let root = fake.host.root();
    let hook = support::hook(root);
    let (journal, run) = (Journal::new(&root.join("state")), RunDir::new(root.join("run")));
    let (cdi_dir, cgroups) = (&*root.join("cdi"), &*root.join("cgroups"));
    let (gpus, journal, run, hook) = (&fake.nvml, &journal, &run, &*hook);
    let (pool, call) = (Pool::Gpus(gpus), Call::default());
    act(Node { pool, journal, run, cdi_dir, hook, cgroups, boot: "b", metadata: false, call })
}

const CREATE: &str = "nvmlDeviceCreateGpuInstanceWithPlacement";

/// What hangs on a fake host comes back when this ends.
struct Released<'a>(&'a Fake);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.0.host.script(&[]).unwrap();
    }
}

/// Each GPU hangs in the call that makes its partition, and all eight get that far.
fn eight_at_once() -> Outcome {
    let fake = fake_with(&[("H100-80GB", true); 8], Deadlines { change: NEVER, ..SOON });
    if let Some(why) = support::no_nodes(&fake) {
        return Outcome::Skipped(why);
    }
    let inventory = fake.inventory();
    let claims: Vec<_> = inventory.gpus.iter().map(|gpu| part_of(gpu, &inventory.node)).collect();
    let hangs = Rule { call: CREATE.to_owned(), hang: true, ..Rule::default() };
    fake.host.script(&[hangs]).unwrap();
    fake.host.watch().unwrap();
    on_node(&fake, |node| {
        std::thread::scope(|scope| {
            for claim in &claims {
                scope.spawn(move || node.prepare(claim, &[], Origin::Local).unwrap());
            }
            // Also where they do not all get there: the scope waits for those that did.
            let _released = Released(&fake);
            eventually("eight calls at once", || fake.count(CREATE) == 8);
        });
    });
    assert_eq!(fake.instances(), 8);
    Outcome::Done
}

fn fails(call: &str) -> Rule {
    Rule { call: call.to_owned(), fail: Some(999), ..Rule::default() }
}

fn silent() -> Outcome {
    let fake = fake(&[("H100-80GB", true)]);
    if let Some(why) = support::no_nodes(&fake) {
        return Outcome::Skipped(why);
    }
    let inventory = fake.inventory();
    let claim = part_of(&inventory.gpus[0], &inventory.node);
    let hangs = Rule { call: CREATE.to_owned(), hang: true, ..Rule::default() };
    fake.host.script(&[hangs]).unwrap();
    on_node(&fake, |node| {
        let error = node.prepare(&claim, &[], Origin::Local).unwrap_err();
        assert_eq!(error.code(), "GPU-FAULT", "{error}");
        let entry = node.journal.entry(&claim.uid).unwrap().expect("the step is noted");
        assert_eq!(entry.steps.len(), 1, "{entry:?}");
        // Made after all, and who waited has gone; what is made too late cannot be taken back.
        fake.host.script(&[fails("nvmlComputeInstanceDestroy")]).unwrap();
        eventually("the partition", || fake.instances() == 1);
        eventually("the end of the call", || fake.nvml.inventory().unwrap().faults.is_empty());
        assert_eq!(fake.instances(), 1);
        fake.host.script(&[]).unwrap();
        let found = node.reconcile().unwrap();
        assert!(matches!(found.as_slice(), [Reconciled::Ended(_)]), "{found:?}");
        assert_eq!(fake.instances(), 0);
        assert!(node.journal.entry(&claim.uid).unwrap().is_none());
    });
    Outcome::Done
}

fn half_made() -> Outcome {
    let fake = fake(&[("H100-80GB", true)]);
    if let Some(why) = support::no_nodes(&fake) {
        return Outcome::Skipped(why);
    }
    let inventory = fake.inventory();
    let claim = part_of(&inventory.gpus[0], &inventory.node);
    // It makes a GPU instance and says that it did not, or makes no compute instance for it.
    let unsaid = Rule { after: true, ..fails(CREATE) };
    for fault in [unsaid, fails("nvmlGpuInstanceCreateComputeInstance")] {
        fake.host.script(&[fault, fails("nvmlGpuInstanceDestroy")]).unwrap();
        on_node(&fake, |node| {
            let error = node.prepare(&claim, &[], Origin::Local).unwrap_err();
            let (text, left) = (format!("{error:?}"), error.left().len());
            assert!(text.contains("HalfMade") && left == 1, "{left}: {text}");
            assert_eq!(fake.instances(), 1);
            fake.host.script(&[]).unwrap();
            let found = node.reconcile().unwrap();
            assert!(matches!(found.as_slice(), [Reconciled::Ended(_)]), "{found:?}");
            assert_eq!(fake.instances(), 0);
        });
    }
    Outcome::Done
}

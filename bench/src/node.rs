//! The node side, measured through the library on a fake NVML that answers at once: what a prepare
//! costs beyond its disk writes, how that grows with the claims that are prepared, how claims on
//! several slow GPUs go side by side, and what the idle daemon keeps in memory.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use divvy::{
    claim::{Claim, Manifests},
    gpu::{
        Gpus, Roots,
        nvml::{Deadlines, Nvml},
    },
    journal::{Call, Journal},
    pool::Pool,
    prepare::Node,
};
use divvy_cdi::file::{self, Durability};
use divvy_fake_nvml::{FakeHost, Rule};
use divvy_hook::record::{Origin, RunDir};

/// How many claims are prepared before.
const PREPARED: [usize; 4] = [1, 10, 100, 1000];
const ROUNDS: usize = 41;
/// What one prepare may cost beyond its disk writes, ms.
const BEYOND: f64 = 2.0;
/// What a call of a slow GPU takes.
const SLOW: Duration = Duration::from_millis(200);
/// What the idle daemon may keep, KiB.
const MEMORY: u64 = 20 << 10;
const GPUS: usize = 8;
/// The floor's file in each directory.
const FLOOR: &str = "floor.json";

const ABOUT: &str = "\
A whole GPU is prepared through the library: eight H100 on a fake NVML that answers at once, journal, spec and record on
this disk. `writes` is the floor, in turns with it: the same files written as durably (temporary file, fsync, rename,
fsync of the directory), and nothing else. Medians of whole calls, ms.
";

/// A fake host and the places of a node on it.
struct Bench {
    host: FakeHost,
    nvml: Nvml,
    journal: Journal,
    run: RunDir,
    dir: PathBuf,
    cdi_dir: PathBuf,
    hook: PathBuf,
    boot: String,
    /// The node's name.
    pool: String,
}

/// Measures in `dir`, which is made anew, and prints; says which targets are missed.
pub(crate) fn run(dir: &Path, daemon: &Path, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{ABOUT}")?;
    let mut missed = Vec::new();
    growing(dir, out, &mut missed)?;
    side_by_side(dir, out, &mut missed)?;
    idle(dir, daemon, out, &mut missed)?;
    for line in &missed {
        writeln!(out, "MISSED: {line}")?;
    }
    if missed.is_empty() {
        writeln!(out, "every target of the node side is met")?;
    }
    Ok(())
}

fn growing(dir: &Path, out: &mut dyn Write, missed: &mut Vec<String>) -> Result<()> {
    writeln!(out, "{:>16} {:>9} {:>9} {:>9}", "prepared before", "prepare", "writes", "beyond")?;
    let bench = Bench::new(dir, &[("H100-80GB", false); GPUS])?;
    let mut before = 0;
    for wanted in PREPARED {
        for number in before..wanted {
            bench.prepare(&bench.looking_on(number)?)?;
        }
        before = wanted;
        let (prepare, floor) = bench.whole_gpu()?;
        let beyond = prepare - floor;
        writeln!(out, "{wanted:>16} {prepare:>9.2} {floor:>9.2} {beyond:>9.2}")?;
        out.flush()?;
        if beyond > BEYOND {
            missed.push(format!("{beyond:.2} ms beyond its writes with {wanted}, not {BEYOND}"));
        }
    }
    writeln!(out, "four durable writes: the entry twice, the spec, the record\n")?;
    Ok(())
}

fn side_by_side(dir: &Path, out: &mut dyn Write, missed: &mut Vec<String>) -> Result<()> {
    let bench = Bench::new(dir, &[("H100-80GB", true); GPUS])?;
    let delay_ms = u64::try_from(SLOW.as_millis())?;
    let call = "nvmlDeviceCreateGpuInstanceWithPlacement".to_owned();
    bench.host.script(&[Rule { call, delay_ms, ..Rule::default() }])?;
    let mut taken = Vec::new();
    for count in [1, GPUS] {
        let claims =
            (0..count).map(|number| bench.partition(number)).collect::<Result<Vec<_>>>()?;
        let start = Instant::now();
        thread::scope(|scope| {
            let bench = &bench;
            let prepare = |claim| scope.spawn(move || bench.prepare(claim));
            let all: Vec<_> = claims.iter().map(prepare).collect();
            all.into_iter().try_for_each(|one| match one.join() {
                Ok(prepared) => prepared,
                Err(_) => bail!("a prepare panicked"),
            })
        })?;
        taken.push(start.elapsed().as_secs_f64() * 1e3);
        for claim in &claims {
            bench.unprepare(claim)?;
        }
    }
    let [one, eight] = taken[..] else { bail!("two are measured") };
    let slow = SLOW.as_secs_f64() * 1e3;
    writeln!(
        out,
        "a partition each on GPUs that take {slow} ms to make one: one claim {one:.0} ms, {GPUS} \
         claims at once {eight:.0} ms\n"
    )?;
    if eight > one + slow {
        missed.push(format!("{GPUS} claims take {eight:.0} ms, one {one:.0}"));
    }
    Ok(())
}

fn idle(dir: &Path, daemon: &Path, out: &mut dyn Write, missed: &mut Vec<String>) -> Result<()> {
    let bench = Bench::new(dir, &[("H100-80GB", true); GPUS])?;
    for number in 0..GPUS {
        bench.prepare(&bench.partition(number)?)?;
    }
    let mut command = Command::new(daemon);
    command.arg("--gpus").arg(bench.nvml.address()).args(["--interval", "3600"]);
    command.arg("--hook").arg(&bench.hook);
    for (option, place) in [("state", "state"), ("cdi", "cdi"), ("run", "run")] {
        command.arg(format!("--{option}-dir")).arg(bench.dir.join(place));
    }
    let mut child = command
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("{} cannot be run: `make build` makes it", daemon.display()))?;
    // A round through all claims; what it needed at most is known afterwards too.
    thread::sleep(Duration::from_secs(2));
    let memory = memory(child.id());
    child.kill()?;
    child.wait()?;
    let (now, peak) = memory?;
    writeln!(out, "idle divvy-node with {GPUS} claims: {now} KiB resident, {peak} at most")?;
    if now > MEMORY {
        missed.push(format!("the idle daemon has {now} KiB, not {MEMORY}"));
    }
    Ok(())
}

/// Resident memory of a process, now and at most, KiB.
fn memory(pid: u32) -> Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no field")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

// === impl Bench ===

impl Bench {
    fn new(dir: &Path, gpus: &[(&str, bool)]) -> Result<Self> {
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
        fs::create_dir_all(dir)?;
        let dir = fs::canonicalize(dir)?;
        let host = FakeHost::make(&dir.join("host"), gpus)?;
        ensure!(host.root().join("dev/nvidiactl").exists(), "only root can make device nodes");
        let nvml = Nvml::open(host.root(), &Roots::default(), Deadlines::default())?;
        let (journal, run) = (Journal::new(&dir.join("state")), RunDir::new(dir.join("run")));
        let (boot, pool) = (divvy_hook::record::boot_id()?, nvml.inventory()?.node);
        let cdi_dir = dir.join("cdi");
        // Named in the specs; nothing of it is run here.
        let hook = fs::canonicalize("target/static/divvy-hook")
            .context("no hook: `make hook` builds it")?;
        Ok(Self { host, nvml, journal, run, dir, cdi_dir, hook, boot, pool })
    }

    fn node(&self) -> Node<'_> {
        let Self { nvml, journal, run, boot, cdi_dir, hook, .. } = self;
        let cgroups = Path::new("/sys/fs/cgroup");
        let (pool, call) = (Pool::Gpus(nvml), Call::default());
        Node { pool, journal, run, cdi_dir, hook, cgroups, boot, metadata: false, call }
    }

    /// As for the kubelet.
    fn prepare(&self, claim: &Claim) -> Result<()> {
        self.node().prepare(claim, &[], Origin::Api)?;
        Ok(())
    }

    fn unprepare(&self, claim: &Claim) -> Result<()> {
        self.node().unprepare(&claim.uid)?;
        Ok(())
    }

    /// Medians of a prepare and of its writes alone, ms.
    fn whole_gpu(&self) -> Result<(f64, f64)> {
        let claim = self.claim("whole", "gpu-0000-1b-00", "")?;
        self.prepare(&claim)?;
        let files = [
            self.dir.join("state/claims").join(format!("{}.json", claim.uid)),
            self.dir.join("cdi").join(divvy::emit::spec_name("gpu.divvy.dev", &claim.uid)),
            self.dir.join("run/claims").join(format!("{}.json", claim.uid)),
        ];
        let bytes = files.each_ref().map(fs::read);
        self.unprepare(&claim)?;
        let [entry, spec, record] = bytes;
        let writes = [("state/claims", entry?), ("cdi", spec?), ("run/claims", record?)];
        let (mut prepares, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let start = Instant::now();
            self.prepare(&claim)?;
            prepares.push(start.elapsed());
            self.unprepare(&claim)?;
            let start = Instant::now();
            for (dir, bytes) in [&writes[0], &writes[1], &writes[2], &writes[0]] {
                let path = self.dir.join(dir).join(FLOOR);
                file::replace(&path, bytes, 0o644, Durability::Durable)?;
            }
            floors.push(start.elapsed());
            for (dir, _) in &writes {
                fs::remove_file(self.dir.join(dir).join(FLOOR))?;
            }
            // So that neither pays for what the other removed.
            File::open(&self.dir)?.sync_all()?;
        }
        Ok((median(prepares), median(floors)))
    }

    /// A claim that looks on: it holds nothing, so there can be many.
    fn looking_on(&self, number: usize) -> Result<Claim> {
        self.claim(&format!("looks-on-{number}"), "gpu-0000-1b-00", ", adminAccess: true")
    }

    /// A partition of a GPU.
    fn partition(&self, number: usize) -> Result<Claim> {
        const BUSES: [&str; GPUS] = ["1b", "43", "52", "61", "9d", "c3", "d1", "df"];
        let bus = BUSES.get(number).context("there are eight GPUs")?;
        self.claim(&format!("part-{number}"), &format!("gpu-0000-{bus}-00-1g10gb-0"), "")
    }

    fn claim(&self, name: &str, device: &str, more: &str) -> Result<Claim> {
        let text = format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\n\
             spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: c}}}}]}}}}\n\
             status:\n  allocation:\n    devices:\n      results: [{{request: r, \
             driver: gpu.divvy.dev, pool: {}, device: {device}{more}}}]\n",
            self.pool
        );
        let manifests =
            Manifests::parse(Path::new("claim.yaml"), text.as_bytes(), "gpu.divvy.dev")?;
        manifests.claims.into_iter().next().context("one claim")
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

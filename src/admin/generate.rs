//! `divvy generate`: a CDI spec of all that the node has, for engines that read CDI by themselves.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use divvy_cdi::{
    doc,
    file::{self, Durability},
    problem::Severity,
    spec::{self, Spec, Version},
};
use divvy_hook::record;
use serde_json::json;

use super::{Answer, Exit, Failure, Places, boot, document, shown, tell};
use crate::{
    emit::{self, Named},
    gpu::{Files, Gpu, Gpus, Inventory, Mig, Partition},
};

/// Print a CDI spec of all GPUs and MIG devices of this node.
///
/// podman, docker and containerd give its devices to containers by name, such as nvidia.com/gpu=0 or
/// nvidia.com/gpu=all, without a claim. It is of the driver and of the MIG devices that are there now:
/// its first line says which, and after a change of these it is to be written again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  divvy generate --gpus nvml --write /etc/cdi/nvidia.yaml
  divvy generate --gpus nvml --names type-index --cdi-version 0.5.0 -o json")]
pub(super) struct Generate {
    /// Write it to FILE, in one step, instead of printing it: YAML, or JSON where the name ends in
    /// .json
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// How devices are named; more than one may be given [default: index and uuid]
    #[arg(long, visible_alias = "device-name-strategy", value_name = "NAMES")]
    names: Vec<Names>,
    /// The kind of its devices, vendor and class
    #[arg(long, value_name = "KIND", default_value = "nvidia.com/gpu")]
    kind: String,
    /// The newest version of CDI that the engine reads: podman 4.9 reads up to 0.6.0
    #[arg(long, value_name = "VERSION")]
    cdi_version: Option<String>,
}

/// How devices are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Names {
    /// 0, and 0:1 for the second MIG device of GPU 0
    Index,
    /// GPU-…, MIG-…
    Uuid,
    /// gpu0, mig0:1
    TypeIndex,
}

// === impl Generate ===

impl Generate {
    pub(super) fn run(&self, places: &Places<'_>) -> Result<Answer, Failure> {
        let (version, json) = (self.version()?, self.is_json()?);
        let gpus = places.gpus()?;
        let failed = |error: crate::gpu::GpuError| Failure::of(error.code(), &error);
        let inventory = gpus.inventory().map_err(failed)?;
        // An engine that is given less than all does not notice.
        if let Some(failure) = Failure::all(inventory.faults.iter().map(|fault| {
            let line = format!("{fault}: a spec without it would pass for all of the node");
            Failure::new("GPU-FAULT", line)
        })) {
            return Err(failure);
        }
        let mut common = gpus.driver_files().map_err(failed)?;
        let mut lacking = std::mem::take(&mut common.lacking);
        let devices = self.devices(gpus.as_ref(), &inventory, &mut lacking).map_err(failed)?;
        let made = emit::node(&self.kind, devices, common, places.hook());
        let mut spec = made.map_err(|error| Failure::of(error.code(), &error))?;
        if let Some(version) = version {
            let lowered = emit::lower(&mut spec, version);
            let lost = lowered.map_err(|error| Failure::of("SPEC-VERSION", &error))?;
            if lost {
                tell(
                    "warning: before CDI 0.7.0 a process that is not root is not put into the group \
                      of the nodes in /dev/dri: it cannot open them\n",
                );
            }
        }
        is_valid(&spec, &inventory)?;
        warn(&inventory, &lacking);
        let failed = |error: serde_json::Error| Failure::of("FAILED", &error);
        let text = serde_json::to_string_pretty(&spec).map_err(failed)?;
        let yaml = format!("{}\n{}", comment(&inventory)?, yaml(&text)?);
        let Some(path) = &self.write else {
            let json = serde_json::to_value(&spec).map_err(failed)?;
            return Ok(Answer { text: yaml, json, exit: Exit::Ok });
        };
        let bytes = if json { format!("{text}\n") } else { yaml };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        file::make_dir(folder.unwrap_or(Path::new(".")), 0o755, Durability::Durable)
            .and_then(|()| file::replace(path, bytes.as_bytes(), 0o644, Durability::Durable))
            .map_err(|error| Failure::of(error.code(), &error))?;
        Ok(written(path, &spec))
    }

    fn version(&self) -> Result<Option<Version>, Failure> {
        let parse = |text: &String| {
            Version::parse(text).ok_or_else(|| {
                let all: Vec<&str> = Version::ALL.iter().map(|version| version.as_str()).collect();
                let line = format!("--cdi-version {text:?} is none of {}", all.join(", "));
                Failure::new("USAGE", line)
            })
        };
        self.cdi_version.as_ref().map(parse).transpose()
    }

    /// Whether the file is to be of JSON. No engine reads a file of another name.
    fn is_json(&self) -> Result<bool, Failure> {
        let Some(path) = &self.write else { return Ok(false) };
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => Ok(true),
            Some("yaml") => Ok(false),
            _ => {
                let line =
                    format!("--write {}: engines read .yaml and .json files alone", path.display());
                Err(Failure::new("USAGE", line))
            }
        }
    }

    /// GPUs that are not in MIG mode, and the MIG devices of those that are, by index.
    fn devices(
        &self,
        gpus: &dyn Gpus,
        inventory: &Inventory,
        lacking: &mut Vec<String>,
    ) -> Result<Vec<Named>, crate::gpu::GpuError> {
        let mut devices = Vec::new();
        let mut add = |names: [String; 3], mut files: Files| {
            lacking.append(&mut files.lacking);
            let strategies = if self.names.is_empty() { &Names::DEFAULT[..] } else { &self.names };
            let named = strategies.iter().filter_map(|names_by| names.get(*names_by as usize));
            let mut all: Vec<String> = Vec::new();
            for name in named {
                if !all.contains(name) {
                    all.push(name.clone());
                }
            }
            devices.push(Named { names: all, files });
        };
        for (index, gpu) in inventory.gpus.iter().enumerate() {
            let Mig::On(partitions) = &gpu.mig else {
                let mut files = gpus.device_files(gpu, None)?;
                let display = gpus.display_files(gpu)?;
                files.nodes.extend(display.nodes);
                files.links.extend(display.links);
                files.lacking.extend(display.lacking);
                add([format!("{index}"), gpu.uuid.clone(), format!("gpu{index}")], files);
                continue;
            };
            for (slot, partition) in slots(gpu, partitions) {
                let files = gpus.device_files(gpu, Some(&partition.uuid))?;
                let name = format!("{index}:{slot}");
                add([name.clone(), partition.uuid.clone(), format!("mig{name}")], files);
            }
        }
        Ok(devices)
    }
}

/// The partitions of a GPU, each with the index that NVML has for it: it counts the compute instances
/// by the ids of their GPU instances, those that are no partitions included.
fn slots<'a>(gpu: &Gpu, partitions: &'a [Partition]) -> Vec<(usize, &'a Partition)> {
    let mut sorted: Vec<&Partition> = partitions.iter().collect();
    sorted.sort_unstable_by_key(|partition| partition.gpu_instance);
    let slot = |(before, partition): (usize, &'a Partition)| {
        let others = gpu.instances.iter().filter(|other| other.id < partition.gpu_instance);
        (before + others.map(|other| other.devices.len()).sum::<usize>(), partition)
    };
    sorted.into_iter().enumerate().map(slot).collect()
}

/// Says what is not in a spec.
fn warn(inventory: &Inventory, lacking: &[String]) {
    if !lacking.is_empty() {
        tell(&format!(
            "warning: the driver has no {}: containers go without\n",
            lacking.join(", ")
        ));
    }
    for (index, gpu) in inventory.gpus.iter().enumerate() {
        if matches!(&gpu.mig, Mig::On(partitions) if partitions.is_empty()) {
            tell(&format!(
                "warning: GPU {index}, {}, is in MIG mode and has no MIG devices: it is not in the \
                 spec\n",
                gpu.uuid
            ));
        }
        for instance in gpu.instances.iter().filter(|instance| !instance.devices.is_empty()) {
            tell(&format!(
                "warning: GPU instance {} of GPU {index}, {}, is shared by several compute instances: they are \
                 not in the spec\n",
                instance.id, gpu.uuid
            ));
        }
    }
}

/// That an engine will read it.
fn is_valid(spec: &Spec, inventory: &Inventory) -> Result<(), Failure> {
    if spec.devices.is_empty() {
        let gpus = inventory.gpus.len();
        let line = format!(
            "nothing to name: {gpus} GPUs, and none of them can be given whole or has MIG devices"
        );
        return Err(Failure::new("NO-DEVICE", line));
    }
    let wrong = spec::check(spec).into_iter();
    let wrong = wrong.filter(|violation| violation.severity == Severity::Error);
    let failures = wrong.map(|wrong| Failure::new("SPEC-INVALID", wrong.to_string()));
    Failure::all(failures).map_or(Ok(()), Err)
}

/// What the spec was made for. A comment: annotations would need a newer CDI than engines read.
fn comment(inventory: &Inventory) -> Result<String, Failure> {
    let mut mig = String::new();
    for gpu in &inventory.gpus {
        if let Mig::On(partitions) = &gpu.mig {
            mig.push_str(&format!("{}\n", gpu.uuid));
            for (slot, Partition { profile, placement, uuid, .. }) in slots(gpu, partitions) {
                mig.push_str(&format!("{slot} {profile} {placement} {uuid}\n"));
            }
        }
    }
    let mig = if mig.is_empty() { "off".to_owned() } else { record::digest(mig.as_bytes()) };
    let (version, driver) = (env!("CARGO_PKG_VERSION"), &inventory.driver.version);
    Ok(format!("# divvy {version}: driver {driver}, boot {}, MIG {mig}", boot()?))
}

/// A spec in JSON as people read it.
fn yaml(text: &str) -> Result<String, Failure> {
    let nodes = doc::read_all(text.as_bytes());
    let nodes = nodes.map_err(|error| Failure::new("FAILED", error.to_string()))?;
    Ok(document::yaml(&nodes))
}

fn written(path: &Path, spec: &Spec) -> Answer {
    let names: Vec<&str> = spec.devices.iter().map(|device| device.name.as_str()).collect();
    let (file, version) = (shown(path), spec.version);
    let first = names.first().copied().unwrap_or_default();
    let text = format!(
        "wrote {file}, CDI {version}: {} {}\n  use it  podman run --device {}={first}\n",
        spec.kind,
        names.join(" "),
        spec.kind,
    );
    let json = json!({
        "file": file,
        "cdiVersion": version.as_str(),
        "kind": spec.kind,
        "devices": names,
    });
    Answer { text, json, exit: Exit::Ok }
}

// === impl Names ===

impl Names {
    /// As nvidia-ctk names them where nothing is said.
    const DEFAULT: [Self; 2] = [Self::Index, Self::Uuid];
}

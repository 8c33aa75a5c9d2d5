//! `divvy devices`: what containers can ask for, and what the node has.

mod declared;

use std::{collections::BTreeSet, path::PathBuf};

use divvy_cdi::{
    file::Trust,
    registry::{Definition, Registry, Standing, State},
};
use divvy_hook::settings::{self, Settings};
use serde_json::{Value, json};

use super::{Answer, Exit, Failure, Places, exit::one_line, shown, table::Table};
use crate::{
    gpu::{Device, Gpu, Gpus, Interval, Inventory, Mig, Partition},
    journal::{Entry, Journal},
    plan::{Held, Target},
    pool::Pool,
};

/// List the CDI devices that containers can ask for, and the node's own.
///
/// CDI devices are those of the hook's spec directories, read as the hook reads them, and those of
/// prepared claims: a definition that does not count is listed with the reason. With --gpus, the GPUs come first: their
/// partitions, the room for more, and which claim holds what; with --devices, what the files declare.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  divvy devices
  divvy devices --gpus sim:node.toml
  divvy devices --devices fpgas.yaml
  divvy devices --spec-dir ./cdi -o json")]
pub(super) struct Devices {
    /// A directory of CDI specs, repeatable; a later one counts more
    #[arg(long, value_name = "DIR")]
    spec_dir: Vec<PathBuf>,
    /// The hook's configuration, which names the directories that it reads
    #[arg(long, value_name = "FILE", default_value = settings::PATH)]
    config: PathBuf,
}

// === impl Devices ===

impl Devices {
    pub(super) fn run(&self, places: &Places<'_>) -> Result<Answer, Failure> {
        let (mut text, mut json) = (String::new(), json!({}));
        if places.names_devices() {
            for opened in places.pools()? {
                let pool = opened.pool();
                let held = held(&places.journal(pool.driver())?)?;
                match pool {
                    Pool::Gpus(gpus) => {
                        let inventory = gpus.inventory();
                        let inventory = inventory.map_err(|e| Failure::of(e.code(), &e))?;
                        let slices = time_slices(gpus, &inventory);
                        text.push_str(&node(&inventory, &slices, &held));
                        set(&mut json, "node", node_json(&inventory, &slices, &held));
                    }
                    Pool::Declared(file) => {
                        text.push_str(&declared::text(file, &held));
                        declared::add(&mut json, file, &held);
                    }
                }
                text.push('\n');
            }
        }
        let registry = Registry::scan(&self.dirs(places)?, &Trust::of_process());
        text.push_str(&cdi(&registry));
        set(&mut json, "cdi", cdi_json(&registry));
        Ok(Answer { text, json, exit: Exit::Ok })
    }

    /// The directories that the hook reads, and the one that claims' specs go to.
    fn dirs(&self, places: &Places<'_>) -> Result<Vec<PathBuf>, Failure> {
        if !self.spec_dir.is_empty() {
            return Ok(self.spec_dir.clone());
        }
        let settings = Settings::read(&self.config).map_err(|error| {
            let code = if error.code() == "UNTRUSTED" { "UNTRUSTED" } else { "CONFIG-INVALID" };
            Failure::of(code, &error)
        })?;
        let mut dirs = settings.spec_dirs;
        // Who has no place for them has none to list.
        dirs.extend(places.cdi_dir().ok().filter(|dir| !dirs.contains(dir)));
        Ok(dirs)
    }
}

/// What prepared claims hold. Entries that cannot be read are not guessed at.
pub(super) fn held(journal: &Journal) -> Result<Vec<Held>, Failure> {
    let entries = journal.entries().map_err(|e| Failure::of(e.code(), &e))?;
    let mut held = Vec::new();
    for entry in entries {
        let entry: Entry = entry.map_err(|e| Failure::of(e.code(), &e))?;
        held.extend(entry.held());
    }
    Ok(held)
}

/// The time slices of the GPUs that have one, in their order.
fn time_slices(gpus: &dyn Gpus, inventory: &Inventory) -> Vec<Option<Interval>> {
    let time_slice = |gpu: &Gpu| match gpu.mig {
        Mig::On(_) => None,
        Mig::Off | Mig::Unsupported => gpus.time_slice(&gpu.uuid).ok(),
    };
    inventory.gpus.iter().map(time_slice).collect()
}

fn node(inventory: &Inventory, slices: &[Option<Interval>], held: &[Held]) -> String {
    let driver = &inventory.driver;
    let mut text = format!("Node {}, driver {} {}\n", inventory.node, driver.name, driver.version);
    let mut table = Table::new(2, &["DEVICE", "WHAT", "MEMORY", "TIME SLICE", "CLAIM"]);
    for (gpu, slice) in inventory.gpus.iter().zip(slices) {
        let name = Device::Gpu(gpu).name().to_string();
        let claims = holders(&Target::Gpu { gpu: gpu.uuid.clone() }, held);
        let (what, claims) = match &gpu.mig {
            Mig::On(_) => (format!("{}, MIG", gpu.product), claims.join(", ")),
            Mig::Off | Mig::Unsupported if claims.is_empty() => {
                (gpu.product.clone(), "-".to_owned())
            }
            Mig::Off | Mig::Unsupported => (gpu.product.clone(), claims.join(", ")),
        };
        let slice = slice.map(|slice| slice.to_string()).unwrap_or_default();
        table.row([name, what, gib(gpu.memory >> 20), slice, claims]);
        for partition in gpu.partitions() {
            let name = format!("  {}", partition_name(gpu, partition));
            let memory = gpu.profile(&partition.profile).map(|profile| gib(profile.memory));
            let claims = match partition_holders(gpu, partition, held) {
                none if none.is_empty() => "none that this journal knows".to_owned(),
                claims => claims.join(", "),
            };
            let what = partition.profile.clone();
            table.row([name, what, memory.unwrap_or_default(), String::new(), claims]);
        }
        for instance in &gpu.instances {
            let what = format!("{}, GPU instance {}", instance.profile, instance.id);
            let memory = gpu.profile(&instance.profile).map(|profile| gib(profile.memory));
            let claim = "none: divvy did not make it".to_owned();
            let name = format!("    at {}", instance.placement);
            table.row([name, what, memory.unwrap_or_default(), String::new(), claim]);
        }
    }
    text.push_str(&table.to_string());
    for fault in &inventory.faults {
        text.push_str(&format!("  {fault}\n"));
    }
    for gpu in &inventory.gpus {
        let room = room(gpu);
        if !room.is_empty() {
            let room: Vec<_> =
                room.iter().map(|(name, count)| format!("{count} × {name}")).collect();
            let name = Device::Gpu(gpu).name();
            text.push_str(&format!("  {name} has room for {}\n", room.join(" or ")));
        }
    }
    text
}

fn node_json(inventory: &Inventory, slices: &[Option<Interval>], held: &[Held]) -> Value {
    let partition = |gpu: &Gpu, partition: &Partition| {
        json!({
            "device": partition_name(gpu, partition),
            "uuid": partition.uuid,
            "profile": partition.profile,
            "placement": partition.placement,
            "claims": partition_holders(gpu, partition, held),
        })
    };
    let gpu = |(gpu, slice): (&Gpu, &Option<Interval>)| {
        let room = room(gpu);
        let room: serde_json::Map<String, Value> =
            room.into_iter().map(|(name, count)| (name.to_owned(), json!(count))).collect();
        json!({
            "device": Device::Gpu(gpu).name().to_string(),
            "uuid": gpu.uuid,
            "pci": gpu.pci.to_string(),
            "product": gpu.product,
            "memoryMiB": gpu.memory >> 20,
            "mig": matches!(gpu.mig, Mig::On(_)),
            "timeSlice": slice,
            "claims": holders(&Target::Gpu { gpu: gpu.uuid.clone() }, held),
            "partitions": gpu.partitions().iter().map(|p| partition(gpu, p)).collect::<Vec<_>>(),
            "room": room,
        })
    };
    json!({
        "name": inventory.node,
        "driver": { "name": inventory.driver.name, "version": inventory.driver.version },
        "faults": inventory.faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "gpus": inventory.gpus.iter().zip(slices).map(gpu).collect::<Vec<_>>(),
    })
}

/// How many more partitions of each profile fit, each taken alone.
fn room(gpu: &Gpu) -> Vec<(&str, usize)> {
    if !matches!(gpu.mig, Mig::On(_)) {
        return Vec::new();
    }
    let counts = gpu.profiles.iter().map(|profile| {
        let free = profile.placements().filter(|place| gpu.in_the_way(profile, *place).is_none());
        let media = crate::gpu::model::has_media_extensions(&profile.name);
        (profile.name.as_ref(), free.count().min(if media { 1 } else { usize::MAX }))
    });
    counts.filter(|(_, count)| *count > 0).collect()
}

fn partition_name(gpu: &Gpu, partition: &Partition) -> String {
    let profile = gpu.profile(&partition.profile);
    let placement = partition.placement;
    let known = profile.map(|profile| Device::Partition { gpu, profile, placement }.name());
    known.map_or_else(|| partition.uuid.clone(), |name| name.to_string())
}

fn partition_holders<'a>(gpu: &Gpu, partition: &Partition, held: &'a [Held]) -> Vec<&'a str> {
    let (uuid, profile) = (gpu.uuid.clone(), partition.profile.clone());
    holders(&Target::Partition { gpu: uuid, profile, placement: partition.placement }, held)
}

/// The claims that hold it, each once: a device may have several.
fn holders<'a>(target: &Target, held: &'a [Held]) -> Vec<&'a str> {
    let claims = held.iter().filter(|held| held.target == *target).map(|held| held.claim.as_str());
    claims.collect::<BTreeSet<_>>().into_iter().collect()
}

fn cdi(registry: &Registry) -> String {
    let mut text = "CDI devices\n".to_owned();
    let mut table = Table::new(2, &["NAME", "FILE"]);
    let mut any = false;
    for Definition { name, file, standing, .. } in registry.definitions() {
        let file = file.path.display();
        let file = match standing {
            Standing::Usable => file.to_string(),
            Standing::Shadowed(by) => format!("{file} (does not count: {} does)", by.display()),
            Standing::Conflict(others) => {
                let others: Vec<_> = others.iter().map(|path| path.display().to_string()).collect();
                format!("{file} (unusable: {} defines it too)", others.join(", "))
            }
        };
        table.row([name.to_string(), file]);
        any = true;
    }
    match any {
        true => text.push_str(&table.to_string()),
        false => text.push_str("  none\n"),
    }
    text.push_str("  looked in ");
    let dirs = registry.directories().iter().map(|dir| {
        let path = dir.path.display();
        match &dir.state {
            State::Read { files: 1 } => format!("{path} (1 file)"),
            State::Read { files } => format!("{path} ({files} files)"),
            State::Missing => format!("{path} (missing)"),
            State::Same(other) => format!("{path} (the same as {})", other.display()),
            State::Refused(_, why) => format!("{path} (refused: {why})"),
        }
    });
    text.push_str(&one_line(&dirs.collect::<Vec<_>>().join(", ")));
    text.push('\n');
    let problems = registry.problems();
    if !problems.is_empty() {
        text.push_str("\nProblems\n");
        for problem in problems {
            text.push_str(&format!("  {}\n", super::lint::line(problem)));
        }
    }
    text
}

fn cdi_json(registry: &Registry) -> Value {
    let device = |Definition { name, file, standing, .. }: Definition<'_>| {
        let (standing, others) = match standing {
            Standing::Usable => ("usable", Vec::new()),
            Standing::Shadowed(by) => ("shadowed", vec![shown(by)]),
            Standing::Conflict(others) => ("conflict", others.into_iter().map(shown).collect()),
        };
        json!({
            "name": name.to_string(),
            "file": shown(&file.path),
            "version": file.spec.version.as_str(),
            "standing": standing,
            "others": others,
        })
    };
    let directory = |dir: &divvy_cdi::registry::Directory| {
        let (state, detail) = match &dir.state {
            State::Read { files } => ("read", json!(files)),
            State::Missing => ("missing", Value::Null),
            State::Same(other) => ("same", json!(shown(other))),
            State::Refused(code, why) => ("refused", json!(format!("{code}: {why}"))),
        };
        json!({ "path": shown(&dir.path), "state": state, "detail": detail })
    };
    json!({
        "devices": registry.definitions().map(device).collect::<Vec<_>>(),
        "directories": registry.directories().iter().map(directory).collect::<Vec<_>>(),
        "problems": super::lint::problems(registry.problems()),
    })
}

fn set(json: &mut Value, key: &str, value: Value) {
    if let Value::Object(object) = json {
        object.insert(key.to_owned(), value);
    }
}

/// MiB as GiB, one digit after the point: 81559 → `79.6 GiB`.
fn gib(mib: u64) -> String {
    let tenths = (mib * 10 + 512) / 1024;
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

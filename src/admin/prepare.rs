//! `divvy prepare`: makes the devices of claims ready.

use std::path::{Path, PathBuf};

use divvy_cdi::file::Trust;
use divvy_hook::record::Origin;
use serde_json::json;

use super::{
    Answer, Exit, Failure, Places, boot, claim_name, exit::one_line, shown, stdin, table::Table,
    tell,
};
use crate::{
    claim::{ClaimError, MAX_BYTES, Manifests, Sharing},
    emit,
    plan::{Daemon, Planned},
    prepare::{PrepareError, Prepared},
    quantity::Quantity,
};

/// Prepare the claims of a file: their devices, CDI specs and records.
///
/// FILE holds Kubernetes manifests: ResourceClaims of resource.k8s.io (v1, v1beta2, v1beta1 or
/// v1alpha3), and the DeviceClasses that they need. A claim with status.allocation gets exactly those
/// devices; one without is allocated here, as `divvy allocate` shows. All claims are prepared, or
/// none. A claim that is prepared already is verified, and has the same names as before.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  divvy prepare --gpus sim:node.toml -f claim.yaml
  divvy prepare --gpus sim:node.toml -f claims.yaml --name team-a/training -o json")]
pub(super) struct Prepare {
    /// The manifests, YAML or JSON; - is stdin
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Only the claim of this name, [namespace/]name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

// === impl Prepare ===

impl Prepare {
    pub(super) fn run(&self, places: &Places<'_>) -> Result<Answer, Failure> {
        let name = self.name.as_deref();
        name.map(claim_name).transpose()?;
        let opened = places.pool()?;
        let pool = opened.pool();
        let manifests = read(&self.file, name, pool.driver())?;
        let (kept, boot) = (places.kept(pool.driver())?, boot()?);
        let node = kept.node(pool, &boot);
        node.sweep().map_err(|error| failure(&error))?;
        let mut done: Vec<Prepared> = Vec::new();
        for claim in &manifests.claims {
            match node.prepare(claim, &manifests.classes, Origin::Local) {
                Ok(prepared) => done.push(prepared),
                Err(error) => {
                    let fresh = done.iter().rev().filter(|earlier| earlier.fresh);
                    let left = fresh.filter_map(|e| node.unprepare(&e.entry.uid).err());
                    return Err(left.map(|e| failure(&e)).fold(failure(&error), Failure::and));
                }
            }
        }
        if let Ok(files) = pool.gpus().and_then(|gpus| gpus.driver_files())
            && !files.lacking.is_empty()
        {
            let lacking = files.lacking.join(", ");
            tell(&format!("warning: the driver has no {lacking}: containers go without\n"));
        }
        Ok(answer(&done))
    }
}

/// The claims of a file, all of them or the one with this name, as far as they are this driver's.
pub(super) fn read(file: &Path, name: Option<&str>, driver: &str) -> Result<Manifests, Failure> {
    only(parse(file, &bytes(file)?, driver)?, file, name)
}

/// These claims, or the one of this name.
pub(super) fn only(
    manifests: Manifests,
    file: &Path,
    name: Option<&str>,
) -> Result<Manifests, Failure> {
    match name {
        Some(name) => manifests.only(file, name).map_err(|error| Failure::of(error.code(), &error)),
        None => Ok(manifests),
    }
}

/// What a file of manifests holds; `-` is stdin.
pub(super) fn bytes(file: &Path) -> Result<Vec<u8>, Failure> {
    match file == Path::new("-") {
        true => stdin(MAX_BYTES),
        false => divvy_cdi::file::read(file, MAX_BYTES, &Trust::Any)
            .map_err(|error| Failure::of(error.code(), &error)),
    }
}

/// The claims and classes among these bytes of a file.
pub(super) fn parse(file: &Path, bytes: &[u8], driver: &str) -> Result<Manifests, Failure> {
    let file = if file == Path::new("-") { "standard input".as_ref() } else { file };
    Manifests::parse(file, bytes, driver).map_err(|error| match &error {
        ClaimError::Many { problems, .. } => {
            Failure::all(problems.iter().map(|problem| Failure::of(problem.code(), problem)))
                .unwrap_or_else(|| Failure::of(error.code(), &error))
        }
        _ => Failure::of(error.code(), &error),
    })
}

/// What failed first, with its cause, then what could not be undone.
pub(crate) fn failure(error: &PrepareError) -> Failure {
    let first = Failure::of(error.code(), error);
    let left = error.left().iter().map(|left| Failure::of(left.error.code(), left));
    left.fold(first, Failure::and)
}

fn answer(done: &[Prepared]) -> Answer {
    let mut text = String::new();
    let mut claims = Vec::new();
    for Prepared { entry, fresh } in done {
        let (spec, record) = (entry.spec_path(), entry.run().claim_path(&entry.uid));
        if !text.is_empty() {
            text.push('\n');
        }
        let state = if *fresh { "prepared" } else { "was prepared before, verified" };
        text.push_str(&format!("claim {}: {state}\n", entry.title()));
        let mut table = Table::new(2, &["REQUEST", "DEVICE", "SHARING", "CDI NAME"]);
        let mut devices = Vec::new();
        for device in &entry.devices {
            let cdi = emit::cdi_name(entry, device);
            let sharing = match (&device.share, &device.sharing) {
                _ if device.admin => "admin access".to_owned(),
                (Some(_), Sharing::Exclusive) => "with other claims".to_owned(),
                (_, sharing) => sharing.to_string(),
            };
            table.row([device.request.clone(), device.device.clone(), sharing, cdi.clone()]);
            let share = device.share.as_ref();
            devices.push(json!({
                "request": device.request,
                "pool": device.pool,
                "device": device.device,
                "uuid": entry.partition_of(device).unwrap_or(device.target.gpu()),
                "share": share.map(|share| json!({"id": share.id, "consumed": share.consumed})),
                "sharing": device.sharing,
                "mps": entry.daemon_of(device).map(daemon),
                "cdi": cdi,
            }));
        }
        text.push_str(&table.to_string());
        for (request, memory) in entry.devices.iter().filter_map(advised) {
            text.push_str(&format!(
                "  note    request {request}: {memory} of memory is advisory: its processes are told \
                 so by their environment, and could unset it\n"
            ));
        }
        for (name, why) in entry.daemons().filter_map(without_cgroup) {
            let why = one_line(why);
            text.push_str(&format!(
                "  note    MPS daemon {name} ends with what started it: {why}\n"
            ));
        }
        for (what, path) in [("spec    ", &spec), ("record  ", &record)] {
            text.push_str(&format!("  {what}{}\n", one_line(&shown(path))));
        }
        text.push_str(&format!("  use it  annotation divvy.dev/claim={}\n", entry.title()));
        claims.push(json!({
            "namespace": entry.namespace,
            "name": entry.name,
            "uid": entry.uid,
            "fresh": fresh,
            "spec": shown(&spec),
            "record": shown(&record),
            "devices": devices,
        }));
    }
    Answer { text, json: json!({ "claims": claims }), exit: Exit::Ok }
}

/// A control daemon of MPS, for programs.
fn daemon(daemon: &Daemon) -> serde_json::Value {
    let running = daemon.running.as_ref();
    json!({
        "daemon": daemon.name,
        "directory": shown(&daemon.dir.join(&daemon.name)),
        "pid": running.map(|running| running.process.pid),
        "noCgroup": without_cgroup(daemon).map(|(_, why)| why),
    })
}

/// The name of a control daemon that has no cgroup of its own, and why.
fn without_cgroup(daemon: &Daemon) -> Option<(&str, &str)> {
    Some((&daemon.name, daemon.running.as_ref()?.no_cgroup.as_deref()?))
}

/// The request of a share, and the memory that its clients are told to keep to.
fn advised(device: &Planned) -> Option<(&str, Quantity)> {
    Some((&device.request, Quantity::bytes(device.shared_memory()?)))
}

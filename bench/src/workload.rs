//! A workload is what one container start meets: the files in the CDI directories and what is requested.

use crate::nvidia;

/// The UID of the pod whose container is started.
pub(crate) const POD: &str = "3f9d1c52-7a0e-4b8f-9a53-0d6a1c2e4b77";

/// How the container asks for its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Nothing,
    /// The annotation `cdi.k8s.io/*`.
    Names,
    /// The pod's record.
    Record,
}

/// One row of the table before it is measured.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) request: Request,
    /// Absolute path and content.
    pub(crate) specs: Vec<(String, String)>,
    /// What one device is, and what eight are; empty where a workload has no such row.
    pub(crate) one: Vec<String>,
    pub(crate) eight: Vec<String>,
    /// The highest ratio to the floor for one device and for eight.
    pub(crate) targets: (f64, f64),
}

// === impl Workload ===

impl Workload {
    /// The lines that a workload makes: label, devices, highest ratio.
    pub(crate) fn lines(&self) -> Vec<(String, &[String], f64)> {
        if self.request == Request::Nothing {
            return vec![(self.name.to_owned(), &[], self.targets.0)];
        }
        let both = [(1, &self.one, self.targets.0), (8, &self.eight, self.targets.1)];
        let lines = both.into_iter().filter(|(_, devices, _)| !devices.is_empty());
        lines
            .map(|(n, devices, target)| (format!("{}/{n}", self.name), devices.as_slice(), target))
            .collect()
    }
}

/// All of them, in the order of the table.
pub(crate) fn all() -> Vec<Workload> {
    let big = nvidia::node_spec(8, 7);
    let mut rows = vec![
        Workload {
            name: "none",
            what: "nothing requested, 160 claim specs beside it",
            request: Request::Nothing,
            one: vec![],
            eight: vec![],
            targets: (1.3, 0.0),
            ..claims("c", 160)
        },
        Workload {
            name: "a",
            what: "one small spec: 1 GPU, 4 names, YAML",
            request: Request::Names,
            specs: small_spec(),
            one: vec!["nvidia.com/gpu=0".into()],
            eight: vec![],
            targets: (2.5, 2.5),
        },
        big_spec(
            "b",
            "8 GPUs, 56 MIG slices, 193 names, YAML",
            "nvidia.yaml",
            big.to_yaml(),
            (6.0, 6.0),
        ),
        big_spec("bj", "the same as JSON", "nvidia.json", big.to_json(), (3.5, 3.5)),
        Workload { targets: (1.7, 2.2), ..claims("c", 160) },
        Workload {
            name: "d",
            what: "1,000 claim specs of 8 drivers, JSON",
            targets: (1.4, 1.7),
            ..claims("d", 1000)
        },
        full_claims(),
    ];
    let mut record = Workload {
        name: "record",
        what: "a prepared claim found by its record, among 1,000",
        request: Request::Record,
        eight: vec![],
        targets: (2.5, 0.0),
        ..claims("d", 1000)
    };
    record.specs.extend(small_spec());
    rows.push(record);
    rows
}

fn small_spec() -> Vec<(String, String)> {
    vec![("/etc/cdi/nvidia.yaml".into(), nvidia::node_spec(1, 0).to_yaml())]
}

fn big_spec(
    name: &'static str,
    what: &'static str,
    file: &str,
    content: String,
    targets: (f64, f64),
) -> Workload {
    Workload {
        name,
        what,
        request: Request::Names,
        specs: vec![(format!("/etc/cdi/{file}"), content)],
        one: vec!["nvidia.com/gpu=3:4".into()],
        eight: (0..8).map(|gpu| format!("nvidia.com/gpu={gpu}:{}", gpu % 7)).collect(),
        targets,
    }
}

/// Small JSON claim specs of eight drivers; the eight devices are of eight claims and eight drivers.
fn claims(name: &'static str, count: u64) -> Workload {
    let mut specs = Vec::new();
    let mut devices = Vec::new();
    for claim in 0..count {
        let (kind, device, spec) = nvidia::small_claim_spec(claim % 8, claim);
        let file =
            format!("/var/run/cdi/{}_{}.json", kind.replace('/', "-"), nvidia::uuid(5000 + claim));
        specs.push((file, spec.to_json()));
        devices.push(format!("{kind}={device}"));
    }
    Workload {
        name,
        what: "160 claim specs of 8 drivers, JSON",
        request: Request::Names,
        specs,
        one: devices.iter().skip(77).take(1).cloned().collect(),
        eight: devices.iter().skip(8).step_by(13).take(8).cloned().collect(),
        targets: (0.0, 0.0),
    }
}

/// NVIDIA's claim specs with all common edits in each; the eight devices are of eight claims.
fn full_claims() -> Workload {
    let mut specs = Vec::new();
    let mut devices = Vec::new();
    for claim in 0..160 {
        let (device, spec) = nvidia::claim_spec(claim);
        let file =
            format!("/var/run/cdi/k8s.gpu.nvidia.com-claim_{}.yaml", nvidia::uuid(1000 + claim));
        specs.push((file, spec.to_yaml()));
        devices.push(format!("k8s.gpu.nvidia.com/claim={device}"));
    }
    Workload {
        name: "e",
        what: "160 claim specs of 13 KB, YAML",
        request: Request::Names,
        specs,
        one: devices.iter().skip(77).take(1).cloned().collect(),
        eight: devices.iter().skip(8).step_by(17).take(8).cloned().collect(),
        targets: (2.0, 2.8),
    }
}

#[cfg(test)]
mod tests;

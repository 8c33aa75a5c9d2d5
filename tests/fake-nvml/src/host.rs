//! A fake host is a folder that stands for `/` of a machine with NVIDIA's driver on it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    layout::Layout,
    model::Model,
    script::Rule,
    state::{Event, Gpu, Health, State},
    store::{self, lock, replace},
    tree,
};

/// A fake host, made or opened again.
#[derive(Debug, Clone)]
pub struct FakeHost {
    root: PathBuf,
}

/// The folder of a fake host that no real one has.
pub(crate) const CONTROL: &str = ".fake-nvml";

/// PCI buses of the GPUs in an HGX board.
const BUSES: [u8; 8] = [0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf];

// === impl FakeHost ===

impl FakeHost {
    /// Makes a host with GPUs of these models, by key; MIG mode is on where `true` stands. Its driver
    /// is laid out as Ubuntu does.
    ///
    /// # Errors
    /// A model is not known, the library was not built, or the folder cannot be written.
    pub fn make(root: &Path, gpus: &[(&str, bool)]) -> io::Result<Self> {
        Self::make_as(Layout::default(), root, gpus)
    }

    /// [`FakeHost::make`], with the driver laid out in this way.
    ///
    /// # Errors
    /// As there.
    pub fn make_as(layout: Layout, root: &Path, gpus: &[(&str, bool)]) -> io::Result<Self> {
        let host = Self { root: std::path::absolute(root)? };
        fs::create_dir_all(host.control().join("timeslice"))?;
        let gpus = (0u32..).zip(gpus).map(|(index, (model, mig))| gpu(index, model, *mig));
        let state = State {
            driver: "580.65.06".to_owned(),
            layout,
            cuda: 13_000,
            loaded: true,
            generation: 1,
            serial: 0,
            renumbers: false,
            gpus: gpus.collect::<io::Result<_>>()?,
            events: Vec::new(),
        };
        store::write(&host.control().join("state.json"), &state)?;
        layout.install(&host.root, &state.driver)?;
        tree::time_slices(&host.control(), &state)?;
        tree::follow(&host.root, &state)?;
        Ok(host)
    }

    /// The host that stands in a folder.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.root.join(CONTROL)
    }

    /// As it is now.
    pub fn state(&self) -> io::Result<State> {
        Ok(serde_json::from_slice(&fs::read(self.control().join("state.json"))?)?)
    }

    /// Changes it from outside, as an administrator or the hardware does.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> io::Result<T> {
        let held = lock(&self.control())?;
        let mut state = self.state()?;
        let value = change(&mut state);
        store::write(&self.control().join("state.json"), &state)?;
        tree::follow(&self.root, &state)?;
        drop(held);
        Ok(value)
    }

    /// Takes the driver out and puts this version in.
    pub fn reload_driver(&self, version: &str) -> io::Result<()> {
        self.change(|state| {
            state.reset();
            state.generation += 1;
            version.clone_into(&mut state.driver);
        })?;
        let state = self.state()?;
        tree::time_slices(&self.control(), &state)?;
        state.layout.install(&self.root, version)
    }

    /// Tells event sets of an XID.
    pub fn xid(&self, gpu: &str, xid: u64) -> io::Result<()> {
        let kind = u64::from(nvml_wrapper_sys::bindings::nvmlEventTypeXidCriticalError);
        self.change(|state| state.events.push(Event { gpu: gpu.to_owned(), kind, data: xid }))
    }

    /// From now on these rules count; earlier counts are forgotten.
    pub fn script(&self, rules: &[Rule]) -> io::Result<()> {
        let counts = self.control().join("counts");
        if counts.exists() {
            fs::remove_dir_all(&counts)?;
        }
        fs::create_dir_all(counts)?;
        store::write(&self.control().join("script.json"), &rules)
    }

    /// How many calls fitted the rule at this place of the script, one that skips or ends.
    ///
    /// # Errors
    /// The system's answer.
    pub fn fitted(&self, rule: usize) -> io::Result<u64> {
        let counts = self.control().join("counts").join(rule.to_string());
        Ok(u64::try_from(store::text(&counts)?.len()).unwrap_or(u64::MAX))
    }

    /// From now on calls are noted, from none on.
    pub fn watch(&self) -> io::Result<()> {
        replace(&self.control().join("calls"), b"")
    }

    /// The calls since [`FakeHost::watch`], as `nvmlDeviceGetName GPU-…`.
    pub fn calls(&self) -> io::Result<Vec<String>> {
        let text = store::text(&self.control().join("calls"))?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// What the fake nvidia-smi says of a GPU's time slice: a number, or why it has none.
    pub fn time_slice(&self, gpu: &str) -> io::Result<String> {
        Ok(store::text(&self.control().join("timeslice").join(gpu))?.trim().to_owned())
    }

    /// Makes a GPU one that cannot be time-sliced.
    pub fn refuse_time_slices(&self, gpu: &str) -> io::Result<()> {
        replace(&self.control().join("timeslice").join(gpu), b"unsupported\n")
    }
}

fn gpu(index: u32, model: &str, mig: bool) -> io::Result<Gpu> {
    let known = Model::by_key(model);
    let known = known.ok_or_else(|| io::Error::other(format!("no model {model:?}")))?;
    if mig && known.profiles.is_empty() {
        return Err(io::Error::other(format!("{model} has no MIG")));
    }
    let slot = usize::try_from(index).unwrap_or(0);
    let bus = BUSES.get(slot % BUSES.len()).copied().unwrap_or_default();
    Ok(Gpu {
        uuid: format!("GPU-{}", State::uuid(u64::from(index) + 1)),
        model: known.key.to_owned(),
        pci: format!("{:04x}:{bus:02x}:00.0", index / 8),
        minor: index,
        numa: i32::from(bus >= 0x80),
        present: true,
        lost: false,
        mig,
        mig_pending: mig,
        clients: 0,
        compute_mode: 0,
        instances: Vec::new(),
        health: Health::default(),
    })
}

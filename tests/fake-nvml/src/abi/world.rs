//! The world of an opened library is the fake host that it lies in, and its session.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use nvml_wrapper_sys::bindings as sys;
use rustix::process;

use super::{events::Set, handle::About};
use crate::{
    host::CONTROL,
    script::Rule,
    state::{Code, Gpu, NOT_FOUND, State},
    store::{self, Cached},
    tree,
};

/// The host of this copy of the library.
pub(super) struct World {
    root: PathBuf,
    control: PathBuf,
    state: Cached<State>,
    script: Cached<Vec<Rule>>,
    /// How often it was initialized and not shut down again.
    sessions: AtomicUsize,
    /// The load of the driver that the session began in.
    generation: Mutex<u64>,
    /// Event sets, by serial.
    pub(super) sets: Mutex<BTreeMap<u64, Set>>,
}

const UNKNOWN: Code = sys::nvmlReturn_enum_NVML_ERROR_UNKNOWN;
const UNLOADED: Code = sys::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED;
const LOST: Code = sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST;

/// The world around this library, found by its own path.
pub(super) fn world() -> Option<&'static World> {
    static WORLD: OnceLock<Option<World>> = OnceLock::new();
    let find = || {
        let library = own_path()?;
        let root = library.ancestors().find(|folder| folder.join(CONTROL).is_dir())?;
        Some(World::at(root))
    };
    WORLD.get_or_init(find).as_ref()
}

/// The file that this code was loaded from: the mapping that it lies in.
fn own_path() -> Option<PathBuf> {
    let here = own_path as *const () as usize;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let number = |text: &str| usize::from_str_radix(text, 16).unwrap_or(0);
        range.is_some_and(|(start, end)| (number(start)..number(end)).contains(&here))
    })?;
    line.find('/').and_then(|at| line.get(at..)).map(PathBuf::from)
}

// === impl World ===

impl World {
    fn at(root: &Path) -> Self {
        let control = root.join(CONTROL);
        Self {
            root: root.to_owned(),
            state: Cached::new(control.join("state.json")),
            script: Cached::new(control.join("script.json")),
            control,
            sessions: AtomicUsize::new(0),
            generation: Mutex::new(0),
            sets: Mutex::default(),
        }
    }

    /// As the host is now.
    pub(super) fn state(&self) -> Result<Arc<State>, Code> {
        self.state.get().ok().flatten().ok_or(UNKNOWN)
    }

    /// Changes the host, or leaves it as it is.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, Code>,
    ) -> Result<T, Code> {
        let held = store::lock(&self.control).map_err(|_| UNKNOWN)?;
        let mut state = (*self.state()?).clone();
        let value = change(&mut state)?;
        store::write(&self.control.join("state.json"), &state).map_err(|_| UNKNOWN)?;
        tree::follow(&self.root, &state).map_err(|_| UNKNOWN)?;
        drop(held);
        Ok(value)
    }

    /// One call, as the script has it.
    pub(super) fn scripted(
        &self,
        name: &str,
        about: About,
        answer: impl FnOnce(&World, &State, Option<&Gpu>) -> Result<(), Code>,
    ) -> Result<(), Code> {
        let state = self.state()?;
        let gpu = about.gpu(&state);
        self.note(name, gpu);
        let rule = self.rule(name, gpu)?;
        if let Some(rule) = &rule {
            thread::sleep(Duration::from_millis(rule.delay_ms));
            while rule.hang && self.still(rule) {
                thread::sleep(Duration::from_millis(20));
            }
            if let (Some(code), false) = (rule.fail, rule.after) {
                return Err(code);
            }
            if rule.kill && !rule.after {
                die();
            }
        }
        // What a slow call sees is what there is at its end.
        let state = self.state()?;
        let gpu = about.gpu(&state);
        self.usable(name, about, &state, gpu)?;
        answer(self, &state, gpu)?;
        match rule {
            Some(Rule { kill: true, .. }) => die(),
            Some(Rule { fail: Some(code), after: true, .. }) => Err(code),
            _ => Ok(()),
        }
    }

    /// Opens a session, or one more.
    pub(super) fn open(&self, state: &State) -> Result<(), Code> {
        if !state.loaded {
            return Err(UNLOADED);
        }
        self.sessions.fetch_add(1, Relaxed);
        *self.generation.lock().unwrap_or_else(PoisonError::into_inner) = state.generation;
        Ok(())
    }

    /// Ends a session.
    pub(super) fn shut(&self) -> Result<(), Code> {
        let uninitialized = sys::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED;
        let end = self.sessions.fetch_update(Relaxed, Relaxed, |open| open.checked_sub(1));
        end.map(drop).map_err(|_| uninitialized)
    }

    fn usable(
        &self,
        name: &str,
        about: About,
        state: &State,
        gpu: Option<&Gpu>,
    ) -> Result<(), Code> {
        if name.starts_with("nvmlInit") {
            return Ok(());
        }
        if self.sessions.load(Relaxed) == 0 {
            return Err(sys::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED);
        }
        let session = *self.generation.lock().unwrap_or_else(PoisonError::into_inner);
        if name == "nvmlShutdown" {
            return Ok(());
        }
        if !state.loaded || session != state.generation {
            return Err(UNLOADED);
        }
        match gpu {
            Some(gpu) if gpu.lost || !gpu.present => Err(LOST),
            None if about != About::System => Err(NOT_FOUND),
            _ => Ok(()),
        }
    }

    fn note(&self, name: &str, gpu: Option<&Gpu>) {
        use std::io::Write;
        let calls = fs::OpenOptions::new().append(true).open(self.control.join("calls"));
        let Ok(mut calls) = calls else { return };
        let uuid = gpu.map(|gpu| gpu.uuid.as_str()).unwrap_or_default();
        let _nobody_watches = calls.write_all(format!("{name} {uuid}\n").as_bytes());
    }

    /// The rule that this call comes under, counted.
    fn rule(&self, name: &str, gpu: Option<&Gpu>) -> Result<Option<Rule>, Code> {
        let Some(rules) = self.script.get().map_err(|_| UNKNOWN)? else { return Ok(None) };
        let names = gpu.map_or(Vec::new(), |gpu| vec![gpu.uuid.as_str(), gpu.pci.as_str()]);
        for (index, rule) in rules.iter().enumerate() {
            if !rule.fits(name, &names) {
                continue;
            }
            if rule.skip == 0 && rule.times.is_none() {
                return Ok(Some(rule.clone()));
            }
            let counts = self.control.join("counts").join(index.to_string());
            let before = store::count(&counts).map_err(|_| UNKNOWN)?;
            let last = rule.times.map_or(u64::MAX, |times| rule.skip.saturating_add(times));
            if (rule.skip..last).contains(&before) {
                return Ok(Some(rule.clone()));
            }
        }
        Ok(None)
    }

    fn still(&self, rule: &Rule) -> bool {
        let rules = self.script.get().ok().flatten().unwrap_or_default();
        rules.iter().any(|there| there.hang && there.call == rule.call && there.gpu == rule.gpu)
    }
}

/// As kill -9 does from outside.
fn die() -> ! {
    let _dead = process::kill_process(process::getpid(), process::Signal::KILL);
    std::process::abort()
}

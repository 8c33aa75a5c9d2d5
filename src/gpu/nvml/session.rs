//! A session is the time between the load of the library and the next change of the driver or of
//! the GPUs that it has: then it is dropped, and another begun.

use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use nvml_wrapper_sys::bindings as sys;

use super::{
    api::{Api, Caller, Failed, Now, OpenError, Shut},
    host::{Host, Stamp},
    read::Desk,
    watch::{Heard, Watch},
    worker::{Next, Shared, Silent, Worker},
};
use crate::gpu::{Checkup, Driver, Fault, FaultKind, Gpu, GpuError, PciAddress};

/// A session: the driver, and a worker for each GPU.
#[derive(Debug)]
pub(super) struct Session {
    stamp: Stamp,
    begun: Instant,
    /// Set when it is of no more use.
    stale: AtomicBool,
    pub(super) driver: Driver,
    /// Where its library really is, below the driver root.
    pub(super) library: PathBuf,
    /// Begun when somebody first asks what happened.
    watch: Mutex<Option<Watch>>,
    caller: Caller,
    pub(super) gpus: Vec<Station>,
}

/// A GPU and who calls about it.
#[derive(Debug, Clone)]
pub(super) struct Station {
    pub(super) pci: PciAddress,
    pub(super) worker: Arc<Worker<Desk>>,
    /// As it last said it was.
    uuid: Arc<Mutex<Option<String>>>,
    next: Next<Result<Gpu, Failed>>,
}

/// Sessions, one at a time.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<Current>);

#[derive(Debug, Default)]
struct Current {
    session: Option<(Arc<Session>, Shut)>,
    opening: Option<Opening>,
}

/// A session that is about to begin, in a thread of its own.
#[derive(Debug)]
struct Opening {
    now: Now,
    /// Somebody has waited for it in vain: nobody else does.
    late: bool,
    begun: Receiver<Result<(Session, Shut), GpuError>>,
}

// === impl Sessions ===

impl Sessions {
    /// The UUIDs of the GPUs that sit there, as they last said them.
    pub(super) fn uuids(&self, at: &BTreeSet<PciAddress>) -> BTreeSet<String> {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stations = current.session.iter().flat_map(|(session, _)| &session.gpus);
        stations.filter(|gpu| at.contains(&gpu.pci)).filter_map(Station::uuid).collect()
    }

    /// The session of the driver as it is now. One that hangs while it begins is begun once, however
    /// often it is asked for.
    pub(super) fn get(&self, host: &Host, patience: Duration) -> Result<Arc<Session>, GpuError> {
        let stamp = host.stamp()?;
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((session, _)) = &current.session
            && session.stamp == stamp
            && !session.stale.load(Relaxed)
        {
            return Ok(Arc::clone(session));
        }
        // Ends when the last job of its workers has.
        let before = current.session.take().map(|(_, shut)| shut);
        let mut opening = match current.opening.take() {
            Some(opening) => opening,
            None => Opening::start(host.clone(), stamp, before)?,
        };
        let patience = if opening.late { Duration::ZERO } else { patience };
        match opening.begun.recv_timeout(patience) {
            Ok(begun) => {
                let (session, shut) = begun?;
                let session = Arc::new(session);
                current.session = Some((Arc::clone(&session), shut));
                Ok(session)
            }
            Err(RecvTimeoutError::Timeout) => {
                let call = opening.now.call();
                opening.late = true;
                current.opening = Some(opening);
                Err(GpuError::DriverSilent { call })
            }
            Err(RecvTimeoutError::Disconnected) => Err(GpuError::DriverSilent { call: "nvml" }),
        }
    }
}

// === impl Opening ===

impl Opening {
    fn start(host: Host, stamp: Stamp, before: Option<Shut>) -> Result<Self, GpuError> {
        let now = Now::default();
        let (done, begun) = mpsc::channel();
        let theirs = now.clone();
        let spawned = thread::Builder::new().name("nvml".to_owned()).spawn(move || {
            // A library that is not shut down knows lost GPUs as lost, also when they are back.
            let _shut = before.map(|before| before.recv_timeout(END));
            // Where nobody waits any more, it is dropped, and so shut down.
            let _nobody_waits = done.send(Session::begin(&host, stamp, &theirs));
        });
        spawned.map_err(thread_error)?;
        Ok(Self { now, late: false, begun })
    }
}

// === impl Session ===

impl Session {
    fn begin(host: &Host, stamp: Stamp, now: &Now) -> Result<(Self, Shut), GpuError> {
        let (root, library) = host.driver()?;
        let path = root.outside(&library);
        crate::program::trusted(&path)?;
        let (caller, shut) = Api::open(&path, now).map_err(|error| match error {
            OpenError::Load(source) => GpuError::Library { path, source },
            OpenError::Init(failed) => GpuError::nvml("the driver", &failed),
        })?;
        let said = |failed: Failed| GpuError::nvml("the driver", &failed);
        let driver = Driver {
            name: "nvidia".to_owned(),
            version: caller.driver_version().map_err(said)?,
            cuda: caller.cuda_version().map_err(said)?,
        };
        // By the kernel module's list, so that one that hangs is known without a call about it.
        let addresses = match &stamp.gpus {
            Some(gpus) => gpus.clone(),
            None => enumerate(&caller).map_err(said)?,
        };
        let station = |pci: PciAddress| {
            let name = format!("nvml {pci}");
            let desk = Desk::new(pci, host.clone());
            let worker = Arc::new(Worker::start(name, caller.another(), desk)?);
            Ok(Station { pci, worker, uuid: Arc::default(), next: Next::default() })
        };
        let gpus = addresses.into_iter().map(station).collect::<io::Result<_>>();
        let gpus = gpus.map_err(thread_error)?;
        let (begun, stale, watch) = (Instant::now(), AtomicBool::new(false), Mutex::default());
        Ok((Self { stamp, begun, stale, driver, library, watch, caller, gpus }, shut))
    }

    /// True when it is of no more use, and another should be tried.
    pub(super) fn is_stale(&self) -> bool {
        self.stale.load(Relaxed)
    }

    /// Every GPU, or those that sit there, as they are now, or what is wrong with them.
    pub(super) fn read(
        &self,
        only: Option<&BTreeSet<PciAddress>>,
        patience: Duration,
    ) -> Vec<Result<Gpu, Fault>> {
        let deadline = Instant::now() + patience;
        let wanted = self.gpus.iter().filter(|gpu| only.is_none_or(|only| only.contains(&gpu.pci)));
        let asked: Vec<_> = wanted.map(|station| (station, station.ask_all())).collect();
        let answers = asked.into_iter().map(|(station, asked)| match asked {
            Ok(asked) => self.hear(station, asked.until(deadline)),
            Err(silent) => self.hear(station, Err(silent)),
        });
        answers.collect()
    }

    /// What each GPU says of its health, or what is wrong with it.
    pub(super) fn check(&self, patience: Duration) -> Checkup {
        let deadline = Instant::now() + patience;
        let ask = |station: &Station| match station.worker.stuck() {
            Some(silent) => Err(silent),
            None => Ok(station.worker.ask(|caller, desk| desk.check(caller), |_, _, _| {})),
        };
        let asked: Vec<_> = self.gpus.iter().map(|station| (station, ask(station))).collect();
        let load = match self.stamp.load {
            Some(load) => format!("{} {load}", self.driver.version),
            None => self.driver.version.clone(),
        };
        let mut checkup = Checkup { load, gpus: Vec::new(), faults: Vec::new() };
        for (station, asked) in asked {
            let answer = asked.and_then(|asked| asked.until(deadline));
            match self.judge(station, answer) {
                Ok(mut gpu) => {
                    match gpu.gpu.is_empty() {
                        false => station.knows(&gpu.gpu),
                        // A call that fails now and then may be this one.
                        true => gpu.gpu = station.uuid().unwrap_or_default(),
                    }
                    checkup.gpus.push(gpu);
                }
                Err(fault) => checkup.faults.push(fault),
            }
        }
        checkup
    }

    /// Has what happens to its GPUs heard there, from the first time on.
    pub(super) fn watch(&self, heard: &Arc<Heard>) -> Result<(), GpuError> {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.is_none() {
            let started = Watch::start(self.caller.another(), self.gpus.clone(), heard);
            *watch = Some(started.map_err(thread_error)?);
        }
        Ok(())
    }

    /// The GPU with this UUID. One that has never said its own may be it: then that is the error.
    pub(super) fn station(&self, uuid: &str, patience: Duration) -> Result<&Station, GpuError> {
        let known = |station: &&Station| station.uuid().as_deref() == Some(uuid);
        if let Some(station) = self.gpus.iter().find(known) {
            return Ok(station);
        }
        let read = self.read(None, patience);
        match self.gpus.iter().find(known) {
            Some(station) => Ok(station),
            None => Err(read
                .into_iter()
                .find_map(|gpu| gpu.err().filter(|fault| fault.uuid.is_none()))
                .map_or_else(|| GpuError::NoGpu { gpu: uuid.to_owned() }, GpuError::Fault)),
        }
    }

    /// Has the worker of a GPU do something, and waits. `undo` takes back what comes too late.
    pub(super) fn on<T: Send + 'static>(
        &self,
        station: &Station,
        patience: Duration,
        work: impl FnOnce(&Caller, &mut Desk) -> Result<T, GpuError> + Send + 'static,
        undo: impl FnOnce(&Caller, &mut Desk, T) + Send + 'static,
    ) -> Result<T, GpuError> {
        let undo = |caller: &Caller, desk: &mut Desk, late: Result<T, GpuError>| {
            if let Ok(late) = late {
                undo(caller, desk, late);
            }
        };
        let silent = |silent: Silent| GpuError::Fault(station.fault(silent.into()));
        if let Some(stuck) = station.worker.stuck() {
            return Err(silent(stuck));
        }
        let asked = station.worker.ask(work, undo);
        let done = asked.until(Instant::now() + patience).map_err(silent)?;
        if matches!(&done, Err(GpuError::Nvml { code, .. }) if is_past(*code)) {
            self.stale.store(true, Relaxed);
        }
        done
    }

    /// Notes what an answer says of the session and the GPU.
    fn hear(
        &self,
        station: &Station,
        heard: Result<Result<Gpu, Failed>, Silent>,
    ) -> Result<Gpu, Fault> {
        let gpu = self.judge(station, heard)?;
        station.knows(&gpu.uuid);
        Ok(gpu)
    }

    /// The answer, or what its lack says of the GPU; and of the session.
    fn judge<T>(
        &self,
        station: &Station,
        heard: Result<Result<T, Failed>, Silent>,
    ) -> Result<T, Fault> {
        match heard {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(failed)) => {
                let lost = failed.is(sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST);
                // Where one hangs, each session would leave another thread behind.
                let hung = || self.gpus.iter().any(|station| station.worker.stuck().is_some());
                let tried = self.begun.elapsed() < LOST_FOR;
                if is_past(failed.code) || (lost && !tried && !hung()) {
                    self.stale.store(true, Relaxed);
                }
                Err(station.fault(failed.into()))
            }
            Err(silent) => Err(station.fault(silent.into())),
        }
    }
}

/// How long the end of a session is waited for before the next begins: one that hangs does not end.
const END: Duration = Duration::from_secs(1);

/// A GPU that was reset may stay lost to the session that lost it, so another is tried now and then.
const LOST_FOR: Duration = Duration::from_secs(60);

/// True when NVML says that this session's driver is not there any more.
pub(super) fn is_past(code: u32) -> bool {
    [
        sys::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED,
        sys::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED,
        sys::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    ]
    .contains(&code)
}

fn enumerate(caller: &Caller) -> Result<Vec<PciAddress>, Failed> {
    let mut gpus = Vec::new();
    for index in 0..caller.count()? {
        let device = caller.by_index(index)?;
        gpus.push(caller.pci(device)?);
    }
    gpus.sort_unstable();
    Ok(gpus)
}

fn thread_error(source: io::Error) -> GpuError {
    GpuError::Thread { source }
}

// === impl Station ===

impl Station {
    /// Its UUID, or where it sits.
    pub(super) fn name(&self) -> String {
        self.uuid().unwrap_or_else(|| self.pci.to_string())
    }

    fn uuid(&self) -> Option<String> {
        self.uuid.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn knows(&self, uuid: &str) {
        self.learns()(uuid);
    }

    /// Has it know its UUID, wherever that is found out.
    pub(super) fn learns(&self) -> impl Fn(&str) + Send + use<> {
        let known = Arc::clone(&self.uuid);
        move |uuid| {
            *known.lock().unwrap_or_else(PoisonError::into_inner) = Some(uuid.to_owned());
        }
    }

    /// Asks all about it, unless somebody has asked it something in vain.
    fn ask_all(&self) -> Result<Shared<Result<Gpu, Failed>>, Silent> {
        match self.worker.stuck() {
            Some(silent) => Err(silent),
            None => Ok(self.worker.share(&self.next, |caller, desk| desk.read(caller))),
        }
    }

    fn fault(&self, kind: FaultKind) -> Fault {
        Fault { pci: self.pci, uuid: self.uuid(), kind }
    }
}

// === impl FaultKind ===

impl From<Silent> for FaultKind {
    fn from(Silent { call }: Silent) -> Self {
        Self::Silent { call }
    }
}

impl From<Failed> for FaultKind {
    fn from(failed: Failed) -> Self {
        match failed.code {
            sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST => Self::Lost,
            _ => Self::Failed { why: failed.to_string() },
        }
    }
}

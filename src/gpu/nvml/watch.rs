//! A watch hears what NVML tells of the GPUs of a session. It keeps nobody waiting: GPUs are watched by their own
//! workers, and whoever takes what was heard holds nothing of the session.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use nvml_wrapper_sys::bindings as sys;

use super::{
    api::{Caller, Device, EventSet, Failed, Told},
    read::Desk,
    session::{Station, is_past},
};
use crate::gpu::{Event, EventKind};

/// A thread that hears what happens in one session; it ends with this.
#[derive(Debug)]
pub(super) struct Watch {
    _alive: Sender<Infallible>,
}

/// What was heard in all sessions, and is told to nobody yet.
#[derive(Debug, Default)]
pub(super) struct Heard {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    /// A session has ended: whoever waits has the next one watched.
    ended: bool,
}

/// Who hears in one session.
#[derive(Debug)]
struct Ear {
    heard: Arc<Heard>,
    /// Those that are watched.
    gpus: Mutex<Vec<(Device, String)>>,
}

/// Everything of which somebody here makes something. What a GPU does not have is left out.
const KINDS: [u32; 8] = [
    sys::nvmlEventTypeXidCriticalError,
    sys::nvmlEventTypeDoubleBitEccError,
    sys::nvmlEventMigConfigChange,
    sys::nvmlEventTypeDramRetirementEvent,
    sys::nvmlEventTypeDramRetirementFailure,
    sys::nvmlEventTypeFatalPoisonError,
    sys::nvmlEventTypeGpuUnavailableError,
    sys::nvmlEventTypeGpuRecoveryAction,
];

/// How often NVML is asked for events. Its own wait cannot be ended, and the library is not shut down before.
const EVERY: Duration = Duration::from_millis(250);
/// A GPU in trouble may tell of it for ever.
const MOST: usize = 1024;

// === impl Watch ===

impl Watch {
    /// Has these GPUs watched, as soon as that can be.
    pub(super) fn start(
        caller: Caller,
        gpus: Vec<Station>,
        heard: &Arc<Heard>,
    ) -> io::Result<Self> {
        let (alive, ended) = mpsc::channel();
        let ear = Arc::new(Ear { heard: Arc::clone(heard), gpus: Mutex::default() });
        thread::Builder::new().name("nvml events".to_owned()).spawn(move || {
            ear.listen(&caller, gpus, &ended);
            ear.heard.state().ended = true;
            ear.heard.changed.notify_all();
        })?;
        Ok(Self { _alive: alive })
    }
}

// === impl Ear ===

impl Ear {
    fn listen(self: &Arc<Self>, caller: &Caller, gpus: Vec<Station>, ended: &Receiver<Infallible>) {
        let set = match caller.event_set() {
            Ok(set) => Arc::new(set),
            Err(failed) => return self.unwatched(String::new(), &failed),
        };
        for station in gpus {
            self.ask(&station, &set);
        }
        while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            for _ in 0..MOST {
                match caller.next_event(&set) {
                    Ok(Some(told)) => self.hear(caller, told),
                    Ok(None) => break,
                    Err(failed) if is_past(failed.code) => return,
                    // NVML says that some GPU is lost, and not which: looking at each one does.
                    Err(_) => break,
                }
            }
        }
    }

    /// Asks the worker of a GPU to have it watched. One that hangs keeps no other from that.
    fn ask(self: &Arc<Self>, station: &Station, set: &Arc<EventSet>) {
        let (ear, set) = (Arc::clone(self), Arc::clone(set));
        let (name, learns) = (station.name(), station.learns());
        let begin = move |caller: &Caller, desk: &mut Desk| match ear.begin(caller, desk, &set) {
            // When it is lost it cannot say any more who it is.
            Ok(uuid) => learns(&uuid),
            Err(failed) => ear.unwatched(name, &failed),
        };
        // Nobody waits: what comes of it is heard.
        let _asked = station.worker.ask(begin, |_, _, ()| {});
    }

    /// Has a GPU watched, by its own worker; its UUID.
    fn begin(&self, caller: &Caller, desk: &mut Desk, set: &EventSet) -> Result<String, Failed> {
        let kinds = KINDS.iter().fold(0, |kinds, kind| kinds | u64::from(*kind));
        let device = desk.device(caller)?;
        let uuid = caller.uuid(device)?;
        // Known before the first event of it comes.
        self.gpus().push((device, uuid.clone()));
        caller.watch(device, kinds, set)?;
        Ok(uuid)
    }

    fn hear(&self, caller: &Caller, told: Told) {
        let known = self.gpus().iter().find(|(gpu, _)| *gpu == told.device).cloned();
        let gpu = known.map(|(_, gpu)| gpu).or_else(|| caller.uuid(told.device).ok());
        let kind = match told.kind {
            kind if kind == u64::from(sys::nvmlEventTypeXidCriticalError) => {
                EventKind::Xid(told.data)
            }
            _ => EventKind::Changed,
        };
        if let Some(gpu) = gpu {
            self.heard.tell(Event { gpu, kind });
        }
    }

    fn unwatched(&self, gpu: String, failed: &Failed) {
        self.heard.tell(Event { gpu, kind: EventKind::Unwatched(failed.to_string()) });
    }

    fn gpus(&self) -> MutexGuard<'_, Vec<(Device, String)>> {
        self.gpus.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Heard ===

impl Heard {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: Event) {
        let mut state = self.state();
        if state.events.len() >= MOST {
            // What is said again and again must not push out what was said once.
            let mut once = VecDeque::new();
            for event in state.events.drain(..) {
                if !once.contains(&event) {
                    once.push_back(event);
                }
            }
            once.truncate(MOST / 2);
            state.events = once;
        }
        state.events.push_back(event);
        self.changed.notify_all();
    }

    /// What was heard; waits for it, but no longer than `patience`.
    pub(super) fn take(&self, patience: Duration) -> Vec<Event> {
        let end = Instant::now() + patience;
        let mut state = self.state();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if !state.events.is_empty() || state.ended || left.is_zero() {
                state.ended = false;
                return state.events.drain(..).collect();
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests;

//! A worker is the thread that calls NVML about one GPU. Whoever asks it waits no longer than until
//! a deadline; a GPU that hangs keeps its own worker and nobody else.

use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Instant,
};

use super::api::{Caller, Now};

/// The thread of one GPU; `D` is what it keeps from job to job.
#[derive(Debug)]
pub(super) struct Worker<D> {
    jobs: Sender<Job<D>>,
    now: Now,
}

type Job<D> = Box<dyn FnOnce(&Caller, &mut D) + Send>;

/// No answer came in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Silent {
    /// The call that did not come back.
    pub(super) call: &'static str,
}

/// An answer that somebody waits for.
#[derive(Debug)]
pub(super) struct Awaited<T> {
    slot: Arc<Slot<T>>,
    now: Now,
}

/// A job that is asked for and not begun: whoever comes before it begins shares its answer.
pub(super) type Next<T> = Arc<Mutex<Option<Arc<Answer<T>>>>>;

/// An answer for all who asked.
#[derive(Debug)]
pub(super) struct Answer<T> {
    given: Mutex<Option<T>>,
    changed: Condvar,
}

/// An answer that others may wait for too.
#[derive(Debug)]
pub(super) struct Shared<T> {
    answer: Arc<Answer<T>>,
    now: Now,
}

#[derive(Debug)]
struct Slot<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
enum State<T> {
    Waiting,
    /// Whoever waited has gone.
    Abandoned,
    Answered(T),
}

// === impl Worker ===

impl<D: Send + 'static> Worker<D> {
    /// Starts the thread; it ends when this is dropped and its last job is done.
    pub(super) fn start(name: String, caller: Caller, mut kept: D) -> io::Result<Self> {
        let (jobs, todo): (Sender<Job<D>>, Receiver<Job<D>>) = mpsc::channel();
        let now = caller.now().clone();
        thread::Builder::new().name(name).spawn(move || {
            for job in todo {
                job(&caller, &mut kept);
                caller.now().late(false);
            }
        })?;
        Ok(Self { jobs, now })
    }

    /// Gives it a job. Where the answer comes too late for whoever waits, `undo` takes it back.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Caller, &mut D) -> T + Send + 'static,
        undo: impl FnOnce(&Caller, &mut D, T) + Send + 'static,
    ) -> Awaited<T> {
        let slot = Arc::new(Slot { state: Mutex::new(State::Waiting), changed: Condvar::new() });
        let theirs = Arc::clone(&slot);
        let job = Box::new(move |caller: &Caller, kept: &mut D| {
            // What nobody waits for any more is not begun.
            if theirs.is_abandoned() {
                return;
            }
            if let Some(late) = theirs.answer(work(caller, kept)) {
                undo(caller, kept, late);
            }
        });
        // The thread ends only with the worker, or when a job panics; then nobody answers.
        let _sent = self.jobs.send(job);
        Awaited { slot, now: self.now.clone() }
    }

    /// Gives it a job that changes nothing, unless the same is about to be done already.
    pub(super) fn share<T: Clone + Send + 'static>(
        &self,
        next: &Next<T>,
        work: impl FnOnce(&Caller, &mut D) -> T + Send + 'static,
    ) -> Shared<T> {
        let mut waiting = next.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now.clone();
        if let Some(answer) = waiting.as_ref() {
            return Shared { answer: Arc::clone(answer), now };
        }
        let answer = Arc::new(Answer { given: Mutex::new(None), changed: Condvar::new() });
        *waiting = Some(Arc::clone(&answer));
        let (theirs, next) = (Arc::clone(&answer), Arc::clone(next));
        let _sent = self.jobs.send(Box::new(move |caller: &Caller, kept: &mut D| {
            // Who comes from here on wants to see what is done meanwhile.
            *next.lock().unwrap_or_else(PoisonError::into_inner) = None;
            let given = work(caller, kept);
            *theirs.given.lock().unwrap_or_else(PoisonError::into_inner) = Some(given);
            theirs.changed.notify_all();
        }));
        Shared { answer, now }
    }

    /// The call that somebody has waited for in vain, and that has not come back since.
    pub(super) fn stuck(&self) -> Option<Silent> {
        self.now.is_late().then(|| Silent { call: self.now.call() })
    }
}

// === impl Awaited ===

impl<T> Awaited<T> {
    /// The answer, or that none came before the deadline.
    pub(super) fn until(self, deadline: Instant) -> Result<T, Silent> {
        let mut state = self.slot.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if matches!(*state, State::Answered(_)) {
                // Nobody else takes it.
                if let State::Answered(answer) = std::mem::replace(&mut *state, State::Abandoned) {
                    return Ok(answer);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                *state = State::Abandoned;
                self.now.late(true);
                return Err(Silent { call: self.now.call() });
            }
            let waited = self.slot.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

// === impl Shared ===

impl<T: Clone> Shared<T> {
    /// The answer, or that none came before the deadline.
    pub(super) fn until(self, deadline: Instant) -> Result<T, Silent> {
        let mut given = self.answer.given.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(given) = given.as_ref() {
                return Ok(given.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.now.late(true);
                return Err(Silent { call: self.now.call() });
            }
            let waited = self.answer.changed.wait_timeout(given, left);
            given = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

// === impl Slot ===

impl<T> Slot<T> {
    fn is_abandoned(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*state, State::Abandoned)
    }

    /// Hands the answer over, or back where nobody waits.
    fn answer(&self, answer: T) -> Option<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Abandoned) {
            return Some(answer);
        }
        *state = State::Answered(answer);
        self.changed.notify_all();
        None
    }
}

//! The controller keeps the node's slices on the API server as they should be: what changes on the node
//! is written, what somebody else changes or deletes is put back, and what is right is left alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use kube::core::WatchEvent;
use serde_json::Value;
use tokio::{
    sync::{Notify, watch},
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tokio_stream::StreamExt;

use super::{
    Effect, Offer, Slice, Trouble, View, check,
    diff::diff,
    object::{Object, Pool, timed},
    probe::{Server, probe},
    rival,
    sole::sole,
};
use crate::{
    admin::tell,
    api::{Api, WATCH_SECONDS},
    claim::DRIVER,
};

/// Where the node is looked at.
pub type Source = Arc<dyn Fn() -> Result<View, super::ViewError> + Send + Sync>;

/// How slices are published.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whose devices they are.
    pub driver: String,
    /// The node's name.
    pub node: String,
    /// Also where another driver gives this node's GPUs.
    pub beside_other_driver: bool,
    /// The drivers of this process.
    pub ours: BTreeSet<String>,
    /// How often the node is looked at.
    pub every: Duration,
    /// To have it looked at now.
    pub notice: Arc<Notify>,
    /// Held by the one divvy-node of this machine that publishes.
    pub sole: Option<PathBuf>,
}

/// How far it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// The pool's generation that is there whole; none before it ever was.
    pub generation: Option<i64>,
    /// What is in the way of what should be there.
    pub trouble: Option<String>,
    /// How many devices have a taint of this key and effect.
    pub taints: BTreeMap<(String, Effect), usize>,
}

/// The slices of one node.
struct Controller {
    api: Api,
    source: Source,
    options: Options,
    state: watch::Sender<State>,
    pool: Pool,
    server: Option<Server>,
    /// What the node was when it was last looked at.
    view: Option<View>,
    desired: Option<Arc<Vec<Slice>>>,
    there: BTreeMap<String, Object>,
    /// In this session everything was as it should be.
    whole: bool,
    /// How often somebody else wrote a slice, of late; and when that was last.
    edits: u32,
    edited: Option<Instant>,
    told: Told,
}

/// What was said last, of each kind: it is said once.
#[derive(Default)]
struct Told {
    trouble: Option<String>,
    lacks: Option<String>,
    node: Option<String>,
    kept: bool,
}

/// After how long what others did is put right: kubelet deletes slices one after the other.
const SETTLE: Duration = Duration::from_millis(300);

/// From then on what others write is let be for as long as the time before: about 20 s.
const MOST_EDITS: u32 = 7;

/// After so long without an edit, all of them are forgotten.
const CALM: Duration = Duration::from_secs(120);

/// As many failures as a session counts for that ended after everything was there: nobody asks faster
/// than about once a second.
const AFRESH: u32 = 3;

/// How long a watch is waited for: a little longer than the server lets it go on.
const WATCH: Duration = Duration::from_secs(WATCH_SECONDS + 5);

// === impl Controller ===

/// Publishes for as long as it is let. Dropping it withdraws nothing.
pub async fn run(api: Api, source: Source, options: Options, state: watch::Sender<State>) {
    let _sole = sole(&api, &options, &state).await;
    let (driver, node) = (options.driver.clone(), options.node.clone());
    let pool = Pool { driver, node, node_uid: String::new(), generation: 0, count: 0 };
    let (server, view, desired) = (None, None, None);
    let (there, told) = (BTreeMap::new(), Told::default());
    let mut controller = Controller {
        api,
        source,
        options,
        state,
        pool,
        server,
        view,
        desired,
        there,
        whole: false,
        edits: 0,
        edited: None,
        told,
    };
    let mut failures = 0;
    loop {
        let started = Instant::now();
        let ended = controller.session().await;
        failures = if controller.whole { AFRESH } else { failures + 1 };
        // A server that ends a watch early may be another one from now on.
        if started.elapsed() < Duration::from_secs(WATCH_SECONDS - 10) {
            controller.server = None;
        }
        let pause = match ended {
            Ok(()) => Trouble::pause_of(failures),
            Err(trouble) => {
                if trouble.is_conflict() {
                    controller.edited();
                }
                controller.trouble(&trouble);
                trouble.pause(failures).max(controller.patience())
            }
        };
        tokio::time::sleep(pause).await;
    }
}

impl Controller {
    /// From a list of what is there to the end of the watch that goes on from it.
    async fn session(&mut self) -> Result<(), Trouble> {
        self.whole = false;
        if self.edited.is_some_and(|last| last.elapsed() > CALM) {
            (self.edits, self.edited) = (0, None);
        }
        self.look().await?;
        self.find_node().await?;
        if self.server.is_none() {
            let server = probe(&self.api, &self.pool).await?;
            self.say_lacks(&server);
            self.server = Some(server);
        }
        let list = self.api.list_slices(Some(&self.options.driver), &self.options.node).await;
        let (list, version) = list.map_err(Trouble::of_list)?;
        let mut before = std::mem::take(&mut self.there);
        for object in list.iter().filter_map(Object::read) {
            // What it was sent is known still.
            let known = before.remove(&object.name);
            if known.as_ref().is_some_and(|known| known.version != object.version) {
                self.edited();
            }
            let known = known.filter(|known| known.version == object.version);
            self.there.insert(object.name.clone(), known.unwrap_or(object));
        }
        self.build()?;
        self.write().await?;
        self.watch(&version).await
    }

    async fn watch(&mut self, version: &str) -> Result<(), Trouble> {
        let ends = Instant::now() + WATCH;
        let mut events =
            self.api.watch_slices(&self.options.driver, &self.options.node, version).await?;
        let mut looks = interval(self.options.every);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        looks.reset();
        let notice = Arc::clone(&self.options.notice);
        let mut due: Option<Instant> = None;
        loop {
            tokio::select! {
                event = events.next() => match event {
                    None => return Ok(()),
                    Some(event) => if let Some(pause) = self.see(event?)? {
                        due.get_or_insert_with(|| Instant::now() + pause);
                    },
                },
                _ = looks.tick() => due = self.changed().await?.or(due),
                () = notice.notified() => due = self.changed().await?.or(due),
                () = sleep_until(due.unwrap_or(ends)) => {
                    if due.take().is_none() {
                        return Ok(());
                    }
                    self.write().await?;
                }
            }
        }
    }

    /// Looks at the node; when to write, where something is to be written.
    async fn changed(&mut self) -> Result<Option<Instant>, Trouble> {
        self.look().await?;
        Ok(self.build()?.then(Instant::now))
    }

    async fn look(&mut self) -> Result<(), Trouble> {
        let source = Arc::clone(&self.source);
        let view = spawn_blocking(move || source()).await;
        self.view = Some(view.map_err(|panic| Trouble::Panic(panic.to_string()))??);
        Ok(())
    }

    /// Makes what is to be published; true when it is another than before.
    fn build(&mut self) -> Result<bool, Trouble> {
        let (Some(view), Some(server)) = (&self.view, &self.server) else { return Ok(false) };
        // As an earlier process left them.
        let left = || self.there.values().filter_map(|object| object.content.clone()).collect();
        let before = self.desired.clone().unwrap_or_else(|| Arc::new(left()));
        let slices = view.slices(server.stores, &before);
        check(&self.options.node, &slices)?;
        let changed = self.desired.as_deref() != Some(&slices);
        if changed {
            self.desired = Some(Arc::new(slices));
        }
        Ok(changed)
    }

    /// Writes what is not as it should be.
    async fn write(&mut self) -> Result<(), Trouble> {
        let Some(desired) = self.desired.clone() else { return Ok(()) };
        let writes = diff(&self.pool.node, &desired, self.there.values(), self.pool.generation);
        (self.pool.generation, self.pool.count) = (writes.generation, desired.len());
        if writes.write.iter().any(|(_, over)| over.is_none()) {
            // It may be another of the same name by now, and with the old one go its slices.
            self.find_node().await?;
        }
        for name in &writes.delete {
            if let Some(object) = self.there.get(name) {
                self.api.delete_slice(name, &object.uid, &object.version).await?;
                self.there.remove(name);
            }
        }
        let mut kept = true;
        for (index, over) in &writes.write {
            let Some(slice) = desired.get(*index) else { continue };
            let over = over.as_ref().and_then(|name| self.there.get(name));
            let object = self.pool.object(*index, &timed(slice, self.there.values()), over);
            let answer = match over {
                Some(over) => self.api.update_slice(&over.name, &object).await?,
                None => self.api.create_slice(&object, false).await?,
            };
            let Some(mut object) = Object::read(&answer) else { continue };
            if !object.holds(slice) {
                kept = false;
                object.sent = Some(slice.clone());
            }
            self.there.insert(object.name.clone(), object);
        }
        if !kept && self.server_changed().await? {
            return Box::pin(self.write()).await;
        }
        if !kept && !std::mem::replace(&mut self.told.kept, true) {
            tell("the API server keeps slices in another way than they were sent; they stay so\n");
        }
        self.published(&desired, !writes.is_empty());
        Ok(())
    }

    /// Asks the API server anew what it stores; true where that is no longer the same.
    async fn server_changed(&mut self) -> Result<bool, Trouble> {
        let server = probe(&self.api, &self.pool).await?;
        self.say_lacks(&server);
        let changed = self.server.as_ref() != Some(&server);
        self.server = Some(server);
        Ok(changed && self.build()?)
    }

    /// The node, with which the slices end; and who else gives its GPUs.
    async fn find_node(&mut self) -> Result<(), Trouble> {
        let name = &self.options.node;
        let node =
            self.api.node(name).await?.ok_or_else(|| Trouble::NoNode { node: name.clone() })?;
        let rival = match self.state.borrow().generation.is_some()
            || self.options.beside_other_driver
            || self.options.driver != DRIVER
        {
            true => None,
            false => {
                rival::find(&self.api, &node, name, &self.options.ours, &self.addresses()).await?
            }
        };
        if let Some(rival) = rival {
            return Err(Trouble::Rival { node: name.clone(), rival });
        }
        let uid = node.pointer("/metadata/uid").and_then(Value::as_str);
        self.pool.node_uid = uid.unwrap_or_default().to_owned();
        Ok(())
    }

    /// Where the node's GPUs are.
    fn addresses(&self) -> BTreeSet<String> {
        let gpus = self.view.iter().flat_map(|view| &view.inventory.gpus);
        gpus.map(|gpu| gpu.pci.to_string()).collect()
    }

    /// Takes in what happened to a slice; where it was not this that did it, how long to let it be.
    fn see(&mut self, event: WatchEvent<Value>) -> Result<Option<Duration>, Trouble> {
        let (value, deleted) = match event {
            WatchEvent::Added(value) | WatchEvent::Modified(value) => (value, false),
            WatchEvent::Deleted(value) => (value, true),
            WatchEvent::Bookmark(_) => return Ok(None),
            WatchEvent::Error(status) => return Err(Trouble::Watch(status.message)),
        };
        let Some(object) = Object::read(&value) else { return Ok(None) };
        let known = self.there.get(&object.name);
        if known.is_some_and(|known| !known.is_older_than(&object)) {
            return Ok(None);
        }
        if deleted {
            return Ok(self.there.remove(&object.name).map(|_| SETTLE));
        }
        self.there.insert(object.name.clone(), object);
        self.edited();
        Ok(Some(self.patience()))
    }

    /// Somebody else wrote a slice: another divvy-node, of the same node name on another machine, would write it
    /// again, and again.
    fn edited(&mut self) {
        self.edits = self.edits.saturating_add(1).min(MOST_EDITS);
        self.edited = Some(Instant::now());
    }

    /// How long what others wrote is let be.
    fn patience(&self) -> Duration {
        self.edits.checked_sub(1).map_or(Duration::ZERO, |more| SETTLE * (1 << more))
    }

    fn published(&mut self, slices: &[Slice], written: bool) {
        let generation = self.pool.generation;
        if written || self.told.trouble.is_some() {
            let devices: usize = slices.iter().map(|slice| slice.devices().len()).sum();
            let (count, node) = (slices.len(), &self.pool.node);
            let driver = &self.options.driver;
            let text =
                format!("published {devices} devices of {node} in {count} slices of {driver}\n");
            if self.told.node.as_ref() != Some(&text) || self.told.trouble.is_some() {
                tell(&text);
            }
            self.told.node = Some(text);
        }
        (self.told.trouble, self.whole) = (None, true);
        let mut taints = BTreeMap::new();
        for taint in slices.iter().flat_map(Slice::devices).flat_map(|device| &device.taints) {
            *taints.entry((taint.key.clone(), taint.effect)).or_default() += 1;
        }
        let state = State { generation: Some(generation), trouble: None, taints };
        self.state.send_if_modified(|last| std::mem::replace(last, state.clone()) != state);
    }

    fn trouble(&mut self, trouble: &Trouble) {
        let text = crate::admin::exit::Failure::of(trouble.code(), trouble).to_string();
        if self.told.trouble.as_ref() != Some(&text) {
            tell(&text);
        }
        self.told.trouble = Some(text);
        let trouble = Some(divvy_cdi::problem::chain(trouble));
        self.state.send_modify(|state| state.trouble = trouble);
    }

    fn say_lacks(&mut self, server: &Server) {
        let asked = self.view.as_ref().map_or_else(Offer::default, View::asks);
        let lacks = server.lacks(asked);
        if let Some(lacks) = lacks.as_ref().filter(|_| self.told.lacks != lacks) {
            tell(&format!("{lacks}\n"));
        }
        self.told.lacks = lacks;
    }
}

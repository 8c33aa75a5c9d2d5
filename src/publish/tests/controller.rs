//! The controller against an API server that misbehaves.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};

use super::{
    Taint, node,
    server::{Fault, Server, World},
};
use crate::{
    api::Api,
    gpu::{Gpu, Mig},
    publish::{Effect, Health, Options, State, View, run},
};

/// A node with a controller that publishes it.
struct Published {
    server: Server,
    view: Arc<Mutex<View>>,
    state: watch::Receiver<State>,
    task: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Drop for Published {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(60);

async fn published(server: Server, view: View) -> Published {
    published_as(server, view, None).await
}

#[expect(clippy::disallowed_methods, reason = "a test's own input")]
async fn published_as(server: Server, view: View, sole: Option<PathBuf>) -> Published {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    let config = json!({
        "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://{}", server.address) } }],
        "users": [{ "name": "u", "user": {} }],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    let api = Api::new(Some(&path)).await.unwrap();
    let view = Arc::new(Mutex::new(view));
    let seen = Arc::clone(&view);
    let (tell, state) = watch::channel(State::default());
    let options = Options {
        driver: crate::claim::DRIVER.to_owned(),
        node: "n".to_owned(),
        beside_other_driver: false,
        ours: [crate::claim::DRIVER.to_owned(), "own.example.com".to_owned()].into(),
        every: Duration::from_millis(30),
        notice: Arc::default(),
        sole,
    };
    let source = Arc::new(move || Ok(seen.lock().unwrap().clone()));
    let task = tokio::spawn(run(api, source, options, tell));
    Published { server, view, state, task, _dir: dir }
}

/// Four GPUs in MIG mode: a slice of counters, two of devices.
fn view() -> View {
    let mut inventory = node(&[]);
    let gpu = inventory.gpus.remove(1);
    let at = |bus| {
        let mut gpu = Gpu { uuid: format!("GPU-{bus}"), ..gpu.clone() };
        gpu.pci.bus = bus;
        gpu
    };
    inventory.gpus = (1..=4).map(at).collect();
    View { inventory, declared: None, holds: Vec::new(), health: Health::default() }
}

impl Published {
    async fn start() -> Self {
        let published = published(Server::start(), view()).await;
        published.whole(3).await;
        published
    }

    /// Waits for what is true of the server sometime.
    async fn until(&self, what: &str, holds: impl Fn(&World) -> bool) {
        let began = Instant::now();
        while !holds(&self.server.world()) {
            assert!(began.elapsed() < SOON, "never: {what}: {:?}", self.server.world().writes);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until a pool of so many slices is there whole, and nothing else.
    async fn whole(&self, count: usize) {
        self.until("a whole pool", |world| is_whole(world, count)).await;
        let mut state = self.state.clone();
        let known = state.wait_for(|state| {
            let world = self.server.world();
            let first =
                world.slices().first().and_then(|o| o["spec"]["pool"]["generation"].as_i64());
            state.trouble.is_none() && state.generation == first
        });
        tokio::time::timeout(SOON, known).await.unwrap().unwrap();
    }

    /// Does something to the node, and sees to it that nothing more than that is written.
    async fn quiet(&self) {
        let before = self.server.world().writes.clone();
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert_eq!(self.server.world().writes, before);
    }
}

fn is_whole(world: &World, count: usize) -> bool {
    let slices = world.slices();
    let generation = slices.first().map(|object| &object["spec"]["pool"]["generation"]);
    slices.len() == count
        && slices.iter().enumerate().all(|(index, object)| {
            let pool = &object["spec"]["pool"];
            object["metadata"]["name"].as_str().unwrap().starts_with(&format!("{index:05x}-"))
                && pool["resourceSliceCount"] == count
                && Some(&pool["generation"]) == generation
        })
}

fn devices(world: &World) -> Vec<Value> {
    let lists =
        world.slices().into_iter().filter_map(|object| object["spec"]["devices"].as_array());
    lists.flatten().cloned().collect()
}

#[tokio::test]
async fn what_is_published_stays_until_something_changes() {
    let published = Published::start().await;
    assert_eq!(published.server.world().writes.len(), 3);
    let owner = &published.server.world().slices()[0]["metadata"]["ownerReferences"][0].clone();
    assert_eq!((&owner["uid"], &owner["controller"]), (&json!("node-1"), &json!(true)));
    assert_eq!(published.state.borrow().generation, Some(1));
    published.quiet().await;
    // One slice changes: nobody sees half of it, so the generation stays.
    let taint = Taint::ours("xid", "79", Effect::NoSchedule);
    published.view.lock().unwrap().health.taints.insert("GPU-1".to_owned(), vec![taint]);
    published.until("tainted", |world| devices(world)[0]["taints"][0]["value"] == "79").await;
    published.whole(3).await;
    assert_eq!(published.state.borrow().generation, Some(1));
    assert_eq!(published.server.world().writes.len(), 4);
    let since = || devices(&published.server.world())[0]["taints"][0]["timeAdded"].clone();
    let time = since();
    // All change.
    published.view.lock().unwrap().inventory.driver.version = "2".to_owned();
    published
        .until("a new driver", |world| {
            devices(world)
                .iter()
                .all(|device| device["attributes"]["driverVersion"]["version"] == "2.0.0")
        })
        .await;
    published.whole(3).await;
    assert_eq!((published.state.borrow().generation, since()), (Some(2), time));
    published.quiet().await;
}

#[tokio::test]
async fn what_others_delete_or_change_is_put_back() {
    let published = Published::start().await;
    published.server.change(World::wipe);
    published.whole(3).await;
    assert_eq!(published.state.borrow().generation, Some(2), "no generation is had twice");
    published.server.change(|world| {
        let (name, mut object) =
            world.objects.last_key_value().map(|(k, v)| (k.clone(), v.clone())).unwrap();
        object["spec"]["devices"][0]["name"] = "mine".into();
        world.put(&name, "MODIFIED", object);
    });
    published
        .until("it is undone", |world| devices(world).iter().all(|d| d["name"] != "mine"))
        .await;
    published.server.change(|world| {
        let object = world.objects.first_key_value().unwrap().1.clone();
        world.put("00000-gpu.divvy.dev-n-copy", "ADDED", object);
    });
    published.whole(3).await;
    published.quiet().await;
}

#[tokio::test]
async fn an_api_server_in_trouble_is_tried_again() {
    let server = Server::start();
    server.world().faults = vec![Fault::Status(500); 3];
    let published = published(server, view()).await;
    published.whole(3).await;
    for faults in [
        vec![Fault::Status(409)],
        vec![Fault::Status(503), Fault::Status(409), Fault::Status(429)],
        vec![Fault::Deaf],
        vec![Fault::Slow(400)],
    ] {
        published.server.change(|world| {
            world.wipe();
            world.faults = faults;
        });
        published.whole(3).await;
    }
    // Watches end, versions are forgotten, and what happened meanwhile is seen.
    for _ in 0..2 {
        published.server.change(|world| {
            world.gone = 1;
            world.end_watches();
            world.wipe();
        });
        published.whole(3).await;
    }
    published.quiet().await;
}

#[tokio::test]
async fn what_the_server_does_not_store_is_not_published() {
    let server = Server::start();
    server.world().drops = vec!["consumesCounters", "sharedCounters"];
    let mut view = view();
    view.inventory.gpus[0].mig = Mig::Off;
    let published = published(server, view).await;
    published.whole(1).await;
    assert_eq!(devices(&published.server.world())[0]["name"], "gpu-0000-01-00");
    // It is updated, and ends its connections.
    published.until("watched", |world| world.watched).await;
    published.server.change(|world| {
        world.drops.clear();
        world.end_watches();
    });
    published.whole(3).await;
    // A gate goes off while it is watched.
    published.server.change(|world| {
        world.drops = vec!["consumesCounters", "sharedCounters"];
        world.wipe();
    });
    published.whole(1).await;
    // It drops what nobody expects it to drop: that is written once.
    published.server.change(|world| {
        world.drops = vec!["capacity"];
        world.wipe();
    });
    published.whole(3).await;
    published
        .until("without capacity", |world| {
            devices(world).first().is_some_and(|d| d["capacity"].is_null())
        })
        .await;
    published.quiet().await;
}

#[tokio::test]
async fn before_1_35_whole_gpus_alone_are_published() {
    let server = Server::start();
    server.world().kubernetes = json!({ "major": "1", "minor": "34+" });
    let mut view = view();
    (view.inventory.gpus[1].mig, view.inventory.gpus[1].mig_pending) = (Mig::Off, false);
    view.inventory.policy.switch_mig = true;
    let published = published(server, view).await;
    published.whole(1).await;
    let devices = devices(&published.server.world());
    assert_eq!((devices.len(), &devices[0]["consumesCounters"]), (1, &Value::Null));
}

#[tokio::test]
async fn nothing_is_published_beside_another_driver() {
    let server = Server::start();
    let plugin = json!({ "capacity": { "cpu": "4", "nvidia.com/gpu": "8" } });
    server.world().node["status"] = plugin;
    let mut published = published(server, view()).await;
    let waits = |says: &'static str| {
        move |state: &State| state.trouble.as_ref().is_some_and(|text| text.contains(says))
    };
    let state = published.state.wait_for(waits("the node has nvidia.com/gpu"));
    tokio::time::timeout(SOON, state).await.unwrap().unwrap();
    let theirs =
        json!({ "metadata": { "name": "theirs" }, "spec": { "driver": "gpu.nvidia.com" } });
    published.server.change(|world| {
        world.node["status"]["capacity"]["nvidia.com/gpu"] = "0".into();
        world.put("theirs", "ADDED", theirs);
    });
    let state = published.state.wait_for(waits("gpu.nvidia.com, by ResourceSlice theirs"));
    tokio::time::timeout(SOON, state).await.unwrap().unwrap();
    // One that nobody knows, and which says what it gives: a network card, and one of our GPUs.
    let device = |address: &str| json!({"attributes": {"resource.kubernetes.io/pciBusID": {"string": address}}});
    let slice = |name: &str, driver: &str, address: &str| json!({"metadata": {"name": name}, "spec": {"driver": driver, "devices": [device(address)]}});
    published.server.change(|world| {
        world.remove("theirs");
        world.put("card", "ADDED", slice("card", "nic.example.com", "0000:ff:00.0"));
        world.put("own", "ADDED", slice("own", "own.example.com", "0000:02:00.0"));
        world.put("another", "ADDED", slice("another", "gpu.example.com", "0000:02:00.0"));
    });
    let says = "gpu.example.com, by ResourceSlice another, which has that at 0000:02:00.0";
    let state = published.state.wait_for(waits(says));
    tokio::time::timeout(SOON, state).await.unwrap().unwrap();
    assert!(published.server.world().writes.is_empty());
    published.server.change(|world| world.remove("another"));
    published.whole(3).await;
}

#[tokio::test]
async fn a_refusal_says_what_to_do() {
    let server = Server::start();
    server.world().faults = vec![Fault::Status(403); 100];
    let mut published = published(server, view()).await;
    let state = published.state.wait_for(|state| state.trouble.is_some());
    let text = tokio::time::timeout(SOON, state).await.unwrap().unwrap().trouble.clone().unwrap();
    assert!(text.contains("does not let divvy-node"), "{text}");
}

#[tokio::test]
async fn a_restart_while_a_gpu_is_gone_keeps_what_is_published() {
    let first = Published::start().await;
    let server = first.server.clone();
    let before = devices(&server.world());
    drop(first);
    let mut view = view();
    let gone = view.inventory.gpus.remove(2);
    view.health.gone.insert(gone.pci);
    let second = published(server, view).await;
    second.whole(3).await;
    second
        .until("tainted", |world| {
            let tainted = devices(world).into_iter().filter(|one| !one["taints"].is_null()).count();
            tainted == before.len() / 4
        })
        .await;
    assert_eq!(devices(&second.server.world()).len(), before.len());
    second.quiet().await;
}

#[tokio::test]
async fn two_that_disagree_do_not_write_for_ever() {
    let first = Published::start().await;
    let mut other = view();
    other.inventory.driver.version = "2".to_owned();
    let second = published(first.server.clone(), other).await;
    let count = || first.server.world().writes.len();
    tokio::time::sleep(Duration::from_secs(8)).await;
    let before = count();
    tokio::time::sleep(Duration::from_secs(4)).await;
    // Each write of one is three slices: at most one of each by now.
    assert!(count() - before <= 6, "{before} became {}", count());
    drop(second);
}

#[tokio::test]
async fn one_of_two_on_a_machine_publishes_and_then_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let sole = Some(dir.path().join("publish"));
    let first = published_as(Server::start(), view(), sole.clone()).await;
    first.whole(3).await;
    let mut other = view();
    other.inventory.driver.version = "2".to_owned();
    let mut second = published_as(first.server.clone(), other, sole).await;
    // What the first has published counts, so that a rolling update ends the first.
    let ready = second.state.wait_for(|state| state.generation == Some(1));
    tokio::time::timeout(SOON, ready).await.unwrap().unwrap();
    first.quiet().await;
    drop(first);
    second
        .until("the second's", |world| {
            let all = devices(world);
            all.iter().all(|one| one["attributes"]["driverVersion"]["version"] == "2.0.0")
        })
        .await;
    second.whole(3).await;
}

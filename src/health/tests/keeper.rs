//! A keeper on a simulated node: what it finds, what it keeps, and who else does.

use std::{fs, path::Path, time::Duration};

use tokio::sync::watch;

use crate::{
    gpu::{Event, EventKind, Gpus, sim::Sim},
    health::{Cause, Keeper, Known, Options},
    journal::Journal,
    publish::Effect,
};

struct World {
    dir: tempfile::TempDir,
    sim: Sim,
}

#[expect(clippy::disallowed_methods, reason = "a test's own input")]
fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        write(&dir.path().join("node.toml"), "[[gpu]]\nmodel = \"H100-80GB\"\ncount = 2\n");
        let sim = Sim::open(&dir.path().join("node.toml")).unwrap();
        Self { dir, sim }
    }

    fn uuid(&self, index: usize) -> String {
        let state = self.dir.path().join("node.state.json");
        let kept = fs::rename(&state, self.dir.path().join("kept"));
        let uuid = self.sim.inventory().unwrap().gpus[index].uuid.clone();
        if kept.is_ok() {
            fs::rename(self.dir.path().join("kept"), state).unwrap();
        }
        uuid
    }

    /// Makes the node's state say this, with the GPUs' UUIDs in the place of `@0` and `@1`.
    fn says(&self, text: &str) {
        let text = text.replace("@0", &self.uuid(0)).replace("@1", &self.uuid(1));
        write(&self.dir.path().join("node.state.json"), &text);
    }

    fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("state/health.json")
    }

    fn keeper(&self, boot: &str, options: Options) -> (Keeper, watch::Receiver<Known>) {
        Keeper::new(&Journal::new(&self.dir.path().join("state")), boot, options)
    }

    /// What a new process knows after its first look.
    fn known(&self, boot: &str) -> Known {
        let (mut keeper, known) = self.keeper(boot, Options::default());
        keeper.turn(&self.sim);
        known.borrow().clone()
    }
}

fn causes(known: &Known) -> Vec<Vec<Cause>> {
    known.gpus.iter().map(|health| health.causes.clone()).collect()
}

#[test]
fn what_happens_is_known_soon_and_after_a_restart() {
    let world = World::new();
    let ignored = [120].into_iter().collect();
    let options = Options { effect: Effect::NoExecute, ignored };
    let (mut keeper, known) = world.keeper("b1", options);
    keeper.turn(&world.sim);
    assert_eq!(causes(&known.borrow()), [vec![], vec![]]);
    world.says(
        r#"{"events": [{"gpu": "@0", "xid": 31}, {"gpu": "@0", "xid": 120}, {"gpu": "@1", "xid": 79}]}"#,
    );
    keeper.turn(&world.sim);
    let now = known.borrow().clone();
    assert_eq!(causes(&now), [vec![], vec![Cause::Xid(79)]]);
    assert_eq!(now.xids.len(), 3);
    assert_eq!(now.taints()[&world.uuid(1)][0].effect, Effect::NoExecute);
    // The events are told once, to whoever was there.
    assert_eq!(causes(&world.known("b1")), [vec![], vec![Cause::Xid(79)]]);
    world.says("{}");
    assert_eq!(causes(&world.known("b1")), [vec![], vec![Cause::Xid(79)]]);
    // What is published first has it too: nobody has looked yet.
    let (_keeper, known) = world.keeper("b1", Options::default());
    assert_eq!(causes(&known.borrow()), [vec![], vec![Cause::Xid(79)]]);
    assert!(known.borrow().seen.is_none());
    assert_eq!(causes(&world.known("b2")), [vec![], vec![]], "with the boot it went");
}

#[test]
fn two_know_the_same() {
    let world = World::new();
    let (mut old, of_old) = world.keeper("b1", Options::default());
    old.turn(&world.sim);
    let second = Sim::open(&world.dir.path().join("node.toml")).unwrap();
    let (mut new, of_new) = world.keeper("b1", Options::default());
    new.turn(&second);
    world.says(r#"{"events": [{"gpu": "@0", "xid": 95}], "gpus": {"@1": {"lost": true}}}"#);
    new.turn(&second);
    // The old one hears it too: that is one and the same.
    old.turn(&world.sim);
    let both = [vec![Cause::Xid(95)], vec![Cause::Lost]];
    assert_eq!(
        (causes(&of_old.borrow()), causes(&of_new.borrow())),
        (both.to_vec(), both.to_vec())
    );
    assert_eq!(causes(&world.known("b1")), both);
}

#[test]
fn a_file_that_cannot_be_read_is_made_anew_and_one_that_cannot_be_written_is_not_needed() {
    let world = World::new();
    world.known("b1");
    for damaged in ["{", r#"{"version": 2, "boot": "b1", "load": "", "gpus": {}}"#] {
        write(&world.file(), damaged);
        assert_eq!(causes(&world.known("b1")), [vec![], vec![]]);
        assert!(fs::read_to_string(world.file()).unwrap().contains("\"version\": 1"));
    }
    let (mut keeper, known) = world.keeper("b1", Options::default());
    keeper.turn(&world.sim);
    fs::remove_file(world.file()).unwrap();
    fs::create_dir(world.file()).unwrap();
    world.says(r#"{"events": [{"gpu": "@0", "xid": 95}]}"#);
    keeper.turn(&world.sim);
    assert_eq!(causes(&known.borrow())[0], [Cause::Xid(95)]);
    fs::remove_dir(world.file()).unwrap();
    world.says(r#"{"events": [{"gpu": "@0", "xid": 95}, {"gpu": "@0", "xid": 48}]}"#);
    keeper.turn(&world.sim);
    assert_eq!(causes(&world.known("b1"))[0], [Cause::Xid(48), Cause::Xid(95)]);
}

#[test]
fn where_gpus_cannot_be_looked_at_what_was_known_stays() {
    let world = World::new();
    let (mut keeper, known) = world.keeper("b1", Options::default());
    world.says(r#"{"gpus": {"@0": {"health": {"remapPending": true}}}}"#);
    keeper.turn(&world.sim);
    world.says("no JSON");
    std::thread::sleep(Duration::from_millis(10));
    let seen = known.borrow().seen;
    let happened = Event { gpu: world.uuid(1), kind: EventKind::Xid(79) };
    keeper.look(&world.sim, &[happened]);
    let now = known.borrow().clone();
    assert_eq!(now.seen, seen);
    assert!(now.trouble.as_ref().unwrap().contains("node.state.json"), "{:?}", now.trouble);
    // It is told once, so it is heard also now.
    assert_eq!(causes(&now), [[Cause::RemapPending], [Cause::Xid(79)]]);
    world.says("{}");
    keeper.look(&world.sim, &[]);
    let now = known.borrow().clone();
    assert_eq!((now.trouble.clone(), causes(&now)), (None, vec![vec![], vec![Cause::Xid(79)]]));
}

//! How long is waited, and for what.

use std::{fs, path::PathBuf, time::Duration};

use super::{
    api::Trouble,
    world::{WHOLE, World, references},
};
use crate::{lock::Lock, plugin::proto::dra_v1};

/// The lock of the GPU that is given whole.
fn lock_of(world: &World) -> PathBuf {
    let inventory = world.machine().pool().gpus().unwrap().inventory().unwrap();
    let whole = inventory.gpus.iter().find(|gpu| gpu.pci.to_string().contains("1b:00"));
    let dir = world.path("state/locks/gpus");
    fs::create_dir_all(&dir).unwrap();
    dir.join(&whole.unwrap().uuid)
}

/// Holds it, as another process would for another claim.
fn hold(world: &World) -> Lock {
    let mut held = Lock::wait(&lock_of(world), None).unwrap();
    held.note("uid-of-another");
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_in_other_hands_is_waited_for_and_not_without_end() {
    let world = World::new().await;
    world.api.claim("a", "uid-a", &[WHOLE]);
    let held = hold(&world);
    let refused = world.prepare("a", "uid-a").await.unwrap_err();
    assert!(refused.starts_with("divvy: LOCK-HELD: "), "{refused}");
    let holder = format!("process {} (", std::process::id());
    for part in ["state/locks/gpus/GPU-", &holder, "at claim uid-of-another", "the next try"] {
        assert!(refused.contains(part), "{part} is not in {refused}");
    }
    assert_eq!(world.left(), [""; 0]);
    let (prepared, ()) = tokio::join!(world.prepare("a", "uid-a"), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(held);
    });
    prepared.unwrap();
    let held = hold(&world);
    let refused = world.unprepare("a", "uid-a").await.unwrap_err();
    assert!(refused.starts_with("divvy: LOCK-HELD: "), "{refused}");
    drop(held);
    world.unprepare("a", "uid-a").await.unwrap();
    assert_eq!(world.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_end_one_claim_at_once_are_one() {
    let world = World::new().await;
    world.api.claim("a", "uid-a", &[WHOLE]);
    world.prepare("a", "uid-a").await.unwrap();
    let held = hold(&world);
    let client = world.client().await;
    let call = || {
        let mut client = client.clone();
        let claims = references(&[("a", "uid-a")]);
        let request = dra_v1::NodeUnprepareResourcesRequest { claims };
        tokio::spawn(async move { client.node_unprepare_resources(request).await })
    };
    let calls: Vec<_> = (0..16).map(|_| call()).collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(held);
    for call in calls {
        let answer = call.await.unwrap().unwrap().into_inner();
        assert_eq!(answer.claims["uid-a"].error, "");
    }
    let told = world.told.lines.lock().unwrap().clone();
    assert_eq!(told, ["prepared team/a 1", "unprepared uid-a"]);
    // The next one is another.
    world.prepare("a", "uid-a").await.unwrap();
    world.unprepare("a", "uid-a").await.unwrap();
    assert_eq!(world.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_waits_for_no_lock() {
    let mut world = World::new().await;
    world.api.claim("a", "uid-a", &[WHOLE]);
    let held = hold(&world);
    let mut client = world.client().await;
    let request = dra_v1::NodePrepareResourcesRequest { claims: references(&[("a", "uid-a")]) };
    let call = tokio::spawn(async move { client.node_prepare_resources(request).await });
    world.soon("the claim to be read", |world| world.api.asked() > 0).await;
    world.plugin.take().unwrap().end().await;
    // Whoever asked is not answered any more, or was told; and nothing was done.
    let _answer = call.await.unwrap();
    assert_eq!(world.left(), [""; 0]);
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_is_missing_is_named_and_not_waited_for() {
    let world = World::new().await;
    world.api.claim("a", "uid-a", &[WHOLE]);
    world.api.deny();
    let refused = world.prepare("a", "uid-a").await.unwrap_err();
    assert!(
        refused.starts_with("divvy: API-FORBIDDEN: GET /apis/resource.k8s.io/v1/"),
        "{refused}"
    );
    let lacks = "divvy-node needs a role with get on resourceclaims of resource.k8s.io";
    assert!(refused.ends_with(lacks), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_api_server_says_that_a_claim_is_gone() {
    let world = World::new().await;
    world.api.claim("a", "uid-a", &[WHOLE]);
    world.api.trouble(&[Trouble::Astray, Trouble::Unknown]);
    world.prepare("a", "uid-a").await.unwrap();
    world.api.delete("a");
    let refused = world.prepare("a", "uid-a").await.unwrap_err();
    assert!(refused.starts_with("divvy: CLAIM-GONE: "), "{refused}");
}

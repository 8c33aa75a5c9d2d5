//! A node's slices have a sole publisher: two divvy-nodes of a rolling update would each put right what the other
//! wrote.

use std::time::Duration;

use tokio::{sync::watch, task::spawn_blocking};

use super::{
    Options, State,
    object::{Object, whole},
};
use crate::{admin::tell, api::Api, lock::Lock};

/// How often it is looked whether the one who publishes has ended.
const TURN: Duration = Duration::from_millis(500);

/// Waits until no other divvy-node of this machine publishes. What that one has published counts meanwhile: the
/// rolling update ends it when this one is ready. Where there can be no lock, nobody is waited for.
pub(super) async fn sole(
    api: &Api,
    options: &Options,
    state: &watch::Sender<State>,
) -> Option<Lock> {
    let path = options.sole.as_ref()?;
    let mut told = false;
    loop {
        let path = path.clone();
        match spawn_blocking(move || Lock::attempt(&path)).await {
            Ok(Ok(Some(lock))) => return Some(lock),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => {
                tell(&format!("{}\n", divvy_cdi::problem::chain(&error)));
                return None;
            }
            Err(_panic) => return None,
        }
        if !std::mem::replace(&mut told, true) {
            let driver = &options.driver;
            tell(&format!(
                "another divvy-node publishes this node's devices of {driver}; this one does when that ends\n"
            ));
        }
        if state.borrow().generation.is_none()
            && let Ok((list, _)) = api.list_slices(Some(&options.driver), &options.node).await
        {
            let there: Vec<Object> = list.iter().filter_map(Object::read).collect();
            let generation = whole(&options.node, &there);
            state.send_modify(|state| state.generation = generation);
        }
        tokio::time::sleep(TURN).await;
    }
}

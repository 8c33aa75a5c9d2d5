//! The watch is what keeps the state current: the API server tells of the node's pods, and is asked
//! for claims of which nothing is known here.

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Instant};

use k8s_openapi::api::core::v1 as core;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::task::spawn_blocking;
use tokio_stream::StreamExt;

use super::{Pods, pod::Pod, say, state::Known};
use crate::{admin::tell, api::ApiError, claim::Claim};

/// How often all records are looked at again.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(30);

/// How long one watch goes on: a connection that died in silence is noticed 5 s later.
const WATCH_SECONDS: u32 = 50;

// === impl Pods ===

impl Pods {
    /// Keeps the records of this node's pods as they should be; ends never.
    pub async fn run(self: Arc<Self>) {
        tokio::join!(self.watch(), self.ask(), self.look_again());
    }

    async fn watch(self: &Arc<Self>) {
        let pods = kube::Api::<core::Pod>::all(self.api.client());
        let of_node = format!("spec.nodeName={}", self.node);
        let of_node = watcher::Config::default().timeout(WATCH_SECONDS).fields(&of_node);
        let mut events = pin!(watcher(pods, of_node).default_backoff());
        let (mut listed, mut told) = (Vec::new(), String::new());
        while let Some(event) = events.next().await {
            match event {
                Err(error) => {
                    let line = divvy_cdi::problem::chain(&error);
                    if told != line {
                        tell(&format!(
                            "watching the pods of node {}: {line}; going on trying\n",
                            self.node
                        ));
                        told = line;
                    }
                }
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(pod)) => listed.extend(Pod::of(&pod)),
                Ok(watcher::Event::InitDone) => {
                    let pods = std::mem::take(&mut listed);
                    self.blocking(move |this| this.list(pods)).await;
                    // Every try begins anew; only this one came through.
                    told.clear();
                }
                Ok(watcher::Event::Apply(pod)) => {
                    if let Some(pod) = Pod::of(&pod) {
                        self.blocking(move |this| this.apply(pod)).await;
                    }
                }
                Ok(watcher::Event::Delete(pod)) => {
                    if let Some(uid) = pod.metadata.uid {
                        self.blocking(move |this| this.delete(&uid)).await;
                    }
                }
            }
        }
    }

    /// Asks for the claims that no record here is of: of another driver, or prepared before the pod
    /// was among their consumers.
    async fn ask(self: &Arc<Self>) {
        let mut told = String::new();
        loop {
            let unknown = self.blocking(|this| this.state().unknown(Instant::now())).await;
            let (asks, next) = unknown.unwrap_or_default();
            for (pod, namespace, name) in asks {
                let known = match self.claim(&pod, &namespace, &name).await {
                    Ok(Some(known)) => known,
                    Ok(None) => continue,
                    Err(error) => {
                        let line = divvy_cdi::problem::chain(&error);
                        if told != line {
                            say(&error);
                            told = line;
                        }
                        // Each of the others would be waited for as well.
                        break;
                    }
                };
                told.clear();
                let learn = move |this: &Self| {
                    let mut state = this.state();
                    if state.learn(&pod, &name, known) {
                        this.settle(&mut state, &pod);
                    }
                };
                self.blocking(learn).await;
            }
            match next {
                Some(at) => {
                    let timeout = at.saturating_duration_since(Instant::now());
                    // Either way there is something to ask for.
                    let _woken = tokio::time::timeout(timeout, self.asks.notified()).await;
                }
                None => self.asks.notified().await,
            }
        }
    }

    /// What the API server says of a claim of a pod; none while that is not settled there.
    async fn claim(
        &self,
        pod: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Known>, ApiError> {
        let text = self.api.claim(namespace, name).await?;
        Ok(text.and_then(|text| known(&text, pod, &self.drivers)))
    }

    async fn look_again(self: &Arc<Self>) {
        loop {
            // Either way there may be something new.
            let _told = tokio::time::timeout(AGAIN, self.changes.notified()).await;
            self.blocking(Self::refresh).await;
        }
    }

    /// Files are written on a thread that may block.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let this = Arc::clone(self);
        let done = spawn_blocking(move || work(&this)).await;
        if done.is_err() {
            tell("pod records: a task of theirs panicked; going on\n");
        }
        done.ok()
    }
}

/// What a claim of a pod is to these drivers, by its text; none while that is not settled, or cannot be
/// read.
fn known(text: &str, pod: &str, drivers: &BTreeSet<String>) -> Option<Known> {
    let claim = Claim::of_api("", text.as_bytes(), "").ok()?;
    let reserved = claim.consumers.iter().any(|consumer| consumer.uid == pod);
    let allocation = claim.allocation.filter(|_| reserved)?;
    let drivers: BTreeSet<String> = allocation.drivers.intersection(drivers).cloned().collect();
    Some(match drivers.is_empty() {
        true => Known::Others,
        false => Known::Ours { uid: claim.uid, drivers },
    })
}

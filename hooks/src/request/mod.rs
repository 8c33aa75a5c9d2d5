//! A request is what a container asks for, by the ways that count for the engine that runs it.
//!
//! | engine | the pod's record | `cdi.k8s.io/*` annotations | `divvy.dev/claim` | environment |
//! |---|---|---|---|---|
//! | cri | by pod UID and container name | of the container | refused | never |
//! | crio | by pod UID and container name | of the container (`io.kubernetes.cri-o.Annotations`) | refused | never |
//! | podman, docker | – | where allowed, else refused | where allowed, else refused | where configured |
//! | ctr | – | where allowed, else refused | where allowed, else refused | never |
//!
//! The devices of prepared claims (`gpu.divvy.dev/claim`, and of other drivers of divvy's) are no names
//! to ask by: only a record leads to them. A static pod can have no claims, so it has no record and waits
//! for none. What is refused is an error, so that nobody waits for a device that never comes. A handler
//! that is not declared takes nothing, and anything that looks like a request is an error.

mod annotations;
mod claim;
mod env;
mod pod;
mod quick;

use std::path::{Path, PathBuf};

use divvy_cdi::{name::QualifiedName, oci::Config, problem::quoted};

use crate::{
    error::HookError,
    record::{CLAIM_CLASS, RunDir},
    settings::{Engine, Handler, Salvage, SettingsError},
};

pub use annotations::CLAIM;
pub use quick::may_request;

/// The most names of one input: an image can fill it as it likes, and a node has far fewer devices.
const MAX_NAMES: usize = 256;

/// What a container asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// Devices of prepared claims, each with the spec file that its record names.
    pub prepared: Vec<Prepared>,
    /// Devices by their names.
    pub names: Vec<QualifiedName>,
}

/// Devices of one spec file that a record names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// The pod or claim, for messages.
    pub what: String,
    /// The spec file.
    pub path: PathBuf,
    /// Its digest when it was prepared.
    pub digest: String,
    /// The devices.
    pub names: Vec<QualifiedName>,
}

/// What is looked at, and by which rules.
#[derive(Debug)]
pub struct Rules<'a> {
    /// The installed name.
    pub name: &'a str,
    /// Its declaration; none where the settings have none, or are broken.
    pub handler: Option<&'a Handler>,
    /// Where it is declared, for messages.
    pub settings: &'a Path,
    /// The records.
    pub run_dir: &'a RunDir,
    /// What the settings say for certain when they are broken.
    pub salvage: Option<&'a Salvage>,
}

// === impl Rules ===

impl Rules<'_> {
    /// What the container of `config` asks for.
    ///
    /// # Errors
    /// What is asked for and cannot count, or has no record that can be used.
    pub fn request(
        &self,
        config: &Config<'_>,
        broken: Option<SettingsError>,
    ) -> Result<Request, HookError> {
        let Some(handler) = self.handler else {
            return match (self.sign(config)?, broken) {
                (None, _) => Ok(Request::default()),
                (Some(sign), Some(source)) => Err(HookError::Settings { sign, source }),
                (Some(sign), None) => {
                    let (handler, settings) = (self.name.to_owned(), self.settings.to_owned());
                    Err(HookError::Undeclared { handler, settings, sign })
                }
            };
        };
        let mut request = Request::default();
        match handler.engine {
            Engine::Cri | Engine::Crio => {
                let pod = match handler.engine {
                    Engine::Cri => pod::Pod::of_cri(config),
                    _ => pod::Pod::of_crio(config)?,
                };
                if pod.as_ref().is_some_and(|pod| pod.sandbox) {
                    return Ok(request);
                }
                self.of_pod(handler, pod.as_ref(), &mut request)?;
                annotations::of_pod(self, handler, config, &mut request)?;
            }
            Engine::Podman | Engine::Docker | Engine::Ctr => {
                annotations::of_person(self, handler, config, &mut request)?;
                env::of(self, handler, config, &mut request)?;
            }
        }
        Ok(request)
    }

    /// What the pod's record gives the container.
    fn of_pod(
        &self,
        handler: &Handler,
        pod: Option<&pod::Pod>,
        request: &mut Request,
    ) -> Result<(), HookError> {
        let Some(pod) = pod else {
            if !handler.require_record {
                return Ok(());
            }
            let handler = self.name.to_owned();
            let why = pod::unknown(self.handler.map(|handler| handler.engine));
            return Err(HookError::PodUnknown { handler, why });
        };
        match self.run_dir.pod(&pod.uid)? {
            Some(record) => claim::of_pod(&record, pod, request),
            None if handler.require_record && !pod.is_static() => Err(HookError::NotPrepared {
                what: pod.to_string(),
                path: self.run_dir.pod_path(&pod.uid),
                advice: "the kubelet tries again; look whether the pod has claims and divvy's node \
                         plugin runs",
            }),
            None => Ok(()),
        }
    }

    /// What looks like a request, whoever the engine is.
    fn sign(&self, config: &Config<'_>) -> Result<Option<String>, HookError> {
        if let Some(key) = annotations::first(config) {
            return Ok(Some(format!("annotation {}", quoted(&key))));
        }
        // Which variables count is not known then, and only a request looks like this.
        if self.salvage.is_some()
            && let Some(variable) = env::first(config)
        {
            return Ok(Some(format!("environment variable {}", quoted(&variable))));
        }
        for pod in pod::Pod::of_any(config)? {
            if self.salvage.is_some_and(|salvage| !salvage.is_optional(self.name)) {
                return Ok(Some(format!("handler {:?} may require a record of {pod}", self.name)));
            }
            let Some(record) = self.run_dir.pod(&pod.uid)? else { continue };
            if record.containers.contains_key(&pod.container) {
                return Ok(Some(format!("the record of {pod}")));
            }
        }
        Ok(None)
    }
}

// === impl Request ===

impl Request {
    /// True when nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.prepared.is_empty() && self.names.is_empty()
    }

    /// Adds a device by its name. Those of prepared claims come from a record, which knows whose
    /// they are and whether they are still the same: one that it gave already is passed over, any
    /// other refused.
    fn name(
        &mut self,
        name: QualifiedName,
        run: &RunDir,
        what: impl Fn() -> String,
    ) -> Result<(), HookError> {
        if name.class() == CLAIM_CLASS && run.has_driver(name.vendor()) {
            if self.prepared.iter().any(|prepared| prepared.names.contains(&name)) {
                return Ok(());
            }
            return Err(HookError::Refused {
                what: what(),
                why: format!(
                    "{} is of a prepared claim, which nobody gets by that name: a pod gets it by \
                     its own claims, a person by the annotation {CLAIM:?}",
                    quoted(name.as_str())
                ),
            });
        }
        if !self.names.contains(&name) {
            self.names.push(name);
        }
        Ok(())
    }
}

/// Refuses more names than any container needs, before each costs something.
fn limit(count: usize, what: impl FnOnce() -> String) -> Result<(), HookError> {
    if count <= MAX_NAMES {
        return Ok(());
    }
    let why =
        format!("it has {count} names, and {MAX_NAMES} are the most that a container may request");
    Err(HookError::Invalid { what: what(), why })
}

/// How many names a value has, separated by commas.
fn count(value: &str) -> usize {
    value.bytes().filter(|byte| *byte == b',').count() + 1
}

#[cfg(test)]
mod tests;

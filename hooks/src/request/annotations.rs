//! Annotations that request devices: `cdi.k8s.io/*` by their CDI names, `divvy.dev/claim` by a
//! claim that was prepared by hand on this host.

use std::{borrow::Cow, collections::BTreeMap};

use divvy_cdi::{
    annotation::{self, PREFIX},
    oci::Config,
    problem::quoted,
};

use super::{Request, Rules, claim, count, limit};
use crate::{
    error::HookError,
    log,
    settings::{Engine, Handler},
};

/// The annotation that names claims prepared by hand: `[namespace/]name`, several with commas.
pub const CLAIM: &str = "divvy.dev/claim";

/// CRI-O's key with the annotations of the container, as JSON. The plain keys beside it hold the
/// pod's as well, which any pod author writes.
const CRIO: &str = "io.kubernetes.cri-o.Annotations";

/// The first annotation that looks like a request.
pub(super) fn first(config: &Config<'_>) -> Option<String> {
    let key = config.annotations().find(|(key, _)| key.starts_with(PREFIX) || key == CLAIM);
    key.map(|(key, _)| key.into_owned())
}

/// Adds what the annotations of a pod's container request.
pub(super) fn of_pod(
    rules: &Rules<'_>,
    handler: &Handler,
    config: &Config<'_>,
    request: &mut Request,
) -> Result<(), HookError> {
    let annotations: Vec<(Cow<'_, str>, Cow<'_, str>)> = match handler.engine {
        Engine::Crio => of_crio(config)?.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
        _ => config.annotations().collect(),
    };
    if annotations.iter().any(|(key, _)| key == CLAIM) {
        let engine = handler.engine;
        return Err(HookError::Refused {
            what: format!("annotation {CLAIM:?}"),
            why: format!(
                "it does not count with engine {engine} (handler {:?}): the claims of a pod stand \
                 in its spec",
                rules.name
            ),
        });
    }
    // Not allowed, they are left to the engine, which does CDI itself.
    if handler.annotations { names(rules, &annotations, request) } else { Ok(()) }
}

/// Adds what the annotations of a container request that a person runs.
pub(super) fn of_person(
    rules: &Rules<'_>,
    handler: &Handler,
    config: &Config<'_>,
    request: &mut Request,
) -> Result<(), HookError> {
    let Some(key) = first(config) else { return Ok(()) };
    if !handler.annotations {
        let before = match handler.engine {
            Engine::Podman => " (podman 4.6 or newer only: older ones copy them from images)",
            _ => "",
        };
        return Err(HookError::Refused {
            what: format!("annotation {}", quoted(&key)),
            why: format!(
                "handler {:?} takes none from annotations: remove it, or set annotations = true in \
                 {}{before}",
                rules.name,
                rules.settings.display()
            ),
        });
    }
    if handler.engine == Engine::Podman && takes_from_images(config) {
        return Err(HookError::Refused {
            what: format!("annotation {}", quoted(&key)),
            why: "this podman is older than 4.6 and copies the annotations of images, so none of \
                  them counts: update podman, or give it CDI names by its own --device"
                .to_owned(),
        });
    }
    let annotations: Vec<_> = config.annotations().collect();
    for (key, value) in annotations.iter().filter(|(key, _)| key == CLAIM) {
        limit(count(value), || format!("annotation {CLAIM:?}"))?;
        for name in value.split(',') {
            claim::by_name(rules, key, name.trim(), request)?;
        }
    }
    names(rules, &annotations, request)
}

/// Whether this podman copies an image's annotations into the config, where nothing tells them from
/// the caller's: 4.5.0 and before (podman#18542). Its version is not there, but the OCI version that
/// it was built with: 1.0.x up to 4.4, 1.1.0-rc.1 in 4.5, 1.1.0-rc.3 in 4.6. What is not known to be
/// as new as that counts as old.
fn takes_from_images(config: &Config<'_>) -> bool {
    #[derive(serde::Deserialize)]
    struct Version<'a> {
        #[serde(rename = "ociVersion", borrow)]
        oci: Cow<'a, str>,
    }
    let read: Result<Version<'_>, _> = serde_json::from_str(config.text());
    let version = read.ok().and_then(|read| oci_version(&read.oci));
    version.is_none_or(|version| version < ([1, 1, 0], 3))
}

/// The three numbers, and the release candidate; what is released comes after all of them. Build
/// metadata (`+dev`) has no rank; other pre-releases (`-dev`) have none that is known.
fn oci_version(text: &str) -> Option<([u32; 3], u32)> {
    let text = text.split_once('+').map_or(text, |(version, _build)| version);
    let (numbers, candidate) = match text.split_once("-rc.") {
        Some((numbers, candidate)) => (numbers, candidate.parse().ok()?),
        None => (text, u32::MAX),
    };
    let mut numbers = numbers.split('.').map(|number| number.parse().ok());
    let version = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some((version, candidate))
}

fn names(
    rules: &Rules<'_>,
    annotations: &[(Cow<'_, str>, Cow<'_, str>)],
    request: &mut Request,
) -> Result<(), HookError> {
    let asking = || annotations.iter().filter(|(key, _)| key.starts_with(PREFIX));
    let all = asking().map(|(_, value)| count(value)).sum();
    limit(all, || format!("annotations {PREFIX:?}…"))?;
    let pairs = asking().map(|(key, value)| (key.as_ref(), value.as_ref()));
    let names = annotation::parse(pairs).map_err(|error| HookError::Invalid {
        what: error.to_string(),
        why: std::error::Error::source(&error).map(log::chain).unwrap_or_default(),
    })?;
    for name in names {
        request.name(name, rules.run_dir, || format!("an annotation {PREFIX:?}…"))?;
    }
    Ok(())
}

fn of_crio(config: &Config<'_>) -> Result<BTreeMap<String, String>, HookError> {
    let Some(json) = config.annotation(CRIO) else { return Ok(BTreeMap::new()) };
    // `null` is what CRI-O writes where there are none.
    let read: Result<Option<BTreeMap<String, String>>, _> = serde_json::from_str(&json);
    match read {
        Ok(annotations) => Ok(annotations.unwrap_or_default()),
        Err(error) => {
            Err(HookError::Invalid { what: format!("annotation {CRIO:?}"), why: error.to_string() })
        }
    }
}

//! Environment variables that request devices. Off by default: an image's own environment cannot
//! be told from that of the person who runs it.

use divvy_cdi::{name::QualifiedName, oci::Config};

use super::Request;
use crate::{error::HookError, log, settings::Handler};

/// Adds what the configured variables request: qualified names, several with commas. An empty one
/// requests nothing.
pub(super) fn of(
    handler: &Handler,
    config: &Config<'_>,
    request: &mut Request,
) -> Result<(), HookError> {
    if handler.environment.is_empty() {
        return Ok(());
    }
    for entry in config.env() {
        let Some((variable, value)) = entry.split_once('=') else { continue };
        if value.is_empty() || !handler.environment.iter().any(|name| name == variable) {
            continue;
        }
        for name in value.split(',') {
            request.name(QualifiedName::parse(name).map_err(|error| HookError::Invalid {
                what: format!("environment variable {variable}"),
                why: log::chain(&error),
            })?);
        }
    }
    Ok(())
}

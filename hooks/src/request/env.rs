//! Environment variables that request devices. Off by default: an image's own environment cannot
//! be told from that of the person who runs it.

use divvy_cdi::{name::QualifiedName, oci::Config};

use super::{Request, Rules, count, limit};
use crate::{error::HookError, log, settings::Handler};

/// Adds what the configured variables request: qualified names, several with commas. An empty one
/// requests nothing.
pub(super) fn of(
    rules: &Rules<'_>,
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
        let what = || format!("environment variable {variable}");
        limit(count(value), what)?;
        for name in value.split(',') {
            let name = QualifiedName::parse(name)
                .map_err(|error| HookError::Invalid { what: what(), why: log::chain(&error) })?;
            request.name(name, rules.run_dir, what)?;
        }
    }
    Ok(())
}

/// The first variable whose value is nothing but qualified names.
pub(super) fn first(config: &Config<'_>) -> Option<String> {
    let entries = config.env();
    let mut pairs = entries.filter_map(|entry| {
        let (variable, value) = entry.split_once('=')?;
        Some((variable.to_owned(), value.to_owned()))
    });
    let named = |value: &str| value.split(',').all(|name| QualifiedName::parse(name).is_ok());
    pairs.find(|(_, value)| named(value)).map(|(variable, _)| variable)
}

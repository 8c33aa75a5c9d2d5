//! A request annotation asks for CDI devices in the annotations of a container: key
//! `cdi.k8s.io/<plugin>_<device id>`, value qualified names joined by commas (CDI SPEC.md,
//! "Kubernetes"; Go reference `pkg/cdi/annotations.go`).

use std::collections::BTreeSet;

use crate::{
    name::{NameError, QualifiedName},
    problem::quoted,
};

/// Every key that starts so is a request; what follows it has no meaning.
pub const PREFIX: &str = "cdi.k8s.io/";

/// The longest `<plugin>_<device id>`, in bytes.
const MAX_NAME: usize = 63;

/// Why a request annotation is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// A value holds something that is no qualified name.
    #[error("annotation {}", quoted(.key))]
    Value {
        /// The annotation's key.
        key: String,
        /// What is wrong with the name.
        #[source]
        source: NameError,
    },
    /// A key cannot be made of these.
    #[error("no annotation key for plugin {} and device id {}: {why}", quoted(.plugin), quoted(.device_id))]
    Key {
        /// As given.
        plugin: String,
        /// As given.
        device_id: String,
        /// The rule it breaks.
        why: &'static str,
    },
}

/// The devices that `annotations` request, in order, each once. Keys without [`PREFIX`] are passed
/// over.
///
/// # Errors
/// When one entry of a value is no qualified name: an empty value, a space or a trailing comma
/// included.
pub fn parse<'a>(
    annotations: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<Vec<QualifiedName>, AnnotationError> {
    let (mut names, mut seen) = (Vec::new(), BTreeSet::new());
    for (key, value) in annotations.filter(|(key, _)| key.starts_with(PREFIX)) {
        for entry in value.split(',') {
            let name = QualifiedName::parse(entry)
                .map_err(|source| AnnotationError::Value { key: key.to_owned(), source })?;
            if seen.insert(entry) {
                names.push(name);
            }
        }
    }
    Ok(names)
}

/// The key under which `plugin` requests `device_id`; slashes of the id become underscores.
///
/// # Errors
/// When a part is empty, the two are longer than 63 bytes with the underscore between them, or a
/// character is not allowed.
pub fn key(plugin: &str, device_id: &str) -> Result<String, AnnotationError> {
    let refuse = |why| {
        let (plugin, device_id) = (plugin.to_owned(), device_id.to_owned());
        Err(AnnotationError::Key { plugin, device_id, why })
    };
    if plugin.is_empty() || device_id.is_empty() {
        return refuse("both must be there");
    }
    let name = format!("{plugin}_{}", device_id.replace('/', "_"));
    if name.len() > MAX_NAME {
        return refuse("together with the underscore between them at most 63 bytes are allowed");
    }
    let ends = [name.bytes().next(), name.bytes().last()];
    if !ends.into_iter().flatten().all(|c| c.is_ascii_alphanumeric()) {
        return refuse("first and last must be a letter or digit");
    }
    if !name.bytes().all(|c| c.is_ascii_alphanumeric() || b"_.-".contains(&c)) {
        return refuse("only letters, digits, '_', '.' and '-' are allowed");
    }
    Ok(format!("{PREFIX}{name}"))
}

/// The value that requests `names`.
pub fn value(names: &[QualifiedName]) -> String {
    names.iter().map(QualifiedName::as_str).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;

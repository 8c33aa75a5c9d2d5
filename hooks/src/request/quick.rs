//! The quick look tells from a config's raw bytes that nothing is requested, without parsing it:
//! most containers request nothing.
//!
//! It may see a request where there is none, never the other way: a key can only escape a search
//! of its bytes when JSON escapes hide letters or slashes of it, and then it is parsed.

use memchr::{memchr_iter, memmem};

use super::Rules;
use crate::{
    record::RecordError,
    settings::{Engine, Handler},
};

/// The key by which containerd says which pod a container belongs to, as a member of an object.
const CRI_UID: &[u8] = br#""io.kubernetes.cri.sandbox-uid""#;

/// The same of CRI-O: a label, in JSON within the JSON.
const CRIO_UID: &[u8] = br#"\"io.kubernetes.pod.uid\":\""#;

/// The UID that a config seems to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Uid<'a> {
    Absent,
    Found(&'a str),
    Doubtful,
}

/// Whether the config must be parsed to know what is requested.
///
/// # Errors
/// When the records are not trusted: then nobody can tell.
pub fn may_request(bytes: &[u8], rules: &Rules<'_>) -> Result<bool, RecordError> {
    if is_hidden(bytes) {
        return Ok(true);
    }
    let annotated = || [&b"cdi.k8s.io/"[..], b"divvy.dev/claim"].iter().any(|key| has(bytes, key));
    let Some(handler) = rules.handler else {
        // Broken settings do not say in which variables requests stand, nor who needs a record.
        return Ok(rules.salvage.is_some()
            || annotated()
            || pod_may_request(cri_uid(bytes), false, rules)?
            || pod_may_request(crio_uid(bytes), false, rules)?);
    };
    let required = handler.require_record;
    match handler.engine {
        Engine::Cri => Ok(annotated() || pod_may_request(cri_uid(bytes), required, rules)?),
        Engine::Crio => Ok(annotated() || pod_may_request(crio_uid(bytes), required, rules)?),
        Engine::Podman | Engine::Docker | Engine::Ctr => Ok(annotated() || is_set(bytes, handler)),
    }
}

fn pod_may_request(uid: Uid<'_>, required: bool, rules: &Rules<'_>) -> Result<bool, RecordError> {
    match uid {
        Uid::Doubtful => Ok(true),
        // With a record required, only a parse tells a sandbox from a container.
        _ if required => Ok(true),
        Uid::Absent => Ok(false),
        Uid::Found(uid) => rules.run_dir.has_pod(uid),
    }
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    memmem::find(bytes, part).is_some()
}

/// Whether an escape could hide a letter or a slash: `\u0063`, `\/`; also within JSON in JSON.
fn is_hidden(bytes: &[u8]) -> bool {
    memchr_iter(b'\\', bytes).any(|at| matches!(bytes.get(at + 1), Some(b'u' | b'/')))
}

fn is_set(bytes: &[u8], handler: &Handler) -> bool {
    handler.environment.iter().any(|name| has(bytes, format!("\"{name}=").as_bytes()))
}

fn cri_uid(bytes: &[u8]) -> Uid<'_> {
    let mut found = memmem::find_iter(bytes, CRI_UID);
    let Some(at) = found.next() else { return Uid::Absent };
    let value = || {
        let rest = bytes.get(at + CRI_UID.len()..)?.trim_ascii_start();
        let rest = rest.strip_prefix(b":")?.trim_ascii_start().strip_prefix(b"\"")?;
        plain(rest, b"\"")
    };
    match (value(), found.next()) {
        (Some(uid), None) => Uid::Found(uid),
        _ => Uid::Doubtful,
    }
}

fn crio_uid(bytes: &[u8]) -> Uid<'_> {
    let mut found = memmem::find_iter(bytes, CRIO_UID);
    let Some(at) = found.next() else {
        // With spaces, or in another form: somebody else wrote it.
        let named = has(bytes, b"io.kubernetes.pod.uid") && has(bytes, b"io.kubernetes.cri-o.");
        return if named { Uid::Doubtful } else { Uid::Absent };
    };
    let value = || plain(bytes.get(at + CRIO_UID.len()..)?, b"\\\"");
    match (value(), found.next()) {
        (Some(uid), None) => Uid::Found(uid),
        _ => Uid::Doubtful,
    }
}

/// What stands before `end`, if that is a UID and nothing else.
fn plain<'a>(rest: &'a [u8], end: &[u8]) -> Option<&'a str> {
    let of_uid = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let length = rest.iter().take_while(|byte| of_uid(byte)).count();
    let uid = rest.get(..length).filter(|uid| !uid.is_empty())?;
    rest.get(length..)?.starts_with(end).then(|| std::str::from_utf8(uid).ok())?
}

#[cfg(test)]
mod tests;

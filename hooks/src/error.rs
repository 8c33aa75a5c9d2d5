//! A hook error is why a container does not start. Its text is one line: a stable code, what was
//! looked at, what to do.

use std::{
    io,
    path::{Path, PathBuf},
};

use divvy_cdi::{edit::EditError, file::FileError, oci::ConfigError, resolve::Unresolved};

use crate::{log, record::RecordError, settings::SettingsError};

/// Why a container does not start.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The settings are needed and cannot be used.
    #[error("{}: this container may request devices ({sign}), and only the configuration tells", .source.code())]
    Settings {
        /// What looks like a request.
        sign: String,
        /// What is wrong with them.
        source: SettingsError,
    },
    /// A handler that is not declared, and something that looks like a request.
    #[error(
        "CONFIG-INVALID: this container requests devices ({sign}), and handler {handler:?} is not declared \
         in {}: add [handlers.{handler}] with the engine that calls it",
        .settings.display()
    )]
    Undeclared {
        /// The installed name.
        handler: String,
        /// The file where it would be declared.
        settings: PathBuf,
        /// What looks like a request.
        sign: String,
    },
    /// The config of the bundle is not there or cannot be read.
    #[error("BUNDLE: the container's config, from {from}")]
    Bundle {
        /// How its place was found.
        from: &'static str,
        /// What is wrong.
        source: FileError,
    },
    /// The config of the container is no OCI config.
    #[error("BUNDLE-INVALID: {}", .path.display())]
    BundleInvalid {
        /// The file, or `standard input`.
        path: PathBuf,
        /// What is wrong.
        source: ConfigError,
    },
    /// A request by a way that this handler does not take.
    #[error("REQUEST-REFUSED: {what} requests devices, and {why}")]
    Refused {
        /// The annotation.
        what: String,
        /// Why it does not count, and what to do.
        why: String,
    },
    /// A request that says nothing sensible.
    #[error("REQUEST-INVALID: {what}: {why}")]
    Invalid {
        /// The annotation or variable.
        what: String,
        /// What is wrong, and what is allowed.
        why: String,
    },
    /// A record must be there, and the engine does not say for which pod.
    #[error("POD-UNKNOWN: handler {handler:?} requires a record of the pod, and {why}")]
    PodUnknown {
        /// The installed name.
        handler: String,
        /// What is missing in the config, and what to do.
        why: String,
    },
    /// No record says what the container gets.
    #[error("CLAIM-NOT-PREPARED: {what}: no record at {}; {advice}", .path.display())]
    NotPrepared {
        /// The pod or claim.
        what: String,
        /// Where it would be.
        path: PathBuf,
        /// What to do.
        advice: &'static str,
    },
    /// The record belongs to somebody else.
    #[error("CLAIM-OTHER-POD: {what}")]
    OtherPod {
        /// What differs.
        what: String,
    },
    /// The record was written before the machine was started anew.
    #[error(
        "CLAIM-STALE: {what} was prepared in another boot of this machine, and devices do not \
         outlive it: prepare it again (a pod: restart the node plugin of divvy)"
    )]
    Stale {
        /// The pod or claim.
        what: String,
    },
    /// A record cannot be read.
    #[error("{}", .source.code())]
    Record {
        /// What is wrong.
        #[from]
        source: RecordError,
    },
    /// The spec file that a record names cannot be read.
    #[error("{code}: {what} is prepared, but its CDI spec cannot be used; prepare it again")]
    Spec {
        /// `SPEC-MISSING`, or the file's own code.
        code: &'static str,
        /// The pod or claim.
        what: String,
        /// What is wrong.
        source: FileError,
    },
    /// The spec file is another than the record says.
    #[error(
        "SPEC-CHANGED: {} changed since {what} was prepared (recorded {recorded}…, found {found}…): \
         prepare it again",
        .path.display()
    )]
    SpecChanged {
        /// The spec file.
        path: PathBuf,
        /// The pod or claim.
        what: String,
        /// The beginning of the digest in the record.
        recorded: String,
        /// That of the file.
        found: String,
    },
    /// A device name leads to nothing.
    #[error(transparent)]
    Unresolved(#[from] Unresolved),
    /// The edits do not fit this host or config.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The edited config was not written; the old one is as it was.
    #[error("BUNDLE: writing the edited config")]
    Write(#[source] FileError),
    /// `/proc` does not answer.
    #[error("HOST: asking the kernel")]
    Host(#[source] FileError),
    /// There is no low-level runtime.
    #[error("RUNTIME-NOT-FOUND: no low-level runtime: looked at {looked}; install one, or set runtimes in {}", .settings.display())]
    RuntimeNotFound {
        /// Each candidate and what is wrong with it.
        looked: String,
        /// Where it is configured.
        settings: PathBuf,
    },
    /// The low-level runtime is a file that cannot be executed.
    #[error(
        "RUNTIME-NOT-FOUND: {} is neither a program (ELF) nor a script (#!): set runtimes in {} to \
         runc or crun",
        .runtime.display(),
        .settings.display()
    )]
    NoProgram {
        /// The low-level runtime.
        runtime: PathBuf,
        /// Where it is configured.
        settings: PathBuf,
    },
    /// The low-level runtime would be this program again.
    #[error("RUNTIME-LOOP: {} is this program itself: set runtimes in {} to runc or crun", .runtime.display(), .settings.display())]
    RuntimeLoop {
        /// The candidate.
        runtime: PathBuf,
        /// Where it is configured.
        settings: PathBuf,
    },
    /// The kernel refused to execute the low-level runtime.
    #[error("RUNTIME-NOT-FOUND: executing {}", .runtime.display())]
    Exec {
        /// The low-level runtime.
        runtime: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Standard input is not what it should be.
    #[error("INPUT: {0}")]
    Input(String),
    /// The container's config lacks edits that its requests need.
    #[error(
        "EDITS-MISSING: {} of container {id:?} does not hold the edits that its requests need: \
         configure the engine to call divvy's runtime for it",
        .path.display()
    )]
    EditsMissing {
        /// The container.
        id: String,
        /// Its config.
        path: PathBuf,
    },
}

// === impl HookError ===

impl HookError {
    /// What the engine and the administrator are told: one line, with all that led to it.
    pub fn line(&self) -> String {
        let mut line = format!("divvy: {}", log::chain(self));
        if line.starts_with("divvy: UNTRUSTED: ") {
            line.push_str("; make it root's, or without root yours, writable by nobody else (chown, chmod go-w)");
        }
        log::one_line(&line)
    }

    pub(crate) fn bundle_invalid(path: &Path, source: ConfigError) -> Self {
        Self::BundleInvalid { path: path.to_owned(), source }
    }
}

//! The report is a createRuntime hook that says why precreate failed, and fails.

use std::{ffi::OsString, path::Path};

use divvy_cdi::file::{self, Durability, Trust};

use crate::{
    inject::{Injector, Process},
    log,
};

/// The most bytes of a text.
const MAX_BYTES: usize = 16 << 10;

/// Says the text of `FILE`, or of `--text TEXT`.
pub fn run(process: &Process, args: &[OsString]) {
    let text = match args {
        [flag, text] if flag == "--text" => text.to_string_lossy().into_owned(),
        [path] => {
            let path = Path::new(path);
            let text = match file::read(path, MAX_BYTES, &Trust::of_process()) {
                Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(error) => format!("divvy: REPORT: the reason is lost: {}", log::chain(&error)),
            };
            // Said once; nobody else clears it away. A file elsewhere is not ours to remove.
            let errors = Injector::new(process).run_dir().path().join("errors");
            if path.parent() == Some(&errors) {
                let _gone = file::remove(path, Durability::Volatile);
            }
            text
        }
        _ => "divvy: REPORT: the reason is lost: divvy-hook report FILE".to_owned(),
    };
    log::tell_person(&log::one_line(&text));
}

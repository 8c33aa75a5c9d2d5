//! A fake MPS: the control program, its daemon with a server, and a client, as one program under
//! their names. It does what `nvidia-cuda-mps-control` 550.163.01 was seen to do: how it becomes a
//! daemon, its files and their modes, who may command it, what it answers and what it keeps to its
//! log. What a client and a server say to each other is its own.
//!
//! `HOST/.fake-nvml/mps.json` says what goes wrong ([`Script`]).

mod client;
mod daemon;
mod packet;
mod ui;

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde::{Deserialize, Serialize};

use crate::{FakeHost, host::CONTROL, store};

/// The names that this program goes by.
const CONTROL_PROGRAM: &str = "nvidia-cuda-mps-control";
const SERVER_PROGRAM: &str = "nvidia-cuda-mps-server";
const CLIENT_PROGRAM: &str = "cuda-client";

/// What goes wrong. Read at every turn, so it can be replaced at any time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// The daemon never comes to listen.
    pub never_ready: bool,
    /// The daemon ends at the command after so many.
    pub dies_after: Option<u32>,
    /// It leaves a process behind that holds what the control program writes to.
    pub holds_output: bool,
    /// It answers no command, and takes no client.
    pub deaf: bool,
    /// `quit` does not end it.
    pub ignores_quit: bool,
    /// What it answers to everything.
    pub answer: Option<String>,
    /// It keeps nothing that this command sets.
    pub refuses: Option<String>,
    /// It is of a driver without `-M`.
    pub single_user: bool,
}

// === impl FakeHost ===

impl FakeHost {
    /// Puts the programs of MPS there: this very program, which must begin with [`act`].
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn install_mps(&self) -> io::Result<()> {
        let own = env::current_exe()?;
        for name in [CONTROL_PROGRAM, SERVER_PROGRAM, CLIENT_PROGRAM] {
            let path = self.root().join("usr/bin").join(name);
            // Not a link to it: a server's user may not reach this program where it is.
            if fs::hard_link(&own, &path).is_err() {
                fs::copy(&own, &path)?;
            }
        }
        self.script_mps(&Script::default())
    }

    /// The program that stands for one that uses CUDA.
    pub fn client(&self) -> PathBuf {
        self.root().join("usr/bin").join(CLIENT_PROGRAM)
    }

    /// From now on this goes wrong.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn script_mps(&self, script: &Script) -> io::Result<()> {
        store::write(&self.control().join("mps.json"), script)
    }
}

/// Does what the name says that this program was called by, if it is one of MPS.
pub fn act() -> Option<ExitCode> {
    let mut args = env::args();
    let own = PathBuf::from(args.next()?);
    let args: Vec<String> = args.collect();
    let done = match own.file_name()?.to_str()? {
        CONTROL_PROGRAM => control(&own, &args),
        SERVER_PROGRAM => daemon::server(),
        CLIENT_PROGRAM => client::run(),
        _ => return None,
    };
    Some(done.unwrap_or_else(|error| {
        let _nobody_listens = writeln!(io::stderr(), "{error}");
        ExitCode::FAILURE
    }))
}

fn control(own: &Path, args: &[String]) -> io::Result<ExitCode> {
    let script = Script::read(own)?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["-d"] => daemon::start(own, false, &script),
        ["-d", "-M"] if !script.single_user => daemon::start(own, true, &script),
        ["--serve", users] => daemon::serve(own, *users == "many"),
        // Whatever it does not know, it takes for no argument at all.
        _ => ui::run(),
    }
}

/// Where daemon, servers and clients meet.
fn pipe() -> PathBuf {
    env::var_os("CUDA_MPS_PIPE_DIRECTORY").map_or_else(|| "/tmp/nvidia-mps".into(), PathBuf::from)
}

// === impl Script ===

impl Script {
    /// That of the host in which this program is `usr/bin/…`.
    fn read(own: &Path) -> io::Result<Self> {
        let root = own.ancestors().nth(3).unwrap_or(Path::new("/"));
        Ok(serde_json::from_slice(&fs::read(root.join(CONTROL).join("mps.json"))?)?)
    }
}

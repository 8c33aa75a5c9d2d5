//! A world is a folder with a simulated node in it, and the real binaries to run there.

#![expect(clippy::disallowed_methods, reason = "a test writes its own input")]

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

/// A folder with a node, and everything that divvy keeps.
pub(crate) struct World {
    dir: tempfile::TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A whole GPU, then one in MIG mode.
pub(crate) const NODE: &str =
    "node = \"n\"\n[[gpu]]\nmodel = \"H100-80GB\"\n[[gpu]]\nmodel = \"H100-80GB\"\nmig = true\n";
pub(crate) const WHOLE: &str = "gpu-0000-1b-00";
pub(crate) const SMALL: &str = "gpu-0000-43-00-1g10gb-0";

/// A claim that is allocated `device`; `more` goes below `status.allocation.devices`.
pub(crate) fn claim(name: &str, device: &str, more: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\n\
         spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: c}}}}]}}}}\n\
         status:\n  allocation:\n    devices:\n      results:\n      - {{request: gpu, driver: \
         gpu.divvy.dev, pool: n, device: {device}}}\n{more}---\n"
    )
}

/// What makes an allocated claim time-sliced.
pub(crate) fn time_slicing(interval: &str) -> String {
    format!(
        "      config:\n      - source: FromClaim\n        opaque:\n          driver: gpu.divvy.dev\n          \
         parameters: {{apiVersion: gpu.divvy.dev/v1alpha1, kind: GpuConfig, sharing: \
         {{timeSlicing: {{interval: {interval}}}}}}}\n"
    )
}

// === impl World ===

impl World {
    pub(crate) fn new() -> Self {
        let world = Self { dir: tempfile::tempdir().unwrap() };
        world.write("node.toml", NODE);
        world.write("hook.toml", "spec_dirs = []\n");
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// `divvy`, on this node.
    pub(crate) fn divvy(&self, args: &[&str]) -> Ended {
        self.command(args).output().unwrap().into()
    }

    /// The same, with an answer in JSON, which must succeed.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let ended = self.divvy(&[args, &["-o", "json"]].concat());
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
        serde_json::from_str(&ended.out).unwrap()
    }

    /// `divvy` with something on stdin.
    pub(crate) fn divvy_with(&self, args: &[&str], stdin: &[u8]) -> Ended {
        let mut child = self.spawn(self.command(args).stdin(Stdio::piped()));
        let mut pipe = child.stdin.take().unwrap();
        // A command that fails early reads nothing.
        let _unread = pipe.write_all(stdin);
        drop(pipe);
        child.wait_with_output().unwrap().into()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.binary(env!("CARGO_BIN_EXE_divvy"), args);
        if args.first() == Some(&"devices") && !args.contains(&"--config") {
            // What this machine has in its own directories is none of the node's.
            command.args(["--config", "hook.toml"]);
        }
        command
    }

    /// `divvy-node`, on this node.
    pub(crate) fn node(&self, args: &[&str]) -> Command {
        self.binary(env!("CARGO_BIN_EXE_divvy-node"), args)
    }

    pub(crate) fn spawn(&self, command: &mut Command) -> Child {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Every file that is there, and the partitions, for "nothing is left".
    pub(crate) fn left(&self) -> Vec<String> {
        let mut found = Vec::new();
        for dir in ["cdi", "run", "state"] {
            walk(&self.path(dir), &mut found);
        }
        // Lock files stay, and hold nothing.
        found.retain(|path| !path.contains("/locks/"));
        let devices = self.json(&["devices"]);
        for gpu in devices["node"]["gpus"].as_array().unwrap() {
            for partition in gpu["partitions"].as_array().unwrap() {
                found.push(partition["device"].to_string());
            }
            // A GPU in MIG mode has none.
            if gpu["mig"] == false && gpu["timeSlice"] != "Default" {
                found.push(format!("time slice {}", gpu["timeSlice"]));
            }
        }
        found
    }

    /// Every file below the three directories with its content.
    pub(crate) fn snapshot(&self) -> Vec<(String, Vec<u8>)> {
        let mut paths = Vec::new();
        for dir in ["cdi", "run", "state"] {
            walk(&self.path(dir), &mut paths);
        }
        // Lock files come and stay, and hold nothing.
        paths.retain(|path| !path.contains("/locks/"));
        let read = |path: String| match fs::read_link(&path) {
            Ok(target) => (path, target.into_os_string().into_encoded_bytes()),
            Err(_) => (path.clone(), fs::read(path).unwrap()),
        };
        paths.into_iter().map(read).collect()
    }

    fn binary(&self, binary: &str, args: &[&str]) -> Command {
        let mut command = Command::new(binary);
        command.current_dir(self.dir.path()).args(args).args(["--gpus", "sim:node.toml"]);
        for dir in ["cdi", "run", "state"] {
            command.arg(format!("--{dir}-dir")).arg(self.path(dir));
        }
        command
    }
}

fn walk(dir: &Path, found: &mut Vec<String>) {
    let Ok(listing) = fs::read_dir(dir) else { return };
    for entry in listing {
        let path = entry.unwrap().path();
        match fs::symlink_metadata(&path).unwrap().is_dir() {
            true => walk(&path, found),
            false => found.push(path.display().to_string()),
        }
    }
    found.sort();
}

// === impl Ended ===

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    /// It failed with this exit code and error code, and says this.
    #[track_caller]
    pub(crate) fn failed(&self, exit: i32, code: &str, says: &str) {
        assert_eq!(self.code, Some(exit), "{self:?}");
        assert!(self.err.starts_with(&format!("error[{code}]: ")), "{self:?}");
        assert!(self.err.contains(says), "{says:?} is not in {self:?}");
        assert_eq!(self.out, "");
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:?}");
        &self.out
    }
}

//! The Go process answers questions with the reference library: one JSON line each way.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::OnceLock,
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::model::{Answer, Ask};

/// A running reference program.
pub(crate) struct Go {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Its answer, as it says it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Reply {
    pub(crate) error: Option<String>,
    pub(crate) panic: Option<String>,
    pub(crate) hang: bool,
    pub(crate) spec: Value,
    pub(crate) minimum: String,
    pub(crate) unresolved: Vec<String>,
    pub(crate) config: Value,
    pub(crate) devices: Vec<String>,
    pub(crate) specs: Vec<String>,
    pub(crate) errors: std::collections::BTreeMap<String, Vec<String>>,
    pub(crate) text: String,
    pub(crate) data: String,
    pub(crate) mode: String,
    pub(crate) path: String,
}

/// Builds the program once. Go is installed where it is missing; a machine where that cannot be
/// done fails the test: a comparison that did not happen proves nothing.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let top = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = top.join("target/reference/reference");
        let mut build = Command::new(top.join("scripts/go.sh"));
        build.args(["build", "-o"]).arg(&program).arg(".");
        let status = build.current_dir(top.join("tests/reference/go")).status();
        let built = status.as_ref().is_ok_and(std::process::ExitStatus::success);
        assert!(built, "the Go reference could not be built (scripts/go.sh build): {status:?}");
        program
    })
}

// === impl Go ===

impl Go {
    pub(crate) fn start() -> Self {
        let mut command = Command::new(program());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, input, output }
    }

    /// Asks one question; the process is started anew when it did not survive it.
    pub(crate) fn ask(&mut self, request: &Value) -> Reply {
        let mut line = request.to_string();
        line.push('\n');
        let sent = self.input.write_all(line.as_bytes()).and_then(|()| self.input.flush());
        line.clear();
        let read = sent.and_then(|()| self.output.read_line(&mut line));
        if read.is_ok_and(|read| read > 0) {
            return serde_json::from_str(&line).expect("a reply");
        }
        *self = Self::start();
        Reply { panic: Some("the process ended".to_owned()), ..Reply::default() }
    }

    /// The config as the library's types see it.
    pub(crate) fn normalise(&mut self, config: &Value) -> Value {
        let reply = self.ask(&json!({"op": "normalise", "config": config}));
        assert!(reply.error.is_none(), "{:?}: {config}", reply.error);
        reply.config
    }

    /// The answer to a vector, its files laid out below `root`.
    pub(crate) fn answer(&mut self, ask: &Ask, root: &Path) -> Answer {
        match ask {
            Ask::Name(name) => {
                self.ask(&json!({"op": "name", "name": name})).answer(|reply| json!(reply.devices))
            }
            Ask::Key { plugin, device } => {
                let request = json!({"op": "annotation_key", "plugin": plugin, "name": device});
                self.ask(&request).answer(|reply| json!(reply.text))
            }
            Ask::Value(devices) => {
                let request = json!({"op": "annotation_value", "devices": devices});
                self.ask(&request).answer(|reply| json!(reply.text))
            }
            Ask::Annotations(annotations) => {
                let request = json!({"op": "annotations", "annotations": annotations});
                self.ask(&request).answer(|reply| json!(reply.devices))
            }
            Ask::Spec(document) => self.parse(&document.bytes()),
            Ask::List(tree) => self.list(&tree.directories(root)),
            Ask::Inject(inject) => {
                let dirs = inject.tree.directories(root);
                self.inject(&dirs, &inject.devices, &inject.config).answer(|reply| reply.config)
            }
            Ask::Write { name, spec } => {
                let dirs = [root.join("run")];
                let data = text(&spec.bytes());
                let request = json!({"op": "write", "dirs": dirs, "name": name, "data": data});
                let mut reply = self.ask(&request);
                let written: Vec<u8> =
                    reply.data.chars().filter_map(|c| u8::try_from(c).ok()).collect();
                let spec = self.parse(&written);
                reply.spec = serde_json::to_value(spec).expect("serialises");
                reply.answer(
                    |reply| json!({"path": reply.path, "mode": reply.mode, "spec": reply.spec}),
                )
            }
        }
    }

    /// What directories hold.
    pub(crate) fn list(&mut self, dirs: &[PathBuf]) -> Answer {
        self.ask(&json!({"op": "list", "dirs": dirs})).answer(|reply| {
            let rejected: Vec<_> = reply.errors.keys().collect();
            json!({"devices": reply.devices, "specs": reply.specs, "rejected": rejected})
        })
    }

    /// Reads and validates a document.
    pub(crate) fn parse(&mut self, bytes: &[u8]) -> Answer {
        self.ask(&json!({"op": "parse", "data": text(bytes)})).answer(|reply| reply.spec)
    }

    /// Injects devices from `dirs` into `config`.
    pub(crate) fn inject(&mut self, dirs: &[PathBuf], devices: &[String], config: &Value) -> Reply {
        self.ask(&json!({"op": "inject", "dirs": dirs, "devices": devices, "config": config}))
    }
}

impl Drop for Go {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

// === impl Reply ===

impl Reply {
    /// The reply as an answer, `accepted` taking what counts from a good one.
    pub(crate) fn answer(self, accepted: impl FnOnce(Self) -> Value) -> Answer {
        match self {
            Self { hang: true, .. } => Answer::Hangs,
            Self { panic: Some(cause), .. } => Answer::Panics(cause),
            Self { error: Some(cause), .. } => {
                assert!(!cause.starts_with("bad request"), "{cause}");
                Answer::Refuses(cause)
            }
            reply => Answer::Accepts(accepted(reply)),
        }
    }
}

/// Bytes as the protocol carries them.
fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

//! A host in a folder: configuration, run directory, CDI directory, bundle and a recording
//! low-level runtime.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use divvy_hook::record::{
    ClaimRecord, DeviceRef, Driver, Origin, PodRecord, RunDir, SpecRef, VERSION, boot_id, digest,
};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use serde_json::{Value, json};

/// The binary under test.
pub(crate) const HOOK: &str = env!("CARGO_BIN_EXE_divvy-hook");

/// The CDI name of the claim's device.
pub(crate) const DEVICE: &str = "gpu.divvy.dev/claim=u-1-gpu0";

/// Longer than any call takes; a hang ends here.
const DEADLINE: Duration = Duration::from_secs(20);

/// What the recording runtime saw.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) args: Vec<u8>,
    pub(crate) env: Vec<u8>,
    pub(crate) files: String,
    pub(crate) stdin: Vec<u8>,
    pub(crate) directory: String,
}

pub(crate) struct Host {
    _machine: Option<Machine>,
    temp: tempfile::TempDir,
}

/// `/etc` and `/run` of this thread, and of what it calls, are a host's, for as long as this is
/// there: under an installed name, or where the configuration says nothing for certain, the hook
/// reads and writes there.
struct Machine;

/// What a call gave.
pub(crate) struct Outcome {
    pub(crate) status: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

// === impl Host ===

impl Host {
    /// A host whose handler `divvy-runtime` is declared with `handler`, lines of TOML.
    pub(crate) fn new(handler: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        for dir in ["machine/etc/divvy", "machine/run"] {
            fs::create_dir_all(temp.path().join(dir)).unwrap();
        }
        // Nobody else could, or could write to the machine's.
        let root = rustix::process::geteuid().is_root();
        let _machine = root.then(|| Machine::enter(&temp.path().join("machine")));
        let host = Self { _machine, temp };
        for dir in ["bundle", "cdi", "run"] {
            fs::create_dir(host.path(dir)).unwrap();
        }
        host.script("runtime", "");
        host.write("config.toml", &host.settings(handler));
        host
    }

    pub(crate) fn settings(&self, handler: &str) -> String {
        let path = |name: &str| self.path(name).display().to_string();
        format!(
            "runtimes = [{:?}]\nspec_dirs = [{:?}]\nrun_dir = {:?}\n{handler}\n",
            path("runtime"),
            path("cdi"),
            path("run"),
        )
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        let file = fs::OpenOptions::new().write(true).create(true).truncate(true).open(&path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8(fs::read(self.path(name)).unwrap()).unwrap()
    }

    pub(crate) fn config(&self) -> Value {
        serde_json::from_str(&self.read("bundle/config.json")).unwrap()
    }

    /// A low-level runtime that records its call and runs `more`.
    pub(crate) fn script(&self, name: &str, more: &str) {
        let seen = self.path("seen");
        let _exists = fs::create_dir(&seen);
        let seen = seen.display();
        self.write(
            name,
            &format!(
                "#!/bin/sh\n\
                 for arg; do printf '%s\\0' \"$arg\"; done >{seen}/args\n\
                 cat /proc/$$/environ >{seen}/env\n\
                 for fd in 0 1 2 3 4 5 6 7 8 9; do\n\
                   [ -e /proc/$$/fd/$fd ] && echo $fd\n\
                 done >{seen}/files\n\
                 cat >{seen}/stdin\n\
                 pwd -P >{seen}/directory\n\
                 echo out; echo err >&2\n\
                 {more}\n\
                 exit 7\n"
            ),
        );
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What the recording runtime saw since the last time; none when it was not called.
    pub(crate) fn seen(&self) -> Option<Seen> {
        let read = |name: &str| fs::read(self.path("seen").join(name));
        let text = |name: &str| String::from_utf8(read(name).unwrap()).unwrap();
        let args = read("args").ok()?;
        let seen = Seen {
            args,
            env: read("env").unwrap(),
            files: text("files"),
            stdin: read("stdin").unwrap(),
            directory: text("directory"),
        };
        fs::remove_file(self.path("seen/args")).unwrap();
        Some(seen)
    }

    /// `divvy-hook --config …` with `args`, `stdin` and a small environment.
    pub(crate) fn hook<A: AsRef<OsStr>>(&self, args: &[A], stdin: &[u8]) -> Outcome {
        let mut command = Command::new(HOOK);
        command.arg("--config").arg(self.path("config.toml")).args(args);
        self.call(&mut command, stdin)
    }

    /// The shim as the handler `divvy-runtime`.
    pub(crate) fn shim(&self, line: &str) -> Outcome {
        let mut args = vec!["runtime".to_owned()];
        args.extend(line.split_whitespace().map(|word| self.word(word)));
        self.hook(&args, b"")
    }

    /// `@` stands for the host's folder.
    pub(crate) fn word(&self, word: &str) -> String {
        word.replace('@', self.temp.path().to_str().unwrap())
    }

    pub(crate) fn call(&self, command: &mut Command, stdin: &[u8]) -> Outcome {
        command.current_dir(self.path("run")).env_clear().env("PATH", "/usr/bin:/bin");
        command.env("NAMESPACE", "k8s.io");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let bytes = stdin.to_vec();
        let writer = std::thread::spawn(move || {
            let _closed_early = input.write_all(&bytes);
        });
        let id = child.id().to_string();
        let start = Instant::now();
        let waiter = std::thread::spawn(move || child.wait_with_output().unwrap());
        while !waiter.is_finished() {
            if start.elapsed() > DEADLINE {
                let _gone = Command::new("kill").arg(&id).status();
                panic!("{command:?} hangs");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let Output { status, stdout, stderr } = waiter.join().unwrap();
        writer.join().unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        Outcome { status: status.code().unwrap(), stdout, stderr }
    }

    pub(crate) fn run_dir(&self) -> RunDir {
        RunDir::new(self.path("run"))
    }

    /// A CDI spec in the CDI directory; returns its path and digest.
    pub(crate) fn spec(&self, name: &str, spec: &Value) -> (PathBuf, String) {
        let text = spec.to_string();
        self.write(&format!("cdi/{name}"), &text);
        (self.path("cdi").join(name), digest(text.as_bytes()))
    }

    /// The spec of the claim [`DEVICE`]: an environment variable and `/dev/null`.
    pub(crate) fn claim_spec(&self) -> (PathBuf, String) {
        self.spec("claim.json", &spec("gpu.divvy.dev/claim", "u-1-gpu0", "GPU=0"))
    }

    /// A pod with one container `main` that has [`DEVICE`].
    pub(crate) fn prepare_pod(&self, uid: &str) {
        let (path, digest) = self.claim_spec();
        let device = DeviceRef { name: DEVICE.into(), path, digest };
        let pod = PodRecord {
            version: VERSION,
            uid: uid.into(),
            namespace: "ml".into(),
            name: "train".into(),
            boot: boot_id().unwrap(),
            containers: BTreeMap::from([("main".into(), vec![device])]),
        };
        self.run_dir().write_pod(&pod).unwrap();
    }

    /// A claim `default/<name>` that has [`DEVICE`].
    pub(crate) fn prepare_claim(&self, origin: Origin, name: &str) {
        let (path, digest) = self.claim_spec();
        let claim = ClaimRecord {
            version: VERSION,
            origin,
            uid: "u-1".into(),
            namespace: "default".into(),
            name: name.into(),
            driver: Driver { name: "gpu.divvy.dev".into(), version: "0.1.0".into() },
            boot: boot_id().unwrap(),
            requests: BTreeMap::from([("gpu".into(), vec![DEVICE.into()])]),
            specs: BTreeMap::from([(DEVICE.into(), SpecRef { path, digest })]),
            consumers: Vec::new(),
            stamp: None,
        };
        self.run_dir().write_claim(&claim).unwrap();
    }

    /// `configs/<name>.json` as the bundle's config, changed by `change`.
    pub(crate) fn bundle(&self, name: &str, change: impl FnOnce(&mut Value)) -> String {
        let mut config = engine_config(name);
        change(&mut config);
        let text = config.to_string();
        self.write("bundle/config.json", &text);
        text
    }
}

// === impl Machine ===

impl Machine {
    fn enter(folder: &Path) -> Self {
        let mount = |from: &Path, at: &str, flags| {
            mount(Some(from), at, None::<&str>, flags, None::<&str>)
                .unwrap_or_else(|error| panic!("mounting on {at}, by CAP_SYS_ADMIN: {error}"));
        };
        unshare(CloneFlags::CLONE_NEWNS)
            .unwrap_or_else(|error| panic!("a mount namespace, by CAP_SYS_ADMIN: {error}"));
        mount("none".as_ref(), "/", MsFlags::MS_REC | MsFlags::MS_PRIVATE);
        for dir in ["etc", "run"] {
            mount(&folder.join(dir), &format!("/{dir}"), MsFlags::MS_BIND);
        }
        Self
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // What is mounted of a folder that is gone cannot be mounted on.
        for dir in ["/etc", "/run"] {
            let _ends_with_the_thread = umount2(dir, MntFlags::MNT_DETACH);
        }
    }
}

// === impl Outcome ===

impl Outcome {
    /// That it worked, and said nothing.
    pub(crate) fn succeeded(&self) {
        assert_eq!((self.status, self.stderr.as_str()), (0, ""));
    }

    /// The one line of the error, which both channels must have shown.
    pub(crate) fn error(&self, code: &str) -> &str {
        assert_eq!(self.status, 1, "{}", self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        let line = self.stderr.trim_end();
        assert!(line.starts_with(&format!("divvy: {code}: ")), "{line}");
        let parts: Vec<&str> = line.split(": ").filter(|part| part.len() > 15).collect();
        let twice = parts.iter().any(|part| line.matches(part).count() > 1);
        assert!(!twice, "said twice: {line}");
        let lower = line.to_lowercase();
        // podman takes a message with these for another failure.
        for phrase in [
            "permission denied",
            "operation not permitted",
            "no such file or directory",
            "executable file not found",
        ] {
            assert!(!lower.contains(phrase), "{line}");
        }
        line
    }
}

/// A spec with one device: `env`, and `/dev/null` as `/dev/divvy0`.
pub(crate) fn spec(kind: &str, device: &str, env: &str) -> Value {
    json!({
        "cdiVersion": "0.5.0",
        "kind": kind,
        "devices": [{
            "name": device,
            "containerEdits": {
                "env": [env],
                "deviceNodes": [{"path": "/dev/divvy0", "hostPath": "/dev/null"}],
            },
        }],
    })
}

/// A config as the engine writes it.
pub(crate) fn engine_config(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hook/configs");
    serde_json::from_slice(&fs::read(path.join(format!("{name}.json"))).unwrap()).unwrap()
}

pub(crate) fn annotate(config: &mut Value, key: &str, value: &str) {
    config["annotations"][key] = value.into();
}

/// True when the claim's edits are in the config, whole.
pub(crate) fn has_device(config: &Value) -> bool {
    let env = config["process"]["env"].as_array().unwrap().iter().any(|env| env == "GPU=0");
    let devices = config["linux"]["devices"].as_array();
    let node = devices.is_some_and(|all| all.iter().any(|node| node["path"] == "/dev/divvy0"));
    let rules = config["linux"]["resources"]["devices"].as_array();
    let rule = rules.is_some_and(|all| {
        all.iter().any(|rule| rule["allow"] == true && rule["major"] == 1 && rule["minor"] == 3)
    });
    assert!(env == node && env == rule, "half an edit: {config}");
    env
}

//! Rootless podman: an unprivileged user with claims, configuration and containers of their own.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::Test;
use crate::device::{self, LOOK, NOTHING, SEEN};
use crate::direct::{CRUN, RUNC, short};
use crate::fixture::{self, Fixture, IMAGE};
use crate::hook;
use crate::podman;
use crate::sandbox::{End, Output, Run, Sandbox, View};

/// Who runs containers.
const USER: User = User { name: "user", uid: 1000, ids: 100_000 };
/// Somebody else on the same host.
const OTHER: User = User { name: "other", uid: 1001, ids: 200_000 };

/// The simulated node, each user's own.
const NODE: &str = "sim:node/h100x2.toml";
/// Its claim's name, and what a container sees of it.
const CLAIM: &str = "whole-gpu";
const LOOK_AT_CLAIM: &str =
    r#"(exec 3<>/dev/nvidia0) 2>&1 && echo opened; echo "$NVIDIA_VISIBLE_DEVICES""#;
const CLAIM_SEEN: &str = "opened\nvoid\n";

/// A user of the sandbox, with the ids that `/etc/subuid` gives them.
struct User {
    name: &'static str,
    uid: u32,
    ids: u32,
}

/// A podman that a user has set up for themselves.
struct Rootless {
    sandbox: Sandbox,
    end: End,
    runtime: &'static str,
}

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for end in End::ALL {
        for view in View::ALL {
            for runtime in [RUNC, CRUN] {
                let mut add = |name: &str, test: fn(Rootless) -> Result<()>| {
                    let name = format!(
                        "rootless::{name}::{}::{}::{}",
                        end.name(),
                        short(runtime),
                        view.name()
                    );
                    let body = move |fixture: &Fixture| {
                        test(Rootless::start(fixture, end, view, runtime)?)
                    };
                    tests.push(Test::new(name, body).in_view(view, "devices"));
                };
                add("runtime", as_runtime);
                add("precreate", precreate);
                add("claim", claim);
            }
        }
    }
    tests
}

// === impl User ===

impl User {
    /// In a place that an overlay can be made in.
    fn home(&self) -> String {
        format!("/var/lib/home/{}", self.name)
    }

    fn runtime_dir(&self) -> String {
        format!("/run/user/{}", self.uid)
    }

    /// What a login would make.
    fn create(&self, sandbox: &mut Sandbox) -> Result<()> {
        let owner = format!("{0}:{0}", self.uid);
        for (dir, mode) in [(self.home(), "0755"), (self.runtime_dir(), "0700")] {
            sandbox.must(&["mkdir", "-p", &dir])?;
            sandbox.must(&["chown", &owner, &dir])?;
            sandbox.must(&["chmod", mode, &dir])?;
        }
        Ok(())
    }

    /// A command of this user's, as after a login.
    fn command(&self, argv: &[&str]) -> Run {
        let ids = [format!("--reuid={}", self.uid), format!("--regid={}", self.uid)];
        let user = ["setpriv", &ids[0], &ids[1], "--clear-groups"];
        Run::new(&[&user, argv].concat())
            .env("HOME", &self.home())
            .env("USER", self.name)
            .env("XDG_RUNTIME_DIR", &self.runtime_dir())
            .env("PODMAN_IGNORE_CGROUPSV1_WARNING", "1")
            .dir(self.home())
    }

    /// Writes a file of this user's.
    fn write(&self, sandbox: &mut Sandbox, path: &str, text: &str) -> Result<()> {
        let (owner, home) = (format!("{0}:{0}", self.uid), self.home());
        sandbox.write(&format!("{home}/{path}"), text)?;
        sandbox.must(&["chown", "-R", &owner, &home]).map(drop)
    }

    /// Prepares the claim of this user's own simulated node.
    fn prepare(&self, sandbox: &mut Sandbox) -> Result<Value> {
        for file in ["h100x2.toml", "claims/whole-gpu.yaml"] {
            let text = std::fs::read_to_string(fixture::example(file))?;
            self.write(sandbox, &format!("node/{file}"), &text)?;
        }
        let file = format!("node/claims/{CLAIM}.yaml");
        let argv = [fixture::DIVVY, "--gpus", NODE, "prepare", "-f", &file, "-o", "json"];
        let output = sandbox.finish(&self.command(&argv))?;
        ensure!(output.code == 0, "{output:?}");
        Ok(serde_json::from_str(&output.stdout)?)
    }
}

// === impl Rootless ===

impl Rootless {
    /// The hook is the administrator's; podman's configuration, the user's.
    fn start(fixture: &Fixture, end: End, view: View, runtime: &'static str) -> Result<Rootless> {
        let mut sandbox = Sandbox::start_for_users(fixture, end, view)?;
        device::provide(&sandbox)?;
        // Its hook writes where only root can.
        let mut spec = device::spec();
        spec["devices"][0]["containerEdits"]["hooks"] = json!([]);
        sandbox.write(device::SPEC, &spec.to_string())?;
        let keys = "annotations = true\nenvironment = [\"DEVICES\"]\n";
        let config = format!("runtimes = [{runtime:?}]\n");
        let config = ["divvy-podman", "precreate"].iter().fold(config, |config, name| {
            format!("{config}[handlers.{name}]\nengine = \"podman\"\n{keys}")
        });
        hook::install_as(&sandbox, fixture, &["divvy-podman"], &config)?;
        let (mut passwd, mut group, mut ids) = (String::new(), String::new(), String::new());
        for user in [&USER, &OTHER] {
            writeln!(passwd, "{0}:x:{1}:{1}::{2}:/bin/sh", user.name, user.uid, user.home())?;
            writeln!(group, "{}:x:{}:", user.name, user.uid)?;
            writeln!(ids, "{}:{}:65536", user.name, user.ids)?;
        }
        for (file, text) in [("passwd", passwd), ("group", group)] {
            let file = format!("/etc/{file}");
            sandbox.write(&file, &(sandbox.read(&file)? + &text))?;
        }
        sandbox.write("/etc/subuid", &ids)?;
        sandbox.write("/etc/subgid", &ids)?;
        for user in [&USER, &OTHER] {
            user.create(&mut sandbox)?;
        }
        USER.write(&mut sandbox, ".config/containers/containers.conf", &podman::settings(""))?;
        let ours = hook::documented("podman.conf")?;
        USER.write(&mut sandbox, ".config/containers/containers.conf.d/90-divvy.conf", &ours)?;
        let mut rootless = Rootless { sandbox, end, runtime };
        let archive = format!("/fixture/{}", fixture::archive(IMAGE));
        let output = rootless.user(&["podman", "load", "--quiet", "--input", &archive])?;
        ensure!(output.code == 0, "{output:?}");
        Ok(rootless)
    }

    fn user(&mut self, argv: &[&str]) -> Result<Output> {
        self.sandbox.finish(&USER.command(argv))
    }

    /// Runs a container, with podman's own options and those of `run`.
    fn run(&mut self, podman: &[&str], run: &[&str], script: &str) -> Result<Output> {
        let parts: [&[&str]; 5] = [
            &["podman"],
            podman,
            &["run", "--rm", "--pull=never"],
            run,
            &[IMAGE, "sh", "-c", script],
        ];
        self.user(&parts.concat())
    }

    fn shim(&mut self, run: &[&str], script: &str) -> Result<Output> {
        self.run(&["--runtime=divvy"], run, script)
    }

    /// A container with the claim.
    fn with_claim(&mut self) -> Result<Output> {
        self.shim(&[&format!("--annotation=divvy.dev/claim={CLAIM}")], LOOK_AT_CLAIM)
    }

    /// That a container with the claim does not start, for a reason with this code.
    fn claim_refused(&mut self, code: &str, about: &str) -> Result<()> {
        let output = self.with_claim()?;
        let said = output.stderr.contains(&format!("divvy: {code}: "));
        ensure!(output.code == 126 && said && output.stderr.contains(about), "{output:?}");
        Ok(())
    }
}

fn as_runtime(mut rootless: Rootless) -> Result<()> {
    let wanted = podman::asking(rootless.end, device::NAME);
    let missing = podman::asking(rootless.end, device::MISSING);
    let output = rootless.shim(&[&wanted], LOOK)?;
    ensure!(output.code == 0 && output.stdout == SEEN, "{output:?}");
    let output = rootless.shim(&[], NOTHING)?;
    ensure!(output.stdout == "untouched\n", "{output:?}");
    let output = rootless.shim(&[&missing], LOOK)?;
    podman::unresolved(&output)?;
    // The log is the user's too.
    let log = rootless.sandbox.read(&format!("{}/divvy/hook.log", USER.runtime_dir()))?;
    ensure!(log.contains("divvy: UNRESOLVED"), "{log}");
    ensure!(!rootless.sandbox.exists("/run/divvy"), "something is in root's run directory");
    Ok(())
}

/// podman gives such a hook no environment, so the user's hook says where the user's records are.
fn precreate(mut rootless: Rootless) -> Result<()> {
    let mut hook: Value = serde_json::from_str(&hook::documented("podman-precreate.json")?)?;
    hook["hook"]["env"] = json!([format!("XDG_RUNTIME_DIR={}", USER.runtime_dir())]);
    USER.write(&mut rootless.sandbox, "hooks.d/10-divvy.json", &hook.to_string())?;
    let hooks = format!("--hooks-dir={}/hooks.d", USER.home());
    let runtime = format!("--runtime={}", rootless.runtime);
    let wanted = podman::asking(rootless.end, device::NAME);
    let missing = podman::asking(rootless.end, device::MISSING);
    let output = rootless.run(&[&runtime, &hooks], &[&wanted], LOOK)?;
    ensure!(output.code == 0 && output.stdout == SEEN && output.stderr.is_empty(), "{output:?}");
    let output = rootless.run(&[&runtime, &hooks], &[], NOTHING)?;
    ensure!(output.stdout == "untouched\n" && output.stderr.is_empty(), "{output:?}");
    let output = rootless.run(&[&runtime, &hooks], &[&missing], LOOK)?;
    ensure!(output.code == 126 && output.stdout.is_empty(), "{output:?}");
    if rootless.runtime == RUNC {
        ensure!(output.stderr.contains("divvy: UNRESOLVED"), "{output:?}");
    }
    let log = rootless.sandbox.read(&format!("{}/divvy/hook.log", USER.runtime_dir()))?;
    ensure!(log.contains("divvy: UNRESOLVED"), "{log}");
    Ok(())
}

/// A claim that the user prepared, and what is nobody's but the user's.
fn claim(mut rootless: Rootless) -> Result<()> {
    // Another user's claim of that name is out of reach.
    OTHER.prepare(&mut rootless.sandbox)?;
    if rootless.end == End::Old {
        // Its annotations may be an image's.
        return rootless.claim_refused("REQUEST-REFUSED", "older than 4.6");
    }
    rootless.claim_refused("CLAIM-NOT-PREPARED", &USER.runtime_dir())?;

    let answer = USER.prepare(&mut rootless.sandbox)?;
    let output = rootless.with_claim()?;
    ensure!(output.code == 0 && output.stdout == CLAIM_SEEN, "{output:?}");

    // What the other user could have written is refused, whoever it says it is of: inside podman's user namespace that
    // owner shows as root's id does.
    let record = answer["claims"][0]["record"].as_str().unwrap_or_default().to_owned();
    rootless.sandbox.must(&["chown", "1001:1001", &record])?;
    rootless.claim_refused("UNTRUSTED", &record)?;
    rootless.sandbox.must(&["chown", "1000:1000", &record])?;
    rootless.sandbox.must(&["chmod", "0666", &record])?;
    rootless.claim_refused("UNTRUSTED", &record)?;
    rootless.sandbox.must(&["chmod", "0644", &record])?;
    let output = rootless.with_claim()?;
    ensure!(output.code == 0 && output.stdout == CLAIM_SEEN, "{output:?}");

    let argv = [fixture::DIVVY, "--gpus", NODE, "unprepare", CLAIM];
    let output = rootless.user(&argv)?;
    ensure!(output.code == 0, "{output:?}");
    ensure!(!rootless.sandbox.exists(&record), "{record} is left");
    rootless.claim_refused("CLAIM-NOT-PREPARED", &USER.runtime_dir())
}

//! The hook in front of runc and crun, called as an engine calls them.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::Test;
use crate::bundle;
use crate::device::{self, LOOK, NODE, NUMBER, PATH, SEEN};
use crate::fixture::Fixture;
use crate::hook;
use crate::sandbox::{End, Output, Run, Sandbox, View};

pub const RUNC: &str = "/usr/sbin/runc";
pub const CRUN: &str = "/usr/bin/crun";

/// The shim under test; it listens to annotations, as for a person's `runc run`.
const SHIM: &str = "divvy-runtime";
const BUNDLE: &str = "/tmp/bundle";

/// A sandbox with the shim in front of a low-level runtime.
pub struct Direct {
    sandbox: Sandbox,
    view: View,
    runtime: &'static str,
}

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for end in End::ALL {
        for view in View::ALL {
            for runtime in [RUNC, CRUN] {
                let mut add = |name: &str, test: fn(Direct) -> Result<()>| {
                    let short = short(runtime);
                    let name = format!("direct::{name}::{}::{short}::{}", end.name(), view.name());
                    let body =
                        move |fixture: &Fixture| test(Direct::start(fixture, end, view, runtime)?);
                    tests.push(Test::new(name, body).in_view(view, "devices"));
                };
                add("device_needs_rule", device_needs_rule);
                add("every_form_of_create_and_run", every_form_of_create_and_run);
                add("passes_everything_else_on", passes_everything_else_on);
                add("error", error);
                if View::with_controllers().is_ok_and(|native| native == view) {
                    add("hundred_times_the_same_bytes", hundred_times_the_same_bytes);
                }
                add("user_namespace", user_namespace);
                add("broken_configuration", broken_configuration);
                add("untrusted_files", untrusted_files);
                add("verify", verify);
            }
        }
    }
    tests
}

pub fn short(runtime: &str) -> &str {
    runtime.rsplit('/').next().unwrap_or_default()
}

// === impl Direct ===

impl Direct {
    fn start(fixture: &Fixture, end: End, view: View, runtime: &'static str) -> Result<Direct> {
        let sandbox = Sandbox::start(fixture, end, view)?;
        device::provide(&sandbox)?;
        let keys = format!("annotations = true\nruntime = {runtime:?}");
        hook::install(&sandbox, fixture, &[(SHIM, "ctr", &keys)])?;
        Ok(Direct { sandbox, view, runtime })
    }

    fn bundle(&mut self, config: &Value) -> Result<()> {
        bundle::write(&mut self.sandbox, BUNDLE, config)
    }

    fn config(&self) -> Result<String> {
        self.sandbox.read(&format!("{BUNDLE}/config.json"))
    }
}

/// A configuration that asks for a device by name.
fn asking(name: &str, script: &str) -> Value {
    let mut config = bundle::config(&["sh", "-c", script]);
    config["annotations"] = json!({"cdi.k8s.io/test": name});
    config
}

/// The control: neither a node nor a mount alone lets a container open a device.
fn device_needs_rule(mut direct: Direct) -> Result<()> {
    let (major, minor) = NUMBER;
    let cases = [
        ("mount-rule", false, true),
        ("mount", false, false),
        ("node-rule", true, true),
        ("node", true, false),
    ];
    for (case, node, rule) in cases {
        let mut config = bundle::opens(PATH);
        if node {
            let node = json!({"path": PATH, "type": "c", "major": major, "minor": minor, "fileMode": 0o666});
            bundle::push(&mut config, &["linux", "devices"], node);
        } else {
            let options = ["bind", "nosuid", "noexec"];
            let mount =
                json!({"destination": PATH, "source": NODE, "type": "bind", "options": options});
            bundle::push(&mut config, &["mounts"], mount);
        }
        if rule {
            let rule = json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm"});
            bundle::push(&mut config, &["linux", "resources", "devices"], rule);
        }
        direct.bundle(&config)?;
        let output = direct.sandbox.run(&[direct.runtime, "run", "--bundle", BUNDLE, case])?;
        let expected = if rule { "opened" } else { "Operation not permitted" };
        ensure!(output.stdout.contains(expected), "{case}: {output:?}");
    }
    Ok(())
}

/// However the bundle is named, and whatever the container is called.
fn every_form_of_create_and_run(mut direct: Direct) -> Result<()> {
    let shim = hook::path(SHIM);
    let long = format!("--bundle={BUNDLE}");
    let root = "--root=/run/another";
    let mut forms: Vec<Vec<&str>> = vec![
        vec!["run", "--bundle", BUNDLE, "c"],
        vec!["run", "-b", BUNDLE, "c"],
        vec!["run", &long, "c"],
        vec!["run", "c"],
        vec!["run", "-b", BUNDLE, "create"],
        vec!["run", "-b", BUNDLE, "run"],
        vec![root, "run", "-b", BUNDLE, "c"],
        vec![
            "--root",
            "/run/create",
            "--log",
            "/tmp/log",
            "--log-format",
            "json",
            "run",
            "-b",
            BUNDLE,
            "c",
        ],
    ];
    let short = format!("-b={BUNDLE}");
    if direct.runtime == RUNC {
        // Go's flags, as crun's are not.
        forms.push(vec!["run", &short, "c"]);
        forms.push(vec!["run", "-bundle", BUNDLE, "c"]);
    }
    for form in forms {
        direct.bundle(&asking(device::NAME, LOOK))?;
        let argv: Vec<&str> = [shim.as_str()].into_iter().chain(form).collect();
        let output = direct.sandbox.finish(&Run::new(&argv).dir(BUNDLE))?;
        ensure!(output.code == 0 && output.stdout == SEEN, "{argv:?}: {output:?}");
        device::hook_ran(&direct.sandbox)?;
    }
    direct.bundle(&asking(device::NAME, &format!("{{ {LOOK}; }} >/proc/1/root/out; sleep 60")))?;
    // A container called `create`, by `create` and `start`.
    direct.sandbox.must(&[
        &shim,
        "create",
        "--bundle",
        BUNDLE,
        "--pid-file",
        "/run/pid",
        "create",
    ])?;
    device::hook_ran(&direct.sandbox)?;
    let created = direct.config()?;
    ensure!(created.contains(PATH), "create did not edit: {created}");
    direct.sandbox.write(&format!("{BUNDLE}/config.json"), "{}")?;
    direct.sandbox.must(&[&shim, "start", "create"])?;
    ensure!(direct.config()? == "{}", "start edited");
    let out = format!("{BUNDLE}/rootfs/out");
    direct.sandbox.until("the container's output", &["busybox", "grep", "-q", "GPU=", &out])?;
    ensure!(direct.sandbox.read(&out)? == SEEN, "{}", direct.sandbox.read(&out)?);
    direct.sandbox.must(&[&shim, "delete", "--force", "create"])?;
    Ok(())
}

/// A command and its standard input.
type Step<'a> = (&'a [&'a str], &'a str);

const UPDATE: &str = r#"{"pids":{"limit":77}}"#;
const PROCESS: &str =
    r#"{"user":{"uid":0,"gid":0},"args":["sh","-c","cat; exit 9"],"env":["PATH=/bin"],"cwd":"/"}"#;

/// A container's life, and what goes wrong around it. Each is run with the low-level runtime alone, then through the shim.
const LIFE: [Step<'static>; 21] = [
    (&["--version"], ""),
    (&["features"], ""),
    (&["--help"], ""),
    (&[], ""),
    (&["no-such-command"], ""),
    (&["state", "c"], ""),
    (&["create", "--bundle", BUNDLE, "--pid-file", "/run/pid", "c"], ""),
    (&["create", "--bundle", BUNDLE, "c"], ""),
    (&["list", "-q"], ""),
    (&["start", "c"], ""),
    (&["exec", "c", "cat"], "some\ninput\n"),
    (&["exec", "c", "sh", "-c", "echo out; echo err >&2; exit 7"], ""),
    (&["exec", "--process", "/tmp/process.json", "c"], "more input"),
    (&["exec", "c", "no-such-program"], ""),
    (&["update", "--resources=-", "c"], UPDATE),
    (&["pause", "c"], ""),
    (&["resume", "c"], ""),
    (&["kill", "c", "KILL"], ""),
    (&["delete", "--force", "c"], ""),
    (&["kill", "c", "KILL"], ""),
    (&["delete", "c"], ""),
];

fn passes_everything_else_on(mut direct: Direct) -> Result<()> {
    direct.sandbox.write("/tmp/process.json", PROCESS)?;
    let shim = hook::path(SHIM);
    let runtime = direct.runtime;
    let mut config = bundle::config(&["sleep", "60"]);
    let limits = direct.view == View::V1 && View::V1.missing("pids")?.is_none();
    if limits {
        config["linux"]["resources"]["pids"] = json!({"limit": 99});
    }
    config["linux"]["cgroupsPath"] = "/c".into();
    let mut lives = Vec::new();
    for program in [runtime, shim.as_str()] {
        direct.bundle(&config)?;
        let before = direct.config()?;
        let mut life = Vec::new();
        for (arguments, input) in LIFE {
            let argv: Vec<&str> = [program].into_iter().chain(arguments.iter().copied()).collect();
            let output = direct.sandbox.finish(&Run::new(&argv).stdin(input))?;
            life.push((arguments, timeless(&output)));
            if arguments.first() == Some(&"update") && limits {
                let limit = direct.sandbox.must(&["cat", "/sys/fs/cgroup/pids/c/pids.max"])?;
                ensure!(limit == "77\n", "{program}: {output:?}: {limit}");
            }
        }
        ensure!(direct.config()? == before, "a request-free config was written");
        lives.push(life);
    }
    let [bare, shimmed] = lives.try_into().ok().context("two lives")?;
    for (bare, shimmed) in bare.iter().zip(&shimmed) {
        ensure!(bare == shimmed, "bare {bare:?}\nshim {shimmed:?}");
    }
    // The life was one: it was made once, and what ran in it ended as it wanted.
    let codes = |of: &str| -> Vec<i32> {
        let steps = bare.iter().filter(|(argv, _)| argv.first() == Some(&of));
        steps.map(|(_, output)| output.code).collect()
    };
    ensure!(codes("create") == [0, 1] && codes("start") == [0], "{:?}", codes("create"));
    ensure!(codes("exec").starts_with(&[0, 7, 9]), "{:?}", codes("exec"));
    Ok(())
}

/// Without the time that both runtimes put before their messages.
fn timeless(output: &Output) -> Output {
    let mut output = output.clone();
    let lines = output.stderr.lines().map(|line| match line.split_once(' ') {
        Some((time, rest)) if time.starts_with("time=") || time.starts_with("20") => rest,
        _ => line,
    });
    output.stderr = lines.map(|line| format!("{line}\n")).collect();
    output
}

/// In the log file where the engine asked for one, and on standard error.
fn error(mut direct: Direct) -> Result<()> {
    let shim = hook::path(SHIM);
    direct.bundle(&asking(device::MISSING, LOOK))?;
    let before = direct.config()?;
    let output = direct.sandbox.run(&[&shim, "create", "--bundle", BUNDLE, "c"])?;
    ensure!(output.code == 1 && output.stdout.is_empty(), "{output:?}");
    device::explained(output.stderr.trim_end())?;
    let argv = [&shim, "--log", "/tmp/log.json", "--log-format", "json", "run", "-b", BUNDLE, "c"];
    let output = direct.sandbox.run(&argv)?;
    ensure!(output.code == 1, "{output:?}");
    device::explained(output.stderr.trim_end())?;
    let log = direct.sandbox.read("/tmp/log.json")?;
    let entry: Value = serde_json::from_str(log.trim_end()).with_context(|| log.clone())?;
    ensure!(entry["level"] == "error" && entry["time"].is_string(), "{log}");
    device::explained(entry["msg"].as_str().unwrap_or_default())?;
    ensure!(direct.config()? == before, "half edited");
    let state = direct.sandbox.run(&[direct.runtime, "state", "c"])?;
    ensure!(state.code != 0, "there is a container: {state:?}");
    Ok(())
}

/// What was edited once is not edited again.
fn hundred_times_the_same_bytes(mut direct: Direct) -> Result<()> {
    let shim = hook::path(SHIM);
    direct.bundle(&asking(device::NAME, LOOK))?;
    let run = [&shim, "run", "--bundle", BUNDLE, "c"];
    direct.sandbox.must(&run)?;
    let edited = direct.config()?;
    ensure!(edited.contains(PATH) && !edited.contains("divvy"), "not edited, or marked: {edited}");
    for turn in 1..100 {
        let seen = direct.sandbox.must(&run)?;
        ensure!(
            seen == SEEN && direct.config()? == edited,
            "turn {turn}: {seen}\n{}",
            direct.config()?
        );
    }
    Ok(())
}

/// In a user namespace the host's node is mounted: nobody may make one there.
fn user_namespace(mut direct: Direct) -> Result<()> {
    let mut config = asking(device::NAME, LOOK);
    bundle::push(&mut config, &["linux", "namespaces"], json!({"type": "user"}));
    for key in ["uidMappings", "gidMappings"] {
        config["linux"][key] = json!([{"containerID": 0, "hostID": 0, "size": 65_536}]);
    }
    direct.bundle(&config)?;
    let shim = hook::path(SHIM);
    let seen = direct.sandbox.must(&[&shim, "run", "--bundle", BUNDLE, "c"])?;
    ensure!(seen == SEEN, "{seen}");
    Ok(())
}

/// It stops what needs it, and nothing else.
fn broken_configuration(mut direct: Direct) -> Result<()> {
    let shim = hook::path(SHIM);
    let run = [&shim, "run", "--bundle", BUNDLE, "c"];
    // Its own path as the runtime: it must not call itself for ever.
    direct.sandbox.write("/etc/divvy/config.toml", &format!("runtimes = [{shim:?}]\n"))?;
    direct.bundle(&bundle::config(&["echo", "alive"]))?;
    let output = direct.sandbox.run(&run)?;
    ensure!(output.code == 1 && output.stderr.starts_with("divvy: RUNTIME-LOOP"), "{output:?}");
    for broken in
        ["colour = 1\n", "handlers = 1\n", "\u{0}", "[handlers.divvy-runtime]\nengine = \"rkt\"\n"]
    {
        direct.sandbox.write("/etc/divvy/config.toml", broken)?;
        direct.bundle(&bundle::config(&["echo", "alive"]))?;
        ensure!(direct.sandbox.must(&run)? == "alive\n");
        direct.bundle(&asking(device::NAME, LOOK))?;
        let output = direct.sandbox.run(&run)?;
        let told = output.stderr.contains("CONFIG-INVALID: ")
            && output.stderr.contains("/etc/divvy/config.toml");
        ensure!(output.code == 1 && output.stdout.is_empty() && told, "{output:?}");
    }
    ensure!(direct.sandbox.read("/run/divvy/hook.log")?.contains("/etc/divvy/config.toml"));
    Ok(())
}

/// What others than root could have written is refused, and named.
fn untrusted_files(mut direct: Direct) -> Result<()> {
    let shim = hook::path(SHIM);
    for file in [device::SPEC, "/etc/cdi", "/etc/divvy/config.toml"] {
        for (spoil, mend) in [
            (["chmod", "o+w", file], ["chmod", "o-w", file]),
            (["chown", "1000", file], ["chown", "0", file]),
        ] {
            direct.sandbox.must(&spoil)?;
            direct.bundle(&asking(device::NAME, LOOK))?;
            let output = direct.sandbox.run(&[&shim, "run", "--bundle", BUNDLE, "c"])?;
            let told = output.stderr.contains("UNTRUSTED") && output.stderr.contains(file);
            ensure!(output.code == 1 && output.stdout.is_empty() && told, "{spoil:?}: {output:?}");
            direct.sandbox.must(&mend)?;
        }
    }
    Ok(())
}

/// The hook that says when nobody has edited the configuration.
fn verify(mut direct: Direct) -> Result<()> {
    let mut config = asking(device::NAME, LOOK);
    let ours = hook::path("divvy-hook");
    config["hooks"] =
        json!({"createRuntime": [{"path": ours, "args": ["divvy-hook", "verify", SHIM]}]});
    direct.bundle(&config)?;
    let output = direct.sandbox.run(&[direct.runtime, "run", "--bundle", BUNDLE, "c"])?;
    // crun does not show what a hook says.
    let told = direct.runtime == CRUN || output.stderr.contains("divvy: EDITS-MISSING");
    ensure!(output.code != 0 && output.stdout.is_empty() && told, "{output:?}");
    ensure!(direct.sandbox.read("/run/divvy/hook.log")?.contains("divvy: EDITS-MISSING"));
    let shim = hook::path(SHIM);
    ensure!(direct.sandbox.must(&[&shim, "run", "--bundle", BUNDLE, "c"])? == SEEN);
    Ok(())
}

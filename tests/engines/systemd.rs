//! The hook where systemd makes the cgroups: a systemd of our own, in a process namespace and below a cgroup of its own,
//! and podman as one of its services.

use anyhow::{Result, bail, ensure};
use divvy_fake_nvml::{FakeHost, Layout};

use crate::Test;
use crate::device::{self, LOOK, NOTHING, SEEN};
use crate::direct::{CRUN, RUNC, short};
use crate::driver::{self, HOST};
use crate::fixture::{self, Fixture, IMAGE};
use crate::hook;
use crate::podman;
use crate::sandbox::{End, Output, Sandbox, View};

const HANDLER: &str = "divvy-podman";

/// What `podman exec` sees, whose environment is podman's own.
const EXECUTED: &str = "opened\ndriver 1.0\nGPU=\n";

/// Becomes systemd as the first process of a process namespace, with `host` as the root of its cgroups: the group of the
/// sandbox has processes that it must not touch. It starts a message bus and nothing else: all that a real boot does to
/// the kernel would be done to this machine.
const BOOT: &str = r#"set -e
mkdir /sys/fs/cgroup/host
echo 0 > /sys/fs/cgroup/host/cgroup.procs
exec unshare --cgroup sh -c 'umount /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup &&
  container=engines exec /lib/systemd/systemd --unit=engines.target --log-target=console'"#;

/// Units in place of the distribution's, without their dependencies.
const UNITS: [(&str, &str); 3] = [
    ("engines.target", "[Unit]\nDefaultDependencies=no\nRequires=dbus.socket dbus.service\n"),
    (
        "dbus.socket",
        "[Unit]\nDefaultDependencies=no\n[Socket]\nListenStream=/run/dbus/system_bus_socket\n",
    ),
    (
        "dbus.service",
        "[Unit]\nDefaultDependencies=no\nRequires=dbus.socket\n[Service]\n\
         ExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile --systemd-activation\n",
    ),
];

/// A podman that has systemd make its containers' cgroups.
struct Host {
    sandbox: Sandbox,
    end: End,
    runtime: &'static str,
    /// Runs the words that follow beside systemd.
    enter: [String; 4],
}

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for end in End::ALL {
        for runtime in [RUNC, CRUN] {
            let name = format!("systemd::podman::{}::{}", end.name(), short(runtime));
            let body = move |fixture: &Fixture| podman(Host::start(fixture, end, runtime)?);
            // systemd 262 knows no other view.
            tests.push(Test::new(name, body).in_view(View::V2, ""));
        }
        let name = format!("systemd::unit::{}", end.name());
        let body = move |fixture: &Fixture| {
            let sandbox = Sandbox::start(fixture, end, View::V2)?;
            hook::install(&sandbox, fixture, &[])?;
            unit(Host::boot(sandbox, end, RUNC)?)
        };
        tests.push(Test::new(name, body).in_view(View::V2, ""));
    }
    tests
}

// === impl Host ===

impl Host {
    fn start(fixture: &Fixture, end: End, runtime: &'static str) -> Result<Host> {
        let sandbox = Sandbox::start(fixture, end, View::V2)?;
        device::provide(&sandbox)?;
        let keys =
            format!("runtime = {runtime:?}\nannotations = true\nenvironment = [\"DEVICES\"]\n");
        hook::install(&sandbox, fixture, &[(HANDLER, "podman", &keys)])?;
        let settings = podman::settings("").replace("\"cgroupfs\"", "\"systemd\"");
        sandbox.write("/etc/containers/containers.conf", &settings)?;
        let mut host = Host::boot(sandbox, end, runtime)?;
        let archive = format!("/fixture/{}", fixture::archive(IMAGE));
        let output = host.service(&["podman", "load", "--quiet", "--input", &archive])?;
        ensure!(output.code == 0, "{output:?}");
        Ok(host)
    }

    fn boot(mut sandbox: Sandbox, end: End, runtime: &'static str) -> Result<Host> {
        for (name, text) in UNITS {
            sandbox.write(&format!("/etc/systemd/system/{name}"), text)?;
        }
        for (file, line) in [
            ("/etc/passwd", "messagebus:x:100:100::/:/bin/false\n"),
            ("/etc/group", "messagebus:x:100:\n"),
        ] {
            sandbox.write(file, &(sandbox.read(file)? + line))?;
        }
        let boot = ["unshare", "--pid", "--fork", "--mount-proc", "--propagation=private"];
        let parent =
            sandbox.spawn(&[&boot, &["sh", "-c", BOOT][..]].concat(), "/tmp/systemd.log")?;
        let enter = format!(
            "exec nsenter --target $(cat /proc/{parent}/task/{parent}/children) --pid --mount --cgroup -- \"$@\""
        );
        let mut host =
            Host { sandbox, end, runtime, enter: ["sh".into(), "-c".into(), enter, "sh".into()] };
        let up = host.beside(&["systemctl", "is-active", "dbus.service"]);
        host.sandbox.until("systemd", &words(&up))?;
        Ok(host)
    }

    fn beside(&self, argv: &[&str]) -> Vec<String> {
        self.enter.iter().cloned().chain(argv.iter().map(ToString::to_string)).collect()
    }

    /// Runs a command of systemd's own.
    fn must(&mut self, argv: &[&str]) -> Result<String> {
        let argv = self.beside(argv);
        self.sandbox.must(&words(&argv))
    }

    /// Runs a command in a service. It is not told so: podman would leave conmon in that.
    fn service(&mut self, argv: &[&str]) -> Result<Output> {
        let run = ["systemd-run", "--quiet", "--wait", "--collect", "--pipe", "--"];
        let untold = ["env", "--unset=INVOCATION_ID"];
        let argv = self.beside(&[&run[..], &untold, argv].concat());
        self.sandbox.run(&words(&argv))
    }

    fn run(&mut self, options: &[&str], command: &[&str]) -> Result<Output> {
        let runtime = format!("--runtime={}", hook::path(HANDLER));
        let run = ["podman", &runtime, "run", "--pull=never"];
        self.service(&[&run, options, &[IMAGE], command].concat())
    }
}

/// The unit that we give people brings claims back after a boot, on reload, and after a crash.
fn unit(mut host: Host) -> Result<()> {
    const UNIT: &str = "divvy-node.service";
    /// What a boot begins without.
    const LOSE: [&str; 4] = ["rm", "-rf", "/run/divvy", "/run/cdi"];
    const THERE: [&str; 3] = ["sh", "-c", "ls -R /run/divvy/claims; ls /run/cdi"];
    for (name, program) in
        [("divvy", env!("CARGO_BIN_EXE_divvy")), ("divvy-node", env!("CARGO_BIN_EXE_divvy-node"))]
    {
        let program = std::fs::read(program)?;
        host.sandbox.write_mode(&format!("/usr/local/bin/{name}"), &program, 0o755)?;
    }
    let gpus = format!("nvml:{HOST}");
    FakeHost::make_as(Layout::Debian, &host.sandbox.path(HOST), &[("H100-80GB", false)])?;
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/deploy/systemd/divvy-node.service"
    ))?;
    host.sandbox.write(&format!("/etc/systemd/system/{UNIT}"), &text)?;
    // Other GPUs, and nothing of a real boot's.
    let node = format!(
        "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=\n\
         ExecStart=/usr/local/bin/divvy-node --gpus {gpus}\n"
    );
    host.sandbox.write(&format!("/etc/systemd/system/{UNIT}.d/test.conf"), &node)?;
    host.sandbox.write("/tmp/claim.yaml", driver::CLAIM)?;
    host.must(&["systemctl", "daemon-reload"])?;
    let prepare = ["/usr/local/bin/divvy", "prepare", "-f", "/tmp/claim.yaml", "--gpus", &gpus];
    host.must(&prepare)?;
    let there = host.must(&THERE)?;
    let is_back = |host: &mut Host, after: &str| -> Result<()> {
        let same = format!("[ \"$({})\" = \"$1\" ]", THERE[2]);
        let same = host.beside(&["sh", "-c", &same, "sh", there.trim_end()]);
        let Err(error) = host.sandbox.until(after, &words(&same)) else { return Ok(()) };
        let unit = host.beside(&["systemctl", "status", "--no-pager", UNIT]);
        bail!("{error:#}{:?}, wanted {there}", host.sandbox.run(&words(&unit))?)
    };
    host.must(&LOSE)?;
    host.must(&["systemctl", "start", UNIT])?;
    is_back(&mut host, "the claim after a boot")?;
    host.must(&LOSE)?;
    host.must(&["systemctl", "reload", UNIT])?;
    is_back(&mut host, "the claim after a reload")?;
    host.must(&LOSE)?;
    host.must(&["systemctl", "kill", "--signal=KILL", UNIT])?;
    is_back(&mut host, "the claim after a crash")?;
    host.must(&["systemctl", "stop", UNIT])?;
    let ended = host.must(&["systemctl", "show", "--property=Result,ActiveState", UNIT])?;
    ensure!(ended.contains("Result=success") && ended.contains("=inactive"), "{ended}");
    Ok(())
}

fn words(argv: &[String]) -> Vec<&str> {
    argv.iter().map(String::as_str).collect()
}

fn podman(mut host: Host) -> Result<()> {
    let wanted = podman::asking(host.end, device::NAME);
    let missing = podman::asking(host.end, device::MISSING);
    let output = host.run(&["--rm", &wanted], &["sh", "-c", LOOK])?;
    ensure!(output.code == 0 && output.stdout == SEEN, "{output:?}");
    let output = host.run(&["--rm"], &["sh", "-c", NOTHING])?;
    ensure!(output.stdout == "untouched\n", "{output:?}");
    podman::unresolved(&host.run(&["--rm", &missing], &["sh", "-c", LOOK])?)?;

    let output = host.run(&["--detach", "--name=c", &wanted], &["sleep", "1000"])?;
    ensure!(output.code == 0, "{output:?}");
    let scope = format!("libpod-{}.scope", output.stdout.trim_end());
    // The device's rule is the unit's, so systemd keeps it when it writes all rules anew. crun 1.8 leaves the unit without
    // any and guards the cgroup itself.
    let own = host.end == End::Old && host.runtime == CRUN;
    let rules = host.must(&["systemctl", "show", "--property=DeviceAllow", &scope])?;
    let (major, minor) = device::NUMBER;
    ensure!(own || rules.contains(&format!("/dev/char/{major}:{minor} ")), "{scope}: {rules}");
    for reload in [false, true] {
        if reload {
            host.must(&["systemctl", "daemon-reload"])?;
        }
        let output = host.service(&["podman", "exec", "c", "sh", "-c", LOOK])?;
        ensure!(output.stdout == EXECUTED, "reloaded: {reload}: {output:?}");
    }
    Ok(())
}

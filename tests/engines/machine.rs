//! Machines that lack something: what the scripts do on them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::Test;
use crate::bundle;
use crate::device;
use crate::direct::RUNC;
use crate::fixture::Fixture;
use crate::hook;
use crate::sandbox::{self, End, Sandbox, View};

/// This machine without a Go, as an overlay that ends with the mount namespace: what is installed here, is not. The
/// caches of the two runs are apart, and the second gets from the first what it would get from a proxy.
const WITHOUT_GO: &str = r#"set -e
mount -t tmpfs -o mode=755 tmpfs "$1"
mkdir "$1"/upper "$1"/work "$1"/root
mount -t overlay -o lowerdir=/,upperdir="$1"/upper,workdir="$1"/work overlay "$1"/root
for dir in proc sys dev; do mount --rbind /$dir "$1"/root/$dir; done
mount -t tmpfs -o mode=1777 tmpfs "$1"/root/tmp
mkdir "$1"/root/tmp/project
mount --bind -o ro "$2" "$1"/root/tmp/project
exec chroot "$1"/root env -i HOME="$HOME" PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c '
set -e
rm -rf /usr/local/go
dpkg-query -W -f "\${db:Status-Abbrev}\${Package}\n" "golang*" | sed -n "s/^ii *//p" | xargs -r dpkg --purge --force-depends >/dev/null
cd /tmp/project
! command -v go
export XDG_CACHE_HOME=/tmp/first
echo "none: $(./scripts/go.sh env GOVERSION)"
echo "old: $(go env GOVERSION)"
rm -f /usr/bin/apt-get
export GONOSUMDB=golang.org/toolchain GOPROXY=file:///tmp/first/divvy/go/pkg/mod/cache/download XDG_CACHE_HOME=/tmp/second
echo "too old: $(./scripts/go.sh env GOVERSION)"
mkdir /tmp/bound
cat >/tmp/bound/go <<END
#!/bin/sh
case "\$*" in "env GOVERSION") echo go1.22.5 ;; "env GOTOOLCHAIN") echo local ;; *) exit 1 ;; esac
END
chmod +x /tmp/bound/go
echo "bound: $(PATH=/tmp/bound:$PATH ./scripts/go.sh env GOVERSION)"
'"#;

/// What the fallback for machines without the musl target leaves, beside the hook of all other tests.
const OF_GLIBC: &str = "target/static-glibc";

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("machine::without_go", without_go),
        Test::new("machine::without_musl", without_musl).in_view(View::V1, "devices"),
    ]
}

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Debian's Go is too old, and fetches one that is not; one that may not fetch another is passed over.
fn without_go(_: &Fixture) -> Result<()> {
    let script = fs::read_to_string(project().join("scripts/go.sh"))?;
    let want = script.lines().find_map(|line| line.strip_prefix("want=")?.split(' ').next());
    let want = want.context("scripts/go.sh does not say which Go it wants")?;
    let dir = sandbox::folder()?;
    let output = Command::new("unshare")
        .args(["--mount", "--propagation=private", "sh", "-c", WITHOUT_GO, "sh"])
        .args([dir.path(), project()])
        .output()?;
    let (stdout, stderr) = said(&output);
    ensure!(output.status.success(), "{stdout}{stderr}");
    let of = |run: &str| stdout.lines().find_map(|line| line.strip_prefix(run)).unwrap_or_default();
    for run in ["none: ", "too old: ", "bound: "] {
        ensure!(of(run) == want, "{run}{stdout}{stderr}");
    }
    ensure!(of("old: ").starts_with("go1.1"), "{stdout}{stderr}");
    ensure!(stderr.matches("installing Debian's golang").count() == 1, "{stderr}");
    Ok(())
}

/// No rustup answers, so the hook is linked against glibc; it runs where no library is, and does what it should.
fn without_musl(fixture: &Fixture) -> Result<()> {
    let none = sandbox::folder()?;
    symlink("/bin/false", none.path().join("rustup"))?;
    let output = Command::new("sh")
        .args(["-c", "PATH=$1:$PATH exec \"$2\" \"$3\"", "sh"])
        .args([none.path(), &project().join("scripts/build-hook.sh"), Path::new(OF_GLIBC)])
        .output()?;
    let (_, stderr) = said(&output);
    ensure!(output.status.success(), "{stderr}");
    ensure!(stderr.contains("no musl target here, linking statically against glibc"), "{stderr}");
    let built = project().join(OF_GLIBC);
    // The bench reads it, and says so.
    let target = fs::read_to_string(built.join("target"))?;
    ensure!(target.trim_end().ends_with("-unknown-linux-gnu"), "{target}");

    let mut sandbox = Sandbox::start(fixture, End::Old, View::V1)?;
    device::provide(&sandbox)?;
    let keys = format!("runtime = {RUNC:?}\nannotations = true\n");
    hook::install(&sandbox, fixture, &[("divvy-ctr", "ctr", &keys)])?;
    sandbox.write_mode(&hook::path("divvy-hook"), &fs::read(built.join("divvy-hook"))?, 0o755)?;
    let mut config = bundle::opens(device::PATH);
    bundle::write(&mut sandbox, "/tmp/bundle", &config)?;
    let run = [&hook::path("divvy-ctr"), "run", "--bundle", "/tmp/bundle", "c"];
    for (name, opened) in [(device::NAME, true), (device::MISSING, false)] {
        config["annotations"] = json!({"cdi.k8s.io/test": name});
        sandbox.write("/tmp/bundle/config.json", &config.to_string())?;
        let output = sandbox.run(&run)?;
        ensure!(output.stdout.ends_with("opened\n") == opened, "{name}: {output:?}");
        ensure!(output.stderr.contains("divvy: UNRESOLVED") != opened, "{name}: {output:?}");
    }
    sandbox.must(&["cp", &hook::path("divvy-hook"), "/tmp/bundle/rootfs/bin/"])?;
    let version =
        sandbox.must(&["chroot", "/tmp/bundle/rootfs", "/bin/divvy-hook", "--version"])?;
    ensure!(version.starts_with("divvy-hook "), "{version}");
    Ok(())
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

//! `divvy-hook container` under runc and crun: a program of glibc that finds libraries by the cache alone.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::Test;
use crate::bundle;
use crate::direct::{CRUN, RUNC, short};
use crate::fixture::Fixture;
use crate::hook;
use crate::sandbox::{End, Sandbox, View};

const BUNDLE: &str = "/tmp/bundle";

/// Makes a root with glibc, a program, and what it needs in a folder where no loader looks by itself.
pub const PROVIDE: &str = r#"set -e
cd "$1" && mkdir -p lib64 opt/driver
libc=$(readlink -f /usr/lib/*-linux-gnu/libc.so.6)
mkdir -p "lib/$(basename "${libc%/*}")" && cp "$libc" "lib/$(basename "${libc%/*}")/libc.so.6"
for loader in /lib64/ld-linux-*.so.* /lib/ld-linux-*.so.*; do
  [ ! -e "$loader" ] || { mkdir -p "./${loader%/*}" && cp -L "$loader" "./$loader"; }
done
cp -L /usr/bin/id bin/probe
for name in libselinux libpcre2-8; do
  cp "$(readlink -f /usr/lib/*-linux-gnu/$name.so.?)" opt/driver/
done"#;

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for end in End::ALL {
        for view in View::ALL {
            for runtime in [RUNC, CRUN] {
                let name = format!(
                    "container::cache::{}::{}::{}",
                    end.name(),
                    short(runtime),
                    view.name()
                );
                let run = move |fixture: &Fixture| {
                    cache(Sandbox::start(fixture, end, view)?, fixture, runtime)
                };
                tests.push(Test::new(name, run).in_view(view, "devices"));
            }
        }
    }
    tests
}

fn cache(mut sandbox: Sandbox, fixture: &Fixture, runtime: &str) -> Result<()> {
    hook::install(&sandbox, fixture, &[])?;
    let mut config = bundle::config(&["/bin/probe", "--version"]);
    bundle::write(&mut sandbox, BUNDLE, &config)?;
    let root = format!("{BUNDLE}/rootfs");
    sandbox.must(&["bash", "-c", PROVIDE, "bash", &root])?;
    let run = [runtime, "run", "--bundle", BUNDLE, "c"];
    // The control: nothing else leads there.
    let output = sandbox.run(&run)?;
    ensure!(output.code != 0 && output.stderr.contains("libselinux.so.1"), "{output:?}");

    config["hooks"] = json!({"createContainer": [{
        "path": hook::path("divvy-hook"),
        "args": [
            "divvy-hook", "container", "--link", "libselinux.so.1::/opt/driver/libselinux.so", "--folder", "/opt/driver",
        ],
        "env": ["DIVVY_HOOK=container"],
    }]});
    sandbox.write(&format!("{BUNDLE}/config.json"), &serde_json::to_string(&config)?)?;
    let mut caches = Vec::new();
    for _ in 0..2 {
        let seen = sandbox.must(&run)?;
        ensure!(seen.contains("coreutils"), "{seen}");
        caches.push(std::fs::read(sandbox.path(&format!("{root}/etc/ld.so.cache")))?);
    }
    ensure!(caches.first() == caches.last(), "the cache grew as the container was started again");
    let link = std::fs::read_link(sandbox.path(&format!("{root}/opt/driver/libselinux.so")))?;
    ensure!(link.as_os_str() == "libselinux.so.1", "{link:?}");
    // A hook that fails is a container that does not start.
    sandbox.write(&format!("{root}/opt/driver/libselinux.so.2"), "a file")?;
    config["hooks"]["createContainer"][0]["args"][3] = "x::/opt/driver/libselinux.so.2".into();
    sandbox.write(&format!("{BUNDLE}/config.json"), &serde_json::to_string(&config)?)?;
    let output = sandbox.run(&run)?;
    ensure!(output.code != 0 && output.stdout.is_empty(), "{output:?}");
    ensure!(
        sandbox
            .read("/run/divvy/hook.log")?
            .contains("CONTAINER-LINK: /opt/driver/libselinux.so.2")
    );
    Ok(())
}

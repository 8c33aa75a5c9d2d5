//! runc and crun called as an engine calls them.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::Test;
use crate::bundle;
use crate::device::{NODE, NUMBER, PATH};
use crate::sandbox::{End, Sandbox, View};

pub const RUNTIMES: [&str; 2] = ["runc", "crun"];

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for end in End::ALL {
        for view in View::ALL {
            for runtime in RUNTIMES {
                let name =
                    |what: &str| format!("{what}::{}::{runtime}::{}", end.name(), view.name());
                tests.push(
                    Test::new(name("direct::device_needs_rule"), move |fixture| {
                        device_needs_rule(Sandbox::start(fixture, end, view)?, runtime)
                    })
                    .in_view(view),
                );
            }
        }
    }
    tests
}

/// The control: neither a node nor a mount alone lets a container open a device.
fn device_needs_rule(mut sandbox: Sandbox, runtime: &str) -> Result<()> {
    sandbox.device(NODE, NUMBER, 0o666)?;
    let (major, minor) = NUMBER;
    for (case, node, rule) in [
        ("mount-rule", false, true),
        ("mount", false, false),
        ("node-rule", true, true),
        ("node", true, false),
    ] {
        let mut config = bundle::opens(PATH);
        if node {
            let node = json!({"path": PATH, "type": "c", "major": major, "minor": minor, "fileMode": 0o666});
            bundle::push(&mut config, &["linux", "devices"], node);
        } else {
            let mount = json!({"destination": PATH, "source": NODE, "type": "bind", "options": ["bind", "nosuid", "noexec"]});
            bundle::push(&mut config, &["mounts"], mount);
        }
        if rule {
            let rule = json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm"});
            bundle::push(&mut config, &["linux", "resources", "devices"], rule);
        }
        let dir = format!("/tmp/{case}");
        bundle::write(&mut sandbox, &dir, &config)?;
        let output = sandbox.run(&[runtime, "run", "--bundle", &dir, case])?;
        let expected = if rule { "opened" } else { "Operation not permitted" };
        ensure!(output.stdout.contains(expected), "{case}: {output:?}");
    }
    Ok(())
}

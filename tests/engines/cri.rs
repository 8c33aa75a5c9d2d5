//! The hook under containerd's CRI.

use anyhow::ensure;

use crate::Test;
use crate::containerd::{Container, Containerd, Pod};
use crate::device::{self, LOOK, SEEN};
use crate::sandbox::End;

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for runtime in ["runc", "crun"] {
        tests.push(Test::new(format!("cri::native_cdi::new::{runtime}"), move |fixture| {
            let mut containerd =
                Containerd::start(fixture, End::New, &[("plain", &format!("/usr/bin/{runtime}"))])?;
            device::provide(&containerd.sandbox)?;
            let pod = Pod::new("native", "plain");
            let id = containerd.pod(&pod)?;
            let container = Container { cdi: &[device::NAME], ..Container::new("c", LOOK) };
            let ended = containerd.run(&pod, &id, &container)?;
            ensure!(ended.output == SEEN, "{ended:?}");
            Ok(())
        }));
    }
    tests
}

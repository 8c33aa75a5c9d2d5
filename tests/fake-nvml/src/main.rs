//! Makes a fake host: `fake-gpus DIR [LAYOUT] MODEL[:mig]…`.

use std::{io::Write, process::ExitCode};

use divvy_fake_nvml::{FakeHost, Layout};

fn main() -> ExitCode {
    if let Some(done) = divvy_fake_nvml::mps::act() {
        return done;
    }
    let mut args = std::env::args().skip(1);
    let Some(root) = args.next() else {
        return say("usage: fake-gpus DIR [LAYOUT] MODEL[:mig]…");
    };
    let mut models: Vec<String> = args.collect();
    let layout = models.first().and_then(|first| {
        let named = |layout: &Layout| format!("{layout:?}").eq_ignore_ascii_case(first);
        Layout::ALL.into_iter().find(named)
    });
    if layout.is_some() {
        models.remove(0);
    }
    let gpus = models.iter().map(|model| match model.strip_suffix(":mig") {
        Some(model) => (model, true),
        None => (model.as_str(), false),
    });
    let gpus: Vec<_> = gpus.collect();
    let made = FakeHost::make_as(layout.unwrap_or_default(), root.as_ref(), &gpus);
    match made.and_then(|host| host.install_mps()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => say(&error.to_string()),
    }
}

fn say(line: &str) -> ExitCode {
    let _nobody_listens = writeln!(std::io::stderr(), "{line}");
    ExitCode::FAILURE
}

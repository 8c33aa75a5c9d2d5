//! Makes a fake host: `fake-gpus DIR MODEL[:mig]…`.

use std::{io::Write, process::ExitCode};

use divvy_fake_nvml::FakeHost;

fn main() -> ExitCode {
    if let Some(done) = divvy_fake_nvml::mps::act() {
        return done;
    }
    let mut args = std::env::args().skip(1);
    let Some(root) = args.next() else { return say("usage: fake-gpus DIR MODEL[:mig]…") };
    let models: Vec<String> = args.collect();
    let gpus = models.iter().map(|model| match model.strip_suffix(":mig") {
        Some(model) => (model, true),
        None => (model.as_str(), false),
    });
    let made = FakeHost::make(root.as_ref(), &gpus.collect::<Vec<_>>());
    match made.and_then(|host| host.install_mps()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => say(&error.to_string()),
    }
}

fn say(line: &str) -> ExitCode {
    let _nobody_listens = writeln!(std::io::stderr(), "{line}");
    ExitCode::FAILURE
}

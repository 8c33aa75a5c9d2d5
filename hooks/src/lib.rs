//! What runs as each container is created, and what the node side shares with it.
//!
//! ```text
//! engine ─ shim ─▶ request (record · annotations · env) ─ inject ─▶ config.json ─▶ runc · crun
//! ```
//!
//! One binary with several faces, chosen by the name it is installed as or by its first argument:
//! [`shim`] in the place of an OCI runtime, [`precreate`] for podman, [`report`] and
//! [`verify`] as `createRuntime` hooks, [`container`] as the `createContainer` hook of a spec.
//! Nothing is requested most of the time, so that way is short: no parse, no write, and the low-level
//! runtime takes the process over.

pub mod alloc;
pub mod container;
pub mod error;
pub mod inject;
mod link;
pub mod log;
pub mod precreate;
pub mod record;
pub mod report;
pub mod request;
pub mod settings;
pub mod shim;
pub mod verify;

use std::{
    ffi::{OsStr, OsString},
    io,
    path::Path,
};

use inject::Process;

/// The name under which the first argument chooses the face.
const NAME: &str = "divvy-hook";

/// The handler of `divvy-hook runtime`, and of `verify` when none is named.
pub const HANDLER: &str = "divvy-runtime";

const HELP: &str = "\
Gives containers the devices they were allocated, as each container is created.

usage: divvy-hook [--config FILE] runtime RUNTIME-ARGUMENTS…
       divvy-hook [--config FILE] precreate < CONFIG > CONFIG
       divvy-hook [--config FILE] verify [HANDLER] < STATE
       divvy-hook container [--mount SOURCE::TARGET]… [--link TARGET::LINK]… [--folder DIR]… < STATE
       divvy-hook report FILE | --text TEXT
       divvy-hook --version | --help

runtime    stands in the place of runc or crun: edits the config of a container that is created,
           then becomes the low-level runtime. So does any other name it is installed as, for
           example divvy-runtime: the name is the handler that the configuration declares.
precreate  the filter that podman calls (oci-hooks stage precreate).
verify     a createRuntime hook: fails when the container lacks what it requests.
container  a createContainer hook: mounts files of the host in the container, makes links there,
           and tells its loader of the libraries in folders.
report     a createRuntime hook: says why precreate failed.

configuration: /etc/divvy/config.toml
exit: 0 ok · 1 failure, said on standard error · 2 usage";

/// Exit codes.
const OK: u8 = 0;
const FAILURE: u8 = 1;
const USAGE: u8 = 2;

/// Does what the command line says and returns the exit code. `args` is all of the line, the
/// program's name first.
pub fn run(process: Process, args: &[OsString]) -> u8 {
    let (name, args) = args.split_first().map_or((OsStr::new(NAME), args), |(name, args)| {
        let path = Path::new(name.as_os_str());
        (path.file_name().unwrap_or(OsStr::new(NAME)), args)
    });
    if name == NAME {
        face(process, args)
    } else {
        shim::run(&process, &name.to_string_lossy(), args);
        FAILURE
    }
}

fn face(mut process: Process, mut args: &[OsString]) -> u8 {
    if let [flag, path, rest @ ..] = args
        && flag == "--config"
    {
        process.settings = path.into();
        args = rest;
    }
    let Some((face, rest)) = args.split_first() else { return usage("what to do is missing") };
    let name = face.to_str().unwrap_or_default();
    if name == "runtime" {
        shim::run(&process, HANDLER, rest);
        return FAILURE;
    }
    if let Some(arg) = strange(name, rest) {
        return if arg == "--help" || arg == "-h" { say(HELP) } else { not_understood(arg) };
    }
    let outcome = |done: bool| if done { OK } else { FAILURE };
    match (name, rest) {
        ("precreate", []) => outcome(precreate::run(&process, io::stdin(), io::stdout())),
        ("verify", []) => outcome(verify::run(&process, HANDLER, io::stdin())),
        ("verify", [handler]) => {
            outcome(verify::run(&process, &handler.to_string_lossy(), io::stdin()))
        }
        ("container", rest) => match container::Edits::parse(rest) {
            Ok(edits) => outcome(container::run(&mut process, &edits, io::stdin())),
            Err(why) => usage(&why),
        },
        ("report", rest) => {
            report::run(&process, rest);
            FAILURE
        }
        ("--help" | "-h" | "help", _) => say(HELP),
        ("--version" | "-V", _) => say(concat!("divvy-hook ", env!("CARGO_PKG_VERSION"))),
        _ => not_understood(face),
    }
}

/// The argument that a face does not take.
fn strange<'a>(face: &str, args: &'a [OsString]) -> Option<&'a OsString> {
    let option = args.first().filter(|arg| arg.as_encoded_bytes().starts_with(b"-"));
    match face {
        "precreate" => args.first(),
        "verify" => option.or(args.get(1)),
        "report" => option.filter(|option| *option != "--text"),
        _ => None,
    }
}

fn say(text: &str) -> u8 {
    use io::Write as _;
    match writeln!(io::stdout(), "{text}") {
        Ok(()) => OK,
        Err(_) => FAILURE,
    }
}

fn not_understood(arg: &OsStr) -> u8 {
    usage(&format!("{} is not understood", arg.to_string_lossy()))
}

fn usage(why: &str) -> u8 {
    log::tell_person(&log::one_line(&format!("divvy-hook: {why}; see divvy-hook --help")));
    USAGE
}

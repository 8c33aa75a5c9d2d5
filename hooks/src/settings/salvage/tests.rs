use super::*;

#[test]
fn the_run_directory_of_a_broken_file_is_still_seen() {
    for (text, dir) in [
        ("run_dir  = \"/x/y\" # moved\n= [", Some("/x/y")),
        ("bogus = 1\n  run_dir='/x'", Some("/x")),
        ("#run_dir = '/x'", None),
        ("run_dir = 7\nrun_dirs = '/x'", None),
        ("run_dir = 'relative'", None),
        ("run_dir =", None),
        ("run_dir = \u{e4}", None),
        ("[other]\nrun_dir = '/x'", None),
    ] {
        assert_eq!(Salvage::of(text).run_dir, dir.map(PathBuf::from), "{text}");
    }
}

#[test]
fn a_handler_of_a_broken_file_still_requires_records() {
    for (text, required) in [
        ("[handlers.x]\nengine = 'cri'\nbogus = 1", true),
        ("= [\n[ handlers . \"x\" ] # pods\n  engine=\"crio\"", true),
        ("handlers.x.engine = 'cri'\nrun_dri = 'y'", true),
        ("[handlers.x]\nengine = 'cri'\nrequire_record = false # all pods", false),
        ("[handlers.x]\nengine = 'crii'\nrequire_record = true", true),
        ("[handlers.x]\nengine = 'crii'", false),
        ("[handlers.x]\nengine = 'podman'", false),
        ("[handlers.y]\nengine = 'cri'", false),
        ("#[handlers.x]\n#engine = 'cri'", false),
        ("", false),
    ] {
        assert_eq!(Salvage::of(text).requires_record("x"), required, "{text}");
    }
}

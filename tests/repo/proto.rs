//! The generated code of the kubelet's protocols: `make proto` writes it, and a test fails when it
//! is not what its .proto files say, so that a build needs no generator.

use std::{collections::BTreeMap, path::Path};

const PROTO: &str = "src/plugin/proto";

#[test]
fn generated_code_is_current() {
    for (name, code) in generated() {
        let path = Path::new(PROTO).join("generated").join(&name);
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == code, "{} is not what its .proto file says: `make proto`", path.display());
    }
}

#[test]
#[ignore = "writes the generated code anew: make proto"]
fn write_proto() {
    for (name, code) in generated() {
        let path = Path::new(PROTO).join("generated").join(name);
        let written = divvy_cdi::file::replace(
            &path,
            code.as_bytes(),
            0o644,
            divvy_cdi::file::Durability::Volatile,
        );
        written.expect("the generated code is written");
    }
}

/// The code of every package by its file name.
fn generated() -> BTreeMap<String, String> {
    let files = std::fs::read_dir(PROTO).expect("the folder of the .proto files");
    let mut protos: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    protos.retain(|path| path.extension().is_some_and(|extension| extension == "proto"));
    protos.sort();
    assert!(protos.len() >= 5, "{protos:?}");
    let mut code = BTreeMap::new();
    for proto in protos {
        let out = tempfile::tempdir().expect("a folder");
        let set = protox::compile([&proto], [PROTO]).expect("a .proto file");
        tonic_prost_build::configure()
            .build_client(cfg!(test))
            .btree_map(".")
            .out_dir(out.path())
            .compile_fds(set)
            .expect("its code");
        for file in std::fs::read_dir(out.path()).expect("the code") {
            let file = file.expect("a file");
            let text = std::fs::read_to_string(file.path()).expect("code");
            let name = proto.with_extension("rs");
            let name = name.file_name().expect("a name").to_str().expect("UTF-8");
            assert!(code.insert(name.to_owned(), text).is_none(), "{name}: two packages");
        }
    }
    code
}

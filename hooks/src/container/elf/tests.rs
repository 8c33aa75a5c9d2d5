use super::*;
use crate::container::tests::Bundle;

/// A shared object that says nothing but its name.
pub(in crate::container) fn library(soname: &str) -> Vec<u8> {
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    let mut put = |at: usize, size: usize, number: u64| {
        elf.resize(elf.len().max(at + size), 0);
        elf[at..at + size].copy_from_slice(&number.to_le_bytes()[..size]);
    };
    put(16, 2, 3);
    put(18, 2, if cfg!(target_arch = "aarch64") { 183 } else { 62 });
    put(32, 8, 64);
    put(56, 2, 2);
    // At 64: a segment of the whole file at an address of its own. At 120: the dynamic section.
    for (at, size, number) in [(64, 4, 1), (80, 8, 0x10_000), (96, 8, 4096)] {
        put(at, size, number);
    }
    for (at, size, number) in [(120, 4, 2), (128, 8, 176), (136, 8, 0x10_000 + 176), (152, 8, 48)] {
        put(at, size, number);
    }
    for (at, number) in [(176, 5), (184, 0x10_000 + 224), (192, 14), (200, 1), (208, 0)] {
        put(at, 8, number);
    }
    put(224, 1, 0);
    elf.extend_from_slice(soname.as_bytes());
    elf.push(0);
    elf
}

fn read(bytes: &[u8]) -> Option<Library> {
    let bundle = Bundle::new();
    bundle.write("rootfs/lib", bytes);
    let file = bundle.root().file(std::path::Path::new("/lib")).unwrap().unwrap();
    Library::read(&file)
}

#[test]
fn a_library_has_a_name_or_none() {
    let flags = if cfg!(target_arch = "aarch64") { 0x0a03 } else { 0x0303 };
    let named = |name: &str| Some(Library { flags, name: Some(name.into()) });
    assert_eq!(read(&library("libgpu.so.1")), named("libgpu.so.1"));
    let none = Some(Library { flags, name: None });
    assert_eq!(read(&library("")), none);
    assert_eq!(read(&library("../../x")), none);
    assert_eq!(read(&library(&"x".repeat(300))), none);
    for bad in [&b""[..], b"\x7fELF", b"/* GNU ld script */", &[0; 64]] {
        assert_eq!(read(bad), None);
    }
}

/// No byte of a file makes it panic or run on.
#[test]
fn any_byte_may_be_wrong() {
    let good = library("libgpu.so.1");
    let bundle = Bundle::new();
    let root = bundle.root();
    for at in 0..good.len() {
        for wrong in [0, 1, 0x7f, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = wrong;
            bundle.write("rootfs/lib", &bytes);
            let _any = Library::read(&root.file(std::path::Path::new("/lib")).unwrap().unwrap());
        }
        bundle.write("rootfs/lib", &good[..at]);
        let _any = Library::read(&root.file(std::path::Path::new("/lib")).unwrap().unwrap());
    }
}

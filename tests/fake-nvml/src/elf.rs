//! An ELF file that is a library and says nothing but its name: what a driver's files are looked at for.

/// Where it says that it is loaded.
const BASE: u64 = 0x10_000;

/// Its parts begin here: two program headers, the dynamic section, the names.
const HEADERS: u64 = 64;
const DYNAMIC: u64 = HEADERS + 2 * 56;
const NAMES: u64 = DYNAMIC + 3 * 16;

/// A library of this machine's architecture whose `DT_SONAME` is `soname`.
pub fn library(soname: &str) -> Vec<u8> {
    let machine = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let size = NAMES + 2 + soname.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let mut put = |numbers: &[(u64, usize)]| {
        for (number, bytes) in numbers {
            elf.extend(number.to_le_bytes().iter().take(*bytes));
        }
    };
    // Type, machine, version; entry, program headers, sections; flags, sizes and counts.
    put(&[(3, 2), (machine, 2), (1, 4), (0, 8), (HEADERS, 8), (0, 8), (0, 4)]);
    put(&[(64, 2), (56, 2), (2, 2), (0, 2), (0, 2), (0, 2)]);
    // All of it is loaded (PT_LOAD), and in it is the dynamic section (PT_DYNAMIC).
    for (kind, at, size) in [(1, 0, size), (2, DYNAMIC, NAMES - DYNAMIC)] {
        put(&[(kind, 4), (4, 4), (at, 8), (BASE + at, 8), (BASE + at, 8), (size, 8), (size, 8)]);
        put(&[(8, 8)]);
    }
    // DT_STRTAB, DT_SONAME, DT_NULL.
    put(&[(5, 8), (BASE + NAMES, 8), (14, 8), (1, 8), (0, 8), (0, 8)]);
    elf.push(0);
    elf.extend_from_slice(soname.as_bytes());
    elf.push(0);
    elf
}

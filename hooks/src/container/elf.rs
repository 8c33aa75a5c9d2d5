//! A library's name by which programs ask for it: the `DT_SONAME` of an ELF file, as far as the
//! driver's are: 64 bits, little endian. The file may be a container's, so nothing in it is believed.

use super::root::File;

/// The most program headers looked at; libraries have about ten.
const MAX_HEADERS: u16 = 64;

/// The most entries of a dynamic section, and bytes of a name.
const MAX_ENTRIES: u64 = 4096;
const MAX_NAME: usize = 256;

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SONAME: u64 = 14;

/// A library as the loader's cache has it.
#[derive(Debug, PartialEq, Eq)]
pub struct Library {
    /// What kind the cache says it is: of glibc 2, and the architecture (glibc's `ldconfig.h`).
    pub flags: u32,
    /// The name that it gives itself.
    pub name: Option<Vec<u8>>,
}

/// Part of a file in memory.
struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    size: u64,
}

// === impl Library ===

impl Library {
    /// The library in `file`; none when it holds none.
    pub fn read(file: &File) -> Option<Self> {
        let head = file.bytes(0, 64).ok()?;
        // Magic, 64 bits, little endian; a shared object.
        if !head.starts_with(b"\x7fELF\x02\x01") || number(&head, 16, 2)? != 3 {
            return None;
        }
        let flags = match number(&head, 18, 2)? {
            62 => 0x0303,
            183 => 0x0a03,
            _ => return None,
        };
        let segments = segments(file, &head)?;
        Some(Self { flags, name: name(file, &segments) })
    }
}

fn segments(file: &File, head: &[u8]) -> Option<Vec<Segment>> {
    let count = u16::try_from(number(head, 56, 2)?).ok()?.min(MAX_HEADERS);
    let table = file.bytes(number(head, 32, 8)?, usize::from(count) * 56).ok()?;
    let segment = |header: &[u8]| {
        Some(Segment {
            kind: number(header, 0, 4)?,
            offset: number(header, 8, 8)?,
            address: number(header, 16, 8)?,
            size: number(header, 32, 8)?,
        })
    };
    table.chunks_exact(56).map(segment).collect()
}

fn name(file: &File, segments: &[Segment]) -> Option<Vec<u8>> {
    let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
    let length = usize::try_from(dynamic.size.min(MAX_ENTRIES * 16)).ok()?;
    let entries = file.bytes(dynamic.offset, length).ok()?;
    let value = |tag| {
        let mut all = entries.chunks_exact(16);
        all.find(|entry| number(entry, 0, 8) == Some(tag)).and_then(|entry| number(entry, 8, 8))
    };
    let address = value(DT_STRTAB)?.checked_add(value(DT_SONAME)?)?;
    let holds = |segment: &&Segment| {
        let within = address.checked_sub(segment.address);
        segment.kind == PT_LOAD && within.is_some_and(|within| within < segment.size)
    };
    let segment = segments.iter().find(holds)?;
    let offset = (address - segment.address).checked_add(segment.offset)?;
    let mut name = file.bytes(offset, MAX_NAME).ok()?;
    let end = name.iter().position(|byte| *byte == 0)?;
    name.truncate(end);
    (!name.is_empty() && !name.contains(&b'/')).then_some(name)
}

/// The `size` bytes at `at`, little endian.
pub(super) fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
pub(super) mod tests;

//! The cache of glibc's dynamic loader, `/etc/ld.so.cache`: which file a library's name leads to.
//!
//! We add our libraries to the cache that the image has and keep all else in it. ldconfig would make
//! it anew from every folder of the image, which takes longer than all of a container's start, needs
//! a program that a host may not have, and namespaces to be safe from the image. What an image
//! without a cache finds by itself, it finds with ours too: the loader looks on in its own folders.
//!
//! ```text
//! header 48 │ entries, 24 each: flags key value … hwcap │ texts │ extension
//! ```
//! (glibc, `sysdeps/generic/dl-cache.h`.) Offsets count from the header. We put entries and texts
//! where they belong, so that all that follows moves by one distance.

use std::{
    cmp::Ordering,
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use rustix::{fs::Dir, io::Errno};

use super::{
    ContainerError,
    elf::{Library, number},
    root::{File, Root},
};

const CACHE: &str = "/etc/ld.so.cache";

/// What the loader is called where glibc is; musl has no cache.
const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];

/// The most bytes of a cache; that of a desktop has a fifth of a megabyte.
const MAX_CACHE: usize = 4 << 20;

/// The most bytes of a name or path in it.
const MAX_TEXT: usize = 4096;

/// The most libraries of a folder.
const MAX_LIBRARIES: usize = 4096;

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// The form before glibc 2.2, in front of the other one until glibc 2.32.
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0\0";
const HEADER: usize = 48;
const ENTRY: usize = 24;

/// A name of a library and where it leads.
#[derive(Debug)]
struct Found {
    flags: u32,
    name: Vec<u8>,
    path: PathBuf,
    /// The place of its folder among those asked for.
    folder: usize,
    /// What tells the file from any other.
    id: Option<(u64, u64)>,
    /// The cache leads there already.
    known: bool,
}

/// The cache of an image.
#[derive(Debug)]
struct Cache {
    bytes: Vec<u8>,
    /// How many entries it has.
    count: usize,
}

/// An entry of a cache.
struct Entry<'a> {
    flags: u32,
    name: &'a [u8],
    path: &'a [u8],
    raw: &'a [u8],
}

/// Adds the libraries of `folders` to the cache below `root`. Nothing is written when they are there,
/// or where there is no glibc.
///
/// # Errors
/// The system refused, and of what.
pub fn update(root: &Root, folders: &[PathBuf]) -> Result<(), ContainerError> {
    let old = read(root).map_err(|errno| failed(CACHE.as_ref(), errno))?;
    if folders.is_empty() || old.is_none() && !LOADERS.iter().any(|path| root.has(path.as_ref())) {
        return Ok(());
    }
    let old = old.and_then(Cache::parse).unwrap_or_else(Cache::empty);
    let mut found = Vec::new();
    for (place, folder) in folders.iter().enumerate() {
        add(root, (place, folder), &mut found).map_err(|errno| failed(folder, errno))?;
    }
    old.leave_out_known(root, &mut found);
    if !found.is_empty() {
        let new = old.with(&found);
        root.replace(Path::new("/etc"), "ld.so.cache", &new)
            .map_err(|errno| failed(CACHE.as_ref(), errno))?;
    }
    Ok(())
}

/// The names of libraries in the cache below `root`, each with the path that it leads to, in the
/// cache's order. None where there is no cache, or none that the loader would take.
///
/// # Errors
/// The system's answer.
pub fn libraries(root: &Root) -> Result<Vec<(Vec<u8>, PathBuf)>, Errno> {
    let cache = read(root)?.and_then(Cache::parse);
    let library =
        |entry: Entry<'_>| (entry.name.to_owned(), PathBuf::from(OsStr::from_bytes(entry.path)));
    Ok(cache.iter().flat_map(Cache::entries).map(library).collect())
}

#[inline(never)]
fn failed(path: &Path, errno: Errno) -> ContainerError {
    ContainerError::Cache { path: path.to_owned(), source: errno.into() }
}

/// The bytes of the cache; none where there is none, and no bytes where it cannot be one.
fn read(root: &Root) -> Result<Option<Vec<u8>>, Errno> {
    match root.file(Path::new(CACHE))? {
        None => Ok(None),
        Some(file) if file.size > MAX_CACHE => Ok(Some(Vec::new())),
        Some(file) => file.bytes(0, file.size).map(Some),
    }
}

/// Adds the libraries that `folder` has.
fn add(root: &Root, (place, folder): (usize, &Path), found: &mut Vec<Found>) -> Result<(), Errno> {
    let open = match root.folder(folder) {
        // Not there: then nothing is in it.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        open => open?,
    };
    let mut names = Vec::new();
    for entry in Dir::read_from(&open)?.take(MAX_LIBRARIES) {
        let name = entry?.file_name().to_bytes().to_vec();
        if name.starts_with(b"lib") && name.windows(3).any(|part| part == b".so") {
            names.push(name);
        }
    }
    for file_name in names {
        let file_name = OsStr::from_bytes(&file_name);
        let Some(file) = File::in_folder(&open, Path::new(file_name))? else { continue };
        let Some(Library { flags, name }) = Library::read(&file) else { continue };
        let name = name.unwrap_or_else(|| file_name.as_bytes().to_vec());
        let by_name = folder.join(OsStr::from_bytes(&name));
        let path = if root.has(&by_name) { by_name } else { folder.join(file_name) };
        Found { flags, name, path, folder: place, id: file.id(), known: false }.insert(found);
    }
    Ok(())
}

// === impl Found ===

impl Found {
    /// The order of a cache, from the highest name to the lowest.
    #[inline(never)]
    fn order(&self, name: &[u8], flags: u32) -> Ordering {
        compare(name, &self.name).then_with(|| (&*self.name, self.flags).cmp(&(name, flags)))
    }

    /// Inserts it in that order. Of one name the folder asked for first comes first, and of one folder
    /// there is but the highest version.
    fn insert(self, all: &mut Vec<Self>) {
        let at = all.partition_point(|other| other.order(&self.name, self.flags).is_le());
        match at.checked_sub(1).and_then(|before| all.get_mut(before)) {
            Some(before)
                if before.folder == self.folder && before.order(&self.name, self.flags).is_eq() =>
            {
                if compare(self.path.as_os_str().as_bytes(), before.path.as_os_str().as_bytes())
                    .is_gt()
                {
                    *before = self;
                }
            }
            _ => all.insert(at, self),
        }
    }
}

// === impl Cache ===

impl Cache {
    /// One without entries.
    fn empty() -> Self {
        let mut bytes = MAGIC.to_vec();
        bytes.resize(HEADER, 0);
        // Little endian (glibc 2.33 and later look).
        if let Some(flags) = bytes.get_mut(28) {
            *flags = 2;
        }
        Self { bytes, count: 0 }
    }

    /// None where the loader would not take it either.
    fn parse(mut bytes: Vec<u8>) -> Option<Self> {
        if bytes.starts_with(OLD_MAGIC) {
            let old = number32(&bytes, 12)?.checked_mul(12)?.checked_add(16)?;
            bytes =
                bytes.split_off(old.checked_next_multiple_of(8).filter(|at| *at <= bytes.len())?);
        }
        let count = number32(&bytes, 20)?;
        let entries = count.checked_mul(ENTRY)?.checked_add(HEADER)?;
        let big_endian = bytes.get(28).is_none_or(|flags| flags & 3 == 3 || flags & 3 == 1);
        let whole = bytes.starts_with(MAGIC) && entries <= bytes.len() && !big_endian;
        whole.then_some(Self { bytes, count })
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let all = self.bytes.get(HEADER..).unwrap_or_default().chunks_exact(ENTRY);
        let text = |raw, at| {
            let text = self.bytes.get(number32(raw, at)?..)?;
            text.get(..text.len().min(MAX_TEXT))?.split(|byte| *byte == 0).next()
        };
        all.take(self.count).map(move |raw| Entry {
            flags: u32::try_from(number32(raw, 0).unwrap_or(0)).unwrap_or(0),
            name: text(raw, 4).unwrap_or_default(),
            path: text(raw, 8).unwrap_or_default(),
            raw,
        })
    }

    /// Leaves those out of `found` that an entry leads to.
    fn leave_out_known(&self, root: &Root, found: &mut Vec<Found>) {
        for entry in self.entries() {
            let path = Path::new(OsStr::from_bytes(entry.path));
            let first = found.partition_point(|found| found.order(entry.name, entry.flags).is_lt());
            for found in found.iter_mut().skip(first) {
                if found.name != entry.name || found.flags != entry.flags {
                    break;
                }
                found.known |=
                    found.path == path || (found.id.is_some() && root.id(path) == found.id);
            }
        }
        found.retain(|found| !found.known);
    }

    /// The bytes of this cache with `found`, which is in the order of the cache: the loader searches
    /// it by halves, from the highest name to the lowest. Before others of its name comes ours.
    fn with(&self, found: &[Found]) -> Vec<u8> {
        let mut texts = Vec::new();
        let mut places = Vec::new();
        for Found { name, path, .. } in found {
            places.push(texts.len());
            texts.extend_from_slice(name);
            texts.push(0);
            texts.extend_from_slice(path.as_os_str().as_bytes());
            texts.push(0);
        }
        texts.resize(texts.len().next_multiple_of(8), 0);
        let by = found.len() * ENTRY + texts.len();
        let first = HEADER + (self.count + found.len()) * ENTRY;

        let mut new = self.bytes.get(..HEADER).unwrap_or_default().to_vec();
        let mut ours = found.iter().zip(places).peekable();
        for entry in self.entries() {
            while let Some(next) =
                ours.next_if(|(found, _)| compare(&found.name, entry.name) != Ordering::Less)
            {
                put(&mut new, first, next);
            }
            let at = new.len();
            new.extend_from_slice(entry.raw);
            shift(&mut new, at + 4, by);
            shift(&mut new, at + 8, by);
        }
        for next in ours {
            put(&mut new, first, next);
        }
        new.extend_from_slice(&texts);
        new.extend_from_slice(self.bytes.get(HEADER + self.count * ENTRY..).unwrap_or_default());
        shift(&mut new, 20, found.len());
        shift(&mut new, 24, texts.len());
        move_extension(&mut new, by);
        new
    }
}

/// Appends the entry of `found`, whose texts are at `place` behind the `first` one.
#[inline(never)]
fn put(new: &mut Vec<u8>, first: usize, (found, place): (&Found, usize)) {
    let name = first + place;
    for number in [found.flags as usize, name, name + found.name.len() + 1, 0, 0, 0] {
        new.extend_from_slice(&bits(number));
    }
}

/// Moves what the extension says by `by`: its own place, that of its sections, and in the section of
/// hardware names (tag 1) that of each name.
fn move_extension(new: &mut [u8], by: usize) {
    if number32(new, 32).is_none_or(|extension| extension == 0) {
        return;
    }
    shift(new, 32, by);
    let Some(extension) = number32(new, 32) else { return };
    let sections = number32(new, extension.saturating_add(4)).unwrap_or(0);
    // Two sections are known.
    for section in 0..sections.min(16) {
        let at = extension + 8 + section * 16;
        shift(new, at + 8, by);
        let (Some(1), Some(start), Some(size)) =
            (number32(new, at), number32(new, at + 8), number32(new, at + 12))
        else {
            continue;
        };
        for name in 0..(size / 4).min(new.len() / 4) {
            shift(new, start.saturating_add(name * 4), by);
        }
    }
}

/// The number at `at`, 32 bits.
#[inline(never)]
fn number32(bytes: &[u8], at: usize) -> Option<usize> {
    number(bytes, at, 4).and_then(|number| usize::try_from(number).ok())
}

/// Adds `by` to the number at `at`, if it is there.
#[inline(never)]
fn shift(bytes: &mut [u8], at: usize, by: usize) {
    let moved = number32(bytes, at).map(|number| bits(number + by));
    if let (Some(moved), Some(place)) = (moved, bytes.get_mut(at..at.saturating_add(4))) {
        place.copy_from_slice(&moved);
    }
}

/// A number as 32 bits. What does not fit was no number of a cache.
fn bits(number: usize) -> [u8; 4] {
    u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes()
}

/// The order of names in a cache: digits as numbers (glibc, `_dl_cache_libcmp`).
#[inline(never)]
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        match (a.split_first(), b.split_first()) {
            (Some((x, _)), Some((y, _))) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let order = take_number(&mut a).cmp(&take_number(&mut b));
                if order != Ordering::Equal {
                    return order;
                }
            }
            (Some((x, _)), _) if x.is_ascii_digit() => return Ordering::Greater,
            (_, Some((y, _))) if y.is_ascii_digit() => return Ordering::Less,
            (Some((x, rest)), Some((y, other))) if x == y => (a, b) = (rest, other),
            // C's char has a sign here.
            (x, y) => {
                let signed =
                    |byte: Option<(&u8, _)>| byte.map_or(0, |(byte, _)| byte.cast_signed());
                return signed(x.map(|(byte, _)| (byte, ()))).cmp(&signed(y.map(|(b, _)| (b, ()))));
            }
        }
    }
}

/// The number at the beginning of `text`, taken off it; it wraps as C's does.
fn take_number(text: &mut &[u8]) -> i32 {
    let mut number = 0_i32;
    while let Some((digit, rest)) = text.split_first()
        && digit.is_ascii_digit()
    {
        number = number.wrapping_mul(10).wrapping_add(i32::from(digit - b'0'));
        *text = rest;
    }
    number
}

#[cfg(test)]
pub(super) mod tests;

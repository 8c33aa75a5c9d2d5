//! HPACK (RFC 7541) is how HTTP/2 packs header fields: read here as whoever receives them does, with a
//! table of what came before, and written again without one.

use std::{borrow::Cow, collections::VecDeque};

use super::{Malformed, huffman};

/// Reads the header blocks of one connection, in their order.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The dynamic table, newest first.
    fields: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// What it takes, as RFC 7541 section 4.1 counts.
    size: usize,
    /// What it may take, where the sender chose less than it may.
    limit: Option<usize>,
}

/// What is left of a block.
struct Rest<'a>(&'a [u8]);

/// What a table may take unless the receiver says otherwise, which ours never does
/// (SETTINGS_HEADER_TABLE_SIZE).
const MAX_TABLE: usize = 4096;

/// What a field takes besides its bytes.
pub(super) const OVERHEAD: usize = 32;

/// How many bytes an integer may have behind its first: none that we could use needs more.
const MAX_INTEGER_BYTES: u32 = 4;

// === impl Decoder ===

impl Decoder {
    /// Hands every field of a block to `take`, which may refuse.
    pub(super) fn decode(
        &mut self,
        block: &[u8],
        mut take: impl FnMut(&[u8], &[u8]) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let mut rest = Rest(block);
        let mut begun = false;
        while let Some(first) = rest.byte() {
            if first & 0b1110_0000 == 0b0010_0000 {
                // Section 4.2: a change of size stands at the beginning.
                let limit = rest.integer(first, 5)?;
                if begun || limit > MAX_TABLE {
                    return Err(Malformed("a table size that is not allowed"));
                }
                self.limit = Some(limit);
                self.evict();
                continue;
            }
            begun = true;
            if first & 0b1000_0000 != 0 {
                let index = rest.integer(first, 7)?;
                let (name, value) = self.field(index)?;
                take(name, value)?;
                continue;
            }
            let indexed = first & 0b0100_0000 != 0;
            let index = rest.integer(first, if indexed { 6 } else { 4 })?;
            let name = match index {
                0 => rest.string()?,
                index => Cow::Owned(self.field(index)?.0.to_vec()),
            };
            let value = rest.string()?;
            take(&name, &value)?;
            if indexed {
                self.add(name.into_owned(), value.into_owned());
            }
        }
        Ok(())
    }

    fn field(&self, index: usize) -> Result<(&[u8], &[u8]), Malformed> {
        let known = index.checked_sub(1).and_then(|index| match STATIC.get(index) {
            Some((name, value)) => Some((*name, *value)),
            None => {
                let (name, value) = self.fields.get(index - STATIC.len())?;
                Some((name.as_slice(), value.as_slice()))
            }
        });
        known.ok_or(Malformed("a field that is in no table"))
    }

    fn add(&mut self, name: Vec<u8>, value: Vec<u8>) {
        self.size += cost(&name, &value);
        self.fields.push_front((name, value));
        // One that is larger than the table empties it, and is no error (section 4.4).
        self.evict();
    }

    fn evict(&mut self) {
        while self.size > self.limit.unwrap_or(MAX_TABLE) {
            let Some((name, value)) = self.fields.pop_back() else { return };
            self.size -= cost(&name, &value);
        }
    }
}

fn cost(name: &[u8], value: &[u8]) -> usize {
    name.len() + value.len() + OVERHEAD
}

// === impl Rest ===

impl<'a> Rest<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// An integer that begins in the last `bits` of its first byte.
    fn integer(&mut self, first: u8, bits: u32) -> Result<usize, Malformed> {
        let mask = (1_usize << bits) - 1;
        let mut value = usize::from(first) & mask;
        if value < mask {
            return Ok(value);
        }
        for shift in (0..MAX_INTEGER_BYTES).map(|byte| byte * 7) {
            let byte = self.byte().ok_or(SHORT)?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed("an integer without end"))
    }

    fn string(&mut self) -> Result<Cow<'a, [u8]>, Malformed> {
        let first = self.byte().ok_or(SHORT)?;
        let length = self.integer(first, 7)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(SHORT)?;
        self.0 = rest;
        match first & 0x80 {
            0 => Ok(Cow::Borrowed(bytes)),
            _ => huffman::decode(bytes).map(Cow::Owned),
        }
    }
}

const SHORT: Malformed = Malformed("a header block that ends early");

/// Writes a field so that no table has it.
pub(super) fn encode(name: &[u8], value: &[u8], block: &mut Vec<u8>) {
    block.push(0);
    for text in [name, value] {
        length(text.len(), block);
        block.extend_from_slice(text);
    }
}

/// The length of a text that is written as it is.
fn length(mut length: usize, block: &mut Vec<u8>) {
    const FULL: u8 = 0x7f;
    let low = |length: usize| u8::try_from(length & 0x7f).unwrap_or(FULL);
    match length.checked_sub(usize::from(FULL)) {
        None => return block.push(low(length)),
        Some(more) => {
            block.push(FULL);
            length = more;
        }
    }
    while length > usize::from(FULL) {
        block.push(low(length) | 0x80);
        length >>= 7;
    }
    block.push(low(length));
}

/// The fields that every connection knows (RFC 7541 appendix A).
const STATIC: &[(&[u8], &[u8])] = &[
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

//! The Huffman code of HPACK is a canonical one: how many codes there are of each length, and the bytes in
//! the order of their codes, are all of it.

use super::Malformed;

/// How many codes are that long (RFC 7541 appendix B). The last of 30 bits is the end, which no text has.
const COUNTS: [u32; 31] = [
    0, 0, 0, 0, 0, 10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19,
    29, 0, 4,
];

/// The bytes by their codes.
#[rustfmt::skip]
const BYTES: [u8; 256] = [
    48, 49, 50, 97, 99, 101, 105, 111, 115, 116, 32, 37, 45, 46, 47, 51,
    52, 53, 54, 55, 56, 57, 61, 65, 95, 98, 100, 102, 103, 104, 108, 109,
    110, 112, 114, 117, 58, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76,
    77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 89, 106, 107, 113, 118,
    119, 120, 121, 122, 38, 42, 44, 59, 88, 90, 33, 34, 40, 41, 63, 39,
    43, 124, 35, 62, 0, 36, 64, 91, 93, 126, 94, 125, 60, 96, 123, 92,
    195, 208, 128, 130, 131, 162, 184, 194, 224, 226, 153, 161, 167, 172, 176, 177,
    179, 209, 216, 217, 227, 229, 230, 129, 132, 133, 134, 136, 146, 154, 156, 160,
    163, 164, 169, 170, 173, 178, 181, 185, 186, 187, 189, 190, 196, 198, 228, 232,
    233, 1, 135, 137, 138, 139, 140, 141, 143, 147, 149, 150, 151, 152, 155, 157,
    158, 165, 166, 168, 174, 175, 180, 182, 183, 188, 191, 197, 231, 239, 9, 142,
    144, 145, 148, 159, 171, 206, 215, 225, 236, 237, 199, 207, 234, 235, 192, 193,
    200, 201, 202, 205, 210, 213, 218, 219, 238, 240, 242, 243, 255, 203, 204, 211,
    212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251, 252, 253, 254,
    2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20,
    21, 23, 24, 25, 26, 27, 28, 29, 30, 31, 127, 220, 249, 10, 13, 22,
];

/// What a text says.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut decoded = Vec::with_capacity(text.len() * 2);
    let mut code = Code::default();
    for byte in text {
        for bit in (0..8).rev() {
            if let Some(place) = code.push(u32::from(byte >> bit) & 1)? {
                let byte = BYTES.get(place).ok_or(Malformed("the end within a text"))?;
                decoded.push(*byte);
                code = Code::default();
            }
        }
    }
    // Section 5.2: the last byte is filled up with the beginning of the end.
    match code.length < 8 && code.bits + 1 == 1 << code.length {
        true => Ok(decoded),
        false => Err(Malformed("a text that is filled up with something else")),
    }
}

/// The beginning of a code.
#[derive(Debug, Default)]
struct Code {
    bits: u32,
    length: usize,
    /// The first code of that length.
    first: u32,
    /// How many codes are shorter.
    shorter: u32,
}

// === impl Code ===

impl Code {
    /// Its place among all codes, once it is one.
    fn push(&mut self, bit: u32) -> Result<Option<usize>, Malformed> {
        let shorter = COUNTS.get(self.length).copied().unwrap_or_default();
        self.first = (self.first + shorter) << 1;
        self.shorter += shorter;
        self.bits = self.bits << 1 | bit;
        self.length += 1;
        let count = *COUNTS.get(self.length).ok_or(Malformed("a text in no known code"))?;
        let place = self.bits - self.first;
        Ok((place < count).then(|| usize::try_from(self.shorter + place).unwrap_or(usize::MAX)))
    }
}

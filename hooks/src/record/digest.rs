//! A digest is the SHA-256 of a spec file, as the records carry it.

use sha2::{Digest as _, Sha256};

const HEX: [char; 16] =
    ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];

/// `sha256:<64 hex digits>` of `bytes`.
pub fn digest(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(71);
    text.push_str("sha256:");
    for byte in Sha256::digest(bytes) {
        for nibble in [byte >> 4, byte & 15] {
            text.extend(HEX.get(usize::from(nibble)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn is_the_published_one() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(super::digest(b""), empty);
        assert_eq!(super::digest(b"abc"), abc);
    }
}

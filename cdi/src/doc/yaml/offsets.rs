//! Offsets turn the parser's places, counted in characters, into bytes of the file.

use saphyr_parser::Marker;

/// Byte offsets of the parser's character indexes.
pub(super) struct Offsets<'a> {
    pub(super) text: &'a str,
    /// Bytes before `text` in the file.
    shift: usize,
    /// The offset of each [`Self::STRIDE`]th character; empty when all are one byte.
    marks: Vec<usize>,
}

// === impl Offsets ===

impl<'a> Offsets<'a> {
    const STRIDE: usize = 256;

    pub(super) fn new(text: &'a str, shift: usize) -> Self {
        let marks = if text.is_ascii() {
            Vec::new()
        } else {
            text.char_indices().step_by(Self::STRIDE).map(|(at, _)| at).collect()
        };
        Self { text, shift, marks }
    }

    pub(super) fn is_end(&self, mark: &Marker) -> bool {
        self.byte(mark) as usize == self.text.len() + self.shift
    }

    pub(super) fn byte(&self, mark: &Marker) -> u32 {
        let at = if self.marks.is_empty() {
            mark.index()
        } else {
            let start = self.marks.get(mark.index() / Self::STRIDE);
            let start = start.copied().unwrap_or(self.text.len());
            let mut after = self.text.get(start..).unwrap_or_default().char_indices();
            let within = after.nth(mark.index() % Self::STRIDE);
            within.map_or(self.text.len(), |(at, _)| start + at)
        };
        u32::try_from(at.min(self.text.len()) + self.shift).unwrap_or(u32::MAX)
    }
}

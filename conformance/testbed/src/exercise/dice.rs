//! Numbers that look random and are the same for the same seed.

use std::ops::Range;

#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        // Odd, and so never zero: zero stays zero.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number in a range that is not empty.
    pub(super) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + (self.next() >> 11) % (range.end - range.start)
    }

    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let last = u64::try_from(of.len()).ok().filter(|length| *length > 0)?;
        of.get(usize::try_from(self.within(0..last)).ok()?)
    }
}

/// The bytes of a seed. They have no long run of zeros, which would look like a hole.
pub(super) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut dice = Dice::new(seed);
    let mut bytes = vec![0; length];
    for word in bytes.chunks_mut(8) {
        word.copy_from_slice(&dice.next().to_le_bytes()[..word.len()]);
    }
    bytes
}

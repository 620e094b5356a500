//! A hash of bytes and numbers that is the same on every machine and in every release.
//!
//! Source: as [`crate::seed`], the finaliser of splitmix64 chained over the words.

use crate::seed::mix;

pub struct Fingerprint(u64);

impl Fingerprint {
    pub fn new() -> Self {
        Self(mix(0x746F_6B65_6E73))
    }

    pub fn number(&mut self, number: u64) {
        self.0 = mix(self.0 ^ mix(number));
    }

    /// Adds the bytes and their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
    }

    pub fn finish(self) -> u64 {
        self.0
    }
}

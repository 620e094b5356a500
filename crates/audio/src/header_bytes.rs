//! The bytes that a parser of heads looks at, of a file in memory or of pieces that were read. Source: own.

/// Bytes of a file that a parser of heads looks at: all of them, or pieces.
pub(crate) trait HeaderBytes<'a> {
    /// Bytes of the file.
    fn size(&self) -> u64;

    /// `n` bytes from `at` on; None past the end of the file.
    fn get(&self, at: u64, n: u64) -> Option<&'a [u8]>;

    /// Up to `n` bytes from `at` on: fewer where the file ends.
    fn get_up_to(&self, at: u64, n: u64) -> &'a [u8] {
        self.get(at, n.min(self.size().saturating_sub(at))).unwrap_or_default()
    }
}

impl<'a> HeaderBytes<'a> for &'a [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn get(&self, at: u64, n: u64) -> Option<&'a [u8]> {
        let at = usize::try_from(at).ok()?;
        <[u8]>::get(self, at..at.checked_add(usize::try_from(n).ok()?)?)
    }
}

//! Skips ID3v2 tags before a recording.

use crate::read_at::HeaderBytes;

/// The offset after any ID3v2 tags at the start.
pub(crate) fn skip_id3v2(bytes: &[u8]) -> usize {
    skip(&HeaderBytes::of(bytes)) as usize
}

/// The offset after any ID3v2 tags at the start.
pub(crate) fn skip(file: &HeaderBytes<'_>) -> u64 {
    let mut at = 0;
    while let head = file.get_up_to(at, 10)
        && head.get(3) != Some(&0xff)
        && let Some(len) = id3v2_len(head)
    {
        at = (at + len as u64).min(file.size());
    }
    at
}

/// The length of the ID3v2 tag at the start of `bytes`, which may exceed them. Source: ID3v2.4.0 main
/// structure, section 3.
pub(crate) fn id3v2_len(bytes: &[u8]) -> Option<usize> {
    let &[b'I', b'D', b'3', _, _, flags, ref size @ ..] = bytes.first_chunk::<10>()? else { return None };
    if size.iter().any(|&byte| byte >= 0x80) {
        return None;
    }
    let size = size.iter().fold(0, |size, &byte| size << 7 | usize::from(byte));
    Some(10 + size + if flags & 0x10 != 0 { 10 } else { 0 })
}

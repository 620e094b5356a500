//! [`RemixedGroups`] exchanges the waveforms of the rows of a complete batch within groups: `Remix`.
//!
//! For each waveform the rows of a group are permuted: a row gets that waveform of some row of its group, and
//! none is used twice. Rows of a group are drawn one after the other, so groups are the same on any number of
//! ranks. Source: `Remix` of demucs, which groups the rows of a GPU for the same reason.

use super::written::Written;
use crate::{dsp::Augment, seed::below};

/// What is exchanged in a batch.
#[derive(Debug)]
pub struct RemixedGroups {
    pub augment: Augment,
    /// The number of waveforms of a row in each field of waveforms, which come first.
    pub parts: Vec<usize>,
    /// The number of the field that tells which waveforms a row has, a byte for each, if there is one.
    pub mask: Option<usize>,
}

impl RemixedGroups {
    /// The rows of a group; 0 without a step that exchanges.
    pub fn size(&self) -> usize {
        self.augment.remixes().unwrap_or(0)
    }

    /// Permutes the waveforms of the group that begins at row `first`, whose random bits are `bits`.
    pub(super) fn mix(&self, written: &mut [Written], first: usize, bits: u64) {
        let n = self.size();
        let Some(mut draws) = self.augment.remixed(bits) else { return };
        let waveforms = self.parts.iter().enumerate();
        let waveforms =
            waveforms.flat_map(|(field, &parts)| (0..parts).map(move |part| (field, parts, part)));
        for (number, (field, parts, part)) in waveforms.enumerate() {
            // Fisher and Yates: each order of the rows is as likely.
            for last in (1..n).rev() {
                let other = below(draws.bits(), last as u64 + 1) as usize;
                if other == last {
                    continue;
                }
                let rows = [first + other, first + last];
                swap(&mut written[field], |row_bytes| (row_bytes / parts, part), rows);
                if let Some(mask) = self.mask {
                    swap(&mut written[mask], |_| (1, number), rows);
                }
            }
        }
    }
}

/// Exchanges a part of two rows, of which the second comes later: of the bytes of a row, `part` has the size
/// of a part and its number.
fn swap(written: &mut Written, part: impl Fn(usize) -> (usize, usize), rows: [usize; 2]) {
    let Written::Stacked { buffer, row_bytes } = written else { return };
    let (row_bytes, (part_bytes, part)) = (*row_bytes, part(*row_bytes));
    let [one, other] = rows.map(|row| row * row_bytes + part * part_bytes);
    let (before, from) = buffer.values_mut::<u8>().split_at_mut(other);
    before[one..one + part_bytes].swap_with_slice(&mut from[..part_bytes]);
}

//! [`RemixedGroups`] exchanges the waveforms of the rows of a complete batch within groups: `Remix`.
//!
//! For each waveform the rows of a group are permuted: a row gets that waveform of some row of its group, and
//! none is used twice. Rows of a group are drawn one after the other, so groups are the same on any number of
//! ranks. Source: `Remix` of demucs, which groups the rows of a GPU for the same reason.

use super::written::Written;
use crate::{fields::Buffer, seed::below, transform::Augment};

/// What is exchanged in a batch.
#[derive(Debug)]
pub struct RemixedGroups {
    pub augment: Augment,
    /// The number of waveforms of a row in each field of waveforms, which come first.
    pub parts: Vec<usize>,
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
        for (written, &parts) in written.iter_mut().zip(&self.parts) {
            let Written::Stacked { buffer, row_bytes } = written else { continue };
            for part in 0..parts {
                // Fisher and Yates: each order of the rows is as likely.
                for last in (1..n).rev() {
                    let other = below(draws.bits(), last as u64 + 1) as usize;
                    if other != last {
                        swap(buffer, (*row_bytes, *row_bytes / parts, part), [first + other, first + last]);
                    }
                }
            }
        }
    }
}

/// Exchanges part number `part` of `part_bytes` of two rows, of which the second comes later.
fn swap(buffer: &mut Buffer, (row_bytes, part_bytes, part): (usize, usize, usize), rows: [usize; 2]) {
    let [one, other] = rows.map(|row| row * row_bytes + part * part_bytes);
    let (before, from) = buffer.values_mut::<u8>().split_at_mut(other);
    before[one..one + part_bytes].swap_with_slice(&mut from[..part_bytes]);
}

//! Scale-factor bands of layer III: their first lines, by sample rate and kind of block.
//!
//! Source: ISO/IEC 11172-3 table B.8, ISO/IEC 13818-3 table B.2; MPEG-2.5 as its author's decoder has it.

/// How the lines of a granule are ordered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Long,
    Short,
    /// One window for the lower two subbands, three for the others.
    Mixed,
}

/// First lines of the 22 bands of a long block, and the end.
const LONG: [[u16; 23]; 9] = [
    // MPEG-1: 44.1, 48 and 32 kHz.
    [0, 4, 8, 12, 16, 20, 24, 30, 36, 44, 52, 62, 74, 90, 110, 134, 162, 196, 238, 288, 342, 418, 576],
    [0, 4, 8, 12, 16, 20, 24, 30, 36, 42, 50, 60, 72, 88, 106, 128, 156, 190, 230, 276, 330, 384, 576],
    [0, 4, 8, 12, 16, 20, 24, 30, 36, 44, 54, 66, 82, 102, 126, 156, 194, 240, 296, 364, 448, 550, 576],
    // MPEG-2: 22.05, 24 and 16 kHz.
    [0, 6, 12, 18, 24, 30, 36, 44, 54, 66, 80, 96, 116, 140, 168, 200, 238, 284, 336, 396, 464, 522, 576],
    [0, 6, 12, 18, 24, 30, 36, 44, 54, 66, 80, 96, 114, 136, 162, 194, 232, 278, 332, 394, 464, 540, 576],
    [0, 6, 12, 18, 24, 30, 36, 44, 54, 66, 80, 96, 116, 140, 168, 200, 238, 284, 336, 396, 464, 522, 576],
    // MPEG-2.5: 11.025, 12 and 8 kHz.
    [0, 6, 12, 18, 24, 30, 36, 44, 54, 66, 80, 96, 116, 140, 168, 200, 238, 284, 336, 396, 464, 522, 576],
    [0, 6, 12, 18, 24, 30, 36, 44, 54, 66, 80, 96, 116, 140, 168, 200, 238, 284, 336, 396, 464, 522, 576],
    [
        0, 12, 24, 36, 48, 60, 72, 88, 108, 132, 160, 192, 232, 280, 336, 400, 476, 566, 568, 570, 572, 574,
        576,
    ],
];

/// First lines of the 13 bands of each of the three windows of a short block, and the end.
const SHORT: [[u16; 14]; 9] = [
    [0, 4, 8, 12, 16, 22, 30, 40, 52, 66, 84, 106, 136, 192],
    [0, 4, 8, 12, 16, 22, 28, 38, 50, 64, 80, 100, 126, 192],
    [0, 4, 8, 12, 16, 22, 30, 42, 58, 78, 104, 138, 180, 192],
    [0, 4, 8, 12, 18, 24, 32, 42, 56, 74, 100, 132, 174, 192],
    [0, 4, 8, 12, 18, 26, 36, 48, 62, 80, 104, 136, 180, 192],
    [0, 4, 8, 12, 18, 26, 36, 48, 62, 80, 104, 134, 174, 192],
    [0, 4, 8, 12, 18, 26, 36, 48, 62, 80, 104, 134, 174, 192],
    [0, 4, 8, 12, 18, 26, 36, 48, 62, 80, 104, 134, 174, 192],
    [0, 8, 16, 24, 36, 52, 72, 96, 124, 160, 162, 164, 166, 192],
];

pub(super) const RATES: usize = LONG.len();
/// The sample rate of 8 kHz, whose bands have another shape.
pub(super) const RATE_8: usize = 8;
/// Lines below which a mixed block is long: two subbands.
pub(super) const MIXED_LINES: usize = 36;

/// The bands of a kind of block at a sample rate, in the order of the bit stream: first the long ones, then
/// three windows for each short one.
#[derive(Debug, Clone)]
pub(super) struct Bands {
    starts: Vec<u16>,
    pub(super) n_long: usize,
}

impl Bands {
    pub(super) fn new(rate: usize, kind: Kind) -> Self {
        let long = &LONG[rate];
        let (mut starts, first_short) = match kind {
            Kind::Long => (long.to_vec(), 13),
            Kind::Short => (vec![0], 0),
            // At 8 kHz no band ends there, and there is no rule: such blocks are refused before.
            Kind::Mixed => {
                (long.iter().copied().filter(|&line| usize::from(line) <= MIXED_LINES).collect(), 3)
            }
        };
        let n_long = starts.len() - 1;
        for band in SHORT[rate].windows(2).skip(first_short) {
            for window in 1..=3 {
                starts.push(3 * band[0] + window * (band[1] - band[0]));
            }
        }
        Self { starts, n_long }
    }

    /// First and last line (exclusive) of each band.
    #[inline(always)]
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, usize)> + ExactSizeIterator + '_ {
        self.starts.windows(2).map(|band| (usize::from(band[0]), usize::from(band[1])))
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }
}

/// The end of region 0, where the side information does not tell it: of blocks of three windows after nine of
/// them, of others after eight bands.
pub(super) fn first_region(rate: usize, is_short: bool) -> usize {
    match (is_short, rate) {
        (true, RATE_8) => 72,
        (true, _) => 36,
        (false, _) => long_start(rate, 8),
    }
}

/// The first line of band `i` of a long block; 576 beyond the last.
pub(super) fn long_start(rate: usize, i: usize) -> usize {
    LONG[rate].get(i).map_or(576, |&start| start.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_cover_the_lines() {
        for rate in 0..RATES {
            for (kind, n) in
                [(Kind::Long, 22), (Kind::Short, 39), (Kind::Mixed, if rate < 3 { 38 } else { 36 })]
            {
                if (rate, kind) == (RATE_8, Kind::Mixed) {
                    continue;
                }
                let bands = Bands::new(rate, kind);
                assert_eq!((bands.len(), bands.starts[0], bands.starts[n]), (n, 0, 576), "{rate} {kind:?}");
                assert!(bands.iter().all(|(start, end)| start < end && start % 2 == 0));
            }
        }
    }
}

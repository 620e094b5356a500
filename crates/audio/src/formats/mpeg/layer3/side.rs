//! Side information of a layer III frame, and its scale factors.
//!
//! Source: ISO/IEC 11172-3 sections 2.4.1.7, 2.4.2.7 and 2.4.3.4.5; ISO/IEC 13818-3 sections 2.4.1.7 and
//! 2.4.3.2.

use super::{
    FrameDamage,
    bands::{Kind, first_region, long_start},
    bits::Bits,
};

/// The most lines of a granule.
pub(super) const LINES: usize = 576;
/// The most scale factors of a granule: 13 bands of three windows.
pub(super) const MAX_BANDS: usize = 39;

/// The part of a frame's header that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stream {
    /// Index of the sample rate: MPEG-1, 2 and 2.5, each with 44.1, 48 and 32 kHz or parts of them.
    pub(super) rate: usize,
    pub(super) channels: usize,
    /// Whether the channels are sum and difference.
    pub(super) has_sides: bool,
    /// Whether the upper bands of the second channel are directions.
    pub(super) has_intensity: bool,
}

impl Stream {
    /// Whether the frame is of MPEG-1, with two granules.
    pub(super) fn is_mpeg1(&self) -> bool {
        self.rate < 3
    }

    pub(super) fn granules(&self) -> usize {
        if self.is_mpeg1() { 2 } else { 1 }
    }
}

#[derive(Debug, Clone)]
pub(super) struct PerBand(pub(super) [u8; MAX_BANDS]);

impl Default for PerBand {
    fn default() -> Self {
        Self([0; MAX_BANDS])
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Channel {
    /// `part2_3_length`: bits of scale factors and lines.
    pub(super) len: usize,
    /// `big_values`: pairs of lines below the quadruples.
    pub(super) n_pairs: usize,
    pub(super) global_gain: i32,
    pub(super) scalefac_compress: usize,
    /// `block_type`, the shape of the window: 0 normal, 1 start, 2 short, 3 stop.
    pub(super) shape: usize,
    /// Whether the two lowest subbands have the normal window.
    pub(super) is_mixed: bool,
    pub(super) tables: [usize; 3],
    pub(super) subblock_gain: [i32; 3],
    /// The ends of the regions of pairs.
    pub(super) regions: [usize; 3],
    pub(super) has_preemphasis: bool,
    /// `scalefac_scale`: whether a step of a scale factor is 2 instead of the root of 2.
    pub(super) is_coarse: bool,
    /// `count1table_select`: the table of quadruples.
    pub(super) quads: usize,
    pub(super) scalefacs: PerBand,
    /// The direction that stands for none, by band.
    pub(super) no_direction: PerBand,
    /// Lines up to the last that was coded.
    pub(super) n_lines: usize,
}

impl Channel {
    pub(super) fn kind(&self) -> Kind {
        match (self.shape, self.is_mixed) {
            (2, false) => Kind::Short,
            (2, true) => Kind::Mixed,
            _ => Kind::Long,
        }
    }

    /// The factor of directions in MPEG-2.
    pub(super) fn direction_scale(&self) -> usize {
        self.scalefac_compress & 1
    }

    fn read(bits: &mut Bits<'_>, stream: &Stream) -> Result<Self, FrameDamage> {
        let mut it = Self { len: bits.read(12), n_pairs: bits.read(9), ..Self::default() };
        if it.n_pairs > LINES / 2 {
            return Err(FrameDamage("a granule declares more than 288 pairs of lines"));
        }
        it.global_gain = bits.read(8) as i32;
        it.scalefac_compress = bits.read(if stream.is_mpeg1() { 4 } else { 9 });
        if bits.read(1) == 1 {
            it.shape = bits.read(2);
            if it.shape == 0 {
                return Err(FrameDamage("a granule switches to the window that it has"));
            }
            it.is_mixed = bits.read(1) == 1;
            it.tables = [bits.read(5), bits.read(5), 0];
            it.subblock_gain = [bits.read(3) as i32, bits.read(3) as i32, bits.read(3) as i32];
            // With `window_switching_flag` the end of region 0 is implied, and region 2 does not exist.
            it.regions = [first_region(stream.rate, it.shape == 2), LINES, LINES];
        } else {
            it.tables = [bits.read(5), bits.read(5), bits.read(5)];
            let first = bits.read(4) + 1;
            let second = first + bits.read(3) + 1;
            it.regions = [long_start(stream.rate, first), long_start(stream.rate, second), LINES];
        }
        it.has_preemphasis = stream.is_mpeg1() && bits.read(1) == 1;
        it.is_coarse = bits.read(1) == 1;
        it.quads = bits.read(1);
        Ok(it)
    }
}

/// The side information of a frame.
#[derive(Debug, Clone, Default)]
pub(super) struct Side {
    /// Bytes of main data before the frame's own.
    pub(super) main_data_begin: usize,
    /// Whether a channel's second granule has the scale factors of its first, by group of bands.
    shared: [[bool; 4]; 2],
    /// By granule and channel.
    pub(super) granules: [[Channel; 2]; 2],
}

impl Side {
    /// Reads the side information at the start of `bytes`.
    pub(super) fn read(&mut self, bytes: &[u8], stream: &Stream) -> Result<(), FrameDamage> {
        let bits = &mut Bits::at(bytes, 0);
        self.main_data_begin = bits.read(if stream.is_mpeg1() { 9 } else { 8 });
        // Private bits.
        bits.read(match (stream.is_mpeg1(), stream.channels) {
            (true, 1) => 5,
            (true, _) => 3,
            (false, channels) => channels,
        });
        if stream.is_mpeg1() {
            for channel in 0..stream.channels {
                self.shared[channel] = [(); 4].map(|()| bits.read(1) == 1);
            }
        }
        for granule in &mut self.granules[..stream.granules()] {
            for channel in &mut granule[..stream.channels] {
                *channel = Channel::read(bits, stream)?;
            }
        }
        Ok(())
    }

    /// Reads the scale factors of a channel of a granule.
    pub(super) fn read_scalefacs(
        &mut self,
        bits: &mut Bits<'_>,
        stream: &Stream,
        granule: usize,
        channel: usize,
    ) {
        if stream.is_mpeg1() {
            self.read_scalefacs_1(bits, granule, channel);
        } else {
            let are_directions = stream.has_intensity && channel == 1;
            read_scalefacs_2(bits, &mut self.granules[granule][channel], are_directions);
        }
    }

    fn read_scalefacs_1(&mut self, bits: &mut Bits<'_>, granule: usize, channel: usize) {
        // `slen1` and `slen2`, by `scalefac_compress`.
        const BITS: [[usize; 2]; 16] = [
            [0, 0],
            [0, 1],
            [0, 2],
            [0, 3],
            [3, 0],
            [1, 1],
            [1, 2],
            [1, 3],
            [2, 1],
            [2, 2],
            [2, 3],
            [3, 1],
            [3, 2],
            [3, 3],
            [4, 2],
            [4, 3],
        ];
        let (first, second) = self.granules.split_at_mut(1);
        let (it, before) = match granule {
            0 => (&mut first[0][channel], None),
            _ => (&mut second[0][channel], Some(&first[0][channel].scalefacs)),
        };
        // The `is_pos` of MPEG-1 that stands for no intensity stereo.
        it.no_direction = PerBand([7; MAX_BANDS]);
        let [low, high] = BITS[it.scalefac_compress];
        if it.shape == 2 {
            // Mixed: eight long bands and three short ones, then six. Short: six, then six.
            let n_low = if it.is_mixed { 8 + 3 * 3 } else { 6 * 3 };
            let (n_low, n_all) = (n_low, n_low + 6 * 3);
            it.scalefacs.0[..n_low].iter_mut().for_each(|factor| *factor = bits.read(low) as u8);
            it.scalefacs.0[n_low..n_all].iter_mut().for_each(|factor| *factor = bits.read(high) as u8);
            return;
        }
        let groups = [(0..6, low), (6..11, low), (11..16, high), (16..21, high)];
        for ((bands, n_bits), is_shared) in groups.into_iter().zip(self.shared[channel]) {
            match before {
                // `scfsi`: the group is not coded again in the second granule.
                Some(before) if is_shared => it.scalefacs.0[bands.clone()].copy_from_slice(&before.0[bands]),
                _ => it.scalefacs.0[bands].iter_mut().for_each(|factor| *factor = bits.read(n_bits) as u8),
            }
        }
    }
}

/// The scale factors of MPEG-2: four groups of bands, each with its number of bits.
fn read_scalefacs_2(bits: &mut Bits<'_>, it: &mut Channel, are_directions: bool) {
    // By the range of `scalefac_compress` and the kind of block: bands of each group. First those of
    // directions.
    const BANDS: [[[usize; 4]; 3]; 6] = [
        [[7, 7, 7, 0], [12, 12, 12, 0], [6, 15, 12, 0]],
        [[6, 6, 6, 3], [12, 9, 9, 6], [6, 12, 9, 6]],
        [[8, 8, 5, 0], [15, 12, 9, 0], [6, 18, 9, 0]],
        [[6, 5, 5, 5], [9, 9, 9, 9], [6, 9, 9, 9]],
        [[6, 5, 7, 3], [9, 9, 12, 6], [6, 9, 12, 6]],
        [[11, 10, 0, 0], [18, 18, 0, 0], [15, 18, 0, 0]],
    ];
    let (range, n_bits) = if are_directions {
        match it.scalefac_compress >> 1 {
            n @ 0..180 => (0, [n / 36, n % 36 / 6, n % 6, 0]),
            n @ 180..244 => (1, [(n - 180) >> 4, (n - 180) >> 2 & 3, (n - 180) & 3, 0]),
            n => (2, [(n - 244) / 3, (n - 244) % 3, 0, 0]),
        }
    } else {
        match it.scalefac_compress {
            n @ 0..400 => (3, [(n >> 4) / 5, (n >> 4) % 5, n >> 2 & 3, n & 3]),
            n @ 400..500 => (4, [((n - 400) >> 2) / 5, ((n - 400) >> 2) % 5, n & 3, 0]),
            n => {
                // MPEG-2 has no bit for it: this range of `scalefac_compress` implies it.
                it.has_preemphasis = true;
                (5, [(n - 500) / 3, (n - 500) % 3, 0, 0])
            }
        }
    };
    // A direction whose bits are all set is none; without bits there is only one direction, the middle.
    it.no_direction = PerBand([u8::MAX; MAX_BANDS]);
    let mut begin = 0;
    for (n_bits, n_bands) in n_bits.into_iter().zip(BANDS[range][it.kind() as usize]) {
        let bands = begin..begin + n_bands;
        it.scalefacs.0[bands.clone()].iter_mut().for_each(|factor| *factor = bits.read(n_bits) as u8);
        if n_bits > 0 {
            it.no_direction.0[bands.clone()].fill((1 << n_bits) - 1);
        }
        begin = bands.end;
    }
}

//! Decodes frames of MPEG audio layer III: MPEG-1, 2 and 2.5.
//!
//! Input: whole frames, in order. Output: planar float32, 1152 or 576 samples of each channel. Invariant:
//! every level of instructions gives the same bits, and a new state the same as one that was reset.
//!
//! | ISO/IEC 11172-3, 13818-3 | here |
//! |---|---|
//! | 2.4.1.7, 2.4.2.7 side information; 2.4.3.4.5 scale factors | `side` |
//! | 2.4.3.4.1 main data | `reservoir`, `bits` |
//! | 2.4.3.4.6 Huffman decoding, table B.7 | `huffman`, `codes` |
//! | 2.4.3.4.7, 2.4.3.4.8 requantization, reordering; table B.8 | `gain`, `hybrid`, `bands` |
//! | 2.4.3.4.9 joint stereo; 13818-3 2.4.3.2 | `stereo` |
//! | 2.4.3.4.10 alias reduction, inverse MDCT, overlap | `hybrid` |
//! | 2.4.3.2.2 synthesis filter bank, table B.3 | `synthesis` |
//!
//! `mean` has the mean of two channels, which needs the filters once.
//!
//! Not done: checksums, and mixed blocks at 8 kHz, where the long part ends within a band and no
//! standard says which (such recordings are refused).
//!
//! What damaged frames give is what symphonia 0.6 gives: the same frames are errors. Deviations are in
//! `stereo`.
//!
//! Source: the standards; MPEG-2.5 is MPEG-2 with other bands.

mod bands;
mod bits;
mod codes;
mod gain;
mod hybrid;
mod huffman;
mod mean;
mod reservoir;
mod side;
mod stereo;
mod synthesis;
#[cfg(test)]
mod tests;

use std::{error, fmt};

use crate::{
    fork_lock::OnceLock,
    simd::{Lanes, Level, Work},
};

use super::header::Header;
use bands::{Bands, Kind, RATES};
use bits::Bits;
use huffman::GranuleReader;
use hybrid::{Line, SLOTS};
use reservoir::Reservoir;
use side::{LINES, Side, Stream};

/// The sample rate at which mixed blocks have no standard, Hz.
pub(super) const NO_MIXED_RATE: u32 = 8_000;
/// The most samples of a frame.
const MAX_SAMPLES: usize = 2 * LINES;
/// Approximate bytes of a [`Decoder`].
pub(super) const BYTES: usize = size_of::<Decoder>() + 4096;

/// Why a frame cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameDamage(&'static str);

impl fmt::Display for FrameDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl error::Error for FrameDamage {}

/// What all decoders share: computed at first use, about 150 KB.
struct Tables {
    huffman: huffman::Huffman,
    gains: gain::Gains,
    directions: stereo::Directions,
    hybrid: hybrid::Tables,
    synthesis: synthesis::Tables,
    /// By sample rate and [`Kind`].
    bands: [[Bands; 3]; RATES],
}

impl Tables {
    fn get() -> &'static Self {
        static TABLES: OnceLock<Box<Tables>> = OnceLock::new();
        TABLES.get_or_init(|| {
            Box::new(Self {
                huffman: huffman::Huffman::new(),
                gains: gain::Gains::new(),
                directions: stereo::Directions::new(),
                hybrid: hybrid::Tables::new(),
                synthesis: synthesis::Tables::new(),
                bands: std::array::from_fn(|rate| {
                    [Kind::Long, Kind::Short, Kind::Mixed].map(|kind| Bands::new(rate, kind))
                }),
            })
        })
    }
}

pub(super) struct Decoder {
    tables: &'static Tables,
    level: Level,
    reservoir: Reservoir,
    side: Side,
    state: State,
    /// Whether the channels are averaged; the mean is then the first one.
    is_mean: bool,
}

/// What the filters keep, and their buffers.
struct State {
    /// Lines by granule and channel.
    lines: [[[f32; LINES]; 2]; 2],
    overlap: [hybrid::Overlap; 2],
    subbands: [Line; synthesis::MAX_SLOTS],
    history: [synthesis::History; 2],
    samples: [[f32; MAX_SAMPLES]; 2],
}

impl State {
    fn new() -> Self {
        Self {
            lines: [[[0.0; LINES]; 2]; 2],
            overlap: [(); 2].map(|()| hybrid::Overlap::new()),
            subbands: [Line::default(); synthesis::MAX_SLOTS],
            history: [(); 2].map(|()| synthesis::History::new()),
            samples: [[0.0; MAX_SAMPLES]; 2],
        }
    }
}

impl Decoder {
    /// A decoder that computes with the instructions of `level`.
    pub(super) fn new(level: Level) -> Self {
        Self {
            tables: Tables::get(),
            level,
            reservoir: Reservoir::new(),
            side: Side::default(),
            state: State::new(),
            is_mean: false,
        }
    }

    /// Forgets all frames; from here on gives the mean of the channels as the first one, or each.
    pub(super) fn reset(&mut self, is_mean: bool) {
        self.is_mean = is_mean;
        self.reservoir.clear();
        self.state.overlap.fill(hybrid::Overlap::new());
        self.state.history.fill(synthesis::History::new());
    }

    /// Decodes a frame of layer III; returns the samples of the channels, of which the second is that of an
    /// earlier frame if there is one channel, or the mean.
    ///
    /// # Errors
    /// [`FrameDamage`]. The decoder then holds the main data that it would hold after a frame of the same
    /// side information, and its filters are silent: what it gives from the second frame after it on does
    /// not depend on whether this one was decoded.
    pub(super) fn decode(&mut self, header: &Header, frame: &[u8]) -> Result<[&[f32]; 2], FrameDamage> {
        match self.decode_lines(header, frame) {
            Ok(stream) => {
                let (tables, granules) = (self.tables, &mut self.side.granules);
                let is_mean = self.is_mean && stream.channels == 2;
                self.level.run(Synthesis { tables, stream, granules, state: &mut self.state, is_mean });
                let n = stream.granules() * LINES;
                Ok([&self.state.samples[0][..n], &self.state.samples[1][..n]])
            }
            Err(damage) => {
                self.silence();
                Err(damage)
            }
        }
    }

    /// Passes a frame that is missing: its main data is unknown, and the filters are silent.
    pub(super) fn skip(&mut self) {
        self.reservoir.clear();
        self.silence();
    }

    fn silence(&mut self) {
        self.state.overlap.fill(hybrid::Overlap::new());
        self.state.history.fill(synthesis::History::new());
    }

    /// Decodes the lines of a frame.
    fn decode_lines(&mut self, header: &Header, frame: &[u8]) -> Result<Stream, FrameDamage> {
        let stream = stream(header);
        let short = FrameDamage("the frame is shorter than its side information");
        let parts =
            frame.get(header.side_offset()..).and_then(|side| side.split_at_checked(header.side_len()));
        let Some((side, main_data)) = parts else {
            self.reservoir.clear();
            return Err(short);
        };
        let place = header.main_data(frame);
        let missing = self.reservoir.add(main_data, place.back)?;
        let read = self.side.read(side, &stream).and_then(|()| self.read_main_data(&stream, 8 * missing));
        // As the index of spans counts (`header::ReservoirCount`), also if the frame is damaged.
        self.reservoir.consume(place.used_bits.saturating_sub(8 * missing).div_ceil(8));
        read.map(|_| stream)
    }

    /// Reads scale factors and lines of all granules; returns the number of bits. The granules that begin in
    /// the first `missing` bits are silent.
    fn read_main_data(&mut self, stream: &Stream, missing: usize) -> Result<usize, FrameDamage> {
        let (bytes, n_bits) = (self.reservoir.bytes(), self.reservoir.n_bits());
        // Where the codes of lines begin and end, by granule and channel.
        let mut starts = [const { [const { None }; 2] }; 2];
        let (mut begin, mut skipped, mut damage) = (0, 0, None);
        'granules: for (granule, starts) in starts.iter_mut().enumerate().take(stream.granules()) {
            if skipped < missing {
                for channel in 0..stream.channels {
                    self.state.lines[granule][channel].fill(0.0);
                    skipped += self.side.granules[granule][channel].len;
                }
                // The held bytes begin `missing` bits after the start of the first granule.
                begin = skipped.saturating_sub(missing);
                continue;
            }
            for (channel, start) in starts.iter_mut().enumerate().take(stream.channels) {
                let end = begin + self.side.granules[granule][channel].len;
                if end > n_bits {
                    damage = Some("the main data of a granule reaches beyond its frame");
                    break 'granules;
                }
                let mut bits = Bits::at(bytes, begin);
                self.side.read_scalefacs(&mut bits, stream, granule, channel);
                if bits.position() > end {
                    damage = Some("the scale factors of a granule are longer than its main data");
                    break 'granules;
                }
                *start = Some((bits, end));
                begin = end;
            }
        }
        let (channels, lines) =
            (self.side.granules.iter_mut().flatten(), self.state.lines.iter_mut().flatten());
        let mut readers =
            starts.into_iter().flatten().zip(channels.zip(lines)).filter_map(|(start, (channel, lines))| {
                start.map(|(bits, end)| GranuleReader::new(bits, end, channel, lines))
            });
        while let Some(mut one) = readers.next() {
            let mut other = readers.next();
            self.tables.huffman.read(&mut one, other.as_mut());
            if [Some(one), other].iter().flatten().any(|reader| reader.position() > n_bits) {
                return Err(FrameDamage("the codes of a granule reach beyond the main data"));
            }
        }
        // The first damaged granule determines the error.
        damage.map_or(Ok(begin), |damage| Err(FrameDamage(damage)))
    }
}

/// The part of a header that matters.
fn stream(header: &Header) -> Stream {
    let [_, version, rates, mode] = header.raw;
    let base = match version >> 3 & 3 {
        3 => 0,
        2 => 3,
        _ => 6,
    };
    let is_joint = mode >> 6 == 1;
    Stream {
        rate: base + usize::from(rates >> 2 & 3).min(2),
        channels: header.channels.into(),
        has_sides: is_joint && mode & 0x20 != 0,
        has_intensity: is_joint && mode & 0x10 != 0,
    }
}

/// From the lines of a frame to its samples.
struct Synthesis<'a> {
    tables: &'static Tables,
    stream: Stream,
    granules: &'a mut [[side::Channel; 2]; 2],
    state: &'a mut State,
    is_mean: bool,
}

impl Work for Synthesis<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let Self { tables, stream, granules, state, is_mean } = self;
        let all_bands = &tables.bands[stream.rate];
        let n_granules = stream.granules();
        for (granule, lines) in granules[..n_granules].iter_mut().zip(&mut state.lines) {
            for (channel, lines) in granule[..stream.channels].iter().zip(&mut *lines) {
                tables.gains.scale(channel, &all_bands[channel.kind() as usize], lines);
            }
            if stream.channels == 2 {
                let bands = &all_bands[granule[1].kind() as usize];
                stereo::stereo(&stream, granule, bands, &tables.directions, lines);
            }
        }
        let n_outputs = if is_mean { 1 } else { stream.channels };
        for channel in 0..n_outputs {
            let subbands = state.subbands.as_chunks_mut::<SLOTS>().0;
            for ((channels, lines), out) in
                granules[..n_granules].iter_mut().zip(&mut state.lines).zip(subbands)
            {
                if is_mean {
                    mean::filter::<V>(&tables.hybrid, channels, all_bands, lines, &mut state.overlap, out);
                    continue;
                }
                let it = &channels[channel];
                let bands = &all_bands[it.kind() as usize];
                let overlap = &mut state.overlap[channel];
                hybrid::filter::<V>(&tables.hybrid, it, bands, &mut lines[channel], overlap, out);
            }
            synthesis::synthesize::<V>(
                &tables.synthesis,
                &mut state.history[channel],
                &state.subbands,
                n_granules * SLOTS,
                &mut state.samples[channel][..n_granules * LINES],
            );
        }
    }
}

//! Decodes the audio packets of one Vorbis stream.
//!
//! Input: the headers, then packets in order. Output: the samples between the middles of the last two blocks.
//! Invariants: nothing is allocated after the decoder was built; the samples are the same on every CPU; a
//! packet changes nothing but the state that [`Decoder::reset`] clears.
//!
//! | specification | here |
//! |---|---|
//! | 2 bit packing | [`reservoir`](super::reservoir); of headers `setup::Bits` |
//! | 3, 9.2.2 codebooks | [`codebook`](super::codebook) |
//! | 4.2 headers | [`setup`](super::setup) |
//! | 4.3.1 packet type, mode, window | [`Decoder::decode`]; the window flags are passed over: neighbours tell |
//! | 4.3.2 floors | [`floor0`](super::floor0) (6), [`floor1`](super::floor1) (7) |
//! | 4.3.3 nonzero vectors | [`Decoder::decode`] |
//! | 4.3.4 residues | [`residue`](super::residue) (8) |
//! | 4.3.5 inverse coupling | [`uncouple`] |
//! | 4.3.6 product | [`floor1::apply`] |
//! | 4.3.7 inverse MDCT | [`imdct`](super::imdct) |
//! | 4.3.8 overlap | [`overlap`](super::overlap) |
//! | 4.3.9 order of channels | [`order`], that of WAV |
//!
//! Refused, as in symphonia: more than 8 channels, whose order is not specified, and 256 codebooks; see also
//! the parts. Deviations from symphonia, which is the oracle of the tests: if a packet ends in its floors,
//! all channels are silent in its block, as section 4.3.2 says, and if it ends in the residue of a submap,
//! the later submaps have none. symphonia goes on with the bits that are left, too few for the read that
//! failed. Coupling steps are undone from the last to the first, and channels may share a residue that is not
//! interleaved, both of which symphonia misreads.
//!
//! Source: Vorbis I specification.

use std::ops::Range;

use super::{
    codebook::{Book, Stop},
    floor0::Pairs,
    floor1::{self, Line, Lines},
    imdct::{Plan, Scratch},
    overlap,
    reservoir::Reservoir,
    residue::{Residue, Vectors},
    setup::{self, Mapping, Setup},
};
use crate::simd::{Lanes, Level, Work};

const MAX_CHANNELS: u8 = 8;

/// The most lines of a curve: its positions, and the levels of one long line.
const MAX_LINES: usize = 512;

#[derive(Debug)]
enum Floor {
    Pairs(Pairs),
    Lines(Lines),
}

#[derive(Debug)]
struct Channel {
    /// Whether the floor of this block is used.
    is_used: bool,
    /// Whether it is given by `curve` instead of `lines`.
    is_curve: bool,
    lines: Vec<Line>,
    curve: Vec<f32>,
    /// The transforms of the last block and of the one before it.
    after: Vec<f32>,
    before: Vec<f32>,
}

#[derive(Debug)]
pub(super) struct Decoder {
    level: Level,
    block_sizes: [u16; 2],
    plans: [&'static Plan; 2],
    books: Vec<Book>,
    floors: Vec<Floor>,
    residues: Vec<Residue>,
    mappings: Vec<Mapping>,
    /// Whether each mode has long blocks, and its mapping.
    modes: Vec<(bool, u8)>,
    mode_bits: u32,
    channels: Vec<Channel>,
    /// Whether the spectra are averaged, and the first channel has the transform of their mean.
    is_mean: bool,
    /// Whether the last block and the one before it were long; None if there was none.
    is_long: [Option<bool>; 2],
    /// The spectra of all channels, of half a long block each, and scratch of the same length, in which the
    /// channels alternate.
    spectra: Vec<f32>,
    interleaved: Vec<f32>,
    starts: Vec<usize>,
    classes: Vec<u8>,
    scratch: Scratch,
    /// Whether the last packet ended in the residue of a submap before the last one.
    #[cfg(test)]
    pub ends_early: bool,
}

/// Why a packet cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is not an audio packet, or ends before its floors.
    Header,
    /// It needs a codebook that lacks codewords or vectors, or its curve is not defined.
    Codebook,
}

impl Fault {
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Header => "it has no mode, or one that the setup header lacks",
            Self::Codebook => {
                "it needs a codebook that has no codewords or no vectors, or its floor has a pole"
            }
        }
    }
}

/// The place in a file of channel `i` of `channels`, in the order of WAV (section 4.3.9).
pub(crate) fn order(channels: u8, i: usize) -> usize {
    match channels {
        3 | 5 => [0, 2, 1, 3, 4][i],
        6 => [0, 2, 1, 5, 3, 4][i],
        7 => [0, 2, 1, 6, 5, 3, 4][i],
        8 => [0, 2, 1, 7, 5, 6, 3, 4][i],
        _ => i,
    }
}

impl Decoder {
    /// Builds a decoder from the setup header `bytes`, which was parsed to `setup`; the text is the reason
    /// why it cannot be built.
    pub(super) fn new(bytes: &[u8], setup: &Setup) -> Result<Self, &'static str> {
        Self::at_level(Level::detect(), bytes, setup)
    }

    /// As [`Decoder::new`], with the instructions of a level.
    pub(crate) fn at_level(level: Level, bytes: &[u8], setup: &Setup) -> Result<Self, &'static str> {
        if setup.channels > MAX_CHANNELS {
            return Err("more than 8 channels, whose order is not specified");
        }
        if setup.codebooks.len() > 255 {
            return Err("more than 255 codebooks");
        }
        let books = setup.codebooks.iter().map(|book| Book::new(bytes, book)).collect::<Result<_, _>>()?;
        let floor = |floor: &setup::Floor| {
            Ok(match floor {
                setup::Floor::Lsp(floor) => Floor::Pairs(Pairs::new(floor, setup.block_sizes)),
                setup::Floor::Lines(floor) => Floor::Lines(Lines::new(floor)?),
            })
        };
        let floors: Vec<Floor> = setup.floors.iter().map(floor).collect::<Result<_, &'static str>>()?;
        let long = usize::from(setup.long_block());
        let has_curves = floors.iter().any(|floor| matches!(floor, Floor::Pairs(_)));
        let channel = || Channel {
            is_used: false,
            is_curve: false,
            lines: Vec::with_capacity(MAX_LINES),
            // bounded: a block is at most 8192 samples, and channels are at most 8, here and below.
            curve: Vec::with_capacity(if has_curves { long / 2 } else { 0 }),
            // bounded: as above.
            after: vec![0.0; long / 2],
            // bounded: as above.
            before: vec![0.0; long / 2],
        };
        let n_channels = usize::from(setup.channels);
        Ok(Self {
            level,
            block_sizes: setup.block_sizes,
            plans: setup.block_sizes.map(Plan::of),
            books,
            floors,
            residues: setup.residues.iter().map(Residue::new).collect::<Result<_, _>>()?,
            mappings: setup.mappings.clone(),
            modes: setup.mode_list(),
            mode_bits: setup::ilog(setup.modes.len() as u32 - 1),
            channels: std::iter::repeat_with(channel).take(n_channels).collect(),
            is_mean: false,
            is_long: [None; 2],
            // bounded: as above.
            spectra: vec![0.0; n_channels * long / 2],
            // bounded: as above.
            interleaved: vec![0.0; n_channels * long / 2],
            // bounded: as above.
            starts: Vec::with_capacity(n_channels),
            classes: Vec::new(),
            scratch: Scratch::new(long),
            #[cfg(test)]
            ends_early: false,
        })
    }

    /// The approximate bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        let books: usize = self.books.iter().map(Book::bytes).sum();
        let floors = self.floors.iter().map(|floor| match floor {
            Floor::Pairs(pairs) => pairs.bytes(),
            Floor::Lines(_) => 2048,
        });
        let blocks = 6 * size_of_val(&*self.spectra) + self.channels.len() * MAX_LINES * size_of::<Line>();
        books + floors.sum::<usize>() + blocks + 4096
    }

    /// Forgets the packets so far; from here on gives the mean of the channels as the first one, or each.
    pub(super) fn reset(&mut self, is_mean: bool) {
        self.is_long = [None; 2];
        self.is_mean = is_mean;
    }

    /// Decodes one packet.
    ///
    /// # Errors
    /// [`Fault`]; the decoder must then be reset.
    pub(super) fn decode(&mut self, packet: &[u8]) -> Result<(), Fault> {
        #[cfg(test)]
        (self.ends_early = false);
        let mut bits = Reservoir::new(packet);
        // Section 4.3.1: the first bit of an audio packet is 0.
        if bits.read(1) != Ok(0) {
            return Err(Fault::Header);
        }
        let mode = bits.read(self.mode_bits).map_err(|_| Fault::Header)?;
        let &(is_long, mapping) = self.modes.get(mode as usize).ok_or(Fault::Header)?;
        if is_long {
            // Whether the neighbours are long; their own packets tell it, too.
            bits.read(2).map_err(|_| Fault::Header)?;
        }
        let half = usize::from(self.block_sizes[usize::from(is_long)] / 2);
        // A packet that ends in a floor is a silent block, not an error.
        if !self.read_floors(&mut bits, mapping.into(), is_long, half)? {
            self.channels.iter_mut().for_each(|channel| channel.is_used = false);
        }
        if self.channels.iter().any(|channel| channel.is_used) {
            self.read_residues(&mut bits, mapping.into(), half)?;
        }
        self.level.run(TransformWork { decoder: self, mapping: mapping.into(), is_long, half });
        self.is_long = [Some(is_long), self.is_long[0]];
        Ok(())
    }

    /// Reads the floors of all channels; false if the packet ends in one of them.
    fn read_floors(
        &mut self,
        bits: &mut Reservoir<'_>,
        mapping: usize,
        is_long: bool,
        half: usize,
    ) -> Result<bool, Fault> {
        let mapping = &self.mappings[mapping];
        for (channel, &submap) in self.channels.iter_mut().zip(&mapping.mux) {
            let [floor, _] = mapping.submaps[usize::from(submap)];
            let (is_curve, is_used) = match &self.floors[usize::from(floor)] {
                Floor::Pairs(pairs) => (true, pairs.read(bits, &self.books, is_long, &mut channel.curve)),
                Floor::Lines(lines) => {
                    (false, lines.read(bits, &self.books, half as u32, &mut channel.lines))
                }
            };
            (channel.is_curve, channel.is_used) = match is_used {
                Ok(is_used) => (is_curve, is_used),
                Err(Stop::End) => return Ok(false),
                Err(Stop::Fault) => return Err(Fault::Codebook),
            };
        }
        Ok(true)
    }

    /// Reads the residues of all submaps into `spectra`.
    fn read_residues(&mut self, bits: &mut Reservoir<'_>, mapping: usize, half: usize) -> Result<(), Fault> {
        let mapping = &self.mappings[mapping];
        let mut is_coded = [false; MAX_CHANNELS as usize];
        for (is_coded, channel) in is_coded.iter_mut().zip(&self.channels) {
            *is_coded = channel.is_used;
        }
        for pair in &mapping.couplings {
            let [magnitude, angle] = pair.map(usize::from);
            // Section 4.3.3: a coupled pair has residues as soon as one of its channels has a floor.
            let either = is_coded[magnitude] || is_coded[angle];
            (is_coded[magnitude], is_coded[angle]) = (either, either);
        }
        let stride = self.spectra.len() / self.channels.len();
        for channel in 0..self.channels.len() {
            self.spectra[channel * stride..][..half].fill(0.0);
        }
        for (submap, &[_, residue]) in mapping.submaps.iter().enumerate() {
            let residue = &self.residues[usize::from(residue)];
            let in_submap = || {
                let of_submap = mapping.mux.iter().enumerate();
                of_submap.filter(|&(_, &other)| usize::from(other) == submap).map(|(channel, _)| channel)
            };
            let n_channels = in_submap().count();
            self.starts.clear();
            // Section 8.6.5: type 2 is one vector, in which channels alternate; of one channel it is
            // type 1.
            let is_one = residue.kind == 2 && n_channels > 1;
            let vectors = if is_one {
                if !in_submap().any(|channel| is_coded[channel]) {
                    continue;
                }
                let len = half * n_channels;
                self.interleaved[..len].fill(0.0);
                self.starts.push(0);
                Vectors { values: &mut self.interleaved, starts: &self.starts, len }
            } else {
                self.starts.extend(in_submap().filter(|&channel| is_coded[channel]).map(|i| i * stride));
                Vectors { values: &mut self.spectra, starts: &self.starts, len: half }
            };
            if vectors.starts.is_empty() {
                continue;
            }
            // At the packet's end the values read so far count, and the other submaps have none.
            match residue.read(bits, &self.books, vectors, &mut self.classes) {
                Ok(()) => {}
                Err(Stop::End) => {
                    #[cfg(test)]
                    (self.ends_early |= submap + 1 < mapping.submaps.len());
                }
                Err(Stop::Fault) => return Err(Fault::Codebook),
            }
            if is_one {
                for (place, channel) in in_submap().enumerate() {
                    let values = &self.interleaved[..half * n_channels];
                    let spectrum = &mut self.spectra[channel * stride..][..half];
                    if n_channels == 2 {
                        // As below, in vectors.
                        let pairs = values.as_chunks::<2>().0;
                        spectrum.iter_mut().zip(pairs).for_each(|(to, pair)| *to = pair[place]);
                    } else {
                        let values = values[place..].iter().step_by(n_channels);
                        spectrum.iter_mut().zip(values).for_each(|(to, from)| *to = *from);
                    }
                }
            }
        }
        Ok(())
    }

    /// Turns the residues into spectra and transforms them.
    #[inline(always)]
    fn transform<V: Lanes>(&mut self, mapping: usize, is_long: bool, half: usize) {
        let stride = self.spectra.len() / self.channels.len();
        let is_used = self.channels.iter().any(|channel| channel.is_used);
        if is_used {
            // From the last to the first (section 4.3.5): a channel may be in several pairs.
            for pair in self.mappings[mapping].couplings.iter().rev() {
                let [magnitude, angle] = pair.map(|channel| usize::from(channel) * stride);
                let (front, back) = self.spectra.split_at_mut(magnitude.max(angle));
                let (front, back) = (&mut front[magnitude.min(angle)..][..half], &mut back[..half]);
                if magnitude < angle { uncouple(front, back) } else { uncouple(back, front) }
            }
        }
        let table = floor1::amplitudes();
        for (channel, spectrum) in self.channels.iter().zip(self.spectra.chunks_exact_mut(stride)) {
            let spectrum = &mut spectrum[..half];
            match channel {
                Channel { is_used: false, .. } => spectrum.fill(0.0),
                Channel { is_curve: true, curve, .. } => {
                    spectrum.iter_mut().zip(curve).for_each(|(value, factor)| *value *= factor);
                }
                Channel { lines, .. } => floor1::apply(lines, table, spectrum),
            }
        }
        let mut n_outputs = self.channels.len();
        if self.is_mean {
            average(&mut self.spectra, stride, half);
            n_outputs = 1;
        }
        let plan = self.plans[usize::from(is_long)];
        for (channel, spectrum) in
            self.channels.iter_mut().zip(self.spectra.chunks_exact(stride)).take(n_outputs)
        {
            std::mem::swap(&mut channel.before, &mut channel.after);
            let after = &mut channel.after[..half];
            if channel.is_used || self.is_mean && is_used {
                plan.transform::<V>(&spectrum[..half], after, &mut self.scratch);
            } else {
                after.fill(0.0);
            }
        }
    }

    /// Whether the last block was silent, since no floor was used.
    #[cfg(test)]
    pub(super) fn is_silent(&self) -> bool {
        !self.channels.iter().any(|channel| channel.is_used)
    }

    /// Number of samples that the last packet yielded; 0 after the first one.
    pub(super) fn n_samples(&self) -> usize {
        match self.is_long {
            // From the middle of one block to the middle of the next: a quarter of each.
            [Some(last), Some(before)] => [last, before]
                .map(|is_long| usize::from(self.block_sizes[usize::from(is_long)] / 4))
                .iter()
                .sum(),
            _ => 0,
        }
    }

    /// Writes the samples `range` of those that the last packet yielded, of the channel at place `place` in
    /// the order of WAV.
    pub(super) fn write(&self, place: usize, range: Range<usize>, out: &mut [f32]) {
        let [Some(last), Some(before)] = self.is_long else { return };
        let channel = &self.channels[order(self.channels.len() as u8, place)];
        let half = |is_long: bool| usize::from(self.block_sizes[usize::from(is_long)] / 2);
        // Both blocks have the slopes of the shorter one.
        let window = &self.plans[usize::from(last && before)].window;
        let (before, after) = (&channel.before[..half(before)], &channel.after[..half(last)]);
        self.level.run(OverlapWork { before, after, window, range, out });
    }
}

/// [`Decoder::transform`], compiled for each level.
struct TransformWork<'a> {
    decoder: &'a mut Decoder,
    mapping: usize,
    is_long: bool,
    half: usize,
}

impl Work for TransformWork<'_> {
    type Output = ();
    #[inline(always)]
    fn run<V: Lanes>(self) {
        self.decoder.transform::<V>(self.mapping, self.is_long, self.half);
    }
}

/// [`overlap::add`], compiled for each level.
struct OverlapWork<'a> {
    before: &'a [f32],
    after: &'a [f32],
    window: &'a [f32],
    range: Range<usize>,
    out: &'a mut [f32],
}

impl Work for OverlapWork<'_> {
    type Output = ();
    #[inline(always)]
    fn run<V: Lanes>(self) {
        overlap::add(self.before, self.after, self.window, self.range, self.out);
    }
}

/// Makes the first of the spectra, of which each has `half` values in `stride`, the mean of all. The inverse
/// MDCT is linear, and all channels have the same block size, so its transform is the mean of theirs.
#[inline(always)]
fn average(spectra: &mut [f32], stride: usize, half: usize) {
    let n = spectra.len() / stride;
    let (first, others) = spectra.split_at_mut(stride);
    for other in others.chunks_exact(stride) {
        first[..half].iter_mut().zip(other).for_each(|(sum, value)| *sum += value);
    }
    let scale = 1.0 / n as f32;
    first[..half].iter_mut().for_each(|sum| *sum *= scale);
}

/// Undoes the coupling of a magnitude and an angle (section 4.3.5).
#[inline(always)]
fn uncouple(magnitudes: &mut [f32], angles: &mut [f32]) {
    for (magnitude, angle) in magnitudes.iter_mut().zip(angles) {
        let (m, a) = (*magnitude, *angle);
        // Towards zero for positive angles.
        let signed = if m > 0.0 { a } else { -a };
        let (near, far) = (m - signed, m + signed);
        (*magnitude, *angle) = if a > 0.0 { (m, near) } else { (far, m) };
    }
}

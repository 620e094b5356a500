//! Reads samples that are directly addressable: linear PCM, float, A-law, mu-law, and ADPCM in independent
//! blocks.
//!
//! The offset of a sample follows from arithmetic, so only the span's bytes are read: the cost is that of
//! converting the span. Scaling: a sample of b bits is divided by 2^(b-1), so that full scale is [-1, 1) and
//! the division is exact; 32-bit integers round once, to nearest. Containers wider than their valid bits are
//! left-justified (WAVEFORMATEXTENSIBLE) and count with their full width.
//!
//! Source: Microsoft/IBM multimedia WAVE registration; ITU-T G.711 for A-law and mu-law.

use std::ops::Range;

use bytes::Bytes;

use crate::{
    Claims, Codec, DecoderCache, Error, ErrorKind, Info, Planes, Result,
    adpcm::BlockLayout,
    corrupt,
    field::Endian,
    index::{Index, SpanWindow},
    index_file::{Parser, Writer},
    read_at::RangeReader,
    unsupported,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Coding {
    /// One byte, 128 is zero.
    Unsigned8,
    /// Two's complement of `bytes` bytes, the low-order part of a container of `stride` bytes.
    Int {
        bytes: usize,
        stride: usize,
        endian: Endian,
    },
    /// IEEE 754 of 4 or 8 bytes.
    Float {
        bytes: usize,
        endian: Endian,
    },
    Alaw,
    Mulaw,
    Adpcm(BlockLayout),
}

impl Coding {
    fn codec(&self) -> Codec {
        match self {
            Coding::Unsigned8 | Coding::Int { .. } | Coding::Float { .. } => Codec::Pcm,
            Coding::Alaw => Codec::Alaw,
            Coding::Mulaw => Codec::Mulaw,
            Coding::Adpcm(blocks) => blocks.codec(),
        }
    }

    /// Samples per channel in `bytes` bytes.
    fn n_samples(&self, bytes: u64, channels: u16) -> u64 {
        match self {
            Coding::Adpcm(blocks) => blocks.n_samples(bytes),
            linear => bytes / (linear.stride() as u64 * u64::from(channels)),
        }
    }

    fn write(&self, to: &mut Writer) {
        let big = |endian: &Endian| u8::from(*endian == Endian::Big);
        match self {
            Coding::Unsigned8 => to.byte(0),
            Coding::Int { bytes, stride, endian } => to.bytes(&[1, *bytes as u8, *stride as u8, big(endian)]),
            Coding::Float { bytes, endian } => to.bytes(&[2, *bytes as u8, big(endian)]),
            Coding::Alaw => to.byte(3),
            Coding::Mulaw => to.byte(4),
            Coding::Adpcm(blocks) => {
                to.byte(5);
                let (pairs, fields) = blocks.fields();
                to.word(pairs.len() as u32);
                for value in pairs.iter().flatten() {
                    to.bytes(&value.to_le_bytes());
                }
                for field in fields {
                    to.word(field as u32);
                }
            }
        }
    }

    fn read(from: &mut Parser<'_>, channels: u16) -> Option<Self> {
        fn endian(from: &mut Parser<'_>) -> Option<Endian> {
            from.flag().map(|big| if big { Endian::Big } else { Endian::Little })
        }
        Some(match from.byte()? {
            0 => Coding::Unsigned8,
            1 => {
                let (bytes, stride) = (usize::from(from.byte()?), usize::from(from.byte()?));
                if !(1..=8).contains(&bytes) || !(bytes..=16).contains(&stride) {
                    return None;
                }
                Coding::Int { bytes, stride, endian: endian(from)? }
            }
            2 => {
                let bytes = usize::from(from.byte().filter(|bytes| [4, 8].contains(bytes))?);
                Coding::Float { bytes, endian: endian(from)? }
            }
            3 => Coding::Alaw,
            4 => Coding::Mulaw,
            5 => {
                let n = from.word().filter(|&n| n <= 256)?;
                let mut pairs = Vec::new();
                for _ in 0..n {
                    let [a, b, c, d] = from.array()?;
                    pairs.push([i16::from_le_bytes([a, b]), i16::from_le_bytes([c, d])]);
                }
                let fields = [from.word()? as usize, from.word()? as usize, from.word()? as usize];
                let blocks = BlockLayout::from_fields(pairs, fields)?;
                Coding::Adpcm(Some(blocks).filter(|_| fields[0] == usize::from(channels))?)
            }
            _ => return None,
        })
    }

    /// Bytes from a sample of one channel to that of the next channel; 0 for ADPCM.
    pub(crate) fn stride(&self) -> usize {
        match self {
            Coding::Unsigned8 | Coding::Alaw | Coding::Mulaw => 1,
            Coding::Int { stride, .. } => *stride,
            Coding::Float { bytes, .. } => *bytes,
            Coding::Adpcm(_) => 0,
        }
    }
}

/// The coding of a recording and the place of its samples, without their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PcmFormat {
    pub(crate) info: Info,
    pub(crate) coding: Coding,
    /// The bytes of the file with the samples.
    pub(crate) data: Range<u64>,
    /// Samples per channel that the header declares; None if it declares none.
    declared: Option<u64>,
}

impl PcmFormat {
    /// The bytes `data` of the file have `coding` samples of `channels` interleaved channels; an incomplete
    /// last frame is left out.
    ///
    /// `limit` is the container's number of samples per channel, if it has one that may shorten the
    /// recording.
    pub(crate) fn new(
        data: Range<u64>,
        coding: Coding,
        sample_rate: u32,
        channels: u16,
        limit: Option<u64>,
    ) -> Result<Self> {
        if channels == 0 {
            return Err(corrupt("the header declares 0 channels"));
        }
        if sample_rate == 0 {
            return Err(corrupt("the header declares 0 samples per second"));
        }
        let n_samples = coding.n_samples(data.end - data.start, channels).min(limit.unwrap_or(u64::MAX));
        if n_samples == 0 {
            return Err(Error::new(ErrorKind::Empty, "the recording has a header but no samples"));
        }
        let info = Info { codec: coding.codec(), sample_rate, channels, n_samples };
        Ok(Self { info, coding, data, declared: None })
    }

    /// Sets the number of bytes of samples that the header declares; `data` has the existing ones.
    pub(crate) fn with_declared_bytes(mut self, bytes: Option<u64>) -> Self {
        let existing = self.data.end - self.data.start;
        self.declared = bytes.map(|bytes| match bytes > existing {
            true => self.coding.n_samples(bytes, self.info.channels),
            false => self.info.n_samples,
        });
        self
    }

    /// Sets the number of samples per channel that the header declares.
    pub(crate) fn with_declared_samples(mut self, samples: Option<u64>) -> Self {
        self.declared = samples;
        self
    }

    pub(crate) fn read(from: &mut Parser<'_>, size: u64, info: Info) -> Option<Self> {
        let data = from.range().filter(|data| data.end <= size)?;
        let coding = Coding::read(from, info.channels)?;
        let shape = Self::new(data, coding, info.sample_rate, info.channels, Some(info.n_samples)).ok()?;
        Some(shape).filter(|shape| shape.info == info)
    }

    /// Bytes and samples of the units that can be decoded alone: frames, or blocks of ADPCM.
    fn unit(&self) -> (u64, u64) {
        match &self.coding {
            Coding::Adpcm(blocks) => blocks.unit(),
            linear => (linear.stride() as u64 * u64::from(self.info.channels), 1),
        }
    }

    /// The bytes of the file that hold `span`, and the first sample in them.
    fn bytes_of(&self, span: &Range<u64>) -> (Range<u64>, u64) {
        let (bytes, samples) = self.unit();
        let (first, end) = (span.start / samples, span.end.div_ceil(samples));
        let end = self.data.end.min(self.data.start.saturating_add(end.saturating_mul(bytes)));
        (self.data.start + first * bytes..end, first * samples)
    }

    /// Decodes `span`, counted from the first sample in `data`.
    fn convert(
        &self,
        cache: &mut DecoderCache,
        data: &[u8],
        span: Range<u64>,
        out: &mut Planes,
    ) -> Result<()> {
        if let Coding::Adpcm(blocks) = &self.coding {
            return blocks.read(data, &mut cache.block, span, out);
        }
        let frame = self.coding.stride() * usize::from(self.info.channels);
        let bytes = &data[span.start as usize * frame..span.end as usize * frame];
        match self.coding {
            Coding::Unsigned8 => convert(bytes, out, 1, |[x]: [u8; 1]| (f32::from(x) - 128.0) / 128.0),
            Coding::Alaw => convert(bytes, out, 1, |[x]: [u8; 1]| f32::from(ALAW[usize::from(x)]) / 32768.0),
            Coding::Mulaw => {
                convert(bytes, out, 1, |[x]: [u8; 1]| f32::from(MULAW[usize::from(x)]) / 32768.0)
            }
            Coding::Int { bytes: n, stride, endian } => ints(bytes, out, n, stride, endian)?,
            Coding::Float { bytes: n, endian } => match (n, endian) {
                (4, Endian::Little) => convert(bytes, out, 4, f32::from_le_bytes),
                (4, Endian::Big) => convert(bytes, out, 4, f32::from_be_bytes),
                (_, Endian::Little) => convert(bytes, out, 8, |x| f64::from_le_bytes(x) as f32),
                (_, Endian::Big) => convert(bytes, out, 8, |x| f64::from_be_bytes(x) as f32),
            },
            Coding::Adpcm(_) => {}
        }
        Ok(())
    }
}

impl Index for PcmFormat {
    fn read_window(
        &self,
        _: &mut DecoderCache,
        reader: &RangeReader<'_>,
        span: &Range<u64>,
    ) -> Result<SpanWindow<Bytes>> {
        let (range, first) = self.bytes_of(span);
        let units = Some(first..span.end);
        Ok(SpanWindow { at: range.start, bytes: reader.read(range)?, units, start: 0 })
    }

    fn decode(
        &self,
        cache: &mut DecoderCache,
        window: &SpanWindow<&[u8]>,
        span: Range<u64>,
        out: &mut Planes,
    ) -> Result<()> {
        match &window.units {
            None => {
                let Range { start, end } = self.data;
                self.convert(cache, &window.bytes[start as usize..end as usize], span, out)
            }
            Some(units) => {
                self.convert(cache, window.bytes, span.start - units.start..span.end - units.start, out)
            }
        }
    }

    fn write(&self, to: &mut Writer) {
        to.range(&self.data);
        self.coding.write(to);
    }

    fn add_claims(&self, info: Info, claims: &mut Claims) {
        claims.compare(info, self.declared, 0, "the header declares");
    }
}

/// Integers of `n` bytes at the low-order end of containers of `stride` bytes.
fn ints(bytes: &[u8], out: &mut Planes, n: usize, stride: usize, endian: Endian) -> Result<()> {
    const S16: f32 = 1.0 / 32768.0;
    const S32: f32 = 1.0 / 2_147_483_648.0;
    match (n, stride, endian) {
        (1, 1, _) => convert(bytes, out, 1, |x| f32::from(i8::from_le_bytes(x)) / 128.0),
        (2, 2, Endian::Little) => convert(bytes, out, 2, |x| f32::from(i16::from_le_bytes(x)) * S16),
        (2, 2, Endian::Big) => convert(bytes, out, 2, |x| f32::from(i16::from_be_bytes(x)) * S16),
        (3, 3, Endian::Little) => {
            convert(bytes, out, 3, |[a, b, c]| i32::from_le_bytes([0, a, b, c]) as f32 * S32);
        }
        (3, 3, Endian::Big) => {
            convert(bytes, out, 3, |[a, b, c]| i32::from_be_bytes([a, b, c, 0]) as f32 * S32);
        }
        (4, 4, Endian::Little) => convert(bytes, out, 4, |x| i32::from_le_bytes(x) as f32 * S32),
        (4, 4, Endian::Big) => convert(bytes, out, 4, |x| i32::from_be_bytes(x) as f32 * S32),
        _ => {
            // Odd widths and containers wider than their samples are rare, so they are read sample by sample.
            let channels = usize::from(out.channels());
            for c in 0..channels {
                for (i, y) in out.channel_mut(c).iter_mut().enumerate() {
                    let at = (i * channels + c) * stride;
                    *y = wide(&bytes[at..at + stride], n, endian);
                }
            }
        }
    }
    Ok(())
}

/// Reads one integer sample of any width up to 8 bytes: slow and plain; the oracle of [`ints`].
fn wide(container: &[u8], n: usize, endian: Endian) -> f32 {
    let mut value = 0u64;
    for k in 0..n {
        let byte = match endian {
            Endian::Little => container[n - 1 - k],
            Endian::Big => container[container.len() - n + k],
        };
        value |= u64::from(byte) << (56 - 8 * k);
    }
    // i64 to f32 rounds once; the factor is a power of two.
    (value as i64) as f32 * (1.0 / 9_223_372_036_854_775_808.0)
}

/// Converts every sample of `N` bytes with `f` and writes it to its channel.
fn convert<const N: usize>(bytes: &[u8], out: &mut Planes, stride: usize, f: impl Fn([u8; N]) -> f32) {
    debug_assert_eq!(stride, N);
    let (samples, _) = bytes.as_chunks::<N>();
    let channels = usize::from(out.channels());
    if channels == 1 {
        for (y, x) in out.channel_mut(0).iter_mut().zip(samples) {
            *y = f(*x);
        }
        return;
    }
    if channels == 2 {
        // Whole frames, so that the loop has no bounds checks.
        let (frames, _) = samples.as_chunks::<2>();
        for c in 0..2 {
            for (y, x) in out.channel_mut(c).iter_mut().zip(frames) {
                *y = f(x[c]);
            }
        }
        return;
    }
    for c in 0..channels {
        for (y, x) in out.channel_mut(c).iter_mut().zip(samples[c..].iter().step_by(channels)) {
            *y = f(*x);
        }
    }
}

/// The coding of integers of `bits` bits in containers of `stride` bytes.
pub(crate) fn int_coding(bits: u16, stride: usize, endian: Endian) -> Result<Coding> {
    let bytes = usize::from(bits.div_ceil(8));
    if bits == 0 || bytes > 8 || stride > 16 {
        return Err(unsupported(format!("{bits}-bit integer samples are not decoded, only 1 to 64 bits")));
    }
    if stride < bytes {
        return Err(corrupt(format!("samples of {bits} bits do not fit {stride} bytes")));
    }
    Ok(Coding::Int { bytes, stride, endian })
}

/// The coding of floats of `bits` bits.
pub(crate) fn float_coding(bits: u16, endian: Endian) -> Result<Coding> {
    match bits {
        32 | 64 => Ok(Coding::Float { bytes: usize::from(bits / 8), endian }),
        _ => Err(unsupported(format!("{bits}-bit float samples are not decoded, only 32 and 64 bits"))),
    }
}

/// ITU-T G.711, table 1: A-law to 16-bit linear.
static ALAW: [i16; 256] = {
    let mut table = [0i16; 256];
    let mut code = 0;
    while code < 256 {
        let inverted = code ^ 0x55;
        let mantissa = (inverted & 0x0f) << 4;
        let segment = (inverted & 0x70) >> 4;
        let magnitude = if segment == 0 { mantissa + 8 } else { (mantissa + 0x108) << (segment - 1) };
        table[code] = if inverted & 0x80 != 0 { magnitude as i16 } else { -(magnitude as i16) };
        code += 1;
    }
    table
};

/// ITU-T G.711, table 2: mu-law to 16-bit linear.
static MULAW: [i16; 256] = {
    let mut table = [0i16; 256];
    let mut code = 0;
    while code < 256 {
        let inverted = code ^ 0xff;
        let magnitude = ((((inverted & 0x0f) << 3) + 0x84) << ((inverted & 0x70) >> 4)) - 0x84;
        table[code] = if inverted & 0x80 != 0 { -(magnitude as i16) } else { magnitude as i16 };
        code += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn companding_tables_have_the_standard_extremes() {
        assert_eq!((ALAW[0x80 ^ 0x55], ALAW[0x2a], ALAW[0xaa]), (8, -32256, 32256));
        assert_eq!((MULAW[0xff], MULAW[0x00], MULAW[0x80]), (0, -32124, 32124));
    }

    #[test]
    fn every_width_equals_the_plain_way() {
        let bytes: Vec<u8> =
            (0..2 * 7 * 40u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for endian in [Endian::Little, Endian::Big] {
            for n in 1..=7usize {
                let coding = int_coding(8 * n as u16, n, endian).unwrap();
                let pcm = PcmFormat::new(0..bytes.len() as u64, coding, 8000, 2, None).unwrap();
                let mut out = Planes::new();
                out.reset(2, pcm.info.n_samples as usize).unwrap();
                pcm.convert(&mut DecoderCache::default(), &bytes, 0..pcm.info.n_samples, &mut out).unwrap();
                for i in 0..out.len() {
                    for c in 0..2 {
                        let at = (2 * i + c) * n;
                        let want = wide(&bytes[at..at + n], n, endian);
                        assert_eq!(out.channel(c)[i].to_bits(), want.to_bits(), "{n} bytes, {endian:?}");
                    }
                }
            }
        }
    }
}

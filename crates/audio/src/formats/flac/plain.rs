//! Decodes a FLAC frame bit by bit, in 64-bit arithmetic: slow and plain. It is the oracle of the fast
//! decoder in tests, also where symphonia's 32-bit arithmetic is too narrow.
//!
//! Source: RFC 9639, section 9.

use crate::formats::flac::frame::{Channels, Header, Stream};

/// Reads the bits of a frame, the highest of each byte first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn bit(&mut self) -> Option<u64> {
        let bit = self.bytes.get(self.at / 8)? >> (7 - self.at % 8) & 1;
        self.at += 1;
        Some(bit.into())
    }

    fn unsigned(&mut self, n: u32) -> Option<u64> {
        (0..n).try_fold(0, |value, _| Some(value << 1 | self.bit()?))
    }

    fn signed(&mut self, n: u32) -> Option<i64> {
        let value = self.unsigned(n)?;
        Some(if n == 0 { 0 } else { (value << (64 - n)) as i64 >> (64 - n) })
    }

    /// The number of zeros up to the next one.
    fn unary(&mut self) -> Option<u64> {
        let mut n = 0;
        while self.bit()? == 0 {
            n += 1;
        }
        Some(n)
    }
}

/// Decodes the frame at the start of `bytes` into `samples`: one channel after the other, in the stream's
/// width. Returns the number of the frame's bytes.
///
/// The CRC-16 is counted, but not checked. `None` if the frame is damaged or cut short.
pub(crate) fn decode(bytes: &[u8], stream: &Stream, samples: &mut Vec<i64>) -> Option<usize> {
    samples.clear();
    let header = Header::parse(bytes)?;
    let mut bits = Bits { bytes, at: 8 * header.len };
    let n = header.block as usize;
    let width = u32::from(stream.bits);
    let side_at = |c| u32::from(header.channels.side() == Some(c));
    for c in 0..header.channels.count() {
        subframe(&mut bits, n, width + side_at(c), samples)?;
    }
    if header.channels.side().is_some() {
        let (first, second) = samples.split_at_mut(n);
        for (a, b) in first.iter_mut().zip(second) {
            (*a, *b) = match header.channels {
                Channels::LeftSide => (*a, a.wrapping_sub(*b)),
                Channels::SideRight => (a.wrapping_add(*b), *b),
                _ => {
                    let mid = *a << 1 | *b & 1;
                    (mid.wrapping_add(*b) >> 1, mid.wrapping_sub(*b) >> 1)
                }
            };
        }
    }
    Some(bits.at.div_ceil(8) + 2)
}

/// Appends the `n` samples of a subframe.
fn subframe(bits: &mut Bits<'_>, n: usize, width: u32, samples: &mut Vec<i64>) -> Option<()> {
    if bits.bit()? != 0 {
        return None;
    }
    let kind = bits.unsigned(6)? as u32;
    let wasted = if bits.bit()? == 1 { 1 + bits.unary()? as u32 } else { 0 };
    let width = width.checked_sub(wasted)?;
    let begin = samples.len();
    match kind {
        0 => {
            let value = bits.signed(width)?;
            // bounded: a block has at most 65 536 samples.
            samples.resize(begin + n, value);
        }
        1 => verbatim(bits, n, width, samples)?,
        8..=12 => {
            let coefficients: &[i64] =
                [&[][..], &[1], &[2, -1], &[3, -3, 1], &[4, -6, 4, -1]][kind as usize - 8];
            verbatim(bits, coefficients.len(), width, samples)?;
            predicted(bits, n, begin, samples, coefficients, 0)?;
        }
        32.. => {
            let order = kind as usize - 31;
            verbatim(bits, order, width, samples)?;
            let precision = bits.unsigned(4)? as u32 + 1;
            let shift = u32::try_from(bits.signed(5)?).ok().filter(|_| precision < 16)?;
            let mut coefficients = [0; 32];
            for coefficient in &mut coefficients[..order] {
                *coefficient = bits.signed(precision)?;
            }
            predicted(bits, n, begin, samples, &coefficients[..order], shift)?;
        }
        _ => return None,
    }
    for sample in &mut samples[begin..] {
        *sample <<= wasted;
    }
    Some(())
}

/// Appends `n` samples that are stored verbatim.
fn verbatim(bits: &mut Bits<'_>, n: usize, width: u32, samples: &mut Vec<i64>) -> Option<()> {
    for _ in 0..n {
        samples.push(bits.signed(width)?);
    }
    Some(())
}

/// Appends the samples after the warm-up, of `n` from `begin` on: prediction plus coded residual.
fn predicted(
    bits: &mut Bits<'_>,
    n: usize,
    begin: usize,
    samples: &mut Vec<i64>,
    coefficients: &[i64],
    shift: u32,
) -> Option<()> {
    let parameter_bits = match bits.unsigned(2)? {
        0 => 4,
        1 => 5,
        _ => return None,
    };
    let n_partitions = 1usize << bits.unsigned(4)?;
    if !n.is_multiple_of(n_partitions) || n / n_partitions < coefficients.len() {
        return None;
    }
    for partition in 1..=n_partitions {
        let parameter = bits.unsigned(parameter_bits)? as u32;
        let is_escaped = parameter == (1 << parameter_bits) - 1;
        let raw = if is_escaped { bits.unsigned(5)? as u32 } else { 0 };
        while samples.len() - begin < partition * (n / n_partitions) {
            let residual = if is_escaped {
                bits.signed(raw)?
            } else {
                let folded = bits.unary()?.checked_shl(parameter)? | bits.unsigned(parameter)?;
                (folded >> 1) as i64 ^ -((folded & 1) as i64)
            };
            let before = samples[begin..].iter().rev().zip(coefficients);
            let sum = before.fold(0i64, |sum, (x, c)| sum.wrapping_add(x.wrapping_mul(*c)));
            samples.push((sum >> shift).wrapping_add(residual));
        }
    }
    Some(())
}

//! Floors of type 0: a curve of line spectral pairs.
//!
//! Input: a packet's bits. Output: the amplitude of each bin. Only encoders older than Vorbis 1.0 write this
//! floor, so it is written plainly, in float64.
//!
//! Also refused: the numbers of books that the specification reserves. symphonia takes codebook 0 for them.
//!
//! Source: Vorbis I specification, section 6.2.

use std::f64::consts::PI;

use super::{
    codebook::{Book, Stop},
    reservoir::Reservoir,
    setup::{self, ilog},
};

/// A floor that is ready for use.
#[derive(Debug)]
pub(super) struct Pairs {
    of: setup::Floor0,
    /// Cosine of the frequency of each bin, of short and long blocks.
    cosines: [Vec<f64>; 2],
}

impl Pairs {
    pub(super) fn new(of: &setup::Floor0, block_sizes: [u16; 2]) -> Self {
        let cosines = block_sizes.map(|size| {
            let bark = |x: f64| {
                13.1 * libm::atan(0.00074 * x) + 2.24 * libm::atan(0.000_000_018_5 * x * x) + 0.0001 * x
            };
            let (rate, map_size, half) =
                (f64::from(of.rate), f64::from(of.bark_map_size), f64::from(size / 2));
            let position = |i: u16| {
                let bark = bark(rate * f64::from(i) / (2.0 * half)) * map_size / bark(0.5 * rate);
                (bark.floor() as i32).min(i32::from(of.bark_map_size) - 1)
            };
            (0..size / 2).map(|i| libm::cos(PI * f64::from(position(i)) / map_size)).collect()
        });
        Self { of: of.clone(), cosines }
    }

    /// The approximate bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.cosines.iter().map(|cosines| size_of_val(&**cosines)).sum()
    }

    /// Reads the curve of a channel in a short or a long block; false if it is not used.
    ///
    /// # Errors
    /// [`Stop::Fault`] for a missing codebook, one without vectors, and a curve with a pole; [`Stop::End`] if
    /// the packet ends.
    pub(super) fn read(
        &self,
        bits: &mut Reservoir<'_>,
        books: &[Book],
        is_long: bool,
        curve: &mut Vec<f32>,
    ) -> Result<bool, Stop> {
        let setup::Floor0 { order, amplitude_bits, amplitude_offset, books: ref numbers, .. } = self.of;
        let low = bits.read(amplitude_bits.min(32))?;
        let high = bits.read(amplitude_bits.saturating_sub(32))?;
        let amplitude = u64::from(high) << 32 | u64::from(low);
        if amplitude == 0 {
            return Ok(false);
        }
        let number = bits.read(ilog(numbers.len() as u32))? as usize;
        let book = &books[usize::from(*numbers.get(number).ok_or(Stop::Fault)?)];
        let (mut cosines, mut n, mut last) = ([0.0; 256], 0, 0.0);
        while n < usize::from(order) {
            let vector = book.vector(bits)?;
            for value in &vector[..vector.len().min(usize::from(order) - n)] {
                cosines[n] = f64::from(last + value);
                n += 1;
            }
            last = cosines[n - 1] as f32;
        }
        let cosines = &mut cosines[..n];
        cosines.iter_mut().for_each(|angle| *angle = libm::cos(*angle));
        let offset = f64::from(amplitude_offset);
        let highest = ((1u64 << amplitude_bits) - 1) as f64;
        curve.clear();
        let mut of_last = (f64::NAN, 0.0);
        for &cosine in &self.cosines[usize::from(is_long)] {
            if cosine != of_last.0 {
                let product = |skip: usize| {
                    let factors = cosines.iter().skip(skip).step_by(2);
                    factors.fold(1.0, |product, c| product * 4.0 * (c - cosine) * (c - cosine))
                };
                let (p, q) = if n % 2 == 1 {
                    ((1.0 - cosine * cosine) * product(1), product(0) / 4.0)
                } else {
                    ((1.0 - cosine) / 2.0 * product(1), (1.0 + cosine) / 2.0 * product(0))
                };
                if p + q == 0.0 {
                    return Err(Stop::Fault);
                }
                let decibels = amplitude as f64 * offset / (highest * (p + q).sqrt()) - offset;
                of_last = (cosine, libm::exp(0.115_129_25 * decibels) as f32);
            }
            curve.push(of_last.1);
        }
        Ok(true)
    }
}

//! Residues: the fine structure of the spectrum, in several passes of vector codewords.
//!
//! Input: a packet's bits. Output: values added to the spectra of a submap's channels (types 0 and 1), or to
//! one spectrum in which the channels alternate (type 2). The order is that of the specification, so the sums
//! of float32 are those of any other decoder. Work is bounded by bins and eight passes.
//!
//! Refused, as in symphonia: codebook 0 as a vector codebook. If the partition size is no multiple of a
//! codebook's dimensions, the rest of the partition has no vector.
//!
//! Source: Vorbis I specification, section 8.6.

use super::{
    codebook::{Book, PER_REFILL, Stop},
    reservoir::Reservoir,
    setup,
};

/// A residue that is ready for use.
#[derive(Debug)]
pub(super) struct Residue {
    pub kind: u8,
    begin: usize,
    end: usize,
    partition_size: usize,
    class_book: usize,
    n_classes: u32,
    /// The codebook of each classification in each pass: `books[pass][class]`.
    books: Vec<Vec<Option<u8>>>,
}

/// The vectors into which a residue is decoded: `starts.len()` of `len` values in `values`.
pub(super) struct Vectors<'a> {
    pub values: &'a mut [f32],
    pub starts: &'a [usize],
    pub len: usize,
}

impl Residue {
    /// Builds a residue; the text is the reason why it cannot be used.
    pub(super) fn new(of: &setup::Residue) -> Result<Self, &'static str> {
        if of.books.iter().flatten().any(|&book| book == Some(0)) {
            return Err("a residue has codebook 0 for its vectors");
        }
        let n_passes = (0..8).rev().find(|&pass| of.books.iter().any(|books| books[pass].is_some()));
        Ok(Self {
            kind: of.kind,
            begin: of.begin as usize,
            end: of.end as usize,
            partition_size: of.partition_size as usize,
            class_book: of.class_book.into(),
            n_classes: of.books.len() as u32,
            // The first pass reads the classes; passes after the last codebook read nothing.
            books: (0..=n_passes.unwrap_or(0))
                .map(|pass| of.books.iter().map(|books| books[pass]).collect())
                .collect(),
        })
    }

    /// Adds the residue of a block to `vectors`, up to the end of the packet.
    ///
    /// `classes` is scratch.
    ///
    /// # Errors
    /// [`Stop::Fault`] for codebooks without codewords or vectors, [`Stop::End`] if the packet ends.
    pub(super) fn read(
        &self,
        bits: &mut Reservoir<'_>,
        books: &[Book],
        vectors: Vectors<'_>,
        classes: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let Vectors { values, starts, len } = vectors;
        let begin = self.begin.min(len);
        let n_partitions = (self.end.min(len) - begin) / self.partition_size;
        let class_book = &books[self.class_book];
        let per_word = class_book.dimensions;
        // The classes of a group of partitions, all vectors side by side.
        let stride = n_partitions.next_multiple_of(per_word);
        classes.clear();
        // bounded: partitions lie within a block of at most 8192 samples, and vectors are at most 8.
        classes.resize(stride * starts.len(), 0);
        for (pass, pass_books) in self.books.iter().enumerate() {
            for first in (0..n_partitions).step_by(per_word) {
                // Classes are coded once, in front of the vectors of the first pass (section 8.6.2).
                if pass == 0 {
                    for vector in 0..starts.len() {
                        let mut word = class_book.entry(bits)?;
                        let at = vector * stride + first;
                        // The class of the first partition is the highest digit of the codeword's number.
                        for class in classes[at..at + per_word].iter_mut().rev() {
                            *class = (word % self.n_classes) as u8;
                            word /= self.n_classes;
                        }
                    }
                }
                for partition in first..(first + per_word).min(n_partitions) {
                    for (vector, start) in starts.iter().enumerate() {
                        let class = classes[vector * stride + partition];
                        if let Some(book) = pass_books[usize::from(class)] {
                            let at = start + begin + partition * self.partition_size;
                            let part = &mut values[at..at + self.partition_size];
                            let book = &books[usize::from(book)];
                            if self.kind == 0 { spread(bits, book, part)? } else { packed(bits, book, part)? }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// A partition of type 0: the values of a vector are far apart (section 8.6.3).
fn spread(bits: &mut Reservoir<'_>, book: &Book, part: &mut [f32]) -> Result<(), Stop> {
    let step = part.len() / book.dimensions;
    for first in 0..step {
        let vector = book.vector(bits)?;
        part[first..].iter_mut().step_by(step).zip(vector).for_each(|(sum, value)| *sum += value);
    }
    Ok(())
}

/// A partition of types 1 and 2: vector after vector (section 8.6.4).
#[inline(always)]
fn packed(bits: &mut Reservoir<'_>, book: &Book, part: &mut [f32]) -> Result<(), Stop> {
    match book.dimensions {
        1 => packed_of::<1>(bits, book, part),
        2 => packed_of::<2>(bits, book, part),
        4 => packed_of::<4>(bits, book, part),
        8 => packed_of::<8>(bits, book, part),
        dimensions => {
            for part in part.chunks_exact_mut(dimensions) {
                let vector = book.vector(bits)?;
                part.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value);
            }
            Ok(())
        }
    }
}

/// As [`packed`], for codebooks of `D` dimensions.
fn packed_of<const D: usize>(bits: &mut Reservoir<'_>, book: &Book, part: &mut [f32]) -> Result<(), Stop> {
    // A copy stays in registers.
    let mut local = *bits;
    // One refill for the codewords that 56 bits are sure to hold; a long one refills by itself.
    for parts in part.as_chunks_mut::<D>().0.chunks_mut(PER_REFILL) {
        local.refill();
        for part in parts {
            match book.vector_of::<D>(&mut local) {
                Ok(vector) => part.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value),
                Err(stop) => {
                    *bits = local;
                    return Err(stop);
                }
            }
        }
    }
    *bits = local;
    Ok(())
}

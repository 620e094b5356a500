//! [`Draws`]: the numbers that a step draws, in order. Source: own.

use crate::seed::{Purpose, below, hash};

/// Numbers between which a value is drawn, uniformly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// The lowest value; at most `high`.
    pub low: f64,
    /// The highest value; if it is `low`, nothing is random.
    pub high: f64,
}

/// Whole numbers between which one is drawn, each equally likely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// The lowest number; at most `high`.
    pub low: usize,
    /// The highest number.
    pub high: usize,
}

/// What a step draws, in order.
#[derive(Debug, Clone, Copy)]
pub struct Draws {
    pub(super) seed: u64,
    pub(super) key: u64,
    pub(super) reading: usize,
    pub(super) next: u64,
}

impl Draws {
    /// The step's number among those of its class.
    pub fn number(&self) -> usize {
        (self.key & 0xffff_ffff) as usize
    }

    /// Its number among the steps that read other recordings, if it does.
    pub fn reading(&self) -> usize {
        self.reading
    }

    /// The next 64 random bits of the step.
    pub fn bits(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        hash(self.seed, Purpose::Augment, [self.key, number])
    }

    /// A number in `[0, 1)`, uniform.
    pub fn unit(&mut self) -> f64 {
        const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
        (self.bits() >> 11) as f64 * SCALE
    }

    /// A number between the bounds, uniform.
    pub fn within(&mut self, Bounds { low, high }: Bounds) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A whole number between the bounds, both included.
    pub(super) fn whole(&mut self, Counts { low, high }: Counts) -> usize {
        low + self.below(high - low + 1)
    }

    /// A whole number below `n`; 0 if that is 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        below(self.bits(), n as u64) as usize
    }

    /// Without the next `n` draws, for parts of a step that are drawn last and done first.
    pub(super) fn after(self, n: usize) -> Self {
        Self { next: self.next + n as u64, ..self }
    }

    /// A number between the bounds, uniform on a logarithmic scale.
    pub(super) fn log_within(&mut self, Bounds { low, high }: Bounds) -> f64 {
        let [low, high] = [low, high].map(libm::log);
        libm::exp(self.within(Bounds { low, high })).max(f64::MIN_POSITIVE)
    }
}

//! The packets of a container, and the part of them that is the recording.

/// The position of a packet, and its duration in ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    /// Byte offset in the bytes that hold the recording's packets.
    pub(crate) at: usize,
    pub(crate) len: u32,
    pub(crate) dur: u32,
}

/// The part of a track's packets that is the recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    /// Ticks before the recording's first.
    pub(crate) delay: u64,
    /// Ticks of the recording from there on, rounded up; `None` for all.
    pub(crate) length: Option<u64>,
    /// The ticks of [`Self::length`] that were added by rounding up.
    pub(crate) rounded_by: u64,
    /// Ticks per second; `None` if ticks are samples.
    pub(crate) timescale: Option<u32>,
}

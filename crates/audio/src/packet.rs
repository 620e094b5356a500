//! A packet of a container.

/// The position of a packet, and its duration in ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    /// Byte offset in the bytes that hold the recording's packets.
    pub(super) at: usize,
    pub(super) len: u32,
    pub(super) dur: u32,
}

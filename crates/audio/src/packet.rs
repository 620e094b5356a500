//! A packet of a container.

/// The position of a packet, and its duration in ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    /// Byte offset in the bytes that hold the recording's packets.
    pub(crate) at: usize,
    pub(crate) len: u32,
    pub(crate) dur: u32,
}

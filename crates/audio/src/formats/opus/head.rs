//! The identification header: channels, pre-skip, gain, and which decoded channel is which.
//!
//! Source: RFC 7845, section 5.1.

use super::{MAGIC, SAMPLE_RATE};
use crate::{
    Codec, Info, Result, corrupt,
    field::{Endian, u16_at},
    formats::vorbis::wav_order,
    unsupported,
};

/// The most channels that are decoded; family 1 has no more.
pub(super) const MAX_CHANNELS: usize = 8;
/// The entry of a silent channel in a mapping table (RFC 7845, 5.1.1).
const SILENT: u8 = 255;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub channels: u8,
    /// Samples at 48 kHz that are dropped before the first one.
    pub pre_skip: u16,
    /// Output gain, 1/256 dB.
    gain: i16,
    family: u8,
    pub streams: u8,
    /// The first streams, which have two channels each.
    coupled: u8,
    /// The decoded channel of each channel in the file's order.
    mapping: [u8; MAX_CHANNELS],
}

impl Head {
    /// # Errors
    /// [`crate::ErrorKind::Unsupported`] for mappings that are not decoded, [`crate::ErrorKind::Corrupt`] for
    /// numbers that contradict each other.
    pub(super) fn parse(packet: &[u8]) -> Result<Self> {
        let short = || corrupt("the OpusHead packet is cut short");
        let [version, channels] = *packet.get(8..10).and_then(<[u8]>::first_chunk).ok_or_else(short)?;
        let word = |at: usize| u16_at(packet, at, Endian::Little).ok_or_else(short);
        let family = *packet.get(18).ok_or_else(short)?;
        if version >= 16 {
            return Err(unsupported(format!("OpusHead of version {version}; versions below 16 are decoded")));
        }
        let mut this = Self {
            channels,
            pre_skip: word(10)?,
            gain: word(16)?.cast_signed(),
            family,
            streams: 1,
            coupled: channels.saturating_sub(1),
            mapping: [0, 1, 0, 0, 0, 0, 0, 0],
        };
        let most = match family {
            0 => 2,
            1 | 255 => MAX_CHANNELS as u8,
            2 | 3 => return Err(unsupported("Opus of ambisonics (channel mapping family 2 or 3)")),
            _ => {
                return Err(unsupported(format!(
                    "Opus of channel mapping family {family}; 0, 1 and 255 are decoded"
                )));
            }
        };
        if family == 255 && channels > most {
            return Err(unsupported(format!(
                "Opus of {channels} discrete channels; up to {most} are decoded"
            )));
        }
        if !(1..=most).contains(&channels) {
            return Err(corrupt(format!(
                "OpusHead declares {channels} channels; channel mapping family {family} has 1 to {most}"
            )));
        }
        if family > 0 {
            let n = usize::from(channels);
            let [streams, coupled] = *packet.get(19..21).and_then(<[u8]>::first_chunk).ok_or_else(short)?;
            (this.streams, this.coupled) = (streams, coupled);
            this.mapping[..n].copy_from_slice(packet.get(21..21 + n).ok_or_else(short)?);
            let n_decoded = u16::from(streams) + u16::from(coupled);
            let is_known = |&decoded: &u8| decoded == SILENT || u16::from(decoded) < n_decoded;
            if streams == 0 || coupled > streams || n_decoded > 255 || !this.mapping[..n].iter().all(is_known)
            {
                return Err(corrupt(format!(
                    "the channel mapping of OpusHead contradicts its {streams} streams, of which {coupled} are coupled"
                )));
            }
        }
        Ok(this)
    }

    /// A packet that is parsed into it.
    pub(super) fn packet(&self) -> Vec<u8> {
        let mut packet = MAGIC.to_vec();
        packet.extend([1, self.channels]);
        packet.extend(self.pre_skip.to_le_bytes());
        packet.extend(SAMPLE_RATE.to_le_bytes());
        packet.extend(self.gain.to_le_bytes());
        packet.push(self.family);
        if self.family > 0 {
            packet.extend([self.streams, self.coupled]);
            packet.extend(&self.mapping[..usize::from(self.channels)]);
        }
        packet
    }

    /// Rate and channels, and the length of a recording of `n_samples`.
    pub(super) fn info(&self, n_samples: u64) -> Info {
        Info { codec: Codec::Opus, sample_rate: SAMPLE_RATE, channels: self.channels.into(), n_samples }
    }

    /// The factor of the output gain.
    pub(super) fn gain(&self) -> f32 {
        if self.gain == 0 { 1.0 } else { libm::exp10(f64::from(self.gain) / (20.0 * 256.0)) as f32 }
    }

    /// What a decoder is built from: two heads with equal ones share it.
    pub(super) fn setup(&self) -> [u8; 2 + MAX_CHANNELS] {
        let mut setup = [0; 2 + MAX_CHANNELS];
        (setup[0], setup[1]) = (self.streams, self.coupled);
        setup[2..].copy_from_slice(&self.mapping);
        setup
    }

    /// The number of channels of a stream.
    pub(super) fn width(&self, stream: usize) -> usize {
        if stream < usize::from(self.coupled) { 2 } else { 1 }
    }

    /// The stream of channel `place` in the order of the output, and its channel there; None if it is silent.
    pub(super) fn source(&self, place: usize) -> Option<(usize, usize)> {
        let in_file = if self.family == 1 { wav_order(self.channels, place) } else { place };
        let decoded = self.mapping[in_file];
        let (coupled, decoded_at) = (usize::from(self.coupled), usize::from(decoded));
        (decoded != SILENT).then(|| match decoded_at.checked_sub(2 * coupled) {
            Some(mono) => (coupled + mono, 0),
            None => (decoded_at / 2, decoded_at % 2),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn head(channels: u8, family: u8, table: &[u8]) -> Vec<u8> {
        let mut packet = b"OpusHead\x01".to_vec();
        packet.push(channels);
        packet.extend([0x38, 0x01, 0x80, 0xbb, 0, 0, 0x00, 0xfd, family]);
        packet.extend(table);
        packet
    }

    #[test]
    fn numbers_are_read_and_written() {
        let surround = head(6, 1, &[4, 2, 0, 4, 1, 2, 3, 5]);
        for packet in [head(1, 0, &[]), head(2, 0, &[]), head(3, 255, &[3, 0, 2, 255, 0]), surround] {
            let head = Head::parse(&packet).unwrap();
            assert_eq!((head.pre_skip, head.channels), (312, packet[9]));
            // 768 / 256 = 3 dB less.
            assert!((head.gain() - 0.707_946).abs() < 1e-6);
            assert_eq!(Head::parse(&head.packet()).unwrap(), head);
        }
        // RFC 7845, section 5.1.1.2: left, center, right, rear left, rear right, LFE in the file.
        let surround = Head::parse(&head(6, 1, &[4, 2, 0, 4, 1, 2, 3, 5])).unwrap();
        let sources: Vec<_> = (0..6).map(|place| surround.source(place).unwrap()).collect();
        assert_eq!(sources, [(0, 0), (0, 1), (2, 0), (3, 0), (1, 0), (1, 1)]);
        let discrete = Head::parse(&head(3, 255, &[3, 0, 2, 255, 0])).unwrap();
        assert_eq!([0, 1, 2].map(|place| discrete.source(place)), [Some((2, 0)), None, Some((0, 0))]);
    }

    #[test]
    fn contradictions_are_refused() {
        let corrupt = [
            head(0, 0, &[]),
            head(3, 0, &[]),
            head(9, 1, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            head(2, 1, &[0, 0, 0, 0]),
            head(2, 1, &[1, 2, 0, 1]),
            head(2, 1, &[1, 0, 0, 1]),
            head(2, 1, &[200, 100, 0, 1]),
            head(2, 1, &[1, 1, 0]),
            b"OpusHead\x01\x02".to_vec(),
            b"OpusHead".to_vec(),
        ];
        for packet in corrupt {
            assert_eq!(Head::parse(&packet).unwrap_err().kind, ErrorKind::Corrupt, "{packet:?}");
        }
        for (packet, name) in [
            (head(4, 2, &[4, 0, 0, 1, 2, 3]), "ambisonics"),
            (head(4, 3, &[4, 0, 0, 1, 2, 3]), "ambisonics"),
            (head(2, 7, &[1, 1, 0, 1]), "family 7"),
            (head(9, 255, &[9, 0]), "9 discrete channels"),
            ([&b"OpusHead\x10"[..], &head(1, 0, &[])[9..]].concat(), "version 16"),
        ] {
            let error = Head::parse(&packet).unwrap_err();
            assert!(error.kind == ErrorKind::Unsupported && error.message.contains(name), "{error}");
        }
    }
}

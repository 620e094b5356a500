//! The frames of a packet, and its duration.
//!
//! Packets are split here, and frames are decoded one by one. A packet of several streams has one after the
//! other; all but the last say where they end.
//!
//! Source: RFC 6716, sections 3.1 and 3.2, and appendix B.

/// The most samples of a packet per channel, 120 ms.
pub(super) const MAX_SAMPLES: usize = 5760;
/// The most frames of a packet: of 2.5 ms.
const MAX_FRAMES: usize = 48;
/// The most bytes of a frame.
pub(super) const MAX_FRAME: usize = 1275;

/// The samples of a frame by the first byte of its packet, table 2.
fn frame_samples(toc: u8) -> usize {
    match toc >> 3 {
        config @ 0..12 => [480, 960, 1920, 2880][usize::from(config % 4)],
        config @ 12..16 => 480 << (config % 2),
        config => 120 << (config % 4),
    }
}

/// The samples of a packet by its first two bytes; None if no packet begins so.
pub(super) fn samples(head: &[u8]) -> Option<usize> {
    let (&toc, rest) = head.split_first()?;
    let frames = match toc & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => usize::from(rest.first()? & 63),
    };
    let samples = frames * frame_samples(toc);
    (1..=MAX_SAMPLES).contains(&samples).then_some(samples)
}

/// The frames of one stream in a packet.
#[derive(Debug)]
pub(super) struct Frames<'a> {
    /// The first byte of the packet of a single frame like these.
    pub toc: u8,
    /// Samples of each.
    pub samples: usize,
    lens: [u16; MAX_FRAMES],
    n: usize,
    data: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Takes the frames of a stream from `packet`, to its end or to where it says if `is_delimited`; returns
    /// them and what follows. None if the lengths contradict the packet.
    pub(super) fn parse(packet: &'a [u8], is_delimited: bool) -> Option<(Self, &'a [u8])> {
        let samples = samples(packet)?;
        let (&toc, mut rest) = packet.split_first()?;
        let mut lens = [0; MAX_FRAMES];
        let (mut n, mut padding, mut is_constant) = (usize::from(toc & 3 != 0) + 1, 0, toc & 3 < 2);
        if toc & 3 == 3 {
            let (&count, after) = rest.split_first()?;
            rest = after;
            (n, is_constant) = (usize::from(count & 63), count & 128 == 0);
            let mut is_padded = count & 64 != 0;
            while is_padded {
                let (&more, after) = rest.split_first()?;
                rest = after;
                padding += usize::from(more.min(254));
                is_padded = more == 255;
            }
        }
        // All lengths but the last are given, or none; the last one if the stream is delimited.
        let given = if is_constant { 0 } else { n - 1 };
        for len in &mut lens[..given] {
            *len = take_len(&mut rest)?;
        }
        let last = if is_delimited {
            take_len(&mut rest)?
        } else {
            let before: usize = lens[..given].iter().map(|&len| usize::from(len)).sum();
            let left = rest.len().checked_sub(padding)?.checked_sub(before)?;
            let parts = n - given;
            (left % parts == 0).then(|| u16::try_from(left / parts).ok())??
        };
        lens[given..n].fill(last);
        let len: usize = lens[..n].iter().map(|&len| usize::from(len)).sum();
        let (data, behind) = rest.split_at_checked(len)?;
        let is_short = lens[..n].iter().all(|&len| usize::from(len) <= MAX_FRAME);
        is_short.then(|| {
            Some((Self { toc: toc & !3, samples: samples / n, lens, n, data }, behind.get(padding..)?))
        })?
    }

    /// The bytes of each frame.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut data = self.data;
        self.lens[..self.n].iter().map(move |&len| {
            let (frame, rest) = data.split_at(len.into());
            data = rest;
            frame
        })
    }
}

/// A length of one or two bytes, section 3.2.1.
fn take_len(rest: &mut &[u8]) -> Option<u16> {
    let (&first, after) = rest.split_first()?;
    *rest = after;
    if first < 252 {
        return Some(first.into());
    }
    let (&second, after) = rest.split_first()?;
    *rest = after;
    Some(u16::from(first) + 4 * u16::from(second))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(packet: &[u8], is_delimited: bool) -> Option<(Vec<&[u8]>, &[u8])> {
        Frames::parse(packet, is_delimited).map(|(frames, rest)| (frames.iter().collect(), rest))
    }

    #[test]
    fn durations_are_those_of_the_table() {
        let of = |toc: u8| samples(&[toc << 3]).unwrap();
        let silk = [480, 960, 1920, 2880].repeat(3);
        let rest = [480, 960, 480, 960].into_iter().chain([120, 240, 480, 960].repeat(4));
        assert!((0..32).map(of).eq(silk.into_iter().chain(rest)));
        assert_eq!(samples(&[3, 2]), Some(960));
        assert_eq!(samples(&[0x83, 48]), Some(5760));
        for invalid in [&[][..], &[3], &[3, 0], &[0x83, 49], &[0x1b, 3], &[0x1b, 63]] {
            assert_eq!(samples(invalid), None, "{invalid:?}");
        }
    }

    #[test]
    fn frames_are_split_as_the_rfc_says() {
        let one = |packet: &'static [u8]| frames(packet, false).map(|(frames, _)| frames);
        assert_eq!(one(&[0, 7, 8]), Some(vec![&[7, 8][..]]));
        assert_eq!(one(&[0]), Some(vec![&[][..]]));
        assert_eq!(one(&[1, 7, 8]), Some(vec![&[7][..], &[8]]));
        assert_eq!(one(&[1, 7, 8, 9]), None);
        assert_eq!(one(&[2, 1, 7, 8, 9]), Some(vec![&[7][..], &[8, 9]]));
        assert_eq!(one(&[2, 4, 7, 8, 9]), None);
        // Three frames of equal and of different lengths, with padding of two bytes.
        assert_eq!(one(&[3, 0x43, 2, 7, 8, 9, 0, 0]), Some(vec![&[7][..], &[8], &[9]]));
        assert_eq!(one(&[3, 0xc3, 2, 0, 2, 7, 8, 9, 0, 0]), Some(vec![&[][..], &[7, 8], &[9]]));
        assert_eq!(one(&[3, 0x43, 9, 7, 8, 9, 0, 0]), None);
        assert_eq!(one(&[3, 0x43, 255]), None);
        assert_eq!(one(&[3, 0x03, 7, 8]), None);
        let long = [&[0][..], &[5; 1276]].concat();
        assert!(frames(&long, false).is_none() && frames(&long[..1276], false).is_some());
    }

    #[test]
    fn delimited_frames_leave_the_rest() {
        let rest = &[1, 2, 3][..];
        let of = |head: &[u8]| {
            let packet = [head, rest].concat();
            let (found, behind) = frames(&packet, true)?;
            assert_eq!(behind, rest);
            Some(found.concat())
        };
        assert_eq!(of(&[0, 2, 7, 8]), Some(vec![7, 8]));
        assert_eq!(of(&[1, 1, 7, 8]), Some(vec![7, 8]));
        assert_eq!(of(&[2, 1, 2, 7, 8, 9]), Some(vec![7, 8, 9]));
        assert_eq!(of(&[3, 0x42, 1, 1, 7, 8, 0]), Some(vec![7, 8]));
        assert_eq!(of(&[3, 0x82, 1, 2, 7, 8, 9]), Some(vec![7, 8, 9]));
        assert!(frames(&[0, 200, 1], true).is_none());
        // 252 + 4 * 12 = 300.
        let long = [&[0, 252, 12][..], &[6; 300]].concat();
        assert_eq!(frames(&long, true).unwrap().0[0].len(), 300);
    }
}

//! Makes FLAC files for tests.

use super::{head::STREAMINFO, *};
use crate::{
    checksum::crc16,
    formats::flac::frame::{Header, crc8},
};

/// The seek table of a file made for a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    None,
    Right,
    /// Its samples are elsewhere.
    Wrong,
}

/// Makes a file of `n` samples or some more from the frames of `bytes`, over and over, with right numbers and
/// checksums.
pub(crate) fn repeated(bytes: &[u8], n: u64, table: Table) -> Vec<u8> {
    let flac = Flac::open(&mut DecoderCache::default(), bytes).unwrap();
    let block = flac.first.block;
    assert_eq!(flac.shape.stream.fixed, Some(block));
    let mut frames = Vec::new();
    let mut frame = Some(flac.first);
    while let Some(this) = frame {
        let (end, next) = flac.step(this).unwrap();
        if this.block == block {
            let header = Header::parse(&bytes[this.at..]).unwrap();
            frames.push((&bytes[this.at..end - 2], header.len));
        }
        frame = next;
    }
    let total = n.div_ceil(block.into()) * u64::from(block);
    let (mut body, mut points) = (Vec::new(), Vec::new());
    for (number, &(frame, header_len)) in (0..total / u64::from(block)).zip(frames.iter().cycle()) {
        let at = body.len();
        if number % 100 == 0 {
            points.push((number * u64::from(block), at as u64));
        }
        body.extend(&frame[..4]);
        // The number in the coding of UTF-8, which reaches far enough here.
        body.extend(char::from_u32(number as u32).unwrap().to_string().bytes());
        let old = (frame[4].leading_ones() as usize).max(1);
        body.extend(&frame[4 + old..header_len - 1]);
        body.push(crc8(&body[at..]));
        body.extend(&frame[header_len..]);
        let crc = crc16(0, &body[at..]);
        body.extend(crc.to_be_bytes());
    }
    let mut out = b"fLaC".to_vec();
    let info = bytes.windows(4).position(|four| four == b"fLaC").unwrap() + 8;
    let mut setup: [u8; STREAMINFO] = *bytes[info..].first_chunk().unwrap();
    let packed = u64::from_be_bytes(*setup[10..].first_chunk().unwrap()) >> 36 << 36 | total;
    setup[10..18].copy_from_slice(&packed.to_be_bytes());
    out.extend([if table == Table::None { 0x80 } else { 0 }, 0, 0, STREAMINFO as u8]);
    out.extend(setup);
    if table != Table::None {
        out.extend([0x83]);
        out.extend(&(18 * points.len() as u32).to_be_bytes()[1..]);
        for (i, (sample, at)) in points.iter().enumerate() {
            let at = if table == Table::Wrong { points[(i / 2 + 3) % points.len()].1 + 5 } else { *at };
            out.extend(sample.to_be_bytes());
            out.extend(at.to_be_bytes());
            out.extend((block as u16).to_be_bytes());
        }
    }
    out.extend(body);
    out
}

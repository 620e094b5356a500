//! Damage, deterministic by seed, of the kinds that disks, networks and attackers do to a file.
//!
//! Checksums are corrected where a format has them, so that damage reaches the parsers after them.

/// Splitmix64.
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, or 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// Numbers that are special for parsers.
const ODD: [u64; 14] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x00ff_ffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];

/// A damaged copy of `base`; `others` provide headers and parts.
pub fn mutate(rng: &mut Rng, base: &[u8], others: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = base.to_vec();
    for _ in 0..=rng.below(4) {
        damage(rng, &mut bytes, others);
    }
    // One in eight keeps its wrong checksums.
    if rng.below(8) > 0 {
        seal(base, &mut bytes);
    }
    bytes
}

fn damage(rng: &mut Rng, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    if bytes.is_empty() {
        bytes.push(0);
    }
    let n = bytes.len();
    // Half of the damage is within the headers.
    let reach = if rng.below(2) == 0 { n.min(512) } else { n };
    let at = rng.below(reach);
    let most = [4, 64, 4096][rng.below(3)];
    let len = 1 + rng.below(most).min(n - at - 1);
    match rng.below(10) {
        0 | 1 => {
            for _ in 0..=rng.below(16) {
                let at = rng.below(reach);
                bytes[at] ^= 1 << rng.below(8);
            }
        }
        2 | 3 => {
            let value = match rng.below(3) {
                0 => rng.next(),
                _ => ODD[rng.below(ODD.len())],
            };
            let width = [1, 2, 3, 4, 8][rng.below(5)].min(n - at);
            let word = if rng.below(2) == 0 {
                value.to_le_bytes()[..width].to_vec()
            } else {
                value.to_be_bytes()[8 - width..].to_vec()
            };
            bytes[at..at + width].copy_from_slice(&word);
        }
        4 => bytes.truncate(rng.below(n)),
        5 => drop(bytes.drain(at..at + len)),
        6 => {
            let part = bytes[at..at + len].repeat(1 + rng.below(8));
            bytes.splice(at..at, part);
        }
        7 => {
            let fill = [0, 0xff, rng.next() as u8][rng.below(3)];
            bytes[at..at + len].fill(fill);
        }
        8 => {
            // The header of another file.
            let other = &others[rng.below(others.len())];
            let cut = rng.below(other.len().min(512));
            bytes.splice(..cut.min(n), other[..cut].iter().copied());
        }
        _ => {
            let other = &others[rng.below(others.len())];
            let from = rng.below(other.len());
            let part = &other[from..(from + len).min(other.len())];
            bytes.splice(at..at, part.iter().copied());
        }
    }
}

/// Corrects the checksums of Ogg pages and FLAC frames.
pub fn seal(base: &[u8], bytes: &mut [u8]) {
    if base.starts_with(b"OggS") {
        seal_ogg(bytes);
    } else if base.starts_with(b"fLaC") && base.len() == bytes.len() {
        for (start, end) in flac_frames(base) {
            seal_flac(&mut bytes[start..end]);
        }
    }
}

/// RFC 3533, 6.
pub fn seal_ogg(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.windows(4).position(|four| four == b"OggS"))
    {
        at += found;
        let Some(&n_segments) = bytes.get(at + 26) else { return };
        let lacing = at + 27..at + 27 + usize::from(n_segments);
        let Some(lengths) = bytes.get(lacing.clone()) else { return };
        let end = lacing.end + lengths.iter().map(|&n| usize::from(n)).sum::<usize>();
        match bytes.get_mut(at..end) {
            Some(page) => {
                page[22..26].fill(0);
                let crc = crc(page, 32, 0x04c1_1db7) as u32;
                page[22..26].copy_from_slice(&crc.to_le_bytes());
                at = end;
            }
            None => at += 4,
        }
    }
}

/// The CRC of `bytes`, with so many bits, the highest first.
fn crc(bytes: &[u8], bits: u32, polynomial: u64) -> u64 {
    let top = 1u64 << (bits - 1);
    let mask = top | (top - 1);
    bytes.iter().fold(0, |mut crc, &byte| {
        crc ^= u64::from(byte) << (bits - 8);
        for _ in 0..8 {
            let carry = crc & top != 0;
            crc = crc << 1 & mask;
            if carry {
                crc ^= polynomial;
            }
        }
        crc
    })
}

/// The length of a frame's header with its checksum (RFC 9639, 9.1), if `frame` can be one.
fn flac_header(frame: &[u8]) -> Option<usize> {
    if frame.len() < 16 || frame[0] != 0xff || frame[1] & 0xfe != 0xf8 {
        return None;
    }
    let number = match frame[4].leading_ones() {
        0 => 1,
        n @ 2..=7 => n as usize,
        _ => return None,
    };
    let block = [0, 1, 2][usize::from(frame[2] >> 4).saturating_sub(5).min(3) % 3];
    let rate = [0, 1, 2, 2][usize::from(frame[2] & 15).saturating_sub(11).min(3)];
    Some(4 + number + block + rate + 1)
}

/// Where the frames of a sound file are.
pub fn flac_frames(bytes: &[u8]) -> Vec<(usize, usize)> {
    let begins = |at: &usize| {
        let frame = &bytes[*at..];
        flac_header(frame).is_some_and(|len| len <= frame.len() && crc(&frame[..len], 8, 7) == 0)
    };
    let starts: Vec<_> = (0..bytes.len()).filter(begins).chain([bytes.len()]).collect();
    let whole = |(start, end): &(usize, usize)| crc(&bytes[*start..*end], 16, 0x8005) == 0;
    starts.windows(2).map(|pair| (pair[0], pair[1])).filter(whole).collect()
}

fn seal_flac(frame: &mut [u8]) {
    let n = frame.len();
    if let Some(len) = flac_header(frame).filter(|len| len + 2 < n) {
        frame[len - 1] = crc(&frame[..len - 1], 8, 7) as u8;
    }
    let crc = crc(&frame[..n - 2], 16, 0x8005) as u16;
    frame[n - 2..].copy_from_slice(&crc.to_be_bytes());
}

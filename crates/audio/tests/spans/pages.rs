//! Ogg pages that tests change.

/// An Ogg page, split into its parts so that they can be changed.
#[derive(Debug, Clone)]
pub struct Page {
    pub flags: u8,
    pub granule: i64,
    pub serial: [u8; 4],
    pub sequence: u32,
    pub lacing: Vec<u8>,
    pub body: Vec<u8>,
}

pub fn take_apart(bytes: &[u8]) -> Vec<Page> {
    let mut pages = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let page = &bytes[at..];
        let body = 27 + usize::from(page[26]);
        let lacing = page[27..body].to_vec();
        let end = body + lacing.iter().map(|&value| usize::from(value)).sum::<usize>();
        pages.push(Page {
            flags: page[5],
            granule: i64::from_le_bytes(page[6..14].try_into().unwrap()),
            serial: page[14..18].try_into().unwrap(),
            sequence: u32::from_le_bytes(page[18..22].try_into().unwrap()),
            lacing,
            body: page[body..end].to_vec(),
        });
        at += end;
    }
    pages
}

pub fn put_together(pages: &[Page]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for page in pages {
        let begin = bytes.len();
        bytes.extend(b"OggS\0");
        bytes.push(page.flags);
        bytes.extend(page.granule.to_le_bytes());
        bytes.extend(page.serial);
        bytes.extend(page.sequence.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.push(page.lacing.len() as u8);
        bytes.extend(&page.lacing);
        bytes.extend(&page.body);
        // The checksum bit by bit, as in RFC 3533.
        let mut crc = 0_u32;
        for &byte in &bytes[begin..] {
            crc ^= u32::from(byte) << 24;
            for _ in 0..8 {
                crc = (crc << 1) ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 };
            }
        }
        bytes[begin + 22..begin + 26].copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}

/// Cuts the packets of each page into pages of at most `n` segments. Pages without the end of an old page
/// have no granule position.
pub fn cut_pages(pages: &[Page], n: usize) -> Vec<Page> {
    let mut cut: Vec<Page> = Vec::new();
    for page in pages {
        let mut body = &page.body[..];
        let n_parts = page.lacing.chunks(n).len();
        for (i, lacing) in page.lacing.chunks(n).enumerate() {
            let len = lacing.iter().map(|&value| usize::from(value)).sum();
            let (part, rest) = body.split_at(len);
            body = rest;
            let goes_on = cut.last().is_some_and(|last| last.lacing.ends_with(&[255]));
            let is_last = i + 1 == n_parts;
            cut.push(Page {
                flags: page.flags & 2 | u8::from(goes_on) | if is_last { page.flags & 4 } else { 0 },
                granule: if is_last { page.granule } else { -1 },
                sequence: cut.len() as u32,
                lacing: lacing.to_vec(),
                body: part.to_vec(),
                ..*page
            });
        }
    }
    cut
}

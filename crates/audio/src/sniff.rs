//! Recognises the format of a recording by its first bytes. File names are ignored, since collections rename
//! files.
//!
//! Errors name known formats that are not decoded, so that users see the cause.
//!
//! Source: the formats' specifications, as their modules cite them.

use crate::{
    Error, ErrorKind, Result, corrupt,
    formats::{FORMATS, Format, FrameSync, mpeg},
    id3::skip_id3v2,
    ogg::OggPages,
    read_at::MAX_JUNK,
    signatures, unsupported,
};

/// Returns the format of `bytes`, and where it begins: after ID3v2 tags, and after junk before a FLAC marker
/// or the first frame.
///
/// # Errors
/// `Empty` without bytes, `Corrupt` for a header that is cut short or damaged, `Unsupported` for formats
/// that are not in [`FORMATS`].
pub(crate) fn sniff(bytes: &[u8]) -> Result<(&'static dyn Format, usize)> {
    if bytes.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "the recording has no bytes"));
    }
    let start = skip_id3v2(bytes);
    let (format, junk) = sniff_after(&bytes[start..], start > 0)?;
    Ok((format, start + junk))
}

/// Returns the format of a recording whose first bytes are `rest`, perhaps after an ID3v2 tag, and where in
/// them it begins.
///
/// # Errors
/// As [`sniff`].
pub(crate) fn sniff_after(rest: &[u8], is_tagged: bool) -> Result<(&'static dyn Format, usize)> {
    for &format in FORMATS {
        if format.detect(rest)? {
            return Ok((format, 0));
        }
    }
    if rest.starts_with(&signatures::OGG) {
        return Ok((ogg(rest)?, 0));
    }
    match frames(rest) {
        Some(found) => Ok(found),
        None if is_tagged && rest.is_empty() => {
            Err(Error::new(ErrorKind::Empty, "the recording has an ID3v2 tag and nothing after it"))
        }
        None => Err(unsupported(match (unread(rest), is_tagged) {
            (Some((name, ending)), _) => unread_advice(name, ending),
            (None, true) => format!(
                "no audio that is decoded here follows the ID3v2 tag; the bytes after it {}",
                describe(rest)
            ),
            (None, false) => format!("no known audio format; the bytes {}", describe(rest)),
        })),
    }
}

/// The format of an Ogg file, by the first packets of its streams.
fn ogg(bytes: &[u8]) -> Result<&'static dyn Format> {
    let mut found = Vec::new();
    // A stream of Opus counts only without another one that is decoded: such files were so read before Opus
    // was.
    let mut opus = None;
    let mut at = 0;
    // In Ogg all streams of a link begin before any continues.
    for _ in 0..64 {
        let is_first = bytes.get(at + 5).is_some_and(|flags| flags & 2 != 0);
        if bytes.get(at..at + 4) != Some(&signatures::OGG) || !is_first {
            break;
        }
        let Some(&n_segments) = bytes.get(at + 26) else { break };
        let body = at + 27 + usize::from(n_segments);
        let packet = bytes.get(body..).unwrap_or_default();
        match format_in_ogg(packet) {
            Some(format) if packet.starts_with(b"OpusHead") => opus = Some(format),
            Some(format) => return Ok(format),
            None => {}
        }
        let names: [(&[u8], &str); 6] = [
            (b"Speex   ", "Speex"),
            (b"\x80theora", "Theora video"),
            (b"fishead\0", "Skeleton"),
            (b"PCM     ", "PCM"),
            (b"CELT    ", "CELT"),
            (b"\x80kate\0", "Kate text"),
        ];
        let name = names.iter().find(|(magic, _)| packet.starts_with(magic)).map(|(_, name)| *name);
        found.push(name.unwrap_or("unknown"));
        let lacing = bytes.get(at + 27..body).unwrap_or_default();
        at = body + lacing.iter().map(|&n| usize::from(n)).sum::<usize>();
    }
    if let Some(format) = opus {
        return Ok(format);
    }
    if found.is_empty() {
        return Err(corrupt("the Ogg file does not start with a stream's first page"));
    }
    let decoded: Vec<_> = FORMATS.iter().filter_map(|format| Some(format.ogg_codec()?.1)).collect();
    Err(unsupported(format!(
        "an Ogg file with {}; {} are decoded",
        found.join(" and "),
        decoded.join(" and ")
    )))
}

/// The format of a stream in Ogg, by its first packet.
fn format_in_ogg(packet: &[u8]) -> Option<&'static dyn Format> {
    FORMATS
        .iter()
        .copied()
        .find(|format| format.ogg_codec().is_some_and(|(start, _)| packet.starts_with(start)))
}

/// Whether the last page of the last stream of sound in an Ogg file is marked as its end.
pub(crate) fn ends_stream(bytes: &[u8]) -> bool {
    let (mut serial, mut has_ended) = (None, false);
    for page in OggPages::new(bytes) {
        if page.begins_stream() && format_in_ogg(page.body(bytes)).is_some() {
            serial = Some(page.serial);
        }
        if serial == Some(page.serial) {
            has_ended = page.ends_stream();
        }
    }
    has_ended
}

/// Searches for a FLAC marker, or for MPEG audio or ADTS frames: several in a row, or up to the end, each at
/// the end of the one before it.
fn frames(bytes: &[u8]) -> Option<(&'static dyn Format, usize)> {
    // A file of another known format is not searched: its payload may look like frames.
    if known(bytes).is_some() || by_magic(bytes).is_some() || transport(bytes).is_some() {
        return None;
    }
    let mut begins = [false; 256];
    for sync in FORMATS.iter().filter_map(|format| format.frames()) {
        begins[usize::from(sync.byte)] = true;
    }
    (0..bytes.len().min(MAX_JUNK)).filter(|&at| begins[usize::from(bytes[at])]).find_map(|at| {
        let is_frame = |format: &&dyn Format| {
            format.frames().is_some_and(|FrameSync { byte, is_frame }| {
                byte == bytes[at] && is_frame(&bytes[at..], at == 0)
            })
        };
        Some((FORMATS.iter().copied().find(is_frame)?, at))
    })
}

/// The name of a format of sound that is not read and that ffmpeg converts, and the ending of its files.
fn unread(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    let transport = || transport(bytes).map(|name| (name, "ts"));
    // `dolby` tests too few bits to be used before the search for frames.
    let dolby = || dolby(bytes).map(|name| (name, "ac3"));
    by_magic(bytes).or_else(transport).or_else(dolby)
}

/// The first bytes of formats that are not read, their names, and the endings of their files.
const UNREAD: [(&[u8], &str, &str); 23] = [
    (b"wvpk", "WavPack", "wv"),
    (b"MAC ", "Monkey's Audio", "ape"),
    (b"\x30\x26\xb2\x75", "ASF (WMA)", "wma"),
    (b"#!AMR-WB\n", "AMR-WB", "awb"),
    (b"#!AMR\n", "AMR", "amr"),
    (b"#!AMR_MC1.0\n", "AMR of several channels", "amr"),
    (b"\x7f\xfe\x80\x01", "DTS", "dts"),
    (b"\xfe\x7f\x01\x80", "DTS", "dts"),
    (b"\x1f\xff\xe8\x00", "DTS", "dts"),
    (b"\xff\x1f\x00\xe8", "DTS", "dts"),
    (b".ra\xfd", "RealAudio", "ra"),
    (b".RMF", "RealMedia", "rm"),
    (b"FLV\x01", "Flash Video", "flv"),
    (b"\0\0\x01\xba", "an MPEG program stream", "mpg"),
    (b"Creative Voice File", "Creative VOC", "voc"),
    (b"ajkg", "Shorten", "shn"),
    (b"tBaK", "TAK", "tak"),
    (b"qoaf", "QOA", "qoa"),
    (b"TTA1", "True Audio", "tta"),
    (b"DSD ", "DSF (DSD)", "dsf"),
    (b"FRM8", "DSDIFF (DSD)", "dff"),
    (b"MPCK", "Musepack", "mpc"),
    (b"MP+", "Musepack", "mpc"),
];

/// The name of a format of sound that is not read, by the ending of its files, without the point.
pub fn unread_format(ending: &str) -> Option<&'static str> {
    UNREAD.iter().find(|(.., known)| ending.eq_ignore_ascii_case(known)).map(|&(_, name, _)| name)
}

/// The error about a recording of such a format.
pub fn unread_advice(name: &str, ending: &str) -> String {
    format!("{name} is not read; convert it with `ffmpeg -i in.{ending} out.flac`")
}

/// As [`unread`], by the first bytes alone.
fn by_magic(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    UNREAD.iter().find(|(magic, ..)| bytes.starts_with(magic)).map(|&(_, name, ending)| (name, ending))
}

/// The name of another known format that is not decoded here.
fn known(bytes: &[u8]) -> Option<&'static str> {
    let magics: [(&[u8], &str); 16] = [
        (b"MThd", "MIDI, which holds notes and no sound"),
        (b"#!SILK", "SILK"),
        (b"\x02#!SILK", "SILK"),
        (b"ADIF", "AAC in ADIF; ADTS and MP4 are decoded"),
        (b"\0\0\x01\xb3", "MPEG video"),
        (b"OFR ", "OptimFROG"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"\x89PNG", "a PNG image"),
        (b"GIF8", "a GIF image"),
        (b"%PDF", "a PDF document"),
        (b"BZh", "bzip2-compressed"),
        (b"\xfd7zXZ", "xz-compressed"),
        (b"7z\xbc\xaf", "a 7z archive"),
        (b"Rar!", "a RAR archive"),
        (b"\x93NUMPY", "a numpy array"),
        (b"\x89HDF", "HDF5"),
    ];
    if let Some((_, name)) = magics.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Some(name);
    }
    if let Some(name) = signatures::file(bytes) {
        return Some(name);
    }
    let text = bytes.trim_ascii_start();
    if [&b"<!doctype"[..], b"<html", b"<?xml"]
        .iter()
        .any(|tag| text.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag)))
    {
        return Some("a web page or XML, perhaps a failed download");
    }
    None
}

/// AC-3 and its successor, by the sync word and the version. Source: ETSI TS 102 366, sections 4.3 and E.1.2.
fn dolby(bytes: &[u8]) -> Option<&'static str> {
    let head = bytes.first_chunk::<6>()?;
    // Some recorders swap the bytes of each word.
    let version = match head[..2] {
        [0x0b, 0x77] => head[5],
        [0x77, 0x0b] => head[4],
        _ => return None,
    };
    match version >> 3 {
        0..=10 => Some("AC-3 (Dolby Digital)"),
        11..=16 => Some("E-AC-3 (Dolby Digital Plus)"),
        _ => None,
    }
}

/// AAC in LOAS: frames that begin with 11 bits of sync and 13 bits of length. Source: ISO/IEC 14496-3,
/// section 1.7.2.
fn latm(bytes: &[u8]) -> Option<&'static str> {
    let head = bytes.first_chunk::<3>()?;
    let is_sync = |bytes: &[u8]| bytes[0] == 0x56 && bytes[1] & 0xe0 == 0xe0;
    let len = 3 + (usize::from(head[1] & 0x1f) << 8 | usize::from(head[2]));
    let goes_on = bytes.get(len..).is_none_or(|rest| rest.len() < 2 || is_sync(rest));
    (is_sync(head) && goes_on).then_some("AAC in LOAS/LATM; ADTS and MP4 are decoded")
}

/// MPEG transport streams: packets of 188 bytes that begin with a sync byte. Source: ISO/IEC 13818-1, section
/// 2.4.3.2.
fn transport(bytes: &[u8]) -> Option<&'static str> {
    let is_one = bytes.len() > 3 * 188 && (0..4).all(|i| bytes[188 * i] == 0x47);
    is_one.then_some("an MPEG transport stream")
}

/// MPEG audio of free format: a header whose bit rate is 0, so that the length of its frames is unknown.
fn is_free_format(bytes: &[u8]) -> bool {
    mpeg::Header::parse(bytes).is_some_and(|header| header.len == 0)
}

fn describe(bytes: &[u8]) -> String {
    // `latm` tests too few bits to be used before the search for frames.
    if let Some(name) = known(bytes).or_else(|| latm(bytes)) {
        return format!("are {name}");
    }
    if is_free_format(bytes) {
        return "are MPEG audio of free format, but no frames of one length follow; encode it with a bit rate".into();
    }
    let head = &bytes[..bytes.len().min(64)];
    if head.iter().all(|&byte| byte == 0) {
        return "start with zeros".into();
    }
    if head.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        return "are text, perhaps a failed download".into();
    }
    if head.starts_with(&[0xff, 0xf8]) || head.starts_with(&[0xff, 0xf9]) {
        return "look like FLAC frames without the header that a FLAC file starts with".into();
    }
    format!("start with `{}`", head[..head.len().min(8)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` empty MPEG-1 layer III frames of 128 kbit/s at 44.1 kHz: 417 bytes each.
    fn mpeg(n: usize) -> Vec<u8> {
        let mut frame = vec![0xff, 0xfb, 0x90, 0x00];
        frame.resize(417, 0);
        frame.repeat(n)
    }

    fn found(bytes: &[u8]) -> (&'static str, usize) {
        let (format, at) = sniff(bytes).unwrap();
        (format.name(), at)
    }

    #[test]
    fn frames_count_only_in_a_row() {
        assert_eq!(found(&mpeg(4)), ("mpeg", 0));
        assert_eq!(found(&mpeg(1)), ("mpeg", 0));
        assert_eq!(found(&[&b"junk"[..], &mpeg(5)].concat()), ("mpeg", 4));
        assert_eq!(found(&[&b"ID3\x04\0\0\0\0\0\x02ab"[..], &mpeg(3)].concat()), ("mpeg", 12));
        assert_eq!(found(&[&mpeg(1)[..], b"TAG..."].concat()), ("mpeg", 0));
        assert!(sniff(&[&mpeg(1)[..], &[1; 99]].concat()).is_err());
        assert_eq!(found(&[&[0; 100_000][..], &mpeg(9)].concat()), ("mpeg", 100_000));
        assert!(sniff(&[&[b'.'; 1 << 19][..], &mpeg(9)].concat()).is_err());
    }

    #[test]
    fn what_is_not_decoded_is_named() {
        let zeros = [0; 600];
        let mut packets = [0; 4 * 188];
        packets.iter_mut().step_by(188).for_each(|byte| *byte = 0x47);
        let free = [&[0xff, 0xfb, 0x00, 0xc4][..], &zeros].concat();
        let named: [(&[u8], &str); 27] = [
            (
                b"\x0b\x77\x3a\x5c\x14\x40....",
                "AC-3 (Dolby Digital) is not read; convert it with `ffmpeg -i in.ac3 out.flac`",
            ),
            (
                b"\x77\x0b\x5c\x3a\x40\x14....",
                "AC-3 (Dolby Digital) is not read; convert it with `ffmpeg -i in.ac3 out.flac`",
            ),
            (b"\x0b\x77\x00\x7f\x34\x87....", "E-AC-3 (Dolby Digital Plus) is not read"),
            (b"\x56\xe0\x02..\x56\xe0\x00", "LOAS/LATM"),
            (&free, "free format"),
            (b"ID3\x04\0\0\0\0\0\x02ab\xff\xfb\x00\xc4....", "free format"),
            (b"ID3\x04\0\0\0\0\0\x02ab\x7f\xfe\x80\x01", "DTS is not read"),
            (&packets, "an MPEG transport stream is not read"),
            (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
            (b"#!AMR-WB\n", "AMR-WB is not read; convert it with `ffmpeg -i in.awb out.flac`"),
            (b"ADIF....", "ADIF"),
            (b"wvpk....", "WavPack is not read; convert it with `ffmpeg -i in.wv out.flac`"),
            (b"#!AMR\n<....", "AMR is not read"),
            (b"#!AMR_MC1.0\n", "AMR of several channels is not read"),
            (b"MAC \x96\x0f..", "Monkey's Audio is not read"),
            (b"\x30\x26\xb2\x75\x8e\x66", "ASF (WMA) is not read"),
            (b"MPCKSH..", "Musepack is not read"),
            (b"MP+\x07....", "Musepack is not read"),
            (b"DSD \x1c....", "DSF (DSD) is not read"),
            (b"FRM8....", "DSDIFF (DSD) is not read"),
            (b"ajkg\x02....", "Shorten is not read; convert it with `ffmpeg -i in.shn out.flac`"),
            (b"tBaK....", "TAK is not read"),
            (b"MThd....", "MIDI"),
            (b"\xff\xd8\xff\xe0....", "JPEG"),
            (b"\x89PNG....", "PNG"),
            (b"<html>....", "web page"),
            (b"RIFF....AVI ....", "AVI"),
        ];
        for (bytes, name) in named {
            let error = sniff(bytes).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unsupported);
            assert!(error.message.contains(name), "{error}");
        }
        assert_eq!(sniff(b"").unwrap_err().kind, ErrorKind::Empty);
    }
}

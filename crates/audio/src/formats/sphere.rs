//! Opens NIST SPHERE: a header of text, then samples of PCM, mu-law or A-law.
//!
//! The header's first two lines are its name and its size. The other lines are fields of a name, a type (`-i`
//! for an integer, `-r` for a real number, `-sN` for a text of N bytes) and a value, up to `end_head`.
//! Samples extend to `sample_count`, or to the end of the file if it is absent or 0, as writers to pipes
//! leave it.
//!
//! Source: NIST "SPHERE: SPeech HEader REsources", file structure and standard fields.

use super::Format;
use crate::{
    DecoderCache, Error, Info, Places, Result, corrupt,
    field::Endian,
    formats::{AnyIndex, Opened},
    index_file::Parser,
    pcm::{Coding, PcmFormat, int_coding},
    read_at::{HeaderBytes, RangeReader},
    unsupported,
};

const MAGIC: &[u8] = b"NIST_1A\n";
/// The bytes of the lines with name and size.
const FIRST_LINES: u64 = 16;
/// The most bytes of a header; writers use 1024.
const MAX_HEADER: u64 = 64 << 10;

#[derive(Debug)]
pub(crate) struct Sphere;

impl Format for Sphere {
    fn name(&self) -> &'static str {
        "sphere"
    }

    fn detect(&self, head: &[u8]) -> Result<bool> {
        Ok(head.starts_with(MAGIC))
    }

    fn places(&self) -> Places {
        Places::Plain
    }

    fn open<'a>(&self, _: &mut DecoderCache, reader: &mut RangeReader<'a>) -> Result<Option<Opened<'a>>> {
        Ok(reader.parse(find)?.map(Opened::from))
    }

    fn read_index(&self, from: &mut Parser<'_>, size: u64, info: Info) -> Option<AnyIndex> {
        PcmFormat::read(from, size, info).map(AnyIndex::Pcm)
    }
}

/// The fields of a header; values are without spaces around them.
struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    /// Reads the lines after the first two, up to `end_head`.
    ///
    /// # Errors
    /// `Corrupt` if they are not text, or the last one is missing.
    fn parse(lines: &'a [u8]) -> Result<Self> {
        // bounded: a header has at most 64 KiB.
        let mut fields = Vec::new();
        for line in lines.split(|&byte| byte == b'\n') {
            let line = str::from_utf8(line)
                .map_err(|_| corrupt("the SPHERE header has bytes that are not text before `end_head`"))?;
            let line = line.trim();
            if line == "end_head" {
                return Ok(Self(fields));
            }
            let mut parts = line.splitn(3, ' ').map(str::trim);
            if let (Some(name), Some(_), Some(value)) = (parts.next(), parts.next(), parts.next())
                && !name.starts_with(';')
            {
                fields.push((name, value));
            }
        }
        Err(corrupt("the SPHERE header has no line `end_head`; it is cut short"))
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(this, _)| *this == name).map(|(_, value)| *value)
    }

    /// A whole number, also if it is written as a real number.
    ///
    /// # Errors
    /// `Corrupt` for another value, or one above 2^53.
    fn number(&self, name: &str) -> Result<Option<u64>> {
        let whole = |text: &str| {
            let number = text.parse::<f64>().ok().filter(|number| number.fract() == 0.0)?;
            (0.0..=9_007_199_254_740_992.0).contains(&number).then_some(number as u64)
        };
        self.text(name)
            .map(|text| {
                whole(text).ok_or_else(|| {
                    corrupt(format!(
                        "the SPHERE field {name} is `{}`, not a whole number",
                        text.escape_debug()
                    ))
                })
            })
            .transpose()
    }

    /// # Errors
    /// `Corrupt` if it is missing, or no whole number.
    fn needed(&self, name: &str) -> Result<u64> {
        self.number(name)?.ok_or_else(|| corrupt(format!("the SPHERE header has no field {name}")))
    }
}

/// Finds the samples in `NIST_1A`.
///
/// # Errors
/// `Corrupt` for a header that is cut short or contradicts itself, `Unsupported` for codings that are not
/// decoded here, `Empty` without samples.
fn find(file: &HeaderBytes<'_>) -> Result<PcmFormat> {
    let first = file.get_up_to(0, FIRST_LINES);
    let size = str::from_utf8(first.get(MAGIC.len()..).unwrap_or_default()).unwrap_or_default().trim();
    let at = size.parse().ok().filter(|at| (FIRST_LINES..=MAX_HEADER).contains(at)).ok_or_else(|| {
        let found = size.escape_debug();
        corrupt(format!(
            "the SPHERE header declares a size of `{found}`; {FIRST_LINES} to {MAX_HEADER} are accepted"
        ))
    })?;
    let header = file
        .get(0, at)
        .ok_or_else(|| corrupt(format!("the file ends within its SPHERE header of {at} bytes")))?;
    let fields = Fields::parse(&header[FIRST_LINES as usize..])?;
    let channels = fields.needed("channel_count")?;
    let channels = u16::try_from(channels)
        .map_err(|_| corrupt(format!("the SPHERE header declares {channels} channels")))?;
    if channels > 1
        && fields.text("channels_interleaved").is_some_and(|text| text.eq_ignore_ascii_case("FALSE"))
    {
        return Err(unsupported(
            "SPHERE with one channel after the other; convert it with `sph2pipe -f wav in.sph out.wav`",
        ));
    }
    let rate = fields.needed("sample_rate")?;
    let rate = u32::try_from(rate)
        .map_err(|_| corrupt(format!("the SPHERE header declares {rate} samples per second")))?;
    let coding = coding(&fields)?;
    let declared = fields.number("sample_count")?.filter(|&n| n > 0);
    let data = at..file.size();
    Ok(PcmFormat::new(data, coding, rate, channels, declared)?.with_declared_samples(declared))
}

fn coding(fields: &Fields<'_>) -> Result<Coding> {
    let name = fields.text("sample_coding").unwrap_or("pcm");
    let (base, compression) = name.split_once(',').unwrap_or((name, ""));
    if !compression.is_empty() {
        return Err(refused(compression));
    }
    let n_bytes = fields.number("sample_n_bytes")?;
    let companded = |coding| match n_bytes {
        None | Some(1) => Ok(coding),
        Some(n) => {
            Err(corrupt(format!("the SPHERE header declares {base} samples of {n} bytes; they have 1")))
        }
    };
    match base {
        "ulaw" | "mu-law" | "mulaw" => companded(Coding::Mulaw),
        "alaw" | "a-law" => companded(Coding::Alaw),
        "pcm" => {
            let n = n_bytes.ok_or_else(|| corrupt("the SPHERE header has no field sample_n_bytes"))?;
            if !(1..=4).contains(&n) {
                return Err(corrupt(format!(
                    "the SPHERE header declares samples of {n} bytes; 1 to 4 are accepted"
                )));
            }
            let order = fields.text("sample_byte_format").unwrap_or_default();
            let endian = match order {
                "01" => Endian::Little,
                "10" => Endian::Big,
                _ if n == 1 => Endian::Little,
                _ => {
                    return Err(corrupt(format!(
                        "the SPHERE field sample_byte_format is `{}`; `01` and `10` are known for samples of {n} bytes",
                        order.escape_debug()
                    )));
                }
            };
            int_coding(8 * n as u16, n as usize, endian)
        }
        other => Err(unsupported(format!(
            "SPHERE with the coding `{}`; PCM, mu-law and A-law are decoded",
            other.escape_debug()
        ))),
    }
}

/// The error for samples that are compressed within the file.
fn refused(compression: &str) -> Error {
    let kind = compression.strip_prefix("embedded-").unwrap_or(compression);
    let name = match kind.split_once('-').map_or(kind, |(name, _)| name) {
        "shorten" => "Shorten",
        "shortpack" => "Shortpack",
        "wavpack" => "WavPack",
        _ => kind,
    };
    unsupported(format!(
        "SPHERE with samples compressed by {}; convert it with `sph2pipe -f wav in.sph out.wav`",
        name.escape_debug()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AudioDecoder, Codec, ErrorKind, Planes};

    /// A file with these fields and data.
    fn file(fields: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = format!("NIST_1A\n   1024\n{fields}\nend_head\n").into_bytes();
        bytes.resize(1024, b' ');
        bytes.extend(data);
        bytes
    }

    fn decoded(bytes: &[u8]) -> Result<(Info, Vec<Vec<f32>>)> {
        let mut decoder = AudioDecoder::new();
        let recording = decoder.open(bytes)?;
        let info = recording.info();
        let mut out = Planes::new();
        decoder.read(&recording, 0..info.n_samples, &mut out)?;
        Ok((info, (0..usize::from(info.channels)).map(|c| out.channel(c).to_vec()).collect()))
    }

    const STEREO: &str = "channel_count -i 2\nsample_rate -i 8000\nsample_n_bytes -i 2";

    #[test]
    fn samples_of_both_byte_orders_are_read() {
        // 0.5, -0.5; 0.25, -1.
        let little = [0, 0x40, 0, 0xc0, 0, 0x20, 0, 0x80];
        let big = [0x40, 0, 0xc0, 0, 0x20, 0, 0x80, 0];
        for (order, data) in [("01", little), ("10", big)] {
            let fields =
                format!("{STEREO}\nsample_byte_format -s2 {order}\nspeaker -s5 a b c\n;x\nsample_count -i 2");
            let (info, planes) = decoded(&file(&fields, &data)).unwrap();
            assert_eq!((info.codec, info.sample_rate, info.n_samples), (Codec::Pcm, 8000, 2));
            assert_eq!(planes, [vec![0.5, 0.25], vec![-0.5, -1.0]]);
        }
        // One byte is signed.
        let fields = "channel_count -i 1\nsample_rate -r 8000.0\nsample_n_bytes -i 1\nsample_coding -s3 pcm";
        assert_eq!(decoded(&file(fields, &[0x40, 0xc0])).unwrap().1, [vec![0.5, -0.5]]);
        for (name, codec) in [("ulaw", Codec::Mulaw), ("mu-law", Codec::Mulaw), ("alaw", Codec::Alaw)] {
            let fields =
                format!("channel_count -i 1\nsample_rate -i 8000\nsample_coding -s{} {name}", name.len());
            assert_eq!(decoded(&file(&fields, &[0xff; 9])).unwrap().0.codec, codec);
        }
    }

    /// `sample_count` ends the samples; one beyond the file is a claim.
    #[test]
    fn a_count_is_a_claim() {
        let with = |count: &str| file(&format!("{STEREO}\nsample_byte_format -s2 01\n{count}"), &[0; 42]);
        for (count, n, declared) in [
            ("", 10, None),
            ("sample_count -i 0", 10, None),
            ("sample_count -i 7", 7, Some(7)),
            ("sample_count -i 10", 10, Some(10)),
            ("sample_count -i 9007199254740992", 10, Some(1 << 53)),
        ] {
            let bytes = with(count);
            let recording = AudioDecoder::new().open(&bytes).unwrap();
            assert_eq!(recording.info().n_samples, n, "{count}");
            let claims = recording.claims(&bytes);
            assert_eq!(claims.declared, declared, "{count}");
            assert_eq!(claims.cut_short.is_some(), declared.is_some_and(|declared| declared > n), "{count}");
        }
    }

    #[test]
    fn what_is_not_decoded_is_named() {
        for (fields, kind, name) in [
            (
                "sample_coding -s26 pcm,embedded-shorten-v2.00",
                ErrorKind::Unsupported,
                "Shorten; convert it with `sph2pipe",
            ),
            ("sample_coding -s27 ulaw,embedded-wavpack-v1.0", ErrorKind::Unsupported, "WavPack"),
            ("sample_coding -s4 gsm6", ErrorKind::Unsupported, "`gsm6`"),
            ("channels_interleaved -s5 FALSE", ErrorKind::Unsupported, "one channel after the other"),
            ("sample_coding -s4 ulaw", ErrorKind::Corrupt, "ulaw samples of 2 bytes"),
            ("sample_byte_format -s2 02", ErrorKind::Corrupt, "`02`"),
            ("sample_count -i -3", ErrorKind::Corrupt, "sample_count is `-3`"),
            ("sample_count -i 1.5", ErrorKind::Corrupt, "sample_count is `1.5`"),
            ("sample_count -i inf", ErrorKind::Corrupt, "sample_count is `inf`"),
        ] {
            let order = if fields.contains("byte_format") { "" } else { "\nsample_byte_format -s2 01" };
            let error = decoded(&file(&format!("{STEREO}{order}\n{fields}"), &[0; 16])).unwrap_err();
            assert!(error.kind == kind && error.message.contains(name), "{error}");
        }
        for (from, to, name) in [
            ("channel_count -i 2", "channel_count -i 0", "0 channels"),
            ("channel_count -i 2", "channel_count -i 70000", "70000 channels"),
            ("channel_count -i 2", "x -i 2", "no field channel_count"),
            ("sample_rate -i 8000", "sample_rate -i 0", "0 samples per second"),
            ("sample_rate -i 8000", "sample_rate -i 4194305", "4194305 samples per second"),
            ("sample_rate -i 8000", "sample_rate -i 9999999999", "9999999999 samples per second"),
            ("sample_n_bytes -i 2", "sample_n_bytes -i 5", "5 bytes"),
            ("sample_n_bytes -i 2", "", "no field sample_n_bytes"),
            ("   1024\n", "      8\n", "size of `8`"),
            ("   1024\n", "9999999\n", "size of `9999999`"),
            ("   1024\n", "  2048\n\n", "within its SPHERE header of 2048 bytes"),
            ("end_head", "end", "no line `end_head`"),
        ] {
            let bytes = file(&format!("{STEREO}\nsample_byte_format -s2 01"), &[0; 64]);
            let text = String::from_utf8(bytes).unwrap().replacen(from, to, 1);
            let error = decoded(text.as_bytes()).unwrap_err();
            assert!(error.kind == ErrorKind::Corrupt && error.message.contains(name), "{to}: {error}");
        }
        let whole = file(STEREO, &[]);
        assert_eq!(decoded(&whole[..12]).unwrap_err().kind, ErrorKind::Corrupt);
        let empty = file(&format!("{STEREO}\nsample_byte_format -s2 01"), &[0; 3]);
        assert_eq!(decoded(&empty).unwrap_err().kind, ErrorKind::Empty);
    }
}

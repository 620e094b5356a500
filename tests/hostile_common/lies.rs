//! Deceptive files: few bytes that claim much, and many bytes without content.

use super::mutate::seal_ogg;

/// A chunk of RIFF that claims `size` bytes.
fn chunk(id: &[u8; 4], size: u32, body: &[u8]) -> Vec<u8> {
    [&id[..], &size.to_le_bytes(), body].concat()
}

fn fmt(tag: u16, channels: u16, rate: u32, block: u16, bits: u16) -> Vec<u8> {
    let bytes_per_second = rate.wrapping_mul(u32::from(block));
    let fields = [
        &tag.to_le_bytes()[..],
        &channels.to_le_bytes(),
        &rate.to_le_bytes(),
        &bytes_per_second.to_le_bytes(),
    ];
    let body = [fields.concat(), block.to_le_bytes().to_vec(), bits.to_le_bytes().to_vec()].concat();
    chunk(b"fmt ", 16, &body)
}

fn wav(id: &[u8; 4], chunks: &[Vec<u8>]) -> Vec<u8> {
    let body = [b"WAVE".to_vec(), chunks.concat()].concat();
    chunk(id, u32::MAX, &body)
}

/// One box of MP4.
fn boxed(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 + 8).to_be_bytes()[..], name, body].concat()
}

/// A page of Ogg with one packet of at most 254 bytes.
fn page(serial: u32, sequence: u32, flags: u8, granule: i64, packet: &[u8]) -> Vec<u8> {
    let head =
        [&b"OggS\0"[..], &[flags], &granule.to_le_bytes(), &serial.to_le_bytes(), &sequence.to_le_bytes()]
            .concat();
    [&head[..], &[0; 4], &[1, packet.len() as u8], packet].concat()
}

fn vorbis_identification(channels: u8, rate: u32) -> Vec<u8> {
    let numbers = [0u32.to_le_bytes().to_vec(), vec![channels], rate.to_le_bytes().to_vec()].concat();
    [&b"\x01vorbis"[..], &numbers, &[0; 12], &[0xb8, 1]].concat()
}

/// A block of FLAC metadata that claims `size` bytes.
fn metadata(kind: u8, size: u32, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &size.to_be_bytes()[1..], body].concat()
}

/// STREAMINFO of 16-bit samples.
fn streaminfo(rate: u32, channels: u8, n_samples: u64) -> Vec<u8> {
    let word = u64::from(rate) << 44 | u64::from(channels - 1) << 41 | 15 << 36 | n_samples;
    [&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0][..], &word.to_be_bytes(), &[0; 16]].concat()
}

/// A FLAC of silence: each frame of a few bytes holds 65 535 samples.
pub fn flac_of_silence(n_frames: u64) -> Vec<u8> {
    let n_samples = n_frames * 65_535;
    let mut bytes = [b"fLaC".to_vec(), metadata(0x80, 34, &streaminfo(44_100, 2, n_samples))].concat();
    for number in 0..n_frames {
        let mut coded = Vec::new();
        match number {
            0..0x80 => coded.push(number as u8),
            0x80..0x800 => coded.extend([0xc0 | (number >> 6) as u8, 0x80 | (number & 63) as u8]),
            _ => coded.extend([
                0xe0 | (number >> 12) as u8,
                0x80 | (number >> 6 & 63) as u8,
                0x80 | (number & 63) as u8,
            ]),
        }
        // Fixed blocks, 16-bit block size, 44.1 kHz; two independent channels of 16 bits, each a constant of
        // zero.
        let start = bytes.len();
        bytes.extend([0xff, 0xf8, 0x79, 0x18]);
        bytes.extend(coded);
        bytes.extend([0xff, 0xfe]);
        bytes.push(crc(&bytes[start..], 8, 7) as u8);
        bytes.extend([0, 0, 0, 0, 0, 0]);
        let crc = crc(&bytes[start..], 16, 0x8005) as u16;
        bytes.extend(crc.to_be_bytes());
    }
    bytes
}

fn crc(bytes: &[u8], bits: u32, polynomial: u32) -> u32 {
    let (top, mask) = (1u32 << (bits - 1), (1u64 << bits) as u32 - 1);
    bytes.iter().fold(0, |mut crc, &byte| {
        crc ^= u32::from(byte) << (bits - 8);
        for _ in 0..8 {
            crc = (crc << 1 & mask) ^ if crc & top != 0 { polynomial } else { 0 };
        }
        crc
    })
}

fn id3(size: u32, body: &[u8]) -> Vec<u8> {
    let size = [21, 14, 7, 0].map(|shift| (size >> shift & 0x7f) as u8);
    [&b"ID3\x04\0\0"[..], &size, body].concat()
}

fn aiff(channels: u16, frames: u32, rate: [u8; 10]) -> Vec<u8> {
    let common = [&channels.to_be_bytes()[..], &frames.to_be_bytes(), &16u16.to_be_bytes(), &rate].concat();
    let sound = [&b"SSND\xff\xff\xff\xff"[..], &[0; 64]].concat();
    [&b"FORM\xff\xff\xff\xffAIFFCOMM\0\0\0\x12"[..], &common, &sound].concat()
}

/// All files, with names.
///
/// `sound` returns the bytes of a valid file of `tests/data`, to which false claims are added.
pub fn all(sound: impl Fn(&str) -> Vec<u8>) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |name: &str, bytes: Vec<u8>| files.push((name.to_owned(), bytes));
    let samples = [1u8; 64];

    // WAV: sizes, rates and channels without the bytes for them.
    for rate in [0, 1, 4_194_304, u32::MAX] {
        add(
            &format!("wav of {rate} Hz"),
            wav(b"RIFF", &[fmt(1, 1, rate, 2, 16), chunk(b"data", 64, &samples)]),
        );
    }
    for channels in [0, 255, u16::MAX] {
        let block = channels.wrapping_mul(2);
        add(
            &format!("wav of {channels} channels"),
            wav(b"RIFF", &[fmt(1, channels, 48_000, block, 16), chunk(b"data", u32::MAX, &samples)]),
        );
    }
    add("wav of 4 GiB", wav(b"RIFF", &[fmt(1, 2, 48_000, 4, 16), chunk(b"data", u32::MAX, &samples)]));
    add(
        "wav with a list of 4 GiB",
        wav(b"RIFF", &[chunk(b"LIST", u32::MAX, &samples), fmt(1, 2, 48_000, 4, 16)]),
    );
    let ds64 = chunk(b"ds64", 28, &[0xff; 28]);
    add(
        "rf64 of 16 EiB",
        wav(b"RF64", &[ds64, fmt(1, 2, 48_000, 4, 16), chunk(b"data", u32::MAX, &samples)]),
    );
    add(
        "wav of a million chunks",
        wav(
            b"RIFF",
            &[chunk(b"junk", 0, b"").repeat(1 << 20), fmt(1, 1, 8000, 2, 16), chunk(b"data", 64, &samples)],
        ),
    );
    add("wav with a long fmt", wav(b"RIFF", &[chunk(b"fmt ", 1 << 31, &[1; 40])]));
    for tag in [2, 0x11] {
        // ADPCM blocks whose header gives the number of their samples.
        let extra = [&fmt(tag, 2, 48_000, u16::MAX, 4)[8..], &[0xff; 34][..]].concat();
        add(
            &format!("adpcm {tag} of odd blocks"),
            wav(b"RIFF", &[chunk(b"fmt ", extra.len() as u32, &extra), chunk(b"data", 1 << 20, &[7; 4096])]),
        );
    }

    // FLAC: hours of samples from no bytes, and from kilobytes.
    let longest = (1 << 36) - 1;
    add(
        "flac of 18 days without a frame",
        [b"fLaC".to_vec(), metadata(0x80, 34, &streaminfo(44_100, 8, longest))].concat(),
    );
    add("flac of an hour in 43 KB", flac_of_silence(2430));
    add("flac of a day in 1 MB, twice", flac_of_silence(60_000).repeat(2));
    for (what, kind) in [
        ("picture", 6),
        ("comment", 4),
        ("seek table", 3),
        ("application", 2),
        ("cue sheet", 5),
        ("padding", 1),
    ] {
        let info = metadata(0, 34, &streaminfo(44_100, 2, 1000));
        let claim = metadata(kind | 0x80, (1 << 24) - 1, &[0xff; 80]);
        add(
            &format!("flac with a {what} of 16 MiB that is not there"),
            [b"fLaC".to_vec(), info, claim].concat(),
        );
    }
    let flac = sound("recordings/formats/s16.flac");
    let picture = metadata(6, (1 << 24) - 1, &vec![0xff; (1 << 24) - 1]);
    add("flac with a picture of 16 MiB", [&flac[..42], &picture, &flac[42..]].concat());
    add(
        "flac of 100 000 metadata blocks",
        [&flac[..42], &metadata(1, 0, b"").repeat(100_000), &flac[42..]].concat(),
    );
    let comments =
        [&4u32.to_le_bytes()[..], b"evil", &u32::MAX.to_le_bytes()[..], &u32::MAX.to_le_bytes()].concat();
    add(
        "flac of 4 G comments",
        [&flac[..42], &metadata(4, comments.len() as u32, &comments), &flac[42..]].concat(),
    );

    // ID3: sizes, many tags, many frames.
    let mp3 = sound("recordings/formats/layer3.mp3");
    add("id3 of 256 MiB", id3((1 << 28) - 1, &mp3));
    add("id3 within id3", [id3(0, b"").repeat(200_000), mp3.clone()].concat());
    let frames = b"TXXX\0\0\0\x02\0\0\0a".repeat(300_000);
    add("id3 of 300 000 frames", [id3(frames.len() as u32, &frames), mp3.clone()].concat());
    add("id3 with nothing behind", id3(1 << 20, &[0; 1 << 20]));
    let mut xing = mp3.clone();
    if let Some(at) = xing.windows(4).position(|four| [b"Xing", b"Info"].contains(&four.try_into().unwrap()))
    {
        xing[at + 4..at + 16].fill(0xff);
    }
    add("mp3 of 4 G frames", xing);
    add("mp3 of sync words", [0xff, 0xfb].repeat(1 << 19));
    add("adts of sync words", [0xff, 0xf1, 0x50, 0x80, 0, 0x1f, 0xfc].repeat(150_000));

    // Ogg: times, streams, headers.
    let vorbis = sound("audio/vorbis/vorbis_len_1025.ogg");
    for granule in [i64::MAX, i64::MIN, -2, 1 << 40, (1 << 61) - 1] {
        let mut late = vorbis.clone();
        let last = late.windows(4).rposition(|four| four == b"OggS").unwrap();
        late[last + 6..last + 14].copy_from_slice(&granule.to_le_bytes());
        seal_ogg(&mut late);
        add(&format!("vorbis that ends at {granule}"), late);
    }
    for (channels, rate) in [(255, 4_194_304), (255, 768_000), (0, 48_000), (1, 0), (1, u32::MAX)] {
        let mut head = vorbis.clone();
        head[28..58].copy_from_slice(&vorbis_identification(channels, rate));
        seal_ogg(&mut head);
        add(&format!("vorbis of {channels} channels of {rate} Hz"), head);
    }
    let mut streams: Vec<u8> =
        (0..20_000).flat_map(|serial| page(serial, 0, 2, 0, &vorbis_identification(2, 48_000))).collect();
    seal_ogg(&mut streams);
    add("ogg of 20 000 streams", streams);
    let mut empty: Vec<u8> = (0..50_000).flat_map(|n| page(7, n, 0, i64::from(n) << 20, b"")).collect();
    seal_ogg(&mut empty);
    add("vorbis, then 50 000 empty pages", [vorbis.clone(), empty].concat());
    for (what, granule) in [("a position", 1 << 20), ("none", -1)] {
        // Between the headers and the audio packets, in the same stream.
        let serial = u32::from_le_bytes(vorbis[14..18].try_into().unwrap());
        let audio = vorbis.windows(4).rposition(|four| four == b"OggS").unwrap();
        let mut empty: Vec<u8> = (2..200_000).flat_map(|n| page(serial, n, 0, granule, b"")).collect();
        seal_ogg(&mut empty);
        add(
            &format!("vorbis behind 200 000 empty pages with {what}"),
            [&vorbis[..audio], &empty, &vorbis[audio..]].concat(),
        );
    }
    add("ogg of capture patterns", b"OggS".repeat(1 << 18));
    let endless: Vec<u8> = (0..4000u32)
        .flat_map(|n| {
            let head = [
                &b"OggS\0"[..],
                &[u8::from(n > 0)],
                &[0xff; 8],
                &9u32.to_le_bytes(),
                &n.to_le_bytes(),
                &[0; 4],
                &[255],
                &[255; 255],
            ]
            .concat();
            [head, vec![n as u8; 255 * 255]].concat()
        })
        .take(8 << 20)
        .collect();
    add("a packet of 8 MiB", [&vorbis[..58], &endless].concat());

    // MP4: boxes within boxes, tables without bytes.
    let deep: Vec<u8> =
        (1..=20_000u32).rev().flat_map(|depth| [&(8 * depth).to_be_bytes()[..], b"moov"].concat()).collect();
    add("mp4 of 20 000 boxes within each other", [boxed(b"ftyp", b"M4A \0\0\0\0"), deep].concat());
    for name in [b"udta", b"meta", b"ilst", b"trak", b"mdia", b"stbl"] {
        let nested = (0..2000).fold(boxed(b"free", b""), |inner, _| boxed(name, &inner));
        let what = String::from_utf8_lossy(name).into_owned();
        add(
            &format!("mp4 of 2000 {what} in each other"),
            [boxed(b"ftyp", b"M4A \0\0\0\0"), boxed(b"moov", &nested)].concat(),
        );
    }
    let m4a = sound("recordings/formats/aac.m4a");
    for table in [b"stsz", b"stts", b"stsc", b"stco", b"ctts", b"elst", b"esds", b"hdlr", b"mdhd", b"mvhd"] {
        let places: Vec<_> = (0..m4a.len() - 8).filter(|&at| &m4a[at..at + 4] == table).collect();
        for at in places {
            for (what, from, until) in [("count", 8, 16), ("all", 4, 40), ("size", -4, 0)] {
                let mut lie = m4a.clone();
                let range = (at as i64 + from) as usize..((at as i64 + until) as usize).min(lie.len());
                lie[range].fill(0xff);
                add(&format!("m4a with ones in {} {what}", String::from_utf8_lossy(table)), lie);
            }
        }
    }

    let fragments = sound("audio/codec-ladder/aac_48000_stereo_frag.mp4");
    let run = fragments.windows(4).position(|four| four == b"trun").unwrap();
    for flags in [0u32, 1, 0x100, 0x200, 0xf01] {
        let mut lie = fragments[..2833].to_vec();
        lie[run + 4..run + 8].copy_from_slice(&flags.to_be_bytes());
        lie[run + 8..run + 12].fill(0xff);
        add(&format!("mp4 of 4 G packets in a run with flags {flags:x}"), lie);
    }

    // Matroska: sizes, lacing, elements within each other, and tables of nothing.
    let webm = sound("audio/matroska/opus.webm");
    let cluster = webm.windows(4).position(|four| four == [0x1f, 0x43, 0xb6, 0x75]).unwrap();
    let (head, blocks) = (&webm[..cluster], &webm[cluster..]);
    let mut add_behind = |name: &str, rest: &[u8]| add(name, [head, rest].concat());
    let unknown = [0x1f, 0x43, 0xb6, 0x75, 0xff];
    for (what, size) in
        [("16 EiB", [0x01, 255, 255, 255, 255, 255, 255, 254]), ("no", [0x01, 0, 0, 0, 0, 0, 0, 0])]
    {
        add_behind(
            &format!("webm with a block of {what} bytes"),
            &[&unknown[..], &[0xa3], &size, &[1; 64]].concat(),
        );
        add_behind(
            &format!("webm with a cluster of {what} bytes"),
            &[&unknown[..4], &size, &[1; 64]].concat(),
        );
    }
    add_behind("webm of a million clusters", &unknown.repeat(1 << 18));
    add_behind(
        "webm of a million empty blocks",
        &[&unknown[..], &[0xa3, 0x84, 0x81, 0, 0, 0].repeat(1 << 18)].concat(),
    );
    for lacing in [2u8, 4, 6] {
        let frames = [&[0xa3, 0x40, 5, 0x81, 0, 0, lacing, 255][..], &[0x80; 600]].concat();
        add_behind(
            &format!("webm of 256 frames by lacing {lacing}"),
            &[&unknown[..], &frames.repeat(2000)].concat(),
        );
        let ones = [&[0xa3, 0x42, 0x5d, 0x81, 0, 0, lacing, 255][..], &[0xff; 600]].concat();
        add_behind(
            &format!("webm with ones in lacing {lacing}"),
            &[&unknown[..], &ones.repeat(2000)].concat(),
        );
    }
    let nested = (0..2000).fold(vec![0xa1, 0x80], |inner, _| {
        [&[0xa0, 0x01, 0, 0, 0, 0][..], &(inner.len() as u32).to_be_bytes()[1..], &inner].concat()
    });
    add_behind("webm of 2000 groups in each other", &[&unknown[..], &nested].concat());
    for at in (0..head.len()).chain(cluster..cluster + 60) {
        let mut lie = webm.clone();
        let end = (at + 4).min(lie.len());
        lie[at..end].fill(0xff);
        add(&format!("webm with ones at {at}"), lie);
    }
    add("webm without a head", blocks.to_vec());

    // SPHERE.
    for (field, value) in
        [("channel_count", "65535"), ("sample_rate", "4194304"), ("sample_count", "9007199254740992")]
    {
        let text = format!(
            "NIST_1A\n   1024\nchannel_count -i 2\nsample_rate -i 8000\nsample_n_bytes -i 2\nsample_byte_format -s2 01\n\
             {field} -i {value}\nend_head\n"
        );
        let first = text.replacen(&format!("{field} -i 2\n"), "", 1).replacen(
            "sample_rate -i 8000\n",
            if field == "sample_rate" { "" } else { "sample_rate -i 8000\n" },
            1,
        );
        let mut bytes = first.into_bytes();
        bytes.resize(1024, b' ');
        bytes.extend([1; 64]);
        add(&format!("sphere with {field} {value}"), bytes);
    }
    add("sphere of a million lines", [&b"NIST_1A\n  65000\n"[..], &b"a -i 1\n".repeat(1 << 17)].concat());

    // AIFF, AU, CAF.
    for (what, rate) in [
        ("infinite", [0x7f, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ("no number", [0x7f, 0xff, 0xc0, 0, 0, 0, 0, 0, 0, 1]),
        ("negative", [0xc0, 0x0e, 0xfa, 0, 0, 0, 0, 0, 0, 0]),
        ("tiny", [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    ] {
        add(&format!("aiff whose rate is {what}"), aiff(1, u32::MAX, rate));
    }
    let hz = [0x40, 0x0e, 0xbb, 0x80, 0, 0, 0, 0, 0, 0];
    add("aiff of 65 535 channels", aiff(u16::MAX, u32::MAX, hz));
    add("aiff of no channels", aiff(0, u32::MAX, hz));
    for words in [
        [u32::MAX, u32::MAX, 3, 48_000, 2],
        [24, u32::MAX, 7, u32::MAX, u32::MAX],
        [24, 0, 3, 48_000, 70_000],
    ] {
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        add("au of odd numbers", [&b".snd"[..], &words, &[1; 64]].concat());
    }
    for rate in [f64::INFINITY, f64::NAN, -1.0, 1e300] {
        let desc = [
            &rate.to_be_bytes()[..],
            b"lpcm",
            &[0; 4],
            &2u32.to_be_bytes(),
            &1u32.to_be_bytes(),
            &1u32.to_be_bytes(),
            &16u32.to_be_bytes(),
        ]
        .concat();
        let chunks =
            [&b"desc"[..], &32i64.to_be_bytes(), &desc, b"data", &(-1i64).to_be_bytes(), &[1; 64]].concat();
        add(&format!("caf of {rate} Hz"), [&b"caff\0\x01\0\0"[..], &chunks].concat());
    }
    let mut packets = sound("audio/made/alac16.caf");
    if let Some(at) = packets.windows(4).position(|four| four == b"pakt") {
        packets[at + 12..at + 36].fill(0x7f);
    }
    add("caf of 9 E packets", packets);
    files
}

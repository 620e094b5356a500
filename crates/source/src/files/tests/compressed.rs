//! Tests of compressed tables.

use std::io::Read;

use super::*;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    flate2::bufread::GzEncoder::new(text, flate2::Compression::default()).read_to_end(&mut packed).unwrap();
    packed
}

fn zstd(text: &[u8]) -> Vec<u8> {
    ::zstd::encode_all(text, 3).unwrap()
}

#[test]
fn compressed_tables_are_those_that_are_not() {
    let note = "one\n, \"\"two\"\"";
    let csv: String = (0..40_000).map(|row| format!("a{row}.wav,\"{note}\",{row}\n")).collect();
    let jsonl: String = (0..40_000)
        .map(|row| {
            // bounded: less than 90.
            format!("{{\"path\": \"a{row}.wav\", \"note\": {:?}, \"n\": {row}}}\n", "x".repeat(row % 90))
        })
        .collect();
    for (name, text) in [
        ("a.csv", format!("path,note,n\n{csv}")),
        (
            "a.tsv",
            format!("path,note,n\n{csv}")
                .replace("wav,", "wav\t")
                .replace("\",", "\"\t")
                .replace("path,note,n", "path\tnote\tn"),
        ),
        // Blanks after delimiters are left out of the text.
        ("a.csv", format!("path, note, n\n{}", csv.replace("wav,", "wav, ").replace("\",", "\", "))),
        ("a.jsonl", jsonl.clone()),
        ("a.json", jsonl),
    ] {
        let plain = table(name, &text, &["note", "n"]).unwrap();
        let halves = text.split_at(text.floor_char_boundary(text.len() / 3));
        let streams =
            |pack: fn(&[u8]) -> Vec<u8>| [pack(halves.0.as_bytes()), pack(halves.1.as_bytes())].concat();
        for (ending, packed) in [
            ("gz", gzip(text.as_bytes())),
            ("GZ", streams(gzip)),
            ("zst", zstd(text.as_bytes())),
            ("zst", streams(zstd)),
        ] {
            let name = format!("{name}.{ending}");
            let source =
                table(&name, packed, &["note", "n"]).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(source.n_rows(), 40_000, "{name}");
            assert_eq!(source.fingerprint(), plain.fingerprint(), "{name}");
            let error = read(&source, 39_999).unwrap_err();
            assert_eq!(
                error.message.split(':').next(),
                read(&plain, 39_999).unwrap_err().message.split(':').next()
            );
        }
    }
}

#[test]
fn compressed_tables_beside_their_recordings() {
    let folder = Folder::new();
    folder.write("night.wav", "night");
    for name in ["night.txt.gz", "night.Table.1.selections.txt.gz"] {
        let text = if name == "night.txt.gz" { "0\t1\tx\n" } else { "Begin Time (s)\tEnd Time (s)\n0\t1\n" };
        let source = open(vec![folder.write(name, gzip(text.as_bytes())).into()], &reading(&[])).unwrap();
        assert_eq!(&read(&source, 0).unwrap().payload.bytes[..], b"night", "{name}");
    }
    // Of a table and its compressed copy, the table is read.
    folder.write("deep/a.wav", "a");
    for (name, text, rows) in [
        ("deep/metadata.csv.gz", gzip(b"file_name\na.wav\n"), 1),
        ("deep/metadata.csv.zst", zstd(b"file_name\na.wav\na.wav\n"), 1),
        ("deep/metadata.csv", b"file_name\na.wav\na.wav\na.wav\n".to_vec(), 3),
    ] {
        folder.write(name, text);
        assert_eq!(open(vec![folder.path().into()], &reading(&[])).unwrap().n_rows(), rows, "{name}");
    }
}

#[test]
fn broken_compressed_tables() {
    let row = |line: &str| format!("path,name\na.wav,x\n{line}\n");
    // Errors of the text have their line and no byte, which would be none of the file.
    for (text, told) in [
        (row("b.wav").into_bytes(), "line 3 has 1 cell"),
        (row("b.wav,\"open").into_bytes(), "line 3: a quote is opened and not closed"),
        (row("b.wav,\"x\nc.wav,\"y\"").into_bytes(), "line 3: a cell over several lines goes on"),
        ([row("").as_bytes(), b"\nb.wav,caf\xe9\n"].concat(), "line 5, column \"name\": byte 3 of"),
    ] {
        let error = table("a.csv.gz", gzip(&text), &[]).unwrap_err();
        assert!(error.to_string().contains(told) && error.place.byte.is_none(), "{error}");
    }
    let noise: String = (0..20_000u64).map(|row| format!("{:x}.wav,x\n", crate::seed::mix(row))).collect();
    let text = format!("path,name\n{noise}");
    for (name, packed) in [("a.csv.gz", gzip(text.as_bytes())), ("a.csv.zst", zstd(text.as_bytes()))] {
        assert_eq!(table(name, &packed, &[]).unwrap().n_rows(), 20_000);
        for len in [0, 1, 5, packed.len() / 2, packed.len() - 1] {
            let error = table(name, &packed[..len], &[]).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
            assert_eq!(error.kind, ErrorKind::Truncated, "{len} {error}");
            assert!(error.message.contains(&format!("in the {len} bytes of the file")), "{error}");
        }
        let error = table(name, &text, &[]).unwrap_err();
        assert!(error.kind == ErrorKind::Corrupt && error.message.contains("as its name says"), "{error}");
        let mut damaged = packed.clone();
        let middle = packed.len() / 2;
        damaged[middle..middle + 64].fill(0x55);
        assert!(table(name, damaged, &[]).is_err());
    }
    // A frame with a window of 1 GiB, and an empty last block.
    let wide = b"\x28\xb5\x2f\xfd\x00\xa0\x01\x00\x00";
    let error = table("a.csv.zst", wide, &[]).unwrap_err();
    assert!(error.kind == ErrorKind::Unsupported && error.message.contains("without --long"), "{error}");
}

#[test]
fn the_text_of_a_compressed_table_is_bounded() {
    // Blank lines take no memory, but no table has 256 MiB of them.
    let mut bomb = ::zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    std::io::Write::write_all(&mut bomb, b"path\na.wav").unwrap();
    // bounded: a constant.
    let piece = vec![b'\n'; 1 << 20];
    for _ in 0..257 {
        std::io::Write::write_all(&mut bomb, &piece).unwrap();
    }
    let error = table("a.csv.zst", bomb.finish().unwrap(), &[]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooLarge);
    for told in ["a.csv.zst", "more than 268435456 bytes of text", "at most 256 MiB", "unpack it first"] {
        assert!(error.to_string().contains(told), "{error}");
    }
}

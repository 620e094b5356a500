//! Shards and recordings at URLs of a web server on the loopback: the same as in files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../storage/src/remote/server.rs"]
mod server;

use std::{
    collections::BTreeMap,
    io::Read,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use forebay_audio::{AudioDecoder, Planes, RangeIndex, ReadAt};
use forebay_base::{Result, seed::mix};
use forebay_engine::contract::ReadRecords;
use forebay_source::{ArrowSource, OpenFiles, SourceOptions, WholeRecord};
use forebay_storage::{LocalFiles, PathOrUrl, Storage, StoreOptions, StoredFile};
use server::Server;

#[test]
fn an_arrow_shard_has_the_rows_of_the_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/arrow");
    let mut shards: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    shards.retain(|path| path.extension().is_some_and(|ending| ending == "arrow"));
    shards.sort();
    let mut n_read = 0;
    for path in shards {
        let mut content = Vec::new();
        std::fs::File::open(&path).unwrap().read_to_end(&mut content).unwrap();
        let server = Server::start(&content);
        let open =
            |path: &Path| ArrowSource::open(&[path.to_owned()], &SourceOptions::default()).map(Arc::new);
        let Ok(local) = open(&path) else { continue };
        let remote = open(Path::new(&server.url)).unwrap();
        assert_eq!(remote.n_rows(), local.n_rows(), "{}", path.display());
        let (mut one, mut other) = (local.reader(), remote.reader());
        for row in 0..local.n_rows() {
            let run = local.n_rows() - row;
            let (one, other) =
                (one.read(row, run, &WholeRecord::ONCE), other.read(row, run, &WholeRecord::ONCE));
            match (one, other) {
                (Ok(one), Ok(other)) => {
                    assert!(one.payload.bytes == other.payload.bytes, "{} row {row}", path.display());
                    n_read += 1;
                }
                (Err(_), Err(_)) => {}
                // The row names a file beside its shard, which the server does not have.
                (Ok(_), Err(error)) if error.message.contains("only the path") => {}
                (one, other) => panic!("{} row {row}: {:?}, {:?}", path.display(), one.err(), other.err()),
            }
        }
    }
    assert!(n_read > 0);
}

/// A recording that lies in a file or at a URL, perhaps after other bytes, as in an archive.
struct Stored {
    file: StoredFile,
    at: u64,
    size: u64,
}

impl ReadAt for Stored {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.file.read_exact(&mut bytes, self.at + range.start)?;
        Ok(bytes.into())
    }

    fn read_whole_up_to(&self) -> u64 {
        0
    }
}

fn by_url(server: &Server) -> StoredFile {
    let storage = PathOrUrl::files(&StoreOptions::default(), None);
    StoredFile::open(&storage, &Arc::from(Path::new(&server.url))).unwrap()
}

/// All files of the test data that can be opened, by the name of their format.
fn recordings() -> BTreeMap<&'static str, Vec<(PathBuf, Vec<u8>)>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/audio")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            if let Ok(recording) = AudioDecoder::new().open(&bytes) {
                found.entry(recording.format()).or_default().push((path, bytes));
            }
        }
    }
    found.values_mut().for_each(|files| files.sort());
    found
}

/// Spans of every format have the same bits in memory, in a file, in a file after other bytes, and by URL.
#[test]
fn spans_have_the_same_bits_in_memory_on_disk_and_by_url() {
    let recordings = recordings();
    let folder = tempfile::tempdir().unwrap();
    let bits = |planes: &Planes| -> Vec<Vec<u32>> {
        let channel = |c| planes.channel(c).iter().map(|value| value.to_bits()).collect();
        (0..usize::from(planes.channels())).map(channel).collect()
    };
    for format in forebay_audio::formats() {
        // Files from all parts of the list: mono and stereo, codings, damaged ones.
        let files = recordings.get(format).unwrap_or_else(|| panic!("no test data of {format}"));
        for (path, bytes) in files.iter().step_by(files.len().div_ceil(4)) {
            let name = path.display();
            let server = Server::start(bytes);
            let archive = folder.path().join("archive");
            std::fs::write(&archive, [&[7; 512][..], bytes, &[7; 512]].concat()).unwrap();
            let local: Arc<dyn Storage> = Arc::new(LocalFiles);
            let open = |path: &Path| StoredFile::open(&local, &Arc::from(path)).unwrap();
            let size = bytes.len() as u64;
            let places = [
                ("file", Stored { file: open(path), at: 0, size }),
                ("archive", Stored { file: open(&archive), at: 512, size }),
                ("url", Stored { file: by_url(&server), at: 0, size }),
            ];
            let (mut decoder, mut want, mut got) = (AudioDecoder::new(), Planes::new(), Planes::new());
            let recording = decoder.open(bytes).unwrap();
            let info = recording.info();
            for (place, stored) in &places {
                let index = Arc::new(RangeIndex::open(&mut decoder, stored).unwrap());
                assert_eq!((index.info(), index.format()), (info, format), "{name}, {place}");
                let again = Arc::new(RangeIndex::from_bytes(&index.to_bytes()).unwrap());
                for number in 0..12 {
                    let start = mix(number) % info.n_samples;
                    let span = start..(start + 1 + mix(start) % 9000).min(info.n_samples);
                    let whole = decoder.read(&recording, span.clone(), &mut want).map_err(|error| error.kind);
                    for index in [&index, &again] {
                        let part = index.span_bytes(&mut decoder, stored, span.clone());
                        let part = part.and_then(|part| decoder.read_span(&part, span.clone(), &mut got));
                        assert_eq!(part.map_err(|error| error.kind), whole, "{name}, {place}: {span:?}");
                        assert!(whole.is_err() || bits(&want) == bits(&got), "{name}, {place}: {span:?}");
                    }
                }
            }
        }
    }
}

//! Against a web server on the loopback. A cache of its own over the same folder is what another process has.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    thread,
};

use proptest::prelude::*;
use tempfile::TempDir;

use super::{super::server::Server, *};
use crate::{ErrorKind, LocalFiles, Storage, StoreOptions, path_or_url::PathOrUrl, storage::StoredFile};

pub(super) fn noise(n: usize) -> Vec<u8> {
    (0..n as u64).map(|n| mix(n) as u8).collect()
}

pub(super) const LIMIT: u64 = 1 << 30;

/// The object of a server, opened by another process.
pub(super) fn opened(server: &Server, folder: &Path, limit: u64) -> (StoredFile, Arc<Traffic>) {
    let cache = DiskCache::open(folder, limit).unwrap();
    let storage = PathOrUrl::here(LocalFiles, &StoreOptions::default(), Some(cache));
    let traffic = storage.traffic();
    let storage: Arc<dyn Storage> = Arc::new(storage);
    (StoredFile::open(&storage, &Arc::from(Path::new(&server.url))).unwrap(), traffic)
}

/// Reads the whole object in pieces that begin anywhere.
pub(super) fn read_all(file: &StoredFile) -> Vec<u8> {
    let mut all = vec![0; file.size() as usize];
    for (number, piece) in all.chunks_mut(300_001).enumerate() {
        file.read_exact(piece, number as u64 * 300_001).unwrap();
    }
    all
}

pub(super) fn parts(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder.join("forebay-objects")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found.retain(|path| path.extension().is_some_and(|ending| ending == "part"));
    found.sort();
    found
}

pub(super) fn sent(server: &Server) -> u64 {
    server.sent.load(Ordering::Relaxed)
}

#[test]
fn what_one_process_read_needs_no_request_of_another() {
    let (folder, content) = (TempDir::new().unwrap(), noise(9_000_000));
    let server = Server::start(&content);
    let (file, _) = opened(&server, folder.path(), LIMIT);
    file.will_need(1_000_000, 500_000);
    file.will_need(1_500_000, 500_000);
    assert!(read_all(&file) == content);
    // A sector that two requests share may be sent twice.
    let n_pieces = 9_000_000 / 300_001 + 4;
    assert!(sent(&server) <= 9_000_000 + n_pieces * SECTOR, "{}", sent(&server));
    let (requests, before) = (server.requests.load(Ordering::Relaxed), sent(&server));
    let (file, traffic) = opened(&server, folder.path(), LIMIT);
    file.will_need(0, 4_000_000);
    assert!(read_all(&file) == content);
    // The version was requested.
    assert_eq!(server.requests.load(Ordering::Relaxed), requests + 1);
    assert_eq!(sent(&server), before);
    assert_eq!(traffic.cached_bytes.load(Ordering::Relaxed), 9_000_000);
    assert!(traffic.cache_hits.load(Ordering::Relaxed) >= 30);
}

#[test]
fn single_ranges_cost_two_sectors_more_at_most() {
    let (folder, content) = (TempDir::new().unwrap(), noise(9_000_000));
    let server = Server::start(&content);
    let (file, _) = opened(&server, folder.path(), LIMIT);
    let mut read = vec![0; 100_000];
    for at in [1_000_001, 7_000_000, 4_150_000] {
        file.read_exact(&mut read, at as u64).unwrap();
        assert!(read == content[at..at + 100_000]);
    }
    assert!(sent(&server) <= 3 * (100_000 + 2 * SECTOR), "{}", sent(&server));
}

#[test]
fn a_server_without_head_is_read_as_well() {
    let (folder, content) = (TempDir::new().unwrap(), noise(500_000));
    let server = Server::start(&content);
    server.faults.has_no_head.store(true, Ordering::Relaxed);
    assert!(read_all(&opened(&server, folder.path(), LIMIT).0) == content);
    let before = sent(&server);
    assert!(read_all(&opened(&server, folder.path(), LIMIT).0) == content);
    // The first page has the version.
    assert_eq!(sent(&server) - before, 16 << 10);
}

#[test]
fn a_changed_object_is_not_served() {
    let (folder, content) = (TempDir::new().unwrap(), noise(100_000));
    let server = Server::start(&content);
    assert!(read_all(&opened(&server, folder.path(), LIMIT).0) == content);
    let changed: Vec<u8> = content.iter().map(|byte| byte ^ 1).collect();
    *server.content.lock().unwrap() = (changed.clone(), "\"2\"".to_owned());
    for _ in 0..2 {
        assert!(read_all(&opened(&server, folder.path(), LIMIT).0) == changed);
    }
    // A weak tag and no time tell no versions apart, so nothing is kept.
    *server.content.lock().unwrap() = (content.clone(), "W/\"3\"".to_owned());
    let n_parts = parts(folder.path()).len();
    for _ in 0..2 {
        let before = sent(&server);
        assert!(read_all(&opened(&server, folder.path(), LIMIT).0) == content);
        assert_eq!(sent(&server) - before, 100_000);
    }
    assert_eq!(parts(folder.path()).len(), n_parts);
}

#[test]
fn times_tell_versions_apart_a_minute_later() {
    let cache = DiskCache::open(TempDir::new().unwrap().path(), LIMIT).unwrap();
    let is_kept = |etag: Option<&str>, age: Option<u64>| {
        let changed = age.map_or(SystemTime::UNIX_EPOCH, |age| SystemTime::now() - Duration::from_secs(age));
        CachedObject::new(&cache, "x", &meta(10, etag, changed), &Arc::default()).is_some()
    };
    assert!(is_kept(Some("\"1\""), None) && is_kept(Some("\"1\""), Some(0)) && is_kept(None, Some(120)));
    assert!(!is_kept(None, Some(5)) && !is_kept(None, None) && !is_kept(Some("W/\"1\""), Some(5)));
}

pub(super) fn meta(size: u64, etag: Option<&str>, changed: SystemTime) -> ObjectMeta {
    ObjectMeta {
        location: "x".into(),
        last_modified: changed.into(),
        size,
        e_tag: etag.map(str::to_owned),
        version: None,
    }
}

type Damage = fn(&Path);

#[test]
fn damaged_files_are_not_served() {
    let (folder, content) = (TempDir::new().unwrap(), noise(5_000_000));
    let server = Server::start(&content);
    let fresh = || opened(&server, folder.path(), LIMIT).0;
    assert!(read_all(&fresh()) == content);
    let damage: [(&str, Damage); 5] = [
        ("cut off", |path| fs::OpenOptions::new().write(true).open(path).unwrap().set_len(30_000).unwrap()),
        ("empty", |path| fs::write(path, "").unwrap()),
        ("a part of the header", |path| fs::write(path, "forebay pa").unwrap()),
        ("zeros behind the table", |path| {
            let mut bytes = fs::read(path).unwrap();
            bytes[20_000..40_000].fill(0);
            fs::write(path, bytes).unwrap();
        }),
        ("other bytes", |path| {
            let mut bytes = fs::read(path).unwrap();
            let last = bytes.len() - 1;
            (bytes[last], bytes[500]) = (!bytes[last], !bytes[500]);
            fs::write(path, bytes).unwrap();
        }),
    ];
    for (name, damage) in damage {
        parts(folder.path()).iter().for_each(|path| damage(path));
        assert!(read_all(&fresh()) == content, "{name}");
        // It was kept again.
        let before = sent(&server);
        assert!(read_all(&fresh()) == content, "{name}");
        assert_eq!(sent(&server), before, "{name}");
    }
}

#[test]
fn files_of_others_are_left_alone() {
    let (folder, content) = (TempDir::new().unwrap(), noise(20 << 20));
    let server = Server::start(&content);
    assert!(read_all(&opened(&server, folder.path(), LIMIT).0) == content);
    let ours = folder.path().join("forebay-objects");
    let part = parts(folder.path()).remove(0);
    // One has the name of a part.
    let others = [folder.path().join("x"), ours.join("x"), ours.join("00").join("x.part"), part];
    fs::create_dir_all(ours.join("00")).unwrap();
    for path in &others {
        fs::write(path, "a user's file").unwrap();
        fs::File::open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    for _ in 0..2 {
        // The limit is passed.
        assert!(read_all(&opened(&server, folder.path(), 16 << 20).0) == content);
    }
    for path in &others {
        assert_eq!(fs::read_to_string(path).unwrap(), "a user's file", "{}", path.display());
    }
    // A folder of the name that forebay did not make is refused.
    let folder = TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join("forebay-objects/photos")).unwrap();
    let error = DiskCache::open(folder.path(), LIMIT).unwrap_err();
    assert!(error.kind == ErrorKind::Config && error.message.contains("did not make"), "{error}");
}

#[test]
fn the_least_recently_used_parts_are_removed() {
    let (folder, limit) = (TempDir::new().unwrap(), 16 << 20);
    let (first, second) = (Server::start(&noise(6 << 20)), Server::start(&noise(8 << 20)));
    let third = Server::start(&noise(6 << 20));
    let measure = || PartFolder::open(folder.path(), limit).unwrap().0.measure().unwrap();
    assert_eq!(measure(), 0);
    for (server, age) in [(&first, 300), (&second, 200)] {
        let before = parts(folder.path());
        read_all(&opened(server, folder.path(), limit).0);
        for path in parts(folder.path()).iter().filter(|path| !before.contains(path)) {
            let used = SystemTime::now() - Duration::from_secs(age);
            fs::File::open(path).unwrap().set_modified(used).unwrap();
        }
    }
    // The first is used again: the second is now the oldest.
    let before = sent(&first);
    read_all(&opened(&first, folder.path(), limit).0);
    assert_eq!(sent(&first), before);
    read_all(&opened(&third, folder.path(), limit).0);
    assert!(measure() <= limit, "{}", measure());
    read_all(&opened(&first, folder.path(), limit).0);
    assert_eq!(sent(&first), before);
    let before = sent(&second);
    read_all(&opened(&second, folder.path(), limit).0);
    assert!(sent(&second) > before);
    assert!(measure() <= limit, "{}", measure());
    // A count that is lost or torn is measured.
    fs::write(folder.path().join("forebay-objects/usage"), "12 1").unwrap();
    read_all(&opened(&first, folder.path(), limit).0);
    assert!(measure() <= limit, "{}", measure());
}

#[test]
fn two_that_want_the_same_ask_once() {
    let (folder, content) = (TempDir::new().unwrap(), noise(6_000_000));
    let server = Server::start(&content);
    let files: Vec<StoredFile> = (0..8).map(|_| opened(&server, folder.path(), LIMIT).0).collect();
    thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| {
                let mut all = vec![0; content.len()];
                file.read_exact(&mut all, 0).unwrap();
                assert!(all == content);
            });
        }
    });
    assert_eq!(sent(&server), 6_000_000);
}

#[cfg(target_os = "linux")]
#[test]
fn locks_end_with_their_holder() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("lock");
    let held = try_lock(&path, 5..9).unwrap().unwrap();
    assert!(try_lock(&path, 8..10).unwrap().is_none());
    assert!(try_lock(&path, 9..10).unwrap().is_some());
    drop(held);
    assert!(try_lock(&path, 8..10).unwrap().is_some());
}

#[test]
fn a_folder_that_is_removed_is_made_again() {
    let (folder, content) = (TempDir::new().unwrap(), noise(5_000_000));
    let server = Server::start(&content);
    let (file, _) = opened(&server, folder.path(), LIMIT);
    assert!(read_all(&file) == content);
    fs::remove_dir_all(folder.path().join("forebay-objects")).unwrap();
    assert!(read_all(&file) == content);
    let before = sent(&server);
    assert!(read_all(&file) == content);
    assert_eq!(sent(&server), before);
    assert!(folder.path().join("forebay-objects/CACHEDIR.TAG").is_file());
    // A file has taken its place.
    fs::remove_dir_all(folder.path().join("forebay-objects")).unwrap();
    fs::write(folder.path().join("forebay-objects"), "x").unwrap();
    assert!(read_all(&file) == content);
}

#[test]
fn folders_that_hold_no_files_are_refused() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    for (path, told) in [
        (file.as_path(), "no folder"),
        (&file.join("below"), "name a folder on a local disk"),
        (Path::new("s3://bucket/cache"), "must be a folder on a local disk"),
        (Path::new("file:///cache"), "must be a folder on a local disk"),
        (Path::new("~/cache"), "~ is not expanded"),
        (Path::new(""), "must be a folder on a local disk"),
    ] {
        let error = DiskCache::open(path, LIMIT).unwrap_err();
        assert!(error.kind == ErrorKind::Config && error.message.contains(told), "{error}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "x");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Ranges of any kind, in any order, over kept, missing and damaged sectors.
    #[test]
    fn ranges_are_those_of_the_object(
        size in 1u64..9_000_000,
        ranges in proptest::collection::vec((0.0..1.0f64, 0.0..1.0f64, any::<bool>()), 1..12),
    ) {
        let (folder, content) = (TempDir::new().unwrap(), noise(size as usize));
        let cache = DiskCache::open(folder.path(), LIMIT).unwrap();
        let kept = CachedObject::new(&cache, "x", &meta(size, Some("\"1\""), SystemTime::now()), &Arc::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (at, len, is_damaged) in ranges {
            let at = (at * size as f64) as u64;
            let wanted = at..(at + 1 + (len * len * (size - at) as f64) as u64).min(size);
            let mut read = vec![0; (wanted.end - at) as usize];
            let n = kept.read(&mut read, at);
            prop_assert!(read[..n] == content[at as usize..at as usize + n]);
            let whole = kept.whole(wanted.clone());
            let missing = kept.missing(whole.clone());
            prop_assert!(whole.start <= missing.start && missing.end <= whole.end);
            let got = std::sync::atomic::AtomicU64::new(0);
            let get = |range: Range<u64>| {
                got.fetch_add(range.end - range.start, Ordering::Relaxed);
                let bytes = Bytes::copy_from_slice(&content[range.start as usize..range.end as usize]);
                async move { Ok(bytes) }
            };
            let fetched = runtime.block_on(kept.fetch(whole.clone(), get)).unwrap();
            prop_assert!(fetched == content[whole.start as usize..whole.end as usize]);
            prop_assert!(got.into_inner() <= whole.end - whole.start);
            prop_assert!(kept.missing(whole).is_empty());
            if is_damaged {
                for path in parts(folder.path()) {
                    let mut bytes = fs::read(&path).unwrap();
                    let place = bytes.len() * 3 / 4;
                    bytes[place] ^= 1;
                    fs::write(&path, bytes).unwrap();
                }
            }
        }
    }
}

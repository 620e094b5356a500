//! What others put into the folder is neither followed, nor waited for, nor changed.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, atomic::Ordering},
    time::SystemTime,
};

use tempfile::TempDir;

use super::{
    super::server::Server,
    tests::{LIMIT, meta, noise, opened, parts, read_all, sent},
    *,
};
use crate::ErrorKind;

/// Makes a named pipe; opening it for reading blocks.
fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Every file below a folder with its content; links and pipes are named.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            found.extend(contents(&path));
        } else {
            let content = if kind.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            found.push((path, content));
        }
    }
    found.sort();
    found
}

fn ours(folder: &TempDir) -> PathBuf {
    folder.path().join("forebay-objects")
}

/// Replaces what is at the first path; the second is a folder of the user.
type Put = fn(&Path, &Path);

#[test]
fn what_stands_in_the_place_of_a_part_is_left_alone() {
    let content = noise(5_000_000);
    let server = Server::start(&content);
    let puts: [(&str, Put); 9] = [
        ("a link to an empty file", |part, user| symlink(user.join("empty"), part).unwrap()),
        ("a link to zeros", |part, user| symlink(user.join("zeros"), part).unwrap()),
        ("a link to a text", |part, user| symlink(user.join("text"), part).unwrap()),
        ("a link to no file", |part, user| symlink(user.join("none"), part).unwrap()),
        ("a link to a full disk", |part, _| symlink("/dev/full", part).unwrap()),
        ("another name of an empty file", |part, user| fs::hard_link(user.join("empty"), part).unwrap()),
        ("another name of zeros", |part, user| fs::hard_link(user.join("zeros"), part).unwrap()),
        ("a folder", |part, _| fs::create_dir(part).unwrap()),
        ("a pipe", |part, _| pipe(part)),
    ];
    for (name, put) in puts {
        let (folder, user) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        fs::write(user.path().join("empty"), "").unwrap();
        fs::write(user.path().join("zeros"), [0; 300]).unwrap();
        fs::write(user.path().join("text"), "a user's file").unwrap();
        let before = contents(user.path());
        assert!(read_all(&opened(&server, folder.path(), LIMIT).0) == content);
        for part in parts(folder.path()) {
            fs::remove_file(&part).unwrap();
            put(&part, user.path());
        }
        let there = contents(&ours(&folder));
        let (file, traffic) = opened(&server, folder.path(), LIMIT);
        for _ in 0..2 {
            assert!(read_all(&file) == content, "{name}");
        }
        assert_eq!(traffic.cached_bytes.load(Ordering::Relaxed), 0, "{name}");
        assert!(contents(user.path()) == before, "{name}");
        let now = contents(&ours(&folder));
        let is_other = |(path, _): &&(PathBuf, Vec<u8>)| !path.ends_with("usage");
        assert!(now.iter().filter(is_other).eq(there.iter().filter(is_other)), "{name}");
    }
}

#[test]
fn links_in_the_place_of_folders_are_not_followed() {
    let content = noise(5_000_000);
    let server = Server::start(&content);
    let (folder, user) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    assert!(read_all(&opened(&server, folder.path(), LIMIT).0) == content);
    for part in parts(folder.path()) {
        let below = part.parent().unwrap();
        fs::remove_dir_all(below).unwrap();
        symlink(user.path(), below).unwrap();
    }
    assert!(read_all(&opened(&server, folder.path(), LIMIT).0) == content);
    assert!(contents(user.path()).is_empty());
}

#[test]
fn another_count_is_left_alone() {
    let content = noise(5_000_000);
    let server = Server::start(&content);
    let puts: [(&str, Put); 5] = [
        ("a link", |usage, user| symlink(user.join("text"), usage).unwrap()),
        ("a pipe", |usage, _| pipe(usage)),
        ("a folder", |usage, _| fs::create_dir(usage).unwrap()),
        ("a text", |usage, _| fs::write(usage, "a user's file").unwrap()),
        ("a long file", |usage, _| fs::File::create(usage).unwrap().set_len(1 << 40).unwrap()),
    ];
    for (name, put) in puts {
        let (folder, user) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        fs::write(user.path().join("text"), "a user's file").unwrap();
        let usage = ours(&folder).join("usage");
        drop(DiskCache::open(folder.path(), LIMIT).unwrap());
        put(&usage, user.path());
        let before = fs::symlink_metadata(&usage).unwrap();
        assert!(read_all(&opened(&server, folder.path(), LIMIT).0) == content, "{name}");
        assert_eq!(fs::read_to_string(user.path().join("text")).unwrap(), "a user's file", "{name}");
        let now = fs::symlink_metadata(&usage).unwrap();
        assert_eq!((now.file_type(), now.len()), (before.file_type(), before.len()), "{name}");
        assert!(parts(folder.path()).is_empty(), "{name}");
    }
}

#[test]
fn a_marker_or_lock_that_is_no_file_is_refused() {
    let puts: [(&str, Put); 3] = [
        ("a link", |path, user| symlink(user.join("text"), path).unwrap()),
        ("a pipe", |path, _| pipe(path)),
        ("a folder", |path, _| fs::create_dir(path).unwrap()),
    ];
    for name in ["CACHEDIR.TAG", "lock"] {
        for (what, put) in puts {
            let (folder, user) = (TempDir::new().unwrap(), TempDir::new().unwrap());
            fs::write(user.path().join("text"), "a user's file").unwrap();
            drop(DiskCache::open(folder.path(), LIMIT).unwrap());
            let path = ours(&folder).join(name);
            fs::remove_file(&path).unwrap();
            put(&path, user.path());
            let error = DiskCache::open(folder.path(), LIMIT).unwrap_err();
            assert!(
                error.kind == ErrorKind::Config && error.message.contains("no file that forebay made"),
                "{what}: {error}"
            );
            assert_eq!(fs::read_to_string(user.path().join("text")).unwrap(), "a user's file", "{what}");
        }
    }
}

#[test]
fn names_that_a_killed_process_left_are_no_error() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(ours(&folder)).unwrap();
    let name = |number: u64| ours(&folder).join(format!("CACHEDIR.TAG.{}.{number}.tmp", std::process::id()));
    // Those of this process, which other tests count on.
    for number in 0..4096 {
        fs::write(name(number), "left").unwrap();
    }
    drop(DiskCache::open(folder.path(), LIMIT).unwrap());
    assert!(ours(&folder).join("CACHEDIR.TAG").is_file());
    for number in 0..4096 {
        assert_eq!(fs::read_to_string(name(number)).unwrap(), "left");
    }
}

/// A process that goes on writes files again while the folder is removed.
#[test]
fn a_folder_that_was_removed_in_part_is_used_again() {
    let content = noise(5_000_000);
    let server = Server::start(&content);
    let folder = TempDir::new().unwrap();
    assert!(read_all(&opened(&server, folder.path(), LIMIT).0) == content);
    fs::remove_file(ours(&folder).join("CACHEDIR.TAG")).unwrap();
    let before = sent(&server);
    assert!(read_all(&opened(&server, folder.path(), LIMIT).0) == content);
    assert_eq!(sent(&server), before);
    assert!(ours(&folder).join("CACHEDIR.TAG").is_file());
    // With a file of another it is not ours.
    fs::remove_file(ours(&folder).join("CACHEDIR.TAG")).unwrap();
    fs::write(ours(&folder).join("thesis.txt"), "").unwrap();
    let error = DiskCache::open(folder.path(), LIMIT).unwrap_err();
    assert!(error.message.contains("did not make"), "{error}");
}

/// Writes old files of 4 MiB that have the names of parts.
fn fill(folder: &TempDir, begin: &[u8], n: usize) -> Vec<PathBuf> {
    let path = |number| ours(folder).join("ff").join(format!("{number:030x}.part"));
    fs::create_dir_all(ours(folder).join("ff")).unwrap();
    let bytes = [begin, &noise(4 << 20)].concat();
    (0..n)
        .map(path)
        .inspect(|path| {
            fs::write(path, &bytes).unwrap();
            fs::File::open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        })
        .collect()
}

#[test]
fn parts_of_another_version_are_removed_and_not_read() {
    let content = noise(9_000_000);
    let server = Server::start(&content);
    let folder = TempDir::new().unwrap();
    drop(DiskCache::open(folder.path(), LIMIT).unwrap());
    let old = fill(&folder, b"forebay part 2\n", 5);
    for _ in 0..2 {
        let file = opened(&server, folder.path(), 20 << 20).0;
        assert!(read_all(&file) == content);
    }
    assert!(sent(&server) < 9_500_000, "{}", sent(&server));
    assert!(old.iter().any(|path| !path.exists()));
}

#[test]
fn files_that_are_no_parts_are_in_the_way_of_no_part() {
    let content = noise(9_000_000);
    let server = Server::start(&content);
    let folder = TempDir::new().unwrap();
    drop(DiskCache::open(folder.path(), LIMIT).unwrap());
    // The oldest of the folder: they are passed over.
    let others = fill(&folder, b"a user's file", 2);
    let limit = 18 << 20;
    for _ in 0..3 {
        let second = Server::start(&content);
        assert!(read_all(&opened(&second, folder.path(), limit).0) == content);
        let before = sent(&second);
        assert!(read_all(&opened(&second, folder.path(), limit).0) == content);
        assert!(sent(&second) - before < 5_000_000, "{}", sent(&second) - before);
    }
    // They take all of it: nothing is kept.
    let more = fill(&folder, b"a user's file", 4);
    let (file, _) = opened(&server, folder.path(), 16 << 20);
    for _ in 0..2 {
        assert!(read_all(&file) == content);
    }
    assert!(sent(&server) >= 2 * 9_000_000);
    assert!(others.iter().chain(&more).all(|path| fs::read(path).unwrap().starts_with(b"a user's file")));
}

#[cfg(target_os = "linux")]
#[test]
fn a_writer_that_stopped_is_waited_for_ever_less() {
    let folder = TempDir::new().unwrap();
    let cache = DiskCache::open(folder.path(), LIMIT).unwrap();
    let held = try_lock(&cache.folder.lock(), 0..1).unwrap().unwrap();
    cache.patience.store(400, Ordering::Relaxed);
    for next in [200, 100, 50] {
        assert!(cache.turn().is_none());
        assert_eq!(cache.patience.load(Ordering::Relaxed), next);
    }
    drop(held);
    assert!(cache.turn().is_some());
    assert_eq!(cache.patience.load(Ordering::Relaxed), TURN);
}

#[test]
fn a_cache_that_is_off_serves_ranges_of_any_length() {
    let (folder, content) = (TempDir::new().unwrap(), noise(10_000));
    let cache = DiskCache::open(folder.path(), LIMIT).unwrap();
    let kept =
        CachedObject::new(&cache, "x", &meta(10_000, Some("\"1\""), SystemTime::now()), &Arc::default())
            .unwrap();
    cache.failed(&io::Error::other("full"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for range in [0..100, 5..4096, 4095..4097, 9_999..10_000] {
        let whole = kept.whole(range.clone());
        assert_eq!(whole, range);
        let get = |range: Range<u64>| {
            let bytes = Bytes::copy_from_slice(&content[range.start as usize..range.end as usize]);
            async move { Ok(bytes) }
        };
        let fetched = runtime.block_on(kept.fetch(whole, get)).unwrap();
        assert!(fetched == content[range.start as usize..range.end as usize]);
    }
}

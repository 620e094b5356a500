//! Memory-mapped files, for local disks: records are slices of the map, without a copy.
//!
//! The reader has the system load a range before it returns it (`MADV_POPULATE_READ`, Linux 5.14 and later).
//! So the I/O threads wait for the disk, and an unreadable range is an error and no signal. Elsewhere the
//! range is only advised, and workers wait at page faults. Small ranges, as message headers and offsets, are
//! read and not mapped.
//!
//! The file's length is checked before each range is returned, so an earlier truncation is an error like any
//! other. Truncation between this check and the end of decoding kills the process by SIGBUS. Replacing a file
//! by another of its name is safe, since the map keeps the old one. On network file systems, read files
//! instead: other machines may change them, and each page fault may be a round trip.

use std::{fs, io, ops::Range, path::Path, sync::Arc};

use bytes::Bytes;
use memmap2::Mmap;

use super::storage::{ReadAt, Storage, Version, open_regular, read_file_at, version_of};
use crate::fork_lock::OnceLock;

#[derive(Debug, Clone, Copy, Default)]
pub struct MappedFiles;

impl Storage for MappedFiles {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        Ok(Box::new(MappedFile { file: open_regular(path)?, map: OnceLock::new() }))
    }
}

struct MappedFile {
    file: fs::File,
    /// Made at the first use: opening a source reads headers only.
    map: OnceLock<Map>,
}

/// A map, and its bytes, which share the ownership.
struct Map {
    map: Arc<Mmap>,
    bytes: Bytes,
}

struct SharedMap(Arc<Mmap>);

impl AsRef<[u8]> for SharedMap {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl MappedFile {
    fn map(&self) -> io::Result<&Map> {
        if let Some(map) = self.map.get() {
            return Ok(map);
        }
        // SAFETY: the map is read-only. The file may be changed or truncated while it is mapped, and no check
        // can exclude this; the user who enables maps accepts it. The module's documentation lists the
        // precautions.
        let map = Arc::new(unsafe { Mmap::map(&self.file)? });
        let bytes = Bytes::from_owner(SharedMap(Arc::clone(&map)));
        Ok(self.map.get_or_init(|| Map { map, bytes }))
    }

    /// The range, if the file still has it.
    fn range(&self, at: u64, len: usize) -> io::Result<(&Map, Range<usize>)> {
        let cut_off = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let map = self.map()?;
        let from = usize::try_from(at).map_err(|_| cut_off())?;
        let end = from.checked_add(len).filter(|&end| end <= map.bytes.len()).ok_or_else(cut_off)?;
        // The map has the length that the file had when it was mapped.
        if self.file.metadata()?.len() < end as u64 {
            return Err(cut_off());
        }
        Ok((map, from..end))
    }
}

impl ReadAt for MappedFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        read_file_at(&self.file, buffer, at)
    }

    fn version(&self) -> io::Result<Version> {
        version_of(&self.file)
    }

    fn will_need(&self, at: u64, len: u64) {
        if let Ok(len) = usize::try_from(len)
            && let Ok((map, range)) = self.range(at, len)
        {
            announce(&map.map, range);
        }
    }

    fn mapped(&self, at: u64, len: usize, needed: Range<usize>) -> Option<io::Result<Bytes>> {
        let range = match self.range(at, len) {
            Ok((map, range)) => {
                let needed = range.start + needed.start..range.start + needed.end.min(len);
                announce(&map.map, needed.clone());
                bring_in(&map.map, needed).map(|()| map.bytes.slice(range))
            }
            Err(error) => Err(error),
        };
        // If loading failed because the file was truncated meanwhile, report that instead.
        Some(range.or_else(|error| self.range(at, len).and(Err(error))))
    }
}

/// Advises the system that a range will be read soon. The result of advice does not matter.
fn announce(map: &Mmap, range: Range<usize>) {
    #[cfg(unix)]
    let _ = map.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
    #[cfg(not(unix))]
    let _ = (map, range);
}

/// Waits until a range is in memory.
#[cfg(target_os = "linux")]
fn bring_in(map: &Mmap, range: Range<usize>) -> io::Result<()> {
    match map.advise_range(memmap2::Advice::PopulateRead, range.start, range.len()) {
        // Systems before Linux 5.14 lack this advice.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        // The disk failed: an access would have raised SIGBUS.
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
            Err(io::Error::from_raw_os_error(libc::EIO))
        }
        result => result,
    }
}

#[cfg(not(target_os = "linux"))]
fn bring_in(_map: &Mmap, _range: Range<usize>) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn mapped(path: &Path, at: u64, len: usize) -> io::Result<Bytes> {
        let found = MappedFiles.open(path)?.mapped(at, len, 0..len);
        found.unwrap_or_else(|| panic!("{} is not mapped", path.display()))
    }

    #[test]
    fn ranges_are_the_file_s_bytes_and_outlive_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let content: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        fs::write(&path, &content).unwrap();
        for (at, len) in [(0, 1), (0, content.len()), (4095, 2), (123_456, 70_000), (content.len() - 1, 1)] {
            let bytes = mapped(&path, at as u64, len).unwrap();
            assert!(bytes == content[at..at + len], "{at}, {len}");
        }
        let bytes = mapped(&path, 10, 100).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(bytes == content[10..110]);
    }

    #[test]
    fn what_the_file_has_not_is_an_error_and_no_signal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, vec![1; 50_000]).unwrap();
        for (at, len) in [(0, 50_001), (50_000, 1), (u64::MAX, 1), (1, usize::MAX)] {
            assert_eq!(mapped(&path, at, len).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        let file = MappedFiles.open(&path).unwrap();
        file.mapped(0, 50_000, 0..50_000).unwrap().unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(10_000).unwrap();
        let cut = file.mapped(20_000, 100, 0..100).unwrap().unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
        file.will_need(20_000, 100);
        assert!(file.mapped(5000, 5000, 0..5000).unwrap().unwrap() == vec![1; 5000]);
        // A truncation right after the check is an error of the system too, and no signal.
        let cut = fs::File::open(&path).unwrap();
        // SAFETY: nothing reads the bytes of the map.
        let map = unsafe { memmap2::MmapOptions::new().len(50_000).map(&cut).unwrap() };
        let error = bring_in(&map, 20_000..20_100);
        assert!(error.is_ok() || error.unwrap_err().raw_os_error() == Some(libc::EIO));
    }
}

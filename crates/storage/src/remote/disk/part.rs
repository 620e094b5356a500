//! The file of one part of an object: which sectors of it are kept, and their bytes.
//!
//! ```text
//! "forebay part 1\n", identity of the object, offset │ checksum of each sector, 0: not kept │ sectors
//! ```
//!
//! The bytes of a sector are written before its checksum, and a sector is served only if its bytes have its
//! checksum. So a process that is killed at any moment leaves sectors that are kept or not, and none that is
//! half written. All writers of a file write the same bytes to the same places, because the identity in the
//! header, which the name is a hash of, fixes the content: they need no lock, and no file replaces another.
//! The header is compared as a whole, so that no hash needs to be trusted.

use std::{fs, io, ops::Range, path::PathBuf};

use super::plain;
use crate::{seed::mix, storage::read_file_at};

/// The bytes of an object that share a file: a folder of 100 GB has some 25 000 of them.
pub(super) const PART: u64 = 4 << 20;
/// The unit that is kept: a request is rounded to whole sectors, so at most two of them are sent in excess.
pub(in super::super) const SECTOR: u64 = 4096;
/// The beginning of every file. Those of another version are not read, but removed if they are the oldest.
const MAGIC: &[u8] = b"forebay part 1\n";
/// The beginning of the files of all versions.
pub(super) const KIND: &[u8] = b"forebay part ";

/// Where the bytes of a part are.
pub(super) struct PartPlace {
    pub path: PathBuf,
    header: Vec<u8>,
    /// The first byte in the object.
    first: u64,
    len: u64,
}

impl PartPlace {
    /// The part of an object that has the byte `at`. The object is described by `identity`.
    pub(super) fn new(folder: &std::path::Path, identity: &str, size: u64, at: u64) -> Self {
        let first = at / PART * PART;
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(format!("{identity}\n{first}\n").as_bytes());
        // bounded: the identity's length is.
        header.resize(header.len().next_multiple_of(8), 0);
        let hash = |seed| header.iter().fold(mix(seed), |state, &byte| mix(state ^ u64::from(byte)));
        let name = format!("{:016x}{:016x}", hash(1), hash(2));
        let path = folder.join(&name[..2]).join(format!("{}.part", &name[2..]));
        Self { path, header, first, len: PART.min(size - first) }
    }

    fn table_at(&self, sector: u64) -> u64 {
        self.header.len() as u64 + 4 * sector
    }

    /// Where the sectors begin: the bytes that a file has besides them.
    pub(super) fn data_at(&self) -> u64 {
        self.table_at(self.len.div_ceil(SECTOR)).next_multiple_of(SECTOR)
    }

    /// Opens the file for reading; `None` if there is none, or another's.
    pub(super) fn open(&self) -> io::Result<Option<PartFile<'_>>> {
        let file = match plain::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        // bounded: the identity's length is.
        let mut header = vec![0; self.header.len()];
        let n = read_all(&file, &mut header, 0)?;
        Ok((header[..n] == *self.header).then_some(PartFile { place: self, file }))
    }

    /// Opens the file for writing, and makes it if it is missing.
    ///
    /// # Errors
    /// `InvalidInput` if something of another has the name. `NotFound` if the folder of all parts is missing.
    pub(super) fn make(&self) -> io::Result<PartFile<'_>> {
        let other = || io::Error::from(io::ErrorKind::InvalidInput);
        if let Some(folder) = self.path.parent() {
            match fs::create_dir(folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    // A link would lead out of the folder.
                    if !fs::symlink_metadata(folder)?.is_dir() {
                        return Err(other());
                    }
                }
                made => made?,
            }
        }
        let file = plain::write(&self.path)?;
        // bounded: the same.
        let mut header = vec![0; self.header.len()];
        let n = read_all(&file, &mut header, 0)?;
        // A writer may have been killed before the header was written.
        let is_blank = header[..n] == self.header[..n] || header.iter().all(|&byte| byte == 0);
        if header != self.header {
            if !is_blank || !plain::has_one_name(&file)? {
                return Err(other());
            }
            write_all(&file, &self.header, 0)?;
        }
        let size = self.data_at() + self.len;
        if file.metadata()?.len() < size {
            file.set_len(size)?;
        }
        Ok(PartFile { place: self, file })
    }
}

/// The open file of a part.
pub(super) struct PartFile<'a> {
    place: &'a PartPlace,
    pub file: fs::File,
}

impl PartFile<'_> {
    /// The end of the part in the object.
    pub(super) fn end(&self) -> u64 {
        self.place.first + self.place.len
    }

    /// The checksums of the sectors of a range of the object, which lies in the part.
    fn sums(&self, range: &Range<u64>) -> io::Result<Vec<u32>> {
        let sectors = self.sectors(range);
        // bounded: four bytes for each sector of a part.
        let mut bytes = vec![0; 4 * (sectors.end - sectors.start) as usize];
        let n = read_all(&self.file, &mut bytes, self.place.table_at(sectors.start))?;
        bytes[n..].fill(0);
        Ok(bytes
            .chunks_exact(4)
            .map(|sum| sum.iter().rev().fold(0, |n, &byte| n << 8 | u32::from(byte)))
            .collect())
    }

    fn sectors(&self, range: &Range<u64>) -> Range<u64> {
        let of = |at: u64| at - self.place.first;
        of(range.start) / SECTOR..of(range.end).div_ceil(SECTOR)
    }

    /// Whether each sector of a range of the part is kept, as its file says.
    pub(super) fn kept(&self, range: &Range<u64>) -> io::Result<Vec<bool>> {
        Ok(self.sums(range)?.into_iter().map(|sum| sum != 0).collect())
    }

    /// Reads from `at` on, up to the end of the buffer, which lies in the part, or to the first sector that
    /// is missing or damaged.
    ///
    /// # Errors
    /// Those of the system; `UnexpectedEof` for a file that is cut off.
    pub(super) fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let sums = self.sums(&(at..at + buffer.len() as u64))?;
        let (from, to) = (at - self.place.first, at - self.place.first + buffer.len() as u64);
        let first_sector = from / SECTOR;
        let n_kept = sums.iter().take_while(|&&sum| sum != 0).count() as u64;
        let to = to.min((first_sector + n_kept) * SECTOR);
        let sum_of = |sector: u64| sums[(sector - first_sector) as usize];
        let mut done = from;
        while done < to {
            let start = done / SECTOR * SECTOR;
            let stop = (start + SECTOR).min(self.place.len);
            if done > start || to < stop {
                let mut sector = [0; SECTOR as usize];
                let sector = &mut sector[..(stop - start) as usize];
                self.read_exact(sector, start)?;
                if checksum(sector) != sum_of(start / SECTOR) {
                    break;
                }
                let end = to.min(stop);
                buffer[(done - from) as usize..(end - from) as usize]
                    .copy_from_slice(&sector[(done - start) as usize..(end - start) as usize]);
                done = end;
                continue;
            }
            let end = if to == self.place.len { to } else { to / SECTOR * SECTOR };
            let whole = &mut buffer[(done - from) as usize..(end - from) as usize];
            self.read_exact(whole, done)?;
            let bad = whole
                .chunks(SECTOR as usize)
                .zip(start / SECTOR..)
                .position(|(bytes, sector)| checksum(bytes) != sum_of(sector));
            if let Some(bad) = bad {
                return Ok((done - from) as usize + bad * SECTOR as usize);
            }
            done = end;
        }
        Ok((done - from) as usize)
    }

    fn read_exact(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let len = buffer.len();
        match read_all(&self.file, buffer, self.place.data_at() + at)? {
            n if n == len => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Keeps `bytes`, which are whole sectors of the part from `at` on.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let from = at - self.place.first;
        write_all(&self.file, bytes, self.place.data_at() + from)?;
        let sums: Vec<u8> =
            bytes.chunks(SECTOR as usize).flat_map(|bytes| checksum(bytes).to_le_bytes()).collect();
        write_all(&self.file, &sums, self.place.table_at(from / SECTOR))
    }
}

/// The checksum of a sector, never 0.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).max(1)
}

/// Reads until the buffer is full or the file ends.
fn read_all(file: &fs::File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match read_file_at(file, &mut buffer[n..], at + n as u64) {
            Ok(0) => break,
            Ok(read) => n += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(n)
}

fn write_all(file: &fs::File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        #[cfg(unix)]
        let written = std::os::unix::fs::FileExt::write_at(file, bytes, at);
        #[cfg(windows)]
        let written = std::os::windows::fs::FileExt::seek_write(file, bytes, at);
        match written {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => (bytes, at) = (&bytes[n..], at + n as u64),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

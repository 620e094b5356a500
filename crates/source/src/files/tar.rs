//! The members of tar archives: names, and the places of their bytes.
//!
//! Only headers are read, so an archive of any size is indexed with little memory. Read are ustar, pax and
//! GNU long names, archives one after the other in a file, and numbers beyond octal ones. Refused are sparse
//! members and archives of several volumes, whose bytes are not where a header says, links in place of
//! recordings, and compressed archives, which cannot be read by range. Source: POSIX.1-2017 (pax), the manual
//! of GNU tar.

use std::{ffi::OsStr, path::Path, sync::Arc};

use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    paths::is_recording,
    storage::{Storage, StoredFile},
};

const BLOCK: u64 = 512;
/// The most bytes of a name or of a pax header.
const MOST_HEADER: u64 = 1 << 20;
/// Bytes read at a time: small members lie side by side.
const WINDOW: usize = 64 << 10;
/// Beginnings of compressed files, and the program that unpacks them.
const PACKED: [(&[u8], &str); 4] =
    [(b"\x1f\x8b", "gunzip"), (b"\x28\xb5\x2f\xfd", "zstd -d"), (b"BZh", "bunzip2"), (b"\xfd7zXZ", "unxz")];

/// A regular file in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub name: Vec<u8>,
    pub at: u64,
    pub len: u64,
}

/// Reads the headers of an archive, in order.
pub(super) struct Tar {
    file: StoredFile,
    /// The place of the next header.
    next: u64,
    /// Bytes that were read, and their place.
    window: Vec<u8>,
    window_at: u64,
}

impl Tar {
    /// Opens an archive.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] for a compressed one; [`ErrorKind::NotFound`], [`ErrorKind::Io`].
    pub(super) fn open(storage: &Arc<dyn Storage>, path: &Arc<Path>) -> Result<Self> {
        let file = StoredFile::open(storage, path)?;
        let mut tar = Self { file, next: 0, window: Vec::new(), window_at: 0 };
        let head = tar.bytes(0, 8.min(tar.file.size()))?;
        if let Some((_, program)) = PACKED.iter().find(|(magic, _)| head.starts_with(magic)) {
            let message = format!(
                "the archive is compressed, so its members cannot be read by range; unpack it once, as with {program}"
            );
            return Err(Error::new(ErrorKind::Format, message));
        }
        Ok(tar)
    }

    pub(super) fn file(&self) -> &StoredFile {
        &self.file
    }

    /// The next regular file; None after the last.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a header that is none; [`ErrorKind::Truncated`] if the archive ends within
    /// a member; [`ErrorKind::Unsupported`] for a sparse member or one of several volumes.
    pub(super) fn next(&mut self) -> Result<Option<Member>> {
        let (mut name, mut size): (Option<Vec<u8>>, Option<u64>) = (None, None);
        loop {
            if self.next >= self.file.size() {
                return Ok(None);
            }
            let at = self.next;
            let header: [u8; BLOCK as usize] = match self.bytes(at, BLOCK)?.try_into() {
                Ok(header) => header,
                Err(_) => return Err(self.truncated(at)),
            };
            if header == [0; BLOCK as usize] {
                // The end, or the start of a further archive.
                self.next = at + BLOCK;
                continue;
            }
            if !is_sum_right(&header) {
                let message = format!("there is no header of a member at byte {at}: its sum is wrong");
                return Err(Error::new(ErrorKind::Corrupt, message).at_byte(at));
            }
            let unsupported = |what: &str| {
                let message = format!(
                    "{what} at byte {at} cannot be read by range; write the archive again without it"
                );
                Err(Error::new(ErrorKind::Unsupported, message).at_byte(at))
            };
            let kind = header[156];
            let len = match size.take() {
                Some(size) if !matches!(kind, b'x' | b'g' | b'L' | b'K') => size,
                _ => number(&header[124..136]).ok_or_else(|| {
                    Error::new(
                        ErrorKind::Corrupt,
                        format!("the size of the member at byte {at} is no number"),
                    )
                })?,
            };
            let data = at + BLOCK;
            let end = data.checked_add(len).and_then(|end| end.checked_next_multiple_of(BLOCK));
            let Some(end) = end else { return Err(self.truncated(at)) };
            self.next = end;
            match kind {
                b'x' | b'g' | b'L' | b'K' if len > MOST_HEADER => {
                    let message =
                        format!("the header at byte {at} has {len} bytes, at most {MOST_HEADER} are read");
                    return Err(Error::new(ErrorKind::TooLarge, message));
                }
                b'L' => {
                    let text = self.exactly(data, len)?;
                    name = Some(until_nul(&text).to_vec());
                }
                // The settings of `g` are for all members; names and sizes are none of them.
                b'K' | b'g' => {}
                b'x' => {
                    let records = self.exactly(data, len)?;
                    for (key, value) in pax(&records) {
                        match key {
                            b"path" => name = Some(value.to_vec()),
                            b"size" => {
                                size = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok())
                            }
                            key if key.starts_with(b"GNU.sparse.") => return unsupported("a sparse member"),
                            _ => {}
                        }
                    }
                }
                b'S' => return unsupported("a sparse member"),
                b'M' => return unsupported("a member that continues from another volume"),
                b'1' | b'2' => {
                    // A recording must not be lost without a word.
                    let name = name.take().unwrap_or_else(|| plain_name(&header));
                    if is_recording(OsStr::new(&*String::from_utf8_lossy(&name))) && split(&name).is_some() {
                        return unsupported("a link to a recording");
                    }
                    size = None;
                }
                // Folders and devices.
                b'3'..=b'6' | b'V' => (name, size) = (None, None),
                _ => {
                    let name = name.take().unwrap_or_else(|| plain_name(&header));
                    // Old archives mark folders by their names alone.
                    if !name.ends_with(b"/") {
                        return Ok(Some(Member { name, at: data, len }));
                    }
                    size = None;
                }
            }
        }
    }

    /// The bytes of a member, which are few.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`], [`ErrorKind::Io`].
    pub(super) fn exactly(&mut self, at: u64, len: u64) -> Result<Vec<u8>> {
        let found = self.bytes(at, len)?.to_vec();
        if found.len() as u64 == len { Ok(found) } else { Err(self.truncated(at)) }
    }

    /// Bytes from `at` on, fewer if the file ends.
    fn bytes(&mut self, at: u64, len: u64) -> Result<&[u8]> {
        let is_there =
            at >= self.window_at && at.saturating_add(len) <= self.window_at + self.window.len() as u64;
        if !is_there {
            let n = (len as usize).max(WINDOW).min(self.file.size().saturating_sub(at) as usize);
            fallible_alloc::resize(&mut self.window, n, 0)?;
            let read = self.file.read(&mut self.window, at)?;
            self.window.truncate(read);
            self.window_at = at;
        }
        let start = (at - self.window_at) as usize;
        let end = (start + len as usize).min(self.window.len());
        Ok(&self.window[start.min(end)..end])
    }

    fn truncated(&self, at: u64) -> Error {
        let size = self.file.size();
        let message =
            format!("the archive is cut off: it has {size} bytes and ends within the member at byte {at}");
        Error::new(ErrorKind::Truncated, message).at_byte(at)
    }
}

/// Whether the sum in a header is that of its bytes, of which some programs took the signs.
fn is_sum_right(header: &[u8; BLOCK as usize]) -> bool {
    let Some(expected) = number(&header[148..156]) else { return false };
    let bytes =
        || header.iter().enumerate().map(|(at, &byte)| if (148..156).contains(&at) { b' ' } else { byte });
    let unsigned: u64 = bytes().map(u64::from).sum();
    let signed: i64 = bytes().map(|byte| i64::from(byte as i8)).sum();
    expected == unsigned || i64::try_from(expected).is_ok_and(|expected| expected == signed)
}

/// A number in octal digits, or in binary if the first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    let (&first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        return [first & 0x7f]
            .iter()
            .chain(rest)
            .try_fold(0u64, |number, &byte| (number >> 56 == 0).then_some(number << 8 | u64::from(byte)));
    }
    let digits = until_nul(field).trim_ascii();
    digits.iter().try_fold(0u64, |number, &digit| {
        let digit = (digit as char).to_digit(8)?;
        number.checked_mul(8)?.checked_add(digit.into())
    })
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len())]
}

/// The name in a header, with its prefix.
fn plain_name(header: &[u8; BLOCK as usize]) -> Vec<u8> {
    let name = until_nul(&header[..100]);
    // GNU has other fields there.
    let prefix = if &header[257..263] == b"ustar\0" { until_nul(&header[345..500]) } else { &[] };
    match prefix {
        [] => name.to_vec(),
        prefix => [prefix, b"/", name].concat(),
    }
}

/// The keys and values of a pax header: `length key=value`, each on a line.
fn pax(mut records: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let blank = records.iter().position(|&byte| byte == b' ')?;
        let len: usize = std::str::from_utf8(&records[..blank]).ok()?.parse().ok()?;
        let record = records.get(blank + 1..len)?.strip_suffix(b"\n")?;
        records = &records[len..];
        let equals = record.iter().position(|&byte| byte == b'=')?;
        Some((&record[..equals], &record[equals + 1..]))
    })
}

/// The key of a member and its ending: `a/b.c.wav` has `a/b` and `c.wav`. None for hidden members.
pub(super) fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let name = name.strip_prefix(b"./").unwrap_or(name);
    let base = name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    if name[base..].starts_with(b".") {
        return None;
    }
    let point = name[base..].iter().position(|&byte| byte == b'.').map_or(name.len(), |point| base + point);
    Some((&name[..point], name.get(point + 1..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::LocalFiles;

    /// A member with its header.
    fn member(name: &[u8], kind: u8, size: &[u8], data: &[u8]) -> Vec<u8> {
        let mut header = [0u8; 512];
        header[..name.len()].copy_from_slice(name);
        header[124..124 + size.len()].copy_from_slice(size);
        header[156] = kind;
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[148..156].fill(b' ');
        let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let mut all = header.to_vec();
        all.extend_from_slice(data);
        all.resize(all.len().next_multiple_of(512), 0);
        all
    }

    fn plain(name: &str, data: &[u8]) -> Vec<u8> {
        member(name.as_bytes(), b'0', format!("{:011o}\0", data.len()).as_bytes(), data)
    }

    fn read(bytes: &[u8]) -> (Vec<(String, Vec<u8>)>, Option<Error>) {
        let folder = tempfile::tempdir().unwrap();
        let path: Arc<Path> = folder.path().join("a.tar").into();
        std::fs::write(&path, bytes).unwrap();
        let storage: Arc<dyn Storage> = Arc::new(LocalFiles);
        let mut found = Vec::new();
        let mut tar = match Tar::open(&storage, &path) {
            Ok(tar) => tar,
            Err(error) => return (found, Some(error)),
        };
        loop {
            match tar.next() {
                Ok(Some(Member { name, at, len })) => {
                    let data = tar.bytes(at, len).unwrap().to_vec();
                    found.push((String::from_utf8(name).unwrap(), data));
                }
                Ok(None) => return (found, None),
                Err(error) => return (found, Some(error)),
            }
        }
    }

    fn names(bytes: &[u8]) -> Vec<String> {
        let (found, error) = read(bytes);
        assert!(error.is_none(), "{error:?}");
        found.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn names_of_all_kinds() {
        let long = "folder/".repeat(40) + "a.wav";
        let pax = format!("{} path={long}\n", long.len() + 10);
        let mut prefixed = plain("b.wav", b"xyz");
        prefixed[345..350].copy_from_slice(b"above");
        prefixed[148..156].fill(b' ');
        let sum: u64 = prefixed[..512].iter().map(|&byte| u64::from(byte)).sum();
        prefixed[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let big = [&[0x80, 0, 0, 0][..], &5u64.to_be_bytes()].concat();
        let all = [
            plain("a.wav", &[7; 1000]),
            member(b"folder/", b'5', b"00000000000\0", b""),
            member(b"link", b'2', b"00000000000\0", b""),
            member(
                b"././@LongLink",
                b'L',
                format!("{:011o}\0", long.len() + 1).as_bytes(),
                (long.clone() + "\0").as_bytes(),
            ),
            plain("cut", b"1"),
            member(b"pax", b'x', format!("{:011o}\0", pax.len()).as_bytes(), pax.as_bytes()),
            plain("cut", b"22"),
            prefixed,
            member(b"c.wav", b'0', &big, b"55555"),
            member(b"d.wav", 0, b"0000003 \0", b"333"),
            vec![0; 1024],
            // A further archive.
            plain("e.wav", b""),
            vec![0; 10_240],
        ]
        .concat();
        let (found, error) = read(&all);
        assert!(error.is_none(), "{error:?}");
        let expected: Vec<(String, Vec<u8>)> = vec![
            ("a.wav".into(), vec![7; 1000]),
            (long.clone(), b"1".into()),
            (long, b"22".into()),
            ("above/b.wav".into(), b"xyz".into()),
            ("c.wav".into(), b"55555".into()),
            ("d.wav".into(), b"333".into()),
            ("e.wav".into(), b"".into()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn archives_that_cannot_be_read() {
        let a = plain("a.wav", b"abc");
        for (bytes, n, kind, told) in [
            (b"\x1f\x8b\x08 more of it".to_vec(), 0, ErrorKind::Format, "gunzip"),
            (b"\x28\xb5\x2f\xfd more of it".to_vec(), 0, ErrorKind::Format, "zstd -d"),
            ([a.clone(), member(b"b", b'S', b"0\0", b"")].concat(), 1, ErrorKind::Unsupported, "sparse"),
            (
                [member(b"p", b'x', b"00000000026\0", b"22 GNU.sparse.major=1\n"), a.clone()].concat(),
                0,
                ErrorKind::Unsupported,
                "sparse",
            ),
            ([a.clone(), vec![1; 512]].concat(), 1, ErrorKind::Corrupt, "its sum is wrong"),
            ([a.clone(), a[..100].to_vec()].concat(), 1, ErrorKind::Truncated, "is cut off"),
            (member(b"x", b'x', b"77777777777\0", b""), 0, ErrorKind::TooLarge, "at most"),
            (member(b"x", b'0', b"no\0", b""), 0, ErrorKind::Corrupt, "is no number"),
            (member(b"x", b'0', &[0xff; 12], b""), 0, ErrorKind::Corrupt, "is no number"),
        ] {
            let (found, error) = read(&bytes);
            let error = error.unwrap();
            assert_eq!((found.len(), error.kind), (n, kind), "{error}");
            assert!(error.message.contains(told), "{error}");
        }
        for (kind, name, is_error) in
            [(b'1', "b.WAV", true), (b'2', "b.flac", true), (b'2', "b.txt", false), (b'1', "._b.wav", false)]
        {
            let (found, error) =
                read(&[a.clone(), member(name.as_bytes(), kind, b"0\0", b""), a.clone()].concat());
            assert_eq!(
                (found.len(), error.is_some()),
                if is_error { (1, true) } else { (2, false) },
                "{name}"
            );
            assert!(error.is_none_or(|error| error.message.contains("a link to a recording at byte 1024")));
        }
        // As many folders in the old way as would fill a stack.
        let many = [member(b"a/", b'0', b"0\0", b"").repeat(100_000), a.clone()].concat();
        assert_eq!(names(&many), ["a.wav"]);
        assert_eq!(names(b""), Vec::<String>::new());
        assert_eq!(names(&[0; 1024]), Vec::<String>::new());
    }

    #[test]
    fn keys_and_endings() {
        for (name, expected) in [
            ("a/b.wav", Some(("a/b", "wav"))),
            ("./a/b.c.json", Some(("a/b", "c.json"))),
            ("a.b/c", Some(("a.b/c", ""))),
            ("a.b/c.WAV", Some(("a.b/c", "WAV"))),
            ("a/.hidden.wav", None),
            ("a/._b.wav", None),
            ("", Some(("", ""))),
        ] {
            let expected = expected.map(|(key, ending)| (key.as_bytes(), ending.as_bytes()));
            assert_eq!(split(name.as_bytes()), expected, "{name}");
        }
    }
}

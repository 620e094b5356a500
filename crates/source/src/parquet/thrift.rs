//! Checks footers and page headers before the `parquet` crate parses them, within bounds.
//!
//! Input: bytes. Output: whether every field has the type that `parquet.thrift` gives it, every list has as
//! many elements as it claims, and no value is nested deeper than [`MOST_DEPTH`]. The crate does not check
//! the type of a known field, allocates for a list by its claimed length, builds the tree of columns by
//! recursion, and skips lists of booleans without consuming bytes. Bytes that pass this check keep the crate
//! within the limits below.
//!
//! The tree of columns is checked too: `num_children` against the existing elements, its depth, and the total
//! length of all columns' paths, since each column keeps the names of those above it.
//!
//! Source: "Thrift compact protocol"; Parquet format, `parquet.thrift`. The limits are our own.

use crate::{Error, ErrorKind, Result};

/// The deepest nesting of structs and lists; `parquet.thrift` needs 8.
const MOST_DEPTH: u32 = 32;
/// The deepest nesting of columns, without the root. Lists and maps take two levels each, three in old files.
const MOST_SCHEMA_DEPTH: usize = 64;
/// The most elements of any list.
const MOST_ELEMENTS: usize = 1 << 20;
/// The most columns and groups of columns.
const MOST_COLUMNS: usize = 1 << 17;
const MOST_GROUPS: usize = 1 << 18;
/// The most column chunks of all row groups.
const MOST_CHUNKS: usize = 1 << 20;
/// The most bytes of the paths of all columns.
const MOST_PATH_BYTES: usize = 64 << 20;

#[derive(Debug, Clone, Copy)]
enum ThriftType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    Double,
    Binary,
    List(&'static ThriftType),
    Struct(&'static [(i16, ThriftType)]),
}

use ThriftType::{Binary, Bool, Double, I8, I16, I32, I64, List, Struct};

const EMPTY: ThriftType = Struct(&[]);
const TIME: ThriftType = Struct(&[(1, Bool), (2, Struct(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)]))]);
const LOGICAL_TYPE: ThriftType = Struct(&[
    (1, EMPTY),
    (2, EMPTY),
    (3, EMPTY),
    (4, EMPTY),
    (5, Struct(&[(1, I32), (2, I32)])),
    (6, EMPTY),
    (7, TIME),
    (8, TIME),
    (10, Struct(&[(1, I8), (2, Bool)])),
    (11, EMPTY),
    (12, EMPTY),
    (13, EMPTY),
    (14, EMPTY),
    (15, EMPTY),
    (16, Struct(&[(1, I8)])),
    (17, Struct(&[(1, Binary)])),
    (18, Struct(&[(1, Binary), (2, I32)])),
]);
const SCHEMA_ELEMENT: ThriftType = Struct(&[
    (1, I32),
    (2, I32),
    (3, I32),
    (NAME, Binary),
    (NUM_CHILDREN, I32),
    (6, I32),
    (7, I32),
    (8, I32),
    (9, I32),
    (10, LOGICAL_TYPE),
]);
const KEY_VALUE: ThriftType = Struct(&[(1, Binary), (2, Binary)]);
const STATISTICS: ThriftType = Struct(&[
    (1, Binary),
    (2, Binary),
    (3, I64),
    (4, I64),
    (5, Binary),
    (6, Binary),
    (7, Bool),
    (8, Bool),
    (9, I64),
]);
const SIZE_STATISTICS: ThriftType = Struct(&[(1, I64), (2, List(&I64)), (3, List(&I64))]);
const BOX: ThriftType = Struct(&[
    (1, Double),
    (2, Double),
    (3, Double),
    (4, Double),
    (5, Double),
    (6, Double),
    (7, Double),
    (8, Double),
]);
const COLUMN_META_DATA: ThriftType = Struct(&[
    (1, I32),
    (2, List(&I32)),
    (3, List(&Binary)),
    (4, I32),
    (5, I64),
    (6, I64),
    (7, I64),
    (8, List(&KEY_VALUE)),
    (9, I64),
    (10, I64),
    (11, I64),
    (12, STATISTICS),
    (13, List(&Struct(&[(1, I32), (2, I32), (3, I32)]))),
    (14, I64),
    (15, I32),
    (16, SIZE_STATISTICS),
    (17, Struct(&[(1, BOX), (2, List(&I32))])),
]);
const COLUMN_CHUNK: ThriftType = Struct(&[
    (1, Binary),
    (2, I64),
    (3, COLUMN_META_DATA),
    (4, I64),
    (5, I32),
    (6, I64),
    (7, I32),
    (8, Struct(&[(1, EMPTY), (2, Struct(&[(1, List(&Binary)), (2, Binary)]))])),
    (9, Binary),
]);
const ROW_GROUP: ThriftType = Struct(&[
    (COLUMNS, List(&COLUMN_CHUNK)),
    (2, I64),
    (3, I64),
    (4, List(&Struct(&[(1, I32), (2, Bool), (3, Bool)]))),
    (5, I64),
    (6, I64),
    (7, I16),
]);
const ENCRYPTION: ThriftType = Struct(&[(1, Binary), (2, Binary), (3, Bool)]);
const FILE_META_DATA: ThriftType = Struct(&[
    (1, I32),
    (SCHEMA, List(&SCHEMA_ELEMENT)),
    (3, I64),
    (ROW_GROUPS, List(&ROW_GROUP)),
    (5, List(&KEY_VALUE)),
    (6, Binary),
    (7, List(&Struct(&[(1, EMPTY), (2, EMPTY)]))),
    (8, Struct(&[(1, ENCRYPTION), (2, ENCRYPTION)])),
    (9, Binary),
]);
/// Ids of the fields that are checked further.
const SCHEMA: i16 = 2;
const ROW_GROUPS: i16 = 4;
const NAME: i16 = 4;
const NUM_CHILDREN: i16 = 5;
const COLUMNS: i16 = 1;

const PAGE_HEADER: ThriftType = Struct(&[
    (1, I32),
    (SIZE, I32),
    (COMPRESSED, I32),
    (4, I32),
    (5, Struct(&[(1, I32), (2, I32), (3, I32), (4, I32), (5, STATISTICS)])),
    (6, EMPTY),
    (DICTIONARY, Struct(&[(1, I32), (2, I32), (3, Bool)])),
    (8, Struct(&[(1, I32), (2, I32), (3, I32), (4, I32), (5, I32), (6, I32), (7, Bool), (8, STATISTICS)])),
]);
const SIZE: i16 = 2;
const COMPRESSED: i16 = 3;
const DICTIONARY: i16 = 7;
const DATA_V2: i16 = 8;

/// Checks the metadata of a file: the bytes before their length and the magic at its end.
///
/// # Errors
/// [`ErrorKind::Format`] for invalid metadata, or metadata beyond a limit.
pub fn check_footer(bytes: &[u8]) -> Result<()> {
    let walked = ThriftInput(bytes).value(FILE_META_DATA, MOST_DEPTH).and_then(|()| shape(bytes));
    walked.map_err(|wrong| {
        let what = match wrong {
            Wrong::Short => "it ends within a value, or a list claims more elements than it has",
            Wrong::Not(what) => what,
        };
        Error::new(ErrorKind::Format, format!("the footer cannot be read: {what}"))
    })
}

/// Checks the numbers of columns and row groups, and the tree of columns, of a footer whose fields have the
/// right types.
fn shape(bytes: &[u8]) -> Result<(), Wrong> {
    let mut n_chunks = 0;
    ThriftInput(bytes).fields(|id, code, input| match id {
        SCHEMA => schema(input),
        ROW_GROUPS => {
            let (element, n) = input.list()?;
            if n > MOST_GROUPS {
                return Err(Wrong::Not("it lists more row groups than the limit, 262144"));
            }
            for _ in 0..n {
                input.fields(|id, code, input| {
                    if id == COLUMNS {
                        n_chunks += ThriftInput(input.0).list()?.1;
                    }
                    input.skip(code, MOST_DEPTH)
                })?;
                if n_chunks > MOST_CHUNKS {
                    return Err(Wrong::Not("it lists more column chunks than the limit, 1048576"));
                }
            }
            debug_assert!(n == 0 || element == 12, "row groups were found to be structs");
            Ok(())
        }
        _ => input.skip(code, MOST_DEPTH),
    })
}

/// Walks the tree of columns. It is stored as a list in depth-first order: each element has its number of
/// children.
fn schema(input: &mut ThriftInput<'_>) -> Result<(), Wrong> {
    let (_, n) = input.list()?;
    if n > MOST_COLUMNS {
        return Err(Wrong::Not("it lists more columns than the limit, 131072"));
    }
    // For each open group: the number of its remaining children, and the bytes of its path.
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut path_bytes = 0usize;
    for at in 0..n {
        let (mut name, mut children) = (0, 0);
        input.fields(|id, code, input| match id {
            NAME => input.binary().map(|bytes| name = bytes.len()),
            NUM_CHILDREN => input.int().map(|n| children = n),
            _ => input.skip(code, MOST_DEPTH),
        })?;
        let children = usize::try_from(children).map_err(|_| Wrong::Not("a negative number of columns"))?;
        if children > n - at - 1 {
            return Err(Wrong::Not("num_children is larger than the number of columns that follow"));
        }
        let above = match open.last_mut() {
            None if at > 0 => return Err(Wrong::Not("num_children is smaller than the number of columns")),
            None => 0,
            Some((left, above)) => {
                *left -= 1;
                *above
            }
        };
        let path = above + name + size_of::<String>();
        if children == 0 {
            path_bytes = path_bytes.saturating_add(path);
        }
        if path_bytes > MOST_PATH_BYTES {
            return Err(Wrong::Not("the names of its nested columns are longer than the limit, 64 MiB"));
        }
        if children > 0 {
            open.push((children, path));
            if open.len() > MOST_SCHEMA_DEPTH {
                return Err(Wrong::Not("its columns are nested deeper than the limit, 64 levels"));
            }
        }
        while open.pop_if(|(left, _)| *left == 0).is_some() {}
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err(Wrong::Not("num_children is larger than the number of columns that follow"))
    }
}

/// The claims of a page header; zero for missing ones.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PageClaims {
    pub size: u64,
    pub compressed: u64,
    pub n_values: u64,
    /// Values and rows of a data page of version 2: a decoder skips such pages by rows, and reads them by
    /// values.
    pub values_and_rows: Option<[i64; 2]>,
}

/// Reads the claims of the page header at the start of `bytes`. The decoder refuses negative numbers.
pub(super) fn page_claims(bytes: &[u8]) -> Result<PageClaims, Wrong> {
    let mut walked = ThriftInput(bytes);
    walked.value(PAGE_HEADER, MOST_DEPTH)?;
    let mut claims = PageClaims::default();
    // A field may occur several times; the decoder uses the last one, and each must be checked.
    ThriftInput(bytes).fields(|id, code, input| {
        let claim = match id {
            SIZE => &mut claims.size,
            COMPRESSED => {
                claims.compressed = input.int()?.max(0) as u64;
                return Ok(());
            }
            DICTIONARY => {
                return input.fields(|id, code, input| match id {
                    1 => {
                        claims.n_values = claims.n_values.max(input.int()?.max(0) as u64);
                        Ok(())
                    }
                    _ => input.skip(code, MOST_DEPTH),
                });
            }
            DATA_V2 => {
                let both = claims.values_and_rows.get_or_insert_default();
                return input.fields(|id, code, input| {
                    match id {
                        1 => both[0] = input.int()?,
                        3 => both[1] = input.int()?,
                        _ => return input.skip(code, MOST_DEPTH),
                    }
                    Ok(())
                });
            }
            _ => return input.skip(code, MOST_DEPTH),
        };
        *claim = (*claim).max(input.int()?.max(0) as u64);
        Ok(())
    })?;
    Ok(claims)
}

/// The reason why a walk ends early.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The bytes end before the value does.
    Short,
    /// The bytes are invalid; the reason, for a message.
    Not(&'static str),
}

struct ThriftInput<'a>(&'a [u8]);

impl<'a> ThriftInput<'a> {
    fn bytes(&mut self, n: usize) -> Result<&'a [u8], Wrong> {
        let (bytes, rest) = self.0.split_at_checked(n).ok_or(Wrong::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, Wrong> {
        self.bytes(1).map(|byte| byte[0])
    }

    /// Seven bits per byte, the lowest first.
    fn varint(&mut self) -> Result<u64, Wrong> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Wrong::Not("a number has more than 10 bytes"))
    }

    /// Zigzag: even numbers are positive.
    fn int(&mut self) -> Result<i64, Wrong> {
        self.varint().map(|value| (value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn binary(&mut self) -> Result<&'a [u8], Wrong> {
        let n = self.varint()?;
        self.bytes(usize::try_from(n).map_err(|_| Wrong::Short)?)
    }

    /// The type and number of the elements of a list or set. Each takes at least a byte.
    fn list(&mut self) -> Result<(u8, usize), Wrong> {
        let head = self.byte()?;
        let n = match head >> 4 {
            15 => usize::try_from(self.varint()?).map_err(|_| Wrong::Short)?,
            n => n.into(),
        };
        self.check_number(n)?;
        match head & 15 {
            // Some writers give an empty list no type.
            0 if n == 0 => Ok((3, 0)),
            1 | 2 if n > 0 => Err(Wrong::Not("a list of booleans, which Parquet's metadata never have")),
            code => Ok((code, n)),
        }
    }

    fn check_number(&self, n: usize) -> Result<(), Wrong> {
        match n {
            _ if n > MOST_ELEMENTS => Err(Wrong::Not("a list has more elements than the limit, 1048576")),
            _ if n > self.0.len() => Err(Wrong::Short),
            _ => Ok(()),
        }
    }

    /// Calls `take` with the id and type of each field of a struct; `take` must consume the value.
    fn fields(&mut self, mut take: impl FnMut(i16, u8, &mut Self) -> Result<(), Wrong>) -> Result<(), Wrong> {
        let mut last = 0i16;
        loop {
            let head = self.byte()?;
            if head & 15 == 0 {
                return Ok(());
            }
            let id = match head >> 4 {
                0 => i16::try_from(self.int()?).ok(),
                step => last.checked_add(step.into()),
            };
            last = id.ok_or(Wrong::Not("a field has an impossible id"))?;
            take(last, head & 15, self)?;
        }
    }

    /// Walks a value of a known type, and checks the types in it.
    fn value(&mut self, kind: ThriftType, depth: u32) -> Result<(), Wrong> {
        let depth = depth.checked_sub(1).ok_or(TOO_DEEP)?;
        match kind {
            Struct(known) => {
                self.fields(|id, code, input| match known.iter().find(|(known, _)| *known == id) {
                    Some((_, kind)) if kind.is(code) => input.value(*kind, depth),
                    Some(_) => Err(Wrong::Not("a field has another type than the format gives it")),
                    None => input.skip(code, depth),
                })
            }
            List(element) => {
                let (code, n) = self.list()?;
                if n > 0 && !element.is(code) {
                    return Err(Wrong::Not("a list has elements of another type than the format gives it"));
                }
                (0..n).try_for_each(|_| self.value(*element, depth))
            }
            I16 | I32 => {
                let value = self.int()?;
                let fits = match kind {
                    I16 => i16::try_from(value).is_ok(),
                    _ => i32::try_from(value).is_ok(),
                };
                if fits { Ok(()) } else { Err(Wrong::Not("a number does not fit its type")) }
            }
            Bool => Ok(()),
            I8 => self.byte().map(drop),
            I64 => self.int().map(drop),
            Double => self.bytes(8).map(drop),
            Binary => self.binary().map(drop),
        }
    }

    /// Walks a value of an unknown field, of the type `code`.
    fn skip(&mut self, code: u8, depth: u32) -> Result<(), Wrong> {
        let depth = depth.checked_sub(1).ok_or(TOO_DEEP)?;
        match code {
            1 | 2 => Ok(()),
            3 => self.byte().map(drop),
            4..=6 => self.varint().map(drop),
            7 => self.bytes(8).map(drop),
            8 => self.binary().map(drop),
            9 | 10 => {
                let (code, n) = self.list()?;
                (0..n).try_for_each(|_| self.skip(code, depth))
            }
            11 => {
                let n = usize::try_from(self.varint()?).map_err(|_| Wrong::Short)?;
                self.check_number(n)?;
                if n == 0 {
                    return Ok(());
                }
                let codes = self.byte()?;
                let (key, value) = (codes >> 4, codes & 15);
                if key <= 2 || value <= 2 {
                    return Err(Wrong::Not("a map of booleans, which Parquet's metadata never have"));
                }
                (0..n).try_for_each(|_| {
                    self.skip(key, depth)?;
                    self.skip(value, depth)
                })
            }
            12 => self.fields(|_, code, input| input.skip(code, depth)),
            13 => self.bytes(16).map(drop),
            _ => Err(Wrong::Not("a field has an unknown type")),
        }
    }
}

const TOO_DEEP: Wrong = Wrong::Not("values are nested deeper than the limit, 32 levels");

impl ThriftType {
    /// Whether a field or element of this type has the type `code` of the protocol.
    fn is(self, code: u8) -> bool {
        match self {
            Bool => matches!(code, 1 | 2),
            I8 => code == 3,
            I16 => code == 4,
            I32 => code == 5,
            I64 => code == 6,
            Double => code == 7,
            Binary => code == 8,
            List(_) => code == 9,
            Struct(_) => code == 12,
        }
    }
}

#[cfg(test)]
mod tests;

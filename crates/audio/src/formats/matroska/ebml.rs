//! EBML: elements of an id, a size and a content.
//!
//! Id and size are numbers of one to eight bytes; the zeros before the first set bit say how many. A size of
//! all ones is unknown.
//!
//! Source: RFC 8794, sections 4 to 7.

/// The most bytes of an id and a size.
pub(super) const MAX_HEAD: u64 = 12;

/// The id and the size of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ElementHead {
    pub id: u32,
    /// Bytes of id and size.
    pub len: u64,
    /// Bytes of the content; None if unknown.
    pub size: Option<u64>,
}

/// Why bytes are no head of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoHead {
    /// The bytes end within it.
    Short,
    Invalid,
}

impl ElementHead {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, NoHead> {
        let &first = bytes.first().ok_or(NoHead::Short)?;
        let id_len = first.leading_zeros() as usize + 1;
        if id_len > 4 {
            return Err(NoHead::Invalid);
        }
        let id = bytes.get(..id_len).ok_or(NoHead::Short)?;
        let id = id.iter().fold(0, |id, &byte| id << 8 | u32::from(byte));
        let rest = &bytes[id_len..];
        match rest.first() {
            None => return Err(NoHead::Short),
            Some(0) => return Err(NoHead::Invalid),
            Some(_) => {}
        }
        let (size, size_len) = number(rest).ok_or(NoHead::Short)?;
        Ok(Self { id, len: (id_len + size_len) as u64, size })
    }
}

/// A number, None if all its bits are ones, and its bytes; None for eight zeros or where the bytes end.
pub(super) fn number(bytes: &[u8]) -> Option<(Option<u64>, usize)> {
    let len = bytes.first()?.leading_zeros() as usize + 1;
    let bytes = bytes.get(..len).filter(|_| len <= 8)?;
    let bits = 7 * len as u32;
    let ones = (1u64 << bits) - 1;
    let value = bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)) & ones;
    Some((Some(value).filter(|&value| value != ones), len))
}

/// The elements directly in `bytes`: id and content. They end at one that is not whole.
pub(super) fn elements(bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let head = ElementHead::parse(rest).ok()?;
        let len = head.len as usize;
        let body = rest.get(len..len.checked_add(usize::try_from(head.size?).ok()?)?)?;
        rest = &rest[len + body.len()..];
        Some((head.id, body))
    })
}

/// The content of the first element `id` directly in `bytes`.
pub(super) fn find(bytes: &[u8], id: u32) -> Option<&[u8]> {
    elements(bytes).find(|(this, _)| *this == id).map(|(_, body)| body)
}

/// An unsigned integer of up to eight bytes; without bytes it is 0.
pub(super) fn uint(body: &[u8]) -> Option<u64> {
    (body.len() <= 8).then(|| body.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

/// A signed integer, as [`uint`].
pub(super) fn int(body: &[u8]) -> Option<i64> {
    let unused = 64 - 8 * body.len().min(8) as u32;
    uint(body).map(|value| if unused == 64 { 0 } else { (value << unused).cast_signed() >> unused })
}

/// A float of four or eight bytes; without bytes it is 0.
pub(super) fn float(body: &[u8]) -> Option<f64> {
    match body.len() {
        0 => Some(0.0),
        4 => Some(f32::from_be_bytes(*body.first_chunk()?).into()),
        8 => Some(f64::from_be_bytes(*body.first_chunk()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_say_how_long_they_are() {
        assert_eq!(number(&[0x81]), Some((Some(1), 1)));
        assert_eq!(number(&[0x40, 0x02]), Some((Some(2), 2)));
        assert_eq!(number(&[0x01, 0, 0, 0, 0, 0, 1, 0]), Some((Some(256), 8)));
        for unknown in [&[0xff][..], &[0x7f, 0xff], &[0x01, 255, 255, 255, 255, 255, 255, 255]] {
            assert_eq!(number(unknown), Some((None, unknown.len())));
        }
        for none in [&[][..], &[0, 1, 1, 1, 1, 1, 1, 1, 1], &[0x40], &[0x01, 0, 0]] {
            assert_eq!(number(none), None);
        }
    }

    #[test]
    fn heads_are_read_or_not() {
        let head = |id, len, size| Ok(ElementHead { id, len, size });
        assert_eq!(ElementHead::parse(&[0xa3, 0x85, 1, 2]), head(0xa3, 2, Some(5)));
        assert_eq!(ElementHead::parse(&[0x1f, 0x43, 0xb6, 0x75, 0xff]), head(0x1f43_b675, 5, None));
        for short in [&[][..], &[0xa3], &[0x1f, 0x43], &[0xa3, 0x40]] {
            assert_eq!(ElementHead::parse(short), Err(NoHead::Short));
        }
        for invalid in [&[0x08, 1, 1, 1, 1, 0x81][..], &[0, 0], &[0xa3, 0]] {
            assert_eq!(ElementHead::parse(invalid), Err(NoHead::Invalid));
        }
        let nested = [0xd7, 0x81, 7, 0x86, 0x82, b'A', b'B', 0xae, 0x84, 0];
        assert_eq!(elements(&nested).collect::<Vec<_>>(), [(0xd7, &[7][..]), (0x86, b"AB")]);
        assert_eq!((int(&[0xff]), int(&[]), int(&[0x7f, 0xff])), (Some(-1), Some(0), Some(32767)));
        assert_eq!((uint(&[1, 0]), uint(&[0; 9]), float(&[0x3f, 0x80, 0, 0])), (Some(256), None, Some(1.0)));
    }
}

//! Fallible allocation of vectors whose length depends on data or parameters.
//!
//! When an allocation fails, a vector of the standard library aborts the process. A record that is too large
//! for the remaining memory should end the run with an error instead. So buffers that may be large are
//! allocated here.
//!
//! Source: own.

use std::{
    alloc::{Layout, alloc_zeroed},
    ptr,
};

use crate::{Error, ErrorKind, Result};

/// Sets the length of `values` to `len`, appending copies of `value`.
///
/// # Errors
/// [`ErrorKind::Memory`] if the allocation failed.
pub fn resize<T: Copy>(values: &mut Vec<T>, len: usize, value: T) -> Result<()> {
    reserve(values, len)?;
    values.resize(len, value);
    Ok(())
}

/// Reserves room for exactly `len` values in all.
///
/// # Errors
/// [`ErrorKind::Memory`] if the allocation failed.
pub fn reserve<T>(values: &mut Vec<T>, len: usize) -> Result<()> {
    let more = len.saturating_sub(values.len());
    values.try_reserve_exact(more).map_err(|_| refused(len.saturating_mul(size_of::<T>())))
}

/// Appends `value`.
///
/// # Errors
/// [`ErrorKind::Memory`] if the allocation failed.
pub fn push<T>(values: &mut Vec<T>, value: T) -> Result<()> {
    values.try_reserve(1).map_err(|_| refused((values.len() + 1).saturating_mul(size_of::<T>())))?;
    values.push(value);
    Ok(())
}

/// A copy of `bytes`.
///
/// # Errors
/// [`ErrorKind::Memory`] if the allocation failed.
pub fn copy(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    reserve(&mut copy, bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// A vector with room for `len` values.
///
/// # Errors
/// [`ErrorKind::Memory`] if the allocation failed.
pub fn with_room<T>(len: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    reserve(&mut values, len)?;
    Ok(values)
}

/// `len` copies of `value`.
///
/// # Errors
/// [`ErrorKind::Memory`] if the allocation failed.
pub fn filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>> {
    let mut values = with_room(len)?;
    values.resize(len, value);
    Ok(values)
}

/// Reserves room for at least `more` further values, amortised as in [`Vec::reserve`].
///
/// # Errors
/// [`ErrorKind::Memory`] if the allocation failed.
pub fn grow<T>(values: &mut Vec<T>, more: usize) -> Result<()> {
    let len = values.len().saturating_add(more);
    values.try_reserve(more).map_err(|_| refused(len.saturating_mul(size_of::<T>())))
}

/// `len` zero bytes; the pages of a large block are not touched.
///
/// # Errors
/// [`ErrorKind::Memory`] if the allocation failed.
pub fn zero_bytes(len: usize) -> Result<Box<[u8]>> {
    if len == 0 {
        return Ok(Box::default());
    }
    let layout = Layout::array::<u8>(len).map_err(|_| refused(len))?;
    // SAFETY: the layout has a size, `len`.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        return Err(refused(len));
    }
    // SAFETY: `len` zero bytes of the global allocator, with the layout with which the box will free them.
    Ok(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(start, len)) })
}

/// The error for a failed allocation of this many bytes.
pub fn refused(bytes: usize) -> Error {
    let message = format!(
        "cannot allocate {} MiB of memory; request less at once, or lower n_workers, clip_seconds, raw_channel_bytes \
         or max_record_bytes",
        bytes.div_ceil(1 << 20)
    );
    Error::new(ErrorKind::Memory, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_errors() {
        let huge = isize::MAX as usize;
        assert_eq!(zero_bytes(huge).unwrap_err().kind, ErrorKind::Memory);
        assert_eq!(zero_bytes(usize::MAX).unwrap_err().kind, ErrorKind::Memory);
        for len in [huge / 4, usize::MAX] {
            let mut values = vec![1.0f32; 3];
            assert_eq!(resize(&mut values, len, 0.0).unwrap_err().kind, ErrorKind::Memory);
            assert_eq!(values, [1.0; 3]);
            assert_eq!(filled(len, 0.0).unwrap_err().kind, ErrorKind::Memory);
            let error = with_room::<u64>(len).unwrap_err();
            assert!(error.kind == ErrorKind::Memory && !error.message.contains("record;"), "{error}");
        }
    }

    #[test]
    fn what_is_had_is_zero() {
        assert_eq!(zero_bytes(0).unwrap().len(), 0);
        assert!(zero_bytes(3 << 20).unwrap().iter().all(|&byte| byte == 0));
        let mut values = vec![7u8];
        resize(&mut values, 3, 9).unwrap();
        assert_eq!((values.as_slice(), values.capacity()), ([7, 9, 9].as_slice(), values.capacity()));
        resize(&mut values, 1, 9).unwrap();
        assert_eq!(values, [7]);
        push(&mut values, 8).unwrap();
        assert_eq!(copy(&values).unwrap(), [7, 8]);
        assert_eq!(filled(3, 2u16).unwrap(), [2; 3]);
        grow(&mut values, 100).unwrap();
        assert!(values.capacity() >= 101 && grow(&mut values, usize::MAX).is_err());
        assert!(with_room::<u16>(9).unwrap().capacity() >= 9);
    }
}

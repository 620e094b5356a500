//! Placeholder until the packet formats are merged: refuses every recording.

use std::{marker::PhantomData, ops::Range};

use super::{Info, Kept, Planes, unsupported};
use crate::Result;

/// Not decoded yet.
#[derive(Debug)]
pub struct Mpeg<'a>(Info, PhantomData<&'a [u8]>);

impl<'a> Mpeg<'a> {
    pub(crate) fn open(_bytes: &'a [u8]) -> Result<Self> {
        Err(unsupported("Mpeg is not decoded yet"))
    }

    pub(crate) fn info(&self) -> Info {
        self.0
    }

    pub(crate) fn read(&self, _kept: &mut Kept, _span: Range<u64>, _out: &mut Planes) -> Result<()> {
        Err(unsupported("Mpeg is not decoded yet"))
    }
}

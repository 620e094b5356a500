//! stub
use super::*;
/// stub
#[derive(Debug)]
pub struct Mpeg<'a>(&'a [u8]);
impl<'a> Mpeg<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self> { Ok(Self(bytes)) }
    pub fn info(&self) -> Info { todo!() }
    pub(crate) fn read(&self, _: &mut Kept, _: Range<u64>, _: &mut Planes) -> Result<()> { todo!() }
}

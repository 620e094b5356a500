//! [`InMemory`]: a file of any bytes, for fuzz targets.

use std::{io, path::Path, sync::Arc};

use forebay_storage::{ReadAt, Storage, Version};

/// A file in memory.
#[derive(Debug, Clone)]
pub struct InMemory(Arc<[u8]>);

impl InMemory {
    /// A file of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl Storage for InMemory {
    fn open(&self, _path: &Path) -> io::Result<Box<dyn ReadAt>> {
        Ok(Box::new(self.clone()))
    }
}

impl ReadAt for InMemory {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn version(&self) -> io::Result<Version> {
        Ok(Version { size: self.0.len() as u64, modified: None, etag: None })
    }
}

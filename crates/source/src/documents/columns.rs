//! Opens files of Arrow and Parquet whose rows are documents in columns.

use std::{path::PathBuf, sync::Arc};

use super::{DocumentForm, DocumentRequest};
use crate::{ArrowSource, Result, Storage, parquet::ParquetSource, row_files::DocumentFiles};

/// # Errors
/// As [`ArrowSource::open`].
pub(super) fn open_arrow(
    storage: Arc<dyn Storage>,
    paths: &[PathBuf],
    request: &DocumentRequest<'_>,
) -> Result<(Arc<dyn DocumentFiles>, DocumentForm)> {
    let source = ArrowSource::open_in(storage, paths, &request.options())?;
    Ok((Arc::new(source), request.content.form_of_values(request.column)))
}

/// # Errors
/// As [`ParquetSource::open`].
pub(super) fn open_parquet(
    storage: Arc<dyn Storage>,
    paths: &[PathBuf],
    request: &DocumentRequest<'_>,
) -> Result<(Arc<dyn DocumentFiles>, DocumentForm)> {
    let source = ParquetSource::open_in(storage, paths, &request.options())?;
    Ok((Arc::new(source), request.content.form_of_values(request.column)))
}

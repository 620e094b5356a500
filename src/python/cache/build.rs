//! The build of a cache, for `forebay.cache.build`.

use std::{
    path::PathBuf,
    process,
    sync::{Arc, PoisonError},
    time::Duration,
};

use pyo3::{prelude::*, types::PyDict};
use serde_json::{Map, Value};

use super::{
    convert,
    shards::{AnyProcessor, AnyShards, DocumentBatch},
};
use crate::{
    Error, ErrorKind, Result,
    cache::{
        ChunkCompression, Processed, WriterOptions,
        build::{
            Build, BuildPlan, DocumentPiece, Interleaving, Process, Processor, ReadShard, Shards, Skips,
            inputs::{Files, Limits, Projection},
            recordings::FeatureBuilder,
            tokens::Tokenize,
        },
    },
    config::{CommitConfig, DamageConfig, FeatureObject, LimitConfig, Origin, PolicyConfig, track_number},
    engine::{MaxErrors, Policy},
    fields::DataType,
    float_mode,
    python::{
        arguments::{argument, attempt, named},
        calls::expect_calls,
        ending::detach,
        errors::{ForebayError, to_python},
        features::read_features,
        interruptible::run_interruptible,
        logging, manifest,
        spectrogram::PySpectrogramTransform,
        state,
        tokenizer::PyTokenizer,
    },
    sync::plain::Mutex,
};

/// The policy of a build: as for loaders, but `max_errors` cannot be a share, since the number of documents
/// is unknown.
fn policy(on_error: String, max_errors: Option<MaxErrors>) -> Result<Policy> {
    let mut problems = Vec::new();
    let config = PolicyConfig { on_error, max_errors, ..PolicyConfig::default() };
    let policy = config.check(&mut problems);
    if let Some(MaxErrors::Share(share)) = max_errors {
        problems = vec![format!(
            "max_errors is {share:?}, must be a whole number: a build does not know the number of documents in advance"
        )];
    }
    if problems.is_empty() { Ok(policy) } else { Err(Error::new(ErrorKind::Config, problems.join("; "))) }
}

/// The processor that `forebay.cache` describes in a dict, the columns to read, and the limits.
fn processor(given: &Bound<'_, PyDict>) -> PyResult<(AnyProcessor, Projection, Limits)> {
    let (processor, projection, max_record_bytes) = kind(given)?;
    let limits = match &processor {
        // A function is called with a whole batch.
        AnyProcessor::Callable(_) => Limits { piece_bytes: u64::MAX, ..Limits::default() },
        AnyProcessor::Features(features) => {
            let (recording_bytes, second_bytes) = (features.recording_bytes(), features.second_bytes());
            Limits { recording_bytes, second_bytes, ..Limits::default() }
        }
        _ => Limits::default(),
    };
    Ok((processor, projection, Limits { max_record_bytes, ..limits }))
}

fn kind(given: &Bound<'_, PyDict>) -> PyResult<(AnyProcessor, Projection, u64)> {
    let item = |name: &str| given.as_any().get_item(name);
    let columns = item("columns")?.extract::<Option<Vec<String>>>()?;
    let projection = columns.map_or(Projection::All, Projection::Columns);
    let limits = LimitConfig {
        max_record_bytes: named("max_record_bytes", &item("max_record_bytes")?)?,
        max_decoded_seconds: item("max_decoded_seconds")?.extract()?,
    };
    let (max_record_bytes, max_decoded_seconds) =
        limits.check().map_err(|error| to_python(given.py(), &error))?;
    let kind: String = item("kind")?.extract()?;
    let damage: String = item("damage")?.extract()?;
    let damage = DamageConfig { damage: &damage, max_damage: item("max_damage")?.extract()? };
    let damage = damage.check().map_err(|error| to_python(given.py(), &error))?;
    let (processor, projection) = match &kind[..] {
        "tokenize" => {
            let text_column: String = item("text_column")?.extract()?;
            let tokenizer = item("tokenizer")?.cast::<PyTokenizer>()?.get().core().clone();
            let bos = item("bos")?.extract::<bool>()?.then(|| tokenizer.document_bos_id()).transpose();
            let tokenize = Tokenize {
                tokenizer,
                text_column: text_column.clone(),
                bos: bos.map_err(|error| to_python(given.py(), &error))?,
                field: item("field")?.extract()?,
                max_record_bytes,
            };
            (AnyProcessor::Tokenize(tokenize), Projection::Columns(vec![text_column]))
        }
        "features" => (
            AnyProcessor::Features(features(&item("transform")?, max_decoded_seconds)?.with_damage(damage)),
            Projection::Recordings {
                column: item("audio_column")?.extract()?,
                track: track_number(named("track", &item("track")?)?)
                    .map_err(|error| to_python(given.py(), &error))?,
                allow_paths: named::<Option<_>>("allow_paths", &item("allow_paths")?)?.unwrap_or_default(),
            },
        ),
        "callable" => {
            expect_calls();
            let functions = (item("function")?.unbind(), item("to_columns")?.unbind());
            (AnyProcessor::Callable(Arc::new(functions)), projection)
        }
        "columns" => {
            expect_calls();
            (AnyProcessor::Columns(Arc::new(item("to_columns")?.unbind())), projection)
        }
        _ => (AnyProcessor::Passthrough, projection),
    };
    Ok((processor, projection, max_record_bytes))
}

/// The features of a `SpectrogramTransform` or an object of `forebay.features`.
fn features(given: &Bound<'_, PyAny>, max_decoded_seconds: f64) -> PyResult<FeatureBuilder> {
    let made = match given.cast::<PySpectrogramTransform>() {
        Ok(transform) => {
            float_mode::lent(|| FeatureBuilder::log_mel(transform.get().core(), max_decoded_seconds))
        }
        Err(_) => {
            let expected = "a SpectrogramTransform, or an object of forebay.features";
            let FeatureObject { plan, description } =
                read_features(given).map_err(|refused| refused.raised("transform", given, expected))?;
            FeatureBuilder::new(plan, description, max_decoded_seconds)
        }
    };
    made.map_err(|error| to_python(given.py(), &error))
}

/// Files, or functions that open iterators.
enum ShardInputs {
    Files(Vec<Origin>),
    Open(Vec<(String, Py<PyAny>)>),
}

impl ShardInputs {
    fn read(shards: &Bound<'_, PyAny>) -> PyResult<Self> {
        let tables = shards.try_iter()?.map(|shard| manifest::of(&shard?)).collect::<PyResult<Vec<_>>>()?;
        if !tables.iter().any(Option::is_some) {
            return match attempt(shards.py(), shards.extract::<Vec<PathBuf>>())? {
                Some(paths) => Ok(Self::Files(paths.into_iter().map(Origin::Path).collect())),
                None => shards.extract().map(Self::Open),
            };
        }
        let mut files = Vec::new();
        for (table, shard) in tables.into_iter().zip(shards.try_iter()?) {
            files.push(match table {
                Some(table) => table,
                None => Origin::Path(shard?.extract()?),
            });
        }
        Ok(Self::Files(files))
    }

    fn shards(self, projection: Projection, limits: Limits, is_processed: bool) -> Result<AnyShards> {
        match self {
            Self::Files(files) => Ok(AnyShards::Files(Files::new(files, projection, limits)?)),
            Self::Open(shards) => {
                expect_calls();
                let (names, open) = shards.into_iter().unzip();
                Ok(if is_processed {
                    AnyShards::Elsewhere { names, open }
                } else {
                    AnyShards::Iterables { names, open }
                })
            }
        }
    }
}

/// A running build.
#[pyclass(module = "forebay._core", name = "_CacheBuild", frozen)]
pub struct _CacheBuild {
    /// None only during drop.
    build: Option<Arc<Build>>,
    /// The process that has the build's threads.
    process: u32,
}

#[pymethods]
impl _CacheBuild {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "one per parameter of forebay.cache.build")]
    #[pyo3(signature = (shards, processor, path, split, *, fields, batch_size, order, n_workers, compression, made_by, overwrite, commit_seconds, commit_documents, on_error="raise", max_errors=None, is_processed=false))]
    fn new(
        py: Python<'_>,
        shards: &Bound<'_, PyAny>,
        processor: &Bound<'_, PyDict>,
        path: PathBuf,
        split: String,
        fields: Option<Vec<(String, Option<String>)>>,
        batch_size: u64,
        order: &str,
        n_workers: usize,
        compression: &str,
        made_by: &str,
        overwrite: bool,
        #[pyo3(from_py_with = argument::commit_seconds)] commit_seconds: f64,
        #[pyo3(from_py_with = argument::commit_documents)] commit_documents: i64,
        on_error: &str,
        #[pyo3(from_py_with = argument::max_errors)] max_errors: Option<MaxErrors>,
        is_processed: bool,
    ) -> PyResult<Self> {
        let to_python = |error: Error| to_python(py, &error);
        let (processor, projection, limits) = self::processor(processor)?;
        let given = ShardInputs::read(shards)?;
        let made_by: Map<String, Value> = serde_json::from_str(made_by).map_err(|error| {
            to_python(Error::new(ErrorKind::Config, "made_by is not a JSON object").because(error))
        })?;
        let fields = fields.map(|fields| fields.into_iter().map(typed).collect::<Result<_>>()).transpose();
        let plan = BuildPlan {
            path,
            split,
            batch_size,
            order: if order == "concat" { Interleaving::Concat } else { Interleaving::RoundRobin },
            n_workers,
            fields: fields.map_err(to_python)?,
            policy: policy(on_error.to_owned(), max_errors).map_err(to_python)?,
            commits: CommitConfig { commit_seconds, commit_documents }.check().map_err(to_python)?,
            options: WriterOptions {
                compression: ChunkCompression::from_name(compression).map_err(to_python)?,
                overwrite,
                ..WriterOptions::default()
            },
        };
        let build = run_interruptible(py, "forebay-build", move || {
            let shards = given.shards(projection, limits, is_processed)?;
            let options = WriterOptions { made_by, ..plan.options.clone() };
            Build::start(BuildPlan { options, ..plan }, shards, processor)
        })?;
        Ok(Self { build: Some(Arc::new(build)), process: process::id() })
    }

    /// The identity of processor and shards, without the parts that only the caller knows.
    #[staticmethod]
    fn identity<'py>(
        shards: &Bound<'py, PyAny>,
        processor: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = shards.py();
        let (processor, projection, limits) = self::processor(processor)?;
        let given = ShardInputs::read(shards)?;
        let dict = PyDict::new(py);
        if let Some(what) = processor.describe() {
            match what {
                Value::String(text) => dict.set_item("processor", text)?,
                what => dict.set_item("processor", state::to_python(py, &what)?)?,
            }
        }
        let found = run_interruptible(py, "forebay-shards", move || {
            match given.shards(projection, limits, false)? {
                AnyShards::Files(files) => files.fingerprints().map(Some),
                _ => Ok(None),
            }
        });
        if let Some(found) = found? {
            let sources = PyDict::new(py);
            found.into_iter().try_for_each(|(name, what)| sources.set_item(name, what))?;
            dict.set_item("sources", sources)?;
        }
        Ok(dict)
    }

    /// Waits for the end of the build, at most `seconds`. Returns the number of documents, or None if the
    /// build still runs; raises the error that ended it.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<u64>> {
        self.check_process()?;
        let most = Duration::try_from_secs_f64(seconds.clamp(0.0, 1.0)).unwrap_or_default();
        let ended = detach(py, || self.build.as_ref().and_then(|build| build.wait(most)));
        logging::emitting(py, || ended.transpose().map_err(|error| to_python(py, &error)))
    }

    /// Requests the build to end.
    fn cancel(&self) -> PyResult<()> {
        self.check_process()?;
        self.build.iter().for_each(|build| build.cancel());
        Ok(())
    }

    /// The progress of the build.
    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.check_process()?;
        let progress = self.build.as_ref().map(|build| build.progress()).unwrap_or_default();
        let dict = PyDict::new(py);
        dict.set_item("documents", progress.documents)?;
        dict.set_item("committed", progress.committed)?;
        dict.set_item("skipped", progress.skipped)?;
        dict.set_item("documents_before", progress.documents_before)?;
        dict.set_item("values", progress.values)?;
        dict.set_item("values_before", progress.values_before)?;
        dict.set_item("finished_shards", progress.finished_shards)?;
        dict.set_item("n_shards", progress.n_shards)?;
        dict.set_item("part", progress.part)?;
        dict.set_item("part_before", progress.part_before)?;
        dict.set_item("seconds", progress.seconds)?;
        Ok(dict)
    }
}

impl _CacheBuild {
    fn check_process(&self) -> PyResult<()> {
        if self.process != process::id() {
            return Err(ForebayError::new_err(
                "this build was started before a fork and runs in the parent process; use it there",
            ));
        }
        Ok(())
    }
}

impl Drop for _CacheBuild {
    /// Detaches while threads end, since workers may be about to call a user's function, which needs the GIL.
    fn drop(&mut self) {
        let build = self.build.take();
        if self.process != process::id() {
            // Its threads belong to the parent, and locks that they held stay locked here.
            std::mem::forget(build);
            return;
        }
        Python::try_attach(|py| detach(py, || drop(build)));
    }
}

fn typed((name, dtype): (String, Option<String>)) -> Result<(String, Option<DataType>)> {
    let unknown = |dtype: &str| {
        let names: Vec<_> = DataType::ALL.iter().map(|dtype| dtype.name()).collect();
        let message = format!("fields[{name:?}] is {dtype:?}, must be one of {}", names.join(", "));
        Error::new(ErrorKind::Config, message)
    };
    let dtype = dtype.map(|dtype| DataType::from_name(&dtype).ok_or_else(|| unknown(&dtype))).transpose()?;
    Ok((name, dtype))
}

/// Reads and processes one shard, in a process other than the writer's. The work is gone while a call has it:
/// reading and processing call the user's Python.
#[pyclass(module = "forebay._core", name = "_ShardWork", frozen)]
pub struct _ShardWork(Mutex<Option<BuildWork>>);

struct BuildWork {
    reader: Box<dyn ReadShard<DocumentBatch>>,
    process: Box<dyn Process<DocumentBatch>>,
    policy: Policy,
    /// The first row of the next batch in the shard.
    begin: u64,
}

#[pymethods]
impl _ShardWork {
    #[new]
    fn new(
        py: Python<'_>,
        shard: &Bound<'_, PyAny>,
        processor: &Bound<'_, PyDict>,
        skip_batches: u64,
        batch_size: u64,
        on_error: &str,
    ) -> PyResult<Self> {
        let (processor, projection, limits) = self::processor(processor)?;
        let policy = policy(on_error.to_owned(), None).map_err(|error| to_python(py, &error))?;
        let given = ShardInputs::read(shard)?;
        let opened =
            detach(py, || given.shards(projection, limits, false)?.open(0, skip_batches, batch_size));
        let reader = opened.map_err(|error| to_python(py, &error))?;
        let begin = skip_batches.saturating_mul(batch_size);
        Ok(Self(Mutex::new(Some(BuildWork { reader, process: processor.worker(), policy, begin }))))
    }

    /// The next processed batch, and the documents left out of it; None after the last.
    fn next<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Vec<convert::LeftOutTuple>)>> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut work) = lock().take() else {
            return Err(ForebayError::new_err(
                "the shard is being processed by another call, or a call panicked; make a call after the other",
            ));
        };
        let made = detach(py, || -> Result<Option<(Processed, Vec<Error>)>> {
            let BuildWork { reader, process, policy, begin } = &mut work;
            // A batch is read in pieces, but sent to another process whole.
            let mut all: Option<(Processed, Vec<Error>)> = None;
            loop {
                let mut skips = Skips::new(policy, *begin);
                let Some(DocumentPiece { documents, rows, ends_batch }) = reader.next(&mut skips)? else {
                    return Ok(all);
                };
                *begin += rows;
                let processed = process.process(documents, &mut skips)?;
                let errors = skips.into_errors();
                match &mut all {
                    None => all = Some((processed, errors)),
                    Some((before, left_out)) => {
                        before.append(processed)?;
                        left_out.extend(errors);
                    }
                }
                if ends_batch {
                    return Ok(all);
                }
            }
        });
        *lock() = Some(work);
        let Some((processed, left_out)) = made.map_err(|error| to_python(py, &error))? else {
            return Ok(None);
        };
        Ok(Some((convert::tuples(py, processed)?, left_out.iter().map(convert::left_out).collect())))
    }
}

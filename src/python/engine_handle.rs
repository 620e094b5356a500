//! An engine owned by Python: calls detach, wait in slices and check signals; dropping it ends the threads.
//!
//! [`EngineHandle`] has the calls that depend on the type of a batch, [`AnyEngine`] all others. So the
//! methods of all loaders are written once, in `loader_base.rs`.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use numpy::PyUntypedArray;
use pyo3::{
    prelude::*,
    types::{PyDict, PyList},
};

use super::{
    SLICE,
    ending::{Inside, detach},
    errors::{ForebayError, to_python},
    fair_lock::FairLock,
    interruptible::run_interruptible,
    logging, remember, stats,
};
use crate::{
    Error, ErrorKind, Result, cancel,
    contract::{Source, TaskFor},
    engine::{self, BatchOf, Counters, Engine, ExampleOf, Position, QueueSizes, Step},
    source::Shard,
    storage::Traffic,
};

/// The second warning of a stall is logged after this multiple of the first one's time.
const AGAIN: f64 = 10.0;
/// The longest time for which the hand-over of a cached batch is measured.
const HANDOVER: Duration = Duration::from_millis(200);

/// The methods of [`Engine`] that do not depend on the type of a batch. In a fork they raise `ForebayError`,
/// unless stated otherwise.
pub trait AnyEngine: Send + Sync {
    /// Works in a fork too.
    fn is_closed(&self) -> bool;
    /// Ends all threads; does nothing in a fork.
    fn close(&self, py: Python<'_>) -> PyResult<()>;
    fn rewind(&self, py: Python<'_>) -> PyResult<()>;
    fn batch(&self, py: Python<'_>) -> PyResult<u64>;
    fn epoch(&self, py: Python<'_>) -> PyResult<u64>;
    fn set_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()>;
    fn seek(&self, py: Python<'_>, batch: u64) -> PyResult<()>;
    fn skip(&self, py: Python<'_>, ranges: &[Range<u64>]) -> PyResult<()>;
    /// Puts back the last batch that was taken.
    fn take_back(&self, py: Python<'_>) -> PyResult<()>;
    fn position(&self, py: Python<'_>) -> PyResult<Position>;
    fn restore(&self, py: Python<'_>, position: Position) -> PyResult<()>;
    /// Counts, times and verdict; in a fork those of the parent up to the fork, with empty queues.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>>;
    /// Traces the threads for `seconds` from now on.
    fn trace(&self, py: Python<'_>, path: PathBuf, seconds: f64) -> PyResult<()>;
    /// The verdict, after the first batch, and the reason of the wait, while a call waits; each after a
    /// separator. Waits for no lock in a fork.
    fn verdict(&self) -> String;
}

pub struct EngineHandle<S: Source, K: TaskFor<S>> {
    engine: FairLock<Engine<S, K>>,
    control: Arc<engine::Control<ExampleOf<K>>>,
    counters: Arc<Counters>,
    traffic: Arc<Traffic>,
    /// Seconds after which a waiting call logs a warning with the reason.
    stall_warning_s: Option<f64>,
    /// The number of the last warning; 0 if the current batch has none.
    warned: AtomicU64,
    process: u32,
}

impl<S: Source, K: TaskFor<S>> EngineHandle<S, K> {
    /// Wraps `engine`, whose source counts its reads in `traffic`. Its threads end at the latest with the
    /// interpreter.
    pub fn new(engine: Engine<S, K>, traffic: Arc<Traffic>, stall_warning_s: Option<f64>) -> Self {
        let control = engine.control();
        remember(&control);
        Self {
            control,
            counters: engine.counters(),
            traffic,
            stall_warning_s,
            warned: AtomicU64::new(0),
            process: std::process::id(),
            engine: FairLock::new(engine),
        }
    }

    /// The handle that ends the engine.
    pub fn control(&self) -> &Arc<engine::Control<ExampleOf<K>>> {
        &self.control
    }

    /// Whether this process is a fork of the one that created the engine.
    pub fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Raises in a fork of the process that created the engine: its threads do not exist here, and locks that
    /// they held stay locked.
    pub fn check_process(&self) -> PyResult<()> {
        if self.is_forked() {
            return Err(ForebayError::new_err(
                "this loader was made before a fork, and its threads exist only in the parent process; make the loader in the \
                 process that uses it",
            ));
        }
        Ok(())
    }

    /// Calls `work` with the engine, detached. While another thread has the engine, waits in slices, with
    /// checks of signals between them. `work` calls no code of the user.
    pub fn with_engine<T: Send>(
        &self,
        py: Python<'_>,
        mut work: impl FnMut(&mut Engine<S, K>) -> T + Send,
    ) -> PyResult<T> {
        self.check_process()?;
        let mut turn = None;
        loop {
            if let Err(interrupt) = py.check_signals() {
                detach(py, || drop(turn));
                return Err(interrupt);
            }
            let turn = &mut turn;
            let done = detach(py, || {
                let taken = turn.get_or_insert_with(|| self.engine.queue()).take(SLICE);
                let done = taken.map(|mut engine| work(&mut engine));
                if done.is_some() {
                    *turn = None;
                }
                done
            });
            if let Some(done) = done {
                return Ok(done);
            }
        }
    }

    /// As [`EngineHandle::with_engine`], for work that can fail.
    pub fn ask<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnMut(&mut Engine<S, K>) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.with_engine(py, work)?.map_err(|error| to_python(py, &error))
    }

    /// The next batch; `None` at the end of a pass.
    pub fn next(&self, py: Python<'_>) -> PyResult<Option<BatchOf<K>>> {
        let _inside = Inside::begin(py);
        self.await_next(py).inspect_err(|_| {
            // The next call waits anew, and may warn anew.
            self.warned.store(0, Ordering::Relaxed);
            if !self.is_forked() {
                detach(py, || self.control.give_up());
            }
        })
    }

    fn await_next(&self, py: Python<'_>) -> PyResult<Option<BatchOf<K>>> {
        let (begin, mut warn_after_s) = (Instant::now(), self.stall_warning_s);
        loop {
            let step = self.with_engine(py, |engine| engine.fetch(SLICE))?;
            if matches!(step, Ok(Step::TimedOut))
                && let Some(limit_s) = warn_after_s
                && begin.elapsed().as_secs_f64() >= limit_s
                && let Some(stall) = detach(py, || self.control.stall())
            {
                // If several threads wait for a batch, only one of them logs.
                let warning =
                    2 * stall.batch.unwrap_or_default() + 1 + u64::from(warn_after_s != self.stall_warning_s);
                if self.warned.fetch_max(warning, Ordering::Relaxed) < warning {
                    log::warn!("{}; stats()[\"threads\"] lists all threads", stall.in_full(begin.elapsed()));
                }
                warn_after_s = self.stall_warning_s.map(|first_s| AGAIN * first_s).filter(|&s| s > limit_s);
            }
            // A signal handler may run here and may raise, so the engine keeps the batch until none can run.
            logging::emit(py)?;
            py.check_signals()?;
            match step {
                Ok(Step::Batch(..)) => {}
                Ok(Step::End) => return Ok(None),
                Ok(Step::TimedOut) => continue,
                Err(error) => return Err(to_python(py, &error)),
            }
            // Another thread may have taken the batch, or a handler may have called `seek`.
            if let Some((_, batch)) = self.take(py) {
                self.warned.store(0, Ordering::Relaxed);
                return Ok(Some(batch));
            }
        }
    }

    /// Takes the fetched batch, even if signals are pending.
    fn take(&self, py: Python<'_>) -> Option<(u64, BatchOf<K>)> {
        detach(py, || {
            let mut turn = self.engine.queue();
            loop {
                if let Some(mut engine) = turn.take(SLICE) {
                    return engine.take();
                }
            }
        })
    }

    /// The bad records as dicts; `path` finds a record's own path by its row number.
    pub fn errors<'py>(
        &self,
        py: Python<'py>,
        row: impl Fn(u64) -> u64,
        mut path: impl FnMut(u64) -> Option<String> + Send,
    ) -> PyResult<Bound<'py, PyList>> {
        logging::emit(py)?;
        let bad: Vec<Error> = self.with_engine(py, |engine| engine.errors().cloned().collect())?;
        let list = PyList::empty(py);
        for error in bad {
            let index = error.place.index.map(&row);
            py.check_signals()?;
            let path = detach(py, || index.and_then(&mut path));
            list.append(error_dict(py, &error, index, ("path", path))?)?;
        }
        Ok(list)
    }

    /// Measures the speed of a copy of this engine with a loop that does nothing. `rows` counts the rows of a
    /// batch, `to_dict` makes the user's dict.
    pub fn headspace<'py>(
        &self,
        py: Python<'py>,
        seconds: f64,
        rows: impl Fn(&BatchOf<K>) -> usize + Send + Copy + 'static,
        to_dict: impl FnOnce(BatchOf<K>) -> PyResult<Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let length = length(py, seconds)?;
        let aside = self.ask(py, |engine| engine.aside())?;
        remember(&aside.control());
        let control = self.control.clone();
        let measured = run_interruptible(py, "forebay-headspace", move || {
            let go_on = || !cancel::is_stopped() && !control.is_closed();
            aside.headspace(length, go_on, rows)
        })?;
        let Some((measured, batch)) = measured else {
            let message = "no batch to measure: the loader was closed, or its passes are empty";
            return Err(to_python(py, &Error::new(ErrorKind::State, message)));
        };
        let rows = rows(&batch);
        let cached = to_dict(batch)?;
        let begin = Instant::now();
        let mut handed_out = 0u64;
        while handed_out == 0 || begin.elapsed() < length.min(HANDOVER) {
            self.with_engine(py, |engine| engine.batch())?;
            logging::emit(py)?;
            let views = PyDict::new(py);
            for (field, values) in &cached {
                let is_array = values.cast::<PyUntypedArray>().is_ok();
                views.set_item(field, if is_array { values.call_method0("view")? } else { values })?;
            }
            handed_out += 1;
        }
        let dict = PyDict::new(py);
        dict.set_item("examples_per_s", measured.examples as f64 / measured.elapsed_s)?;
        dict.set_item("decoded_per_s", measured.decoded as f64 / measured.elapsed_s)?;
        dict.set_item("handover_per_s", (handed_out * rows as u64) as f64 / begin.elapsed().as_secs_f64())?;
        dict.set_item("seconds", measured.elapsed_s)?;
        dict.set_item("fill_seconds", measured.fill_s)?;
        dict.set_item("filled", measured.is_filled)?;
        dict.set_item("verdict", measured.verdict)?;
        Ok(dict)
    }
}

impl<S: Source, K: TaskFor<S>> AnyEngine for EngineHandle<S, K> {
    fn is_closed(&self) -> bool {
        self.control.is_closed()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_forked() {
            return Ok(());
        }
        // Before waiting for the engine: this wakes the thread that has it.
        detach(py, || self.control.close());
        self.with_engine(py, Engine::close)?;
        logging::emit(py)
    }

    fn rewind(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, Engine::rewind)
    }

    fn batch(&self, py: Python<'_>) -> PyResult<u64> {
        self.with_engine(py, |engine| engine.batch())
    }

    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.with_engine(py, |engine| engine.epoch())
    }

    fn set_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        self.ask(py, |engine| engine.set_epoch(epoch))
    }

    fn seek(&self, py: Python<'_>, batch: u64) -> PyResult<()> {
        self.ask(py, |engine| engine.seek(batch))
    }

    fn skip(&self, py: Python<'_>, ranges: &[Range<u64>]) -> PyResult<()> {
        self.ask(py, |engine| engine.skip(ranges))
    }

    fn take_back(&self, py: Python<'_>) -> PyResult<()> {
        self.with_engine(py, Engine::take_back)
    }

    fn position(&self, py: Python<'_>) -> PyResult<Position> {
        self.with_engine(py, |engine| engine.position())
    }

    fn restore(&self, py: Python<'_>, position: Position) -> PyResult<()> {
        self.ask(py, |engine| engine.restore(position.clone()))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        // After a fork a lock may stay locked forever, and there are no threads.
        let (queues, threads) = match self.is_forked() {
            true => (QueueSizes::default(), Vec::new()),
            false => detach(py, || (self.control.queues(), self.control.threads())),
        };
        stats::dict(py, &self.counters, &self.traffic, queues, &threads)
    }

    fn trace(&self, py: Python<'_>, path: PathBuf, seconds: f64) -> PyResult<()> {
        let length = length(py, seconds)?;
        self.ask(py, |engine| engine.trace(&path, length))
    }

    fn verdict(&self) -> String {
        let mut text = match self.counters.read().batches {
            0 => String::new(),
            _ => format!("; {}", self.counters.verdict(self.traffic.labels())),
        };
        if let Some(told) = self.counters.delivered().told() {
            text.insert_str(0, &format!("; {told}"));
        }
        if !self.is_forked()
            && let Some(stall) = Python::attach(|py| detach(py, || self.control.stall()))
        {
            text += &format!("; {}", stall.in_short());
        }
        text
    }
}

impl<S: Source, K: TaskFor<S>> Drop for EngineHandle<S, K> {
    fn drop(&mut self) {
        // After a fork the engine must not be touched: locks that another thread held stay locked.
        if self.is_forked() {
            return;
        }
        let end = || {
            self.control.close();
            if let Some(mut engine) = self.engine.queue().take(SLICE) {
                engine.close();
            }
        };
        // Joining takes time, so the GIL is released meanwhile, if the interpreter still exists.
        if Python::try_attach(|py| detach(py, end)).is_none() {
            end();
        }
    }
}

/// A duration given by the user.
fn length(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    if (0.0..=3600.0).contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    let message = format!("seconds is {seconds}, must be 0 to 3600");
    Err(to_python(py, &Error::new(ErrorKind::Config, message)))
}

/// A bad record of row `index` as a dict, with one more key.
pub fn error_dict<'py>(
    py: Python<'py>,
    error: &Error,
    index: Option<u64>,
    (key, value): (&str, impl IntoPyObject<'py>),
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("index", index)?;
    dict.set_item("shard", error.place.shard.as_ref().map(|shard| shown(shard)))?;
    dict.set_item("row", error.place.row)?;
    dict.set_item(key, value)?;
    dict.set_item("kind", error.kind.name())?;
    dict.set_item("reason", error.reason())?;
    Ok(dict)
}

pub fn shards<'py>(py: Python<'py>, shards: &[Shard]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for shard in shards {
        let dict = PyDict::new(py);
        dict.set_item("path", shown(&shard.path))?;
        dict.set_item("first_row", shard.first_row)?;
        dict.set_item("num_rows", shard.n_rows)?;
        dict.set_item("num_bytes", shard.n_bytes)?;
        dict.set_item("damage", shard.damage.as_ref().map(ToString::to_string))?;
        list.append(dict)?;
    }
    Ok(list)
}

/// The error of an engine that was not made; if no file has rows, the damage of the first is the reason.
pub fn because_of_damage(error: Error, shards: &[Shard], n_rows: u64) -> Error {
    match shards.iter().find_map(|shard| shard.damage.clone()) {
        Some(damage) if n_rows == 0 => error.because(damage),
        _ => error,
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

//! The parameters of a loader of documents.

use std::sync::Arc;

use super::{Count, PolicyConfig, STALL_WARNING_S, check_stall_warning, shown, workers};
use crate::{
    Error, ErrorKind, Result,
    batch::{Extras, PackPlan},
    engine::{AUTO_PREFETCH, Auto, Plan},
    fields::DataType,
    memory::RAW_CHANNEL_BYTES,
    order::{Groups, Order, Stride},
    transform::CropRule,
};

/// The most that the ids of a batch may take, bytes.
const MAX_BATCH_BYTES: u64 = 8 << 30;

/// Parameters of a loader of documents, in the order of its signature.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenConfig {
    /// Rows of a batch.
    pub batch_size: i64,
    /// T, the inputs of a row.
    pub seq_len: i64,
    /// Documents that a packer holds before each pick.
    pub buffer_size: i64,
    /// Documents by which it is refilled at once.
    pub tokenizer_batch_size: i64,
    /// Threads that tokenise.
    pub n_workers: Count,
    /// This process, counted from 0.
    pub rank: i64,
    /// How many processes share each batch.
    pub world_size: i64,
    /// The number that all randomness comes from; none without it.
    pub seed: Option<u64>,
    /// Whether epochs follow one another without end.
    pub infinite: bool,
    /// `drop` or `carry`.
    pub crop: String,
    /// V, the packers; the world size if not given.
    pub n_streams: Option<i64>,
    /// `file` or `global`; if not given, what the files allow.
    pub stride: Option<String>,
    /// Documents that each draw of a packer chooses from; 0 and 1 keep their order. None: 0, and `buffer_size` with a seed.
    pub shuffle_min_size: Option<i64>,
    /// Whether a last batch with fewer rows is left out.
    pub drop_last: bool,
    /// `int64`, `int32` or `uint16`.
    pub dtype: String,
    /// `doc_ids`, `position_ids`, `cu_seqlens`, `documents`.
    pub extras: Vec<String>,
    /// Batches that are made ahead.
    pub prefetch_batches: Count,
    /// Documents between the I/O thread and the workers.
    pub raw_channel_size: i64,
    /// The most workers, if the loader may choose; the cores that the process may use if not given.
    pub cpu_budget: Option<i64>,
    /// Bytes of the documents between the I/O thread and the workers.
    pub raw_channel_bytes: i64,
    /// What becomes of documents that cannot be had.
    pub policy: PolicyConfig,
    /// Seconds of waiting for a batch after which a warning says which thread is waited for; none if not given.
    pub stall_warning_s: Option<f64>,
}

impl Default for TokenConfig {
    fn default() -> Self {
        Self {
            batch_size: 32,
            seq_len: 2048,
            buffer_size: 1000,
            tokenizer_batch_size: 128,
            n_workers: Count::Exactly(4),
            rank: 0,
            world_size: 1,
            seed: None,
            infinite: true,
            crop: "drop".into(),
            n_streams: None,
            stride: None,
            shuffle_min_size: None,
            drop_last: false,
            dtype: "int64".into(),
            extras: Vec::new(),
            prefetch_batches: Count::Exactly(3),
            raw_channel_size: 256,
            cpu_budget: None,
            raw_channel_bytes: RAW_CHANNEL_BYTES as i64,
            policy: PolicyConfig::default(),
            stall_warning_s: STALL_WARNING_S,
        }
    }
}

impl TokenConfig {
    /// The window of each packer, as given or as it follows from the rest.
    pub(crate) fn window(&self) -> i64 {
        self.shuffle_min_size.unwrap_or(if self.seed.is_some() { self.buffer_size } else { 0 })
    }

    /// The plans of a loader over files whose row groups have these rows, with a tokenizer's `bos` and, if it tells, number of ids.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that names every parameter at fault.
    pub fn check(
        &self,
        files: Vec<Vec<std::ops::Range<u64>>>,
        bos: u32,
        n_vocab: Option<usize>,
    ) -> Result<(Plan, PackPlan)> {
        let mut problems = Vec::new();
        let (n_workers, auto_workers) = workers(self.n_workers, self.cpu_budget, &mut problems);
        let mut whole = |name: &str, value: i64, from: i64, to: i64| {
            if !(from..=to).contains(&value) {
                problems.push(format!("{name} is {}, must be {from} to {to}", shown(value)));
            }
        };
        let prefetch_batches = match self.prefetch_batches {
            Count::Auto => AUTO_PREFETCH[1] as i64,
            Count::Exactly(n) => n,
        };
        whole("batch_size", self.batch_size, 1, 1 << 20);
        whole("seq_len", self.seq_len, 1, 1 << 24);
        whole("buffer_size", self.buffer_size, 1, 1 << 24);
        whole("tokenizer_batch_size", self.tokenizer_batch_size, 1, 1 << 20);
        whole("world_size", self.world_size, 1, 1 << 20);
        whole("rank", self.rank, 0, (self.world_size - 1).clamp(0, 1 << 20));
        whole("n_streams", self.n_streams.unwrap_or(1), 1, 1 << 20);
        whole("shuffle_min_size", self.window(), 0, 1 << 24);
        whole("prefetch_batches", prefetch_batches, 1, 1024);
        whole("raw_channel_size", self.raw_channel_size, 1, 1 << 20);
        whole("raw_channel_bytes", self.raw_channel_bytes, 1, 1 << 40);
        check_stall_warning(self.stall_warning_s, &mut problems);
        let mut one_of = |name: &str, value: &str, names: &[&str]| {
            let found = names.iter().position(|name| *name == value);
            if found.is_none() {
                problems.push(format!("{name} is {value:?}, must be one of {}", names.join(", ")));
            }
            found.unwrap_or_default()
        };
        let crop = [CropRule::Drop, CropRule::Carry][one_of("crop", &self.crop, &["drop", "carry"])];
        let id_type = [DataType::Int64, DataType::Int32, DataType::Uint16]
            [one_of("dtype", &self.dtype, &["int64", "int32", "uint16"])];
        let stride = self
            .stride
            .as_deref()
            .map(|stride| [Stride::File, Stride::Global][one_of("stride", stride, &["file", "global"])]);
        let mut extras = Extras::default();
        for extra in &self.extras {
            let Extras { doc_ids, position_ids, cu_seqlens, documents } = &mut extras;
            let flags = [doc_ids, position_ids, cu_seqlens, documents];
            let names = ["doc_ids", "position_ids", "cu_seqlens", "documents"];
            let which = one_of("an entry of extras", extra, &names);
            flags.into_iter().skip(which).take(1).for_each(|flag| *flag = true);
        }
        if let Some(n) = self.n_streams.filter(|&n| n >= 1 && self.world_size >= 1 && self.batch_size >= 1) {
            let global = self.batch_size.saturating_mul(self.world_size);
            if n % self.world_size != 0 || global % n != 0 {
                problems.push(format!(
                    "n_streams is {n}, must be a multiple of world_size={} and divide the rows of all ranks' batches, {global}",
                    self.world_size
                ));
            }
        }
        if let (DataType::Uint16, Some(n)) = (id_type, n_vocab.filter(|&n| n > 1 << 16)) {
            problems
                .push(format!("dtype is \"uint16\", which holds ids below 65536, but the tokenizer has {n}"));
        }
        let bytes = id_type.bytes() as u64;
        let batch = (self.batch_size.max(0) as u64)
            .saturating_mul(self.seq_len.max(0) as u64)
            .saturating_mul(2 * bytes);
        if batch > MAX_BATCH_BYTES {
            problems.push(format!(
                "batch_size={} and seq_len={} make batches of {} GiB, at most {} are allowed",
                self.batch_size,
                self.seq_len,
                batch >> 30,
                MAX_BATCH_BYTES >> 30
            ));
        }
        let policy = self.policy.check(&mut problems);
        if !problems.is_empty() {
            return Err(Error::new(ErrorKind::Config, problems.join("; ")));
        }
        let end = files.iter().flatten().map(|group| group.end).max();
        let starts = files.iter().flatten().map(|group| group.start).chain(end).collect();
        let groups = Groups::new(files, stride, self.seed.is_some());
        let plan = Plan {
            seed: self.seed.unwrap_or_default(),
            order: Order::Groups,
            mixture: None,
            groups: Some(Arc::new(groups)),
            window: self.window().max(1) as u64,
            batch_size: self.batch_size as usize,
            rank: self.rank as u64,
            world_size: self.world_size as u64,
            n_streams: self.n_streams.map(|n| n as u64),
            infinite: self.infinite,
            drop_last: self.drop_last,
            policy,
            // Enough for the workers to go on while a unit is taken.
            buffer_size: 2 * self.tokenizer_batch_size as u64,
            n_workers: n_workers as usize,
            n_readers: 1,
            channel_size: self.raw_channel_size as usize,
            channel_bytes: self.raw_channel_bytes as usize,
            prefetch_batches: prefetch_batches as usize,
            auto: Auto { workers: auto_workers, prefetch: self.prefetch_batches == Count::Auto },
        };
        let pack = PackPlan {
            seq_len: self.seq_len as usize,
            bos,
            crop,
            buffer_size: self.buffer_size as usize,
            unit: self.tokenizer_batch_size as usize,
            is_mixed: self.window() > 1,
            groups: starts,
            id_type,
            extras,
        };
        Ok((plan, pack))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &TokenConfig) -> Result<(Plan, PackPlan)> {
        config.check(vec![vec![0..10, 10..20]], 7, Some(50_257))
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let config = TokenConfig {
            batch_size: 0,
            seq_len: -1,
            rank: 3,
            crop: "cut".into(),
            dtype: "int8".into(),
            extras: vec!["doc_ids".into(), "mask".into()],
            stride: Some("row".into()),
            ..TokenConfig::default()
        };
        let message = check(&config).unwrap_err().message;
        for part in [
            "batch_size is 0, must be 1",
            "seq_len is -1",
            "rank is 3, must be 0 to 0",
            "crop is \"cut\", must be one of drop, carry",
            "dtype is \"int8\"",
            "extras is \"mask\"",
            "stride is \"row\"",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[test]
    fn ids_must_fit() {
        let config = TokenConfig { dtype: "uint16".into(), ..TokenConfig::default() };
        assert!(check(&config).is_ok());
        let error = config.check(vec![vec![0..10]], 7, Some(100_277)).unwrap_err();
        assert!(error.message.contains("the tokenizer has 100277"), "{error}");
    }

    #[test]
    fn a_seed_mixes() {
        let (plan, pack) = check(&TokenConfig { seed: Some(3), ..TokenConfig::default() }).unwrap();
        assert_eq!((plan.window, plan.seed, pack.is_mixed), (1000, 3, true));
        let (plan, pack) = check(&TokenConfig::default()).unwrap();
        assert_eq!((plan.window, pack.is_mixed), (1, false));
    }
}

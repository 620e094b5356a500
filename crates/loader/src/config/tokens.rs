//! The parameters of a loader of documents.

use std::sync::Arc;

use super::{
    PolicyConfig, TextRows, bound_cpus, prefetched, rank_problem,
    table::{self, check, choices, config_struct, first, identity_word, value},
    workers,
};
use crate::{
    Error, ErrorKind, Result,
    batch::{Extras, LossPlan, MixEnd, PackPlan, SourceMix},
    engine::{Auto, Plan},
    fields::DataType,
    order::{Batching, Groups, Order, Stride},
    pack::{CropRule, LongRule},
};

/// The most bytes of the ids of a batch.
const MAX_BATCH_BYTES: u64 = 8 << 30;

/// Hands the rows of the table of `forebay.TokenLoader` to a macro.
#[macro_export]
#[doc(hidden)]
macro_rules! token_parameters {
    ($with:ident) => {
        $crate::parameter_table! { $with
        /// Parameters of a loader of documents, in the order of its signature.
        #[derive(Debug, Clone, PartialEq)]
        struct TokenConfig as "TokenLoader" {
        /// Files of documents, Parquet, Arrow, JSON lines or text (the last two also as `.gz` or `.zst`): a
        /// file, a folder, a pattern with `*`, `?`, `[...]` or `**`, or a list of these, which keeps its
        /// order; files of folders and patterns are sorted by path, numbers by value. Or a `datasets.Dataset`
        /// with all rows of its Arrow files, which are read. Or an object of `forebay.text`, which also names
        /// the column. A dict of names and these mixes the sources by `weights`.
        parquet_files: TextSources, data, elsewhere(data_files, files, shards, data_dir, path, paths);
        /// A Hugging Face `tokenizer.json` or its folder, a tiktoken rank file (gpt2, r50k_base, p50k_base,
        /// cl100k_base and o200k_base are recognised by name, others need `pattern` and `special_tokens`), a
        /// SentencePiece `.model`, a `Tokenizer`, a `tokenizers.Tokenizer` or a fast tokenizer of
        /// transformers, or a callable from a text to its ids, which needs `bos_id` and is slower, since it
        /// holds the GIL. None: rows are ids (`forebay.text.Ids`), and `bos_id` is given.
        tokenizer: Tokenizer = None, state(tokenizer), elsewhere(encoding, encoder, tokenizer_file, tokenize);
        /// Rows per batch on this rank.
        batch_size: Int = 32, state(global_batch_size), range(1, 1 << 20),
            elsewhere(batchsize, bs, batch, device_batch_size, micro_batch_size, B);
        /// Sequence length: input tokens per row.
        seq_len: Int = 2048, state, range(1, 1 << 24),
            elsewhere(seq_length, sequence_length, max_seq_len, max_length, block_size, context_length, T);
        /// `"train"` or `"val"`. The last file is for validation, unless `val` names the files.
        split: Text = "train", data, one_of("train", "val"), elsewhere(part, subset);
        "*";
        /// Names, paths or patterns of the files for validation. None: the last file.
        val: Names = None, data, elsewhere(val_files, validation, valid, val_split);
        /// Packing buffer: least number of documents that a packer holds before each pick.
        buffer_size: Int = 1000, state, range(1, 1 << 24), elsewhere(shuffle_buffer_size, packing_buffer);
        /// Documents added to the packing buffer per refill.
        tokenizer_batch_size: Int = 128, state, range(1, 1 << 20), elsewhere(tokenize_batch_size);
        /// Tokenizing threads. `"auto"`: as many as the loop needs, at most `cpu_budget`.
        n_workers: CountOrAuto = 4, free, range(1, 1024),
            elsewhere(num_workers, workers, tokenizer_threads, num_threads, n_threads, num_proc, n_jobs);
        /// Rank of this process among those that share each batch, from 0.
        rank: Int = 0, free, elsewhere(shard_id, local_rank, ddp_rank, process_index, process_id, node_rank);
        /// Number of processes that share each batch of `batch_size * world_size` rows.
        world_size: Int = 1, state(global_batch_size), range(1, 1 << 20),
            elsewhere(num_replicas, num_shards, ddp_world_size, process_count, n_ranks, num_processes);
        /// Shuffle seed: row groups are read in a new order each epoch, and documents are shuffled. None:
        /// storage order.
        seed: OptionalSeed = None, state, elsewhere(random_seed, random_state, generator, shuffle);
        /// True: epoch after epoch without end. False: one pass per `iter()`, which ends when the remaining
        /// documents fill no row; ranks may then differ by some batches. A pass without any batch raises
        /// ConfigError; with several ranks it logs a warning.
        infinite: Bool = true, state, elsewhere(repeat, resampled, endless, loop_forever);
        /// Share of each source in a mixture, a number of any unit for each name, 0 to leave it out; a list
        /// of `(batch, dict)` changes the shares at these batches. None: proportional to the sources' numbers
        /// of documents.
        weights: Weights = None, state(weights, source_sizes),
            elsewhere(probabilities, probs, sampling_weights, weights_at);
        /// What `weights` are shares of: `"tokens"`, counted when a document enters the packing buffer, or
        /// `"documents"`. None: tokens if there are weights.
        weights_in: OptionalText = None, state(weights_in), one_of("tokens", "documents"),
            elsewhere(weights_unit, weight_by);
        /// When a packer's finite pass over a mixture ends: `"first_exhausted"` (default; when it needs a
        /// document of a source that has no more) or `"all_exhausted_without_replacement"` (each document
        /// once; the sources that are left go on by their weights); an infinite mixture has `"restart"`.
        stop: OptionalText = None, state(stop),
            one_of("restart", "first_exhausted", "all_exhausted_without_replacement"),
            elsewhere(stopping_strategy, longest);
        /// Name of the column of documents; in JSON lines, points separate the names of nested fields.
        text_column: Text = "text", state, elsewhere(text_field, content_field, text_key, column);
        /// How documents fill rows. `"drop"` crops one to fill the row, and discards its rest; `"carry"`
        /// makes the rest a new document, with its own BOS; `"pad"` crops none that fits a row: the rest of a
        /// row is `pad_id`, and its targets are -100.
        fit: Text = "drop", state(crop), one_of("drop", "carry", "pad"),
            elsewhere(truncation, overflow, truncate, packing, packing_strategy);
        /// With `fit="pad"`, documents of more than `seq_len + 1` tokens: `"skip"` leaves them out, `"cut"`
        /// drops what a row cannot hold, `"split"` fills whole rows with them, each with its own BOS, and
        /// packs the rest like a document.
        on_long: Text = "skip", state(on_long), one_of("skip", "cut", "split"), elsewhere(long_documents);
        /// With `fit="pad"`, the input where a row has no document. None: EOS, or BOS if documents have no
        /// EOS.
        pad_id: OptionalInt = None, state(pad_id), range(0, i32::MAX as i64),
            elsewhere(pad_token_id, padding_idx, pad_token);
        /// Pads each document with `pad_id` to a multiple of this number of inputs, for context parallelism
        /// (twice the number of ranks that share a sequence). Divides `seq_len`. The targets of a document's
        /// last input and of padding are -100. 1: no such padding.
        pad_multiple: Int = 1, state(pad_multiple), range(1, 1 << 24),
            elsewhere(pad_to_multiple_of, divisible_by, document_multiple);
        /// The former name of `fit`.
        crop: OptionalText = None, data, one_of("drop", "carry"), elsewhere(cropping, crop_mode);
        /// Number of packers, each with its own row groups: a multiple of every world size of the run. None:
        /// `world_size`.
        n_streams: OptionalInt = None, data, range(1, 1 << 20), elsewhere(num_streams, n_packers);
        /// Which row groups packer v of V gets: `"file"`: v, v + V, ... of each file; `"global"`: of all
        /// files together; `"balanced"`: each row group goes to the packer with the fewest documents so far,
        /// so that packers differ by at most one row group. None: by file, unless a file has fewer row groups
        /// than there are packers.
        stride: OptionalText = None, state, one_of("file", "global", "balanced"), elsewhere(split_by);
        /// Shuffle window: documents that each draw chooses from, if the rank has one packer; several packers
        /// share them. None: `buffer_size` with a seed, else 0, which keeps their order.
        shuffle_min_size: OptionalInt = None, state(shuffle_min_size), range(0, 1 << 24),
            elsewhere(shuffle_buffer, shuffle_size, sampler);
        /// Drops an incomplete last batch.
        drop_last: Bool = false, state, elsewhere(drop_last_batch, drop_remainder);
        /// Type of inputs and targets: `"int64"`, `"int32"`, or `"uint16"` for at most 65536 ids.
        dtype: Text = "int64", free, one_of("int64", "int32", "uint16"), elsewhere(torch_dtype, output_dtype);
        /// Additional fields of a batch. `"doc_ids"`: int32 `[batch, seq_len]`, number within its row of the
        /// document that an input belongs to. `"position_ids"`: int32 `[batch, seq_len]`, position of the
        /// input in that document. `"cu_seqlens"`: int32 `[n + 1]`, starts of the documents in the
        /// concatenated rows. `"source"`: int32 `[batch, seq_len]`, number of the input's source in a
        /// mixture, -1 for padding. `"documents"`: int64 `[n, 6]`, for each part of a document: row of the
        /// batch, column from 0 to seq_len, shard, row group, row in the shard, and the part's first token in
        /// the document (1: from the beginning).
        extras: Texts = None, free, elsewhere(return_doc_ids, return_position_ids, fields);
        /// With `"cu_seqlens"`, the most documents in a batch: `cu_seqlens` then has `max_documents + 1`
        /// entries in every batch, the last ones repeated (documents without tokens), for compiled graphs. A
        /// batch with more documents raises ConfigError; a loader with a larger number continues from its
        /// state. None: as many entries as the batch has documents, and one.
        max_documents: OptionalInt = None, free, range(1, 1 << 30), elsewhere(max_num_docs, max_num_seqs);
        /// For a rank file that is not recognised by name: the regular expression whose matches are the
        /// pieces of a text.
        pattern: OptionalText = None, state(tokenizer), elsewhere(pat_str, regex, split_pattern);
        /// For a rank file that is not recognised by name: the ids of its special tokens, by text.
        special_tokens: Ids = None, state(tokenizer), elsewhere(added_tokens);
        /// Id of the BOS token, which begins each document. None: the one that the tokenizer's post-processor
        /// puts before a text or the BOS of a SentencePiece model, else that of `<|bos|>`, `<|endoftext|>`,
        /// `<|begin_of_text|>`, `<s>` or `<bos>`.
        bos_id: OptionalInt = None, state(tokenizer), range(0, i32::MAX as i64),
            elsewhere(bos_token_id, bos, bos_token, eot_token);
        /// Id of the EOS token, which ends each document, and takes part in packing like its other tokens.
        /// None: documents have no EOS; a log line says so if the tokenizer's post-processor has one.
        eos_id: OptionalInt = None, state(tokenizer), range(0, i32::MAX as i64),
            elsewhere(eos_token_id, eos, eos_token, eod_token, eod_id, append_eos, add_eos);
        /// Whether the BOS of a document is the target of the last token of the document before it in the
        /// row. False: that target is -100. A document's own EOS is a target in any case.
        loss_across: Bool = true, state(loss_across), elsewhere(cross_document_loss, mask_bos, ignore_bos);
        /// Batches prefetched ahead of the loop.
        prefetch_batches: CountOrAuto = 3, free, range(1, 1024),
            elsewhere(prefetch, prefetch_factor, prefetch_size, num_prefetch);
        /// Upper limit of the documents that wait for the workers.
        raw_channel_size: Int = 256, free, range(1, 1 << 20), elsewhere(read_ahead, prefetch_documents);
        /// Upper limit for `n_workers="auto"`. None: the cores that this process may use.
        cpu_budget: OptionalInt = None, free, range(1, 1024), elsewhere(max_workers, max_cpus);
        /// Upper limit of the bytes of documents that wait for the workers; one document is always admitted.
        raw_channel_bytes: Int = 536_870_912, free, range(1, 1 << 40), elsewhere(read_ahead_bytes);
        /// Folder on a local disk in which what is read by URL is kept, for later epochs and for other
        /// processes that name it, such as the ranks of a node: see docs/remote.md. Batches do not depend on
        /// it. Files of this machine are not copied. None: each epoch reads from the server.
        cache_dir: OptionalPath = None, free, elsewhere(cache_folder, local_cache, download_dir, local_dir);
        /// Upper limit of the bytes in `cache_dir`, of all processes together. What was used least recently
        /// is removed.
        cache_bytes: Int = 107_374_182_400, free, range(16_777_216, 1 << 60),
            elsewhere(cache_size, cache_limit, max_cache_size);
        /// Policy for bad documents: `"skip"` leaves the document out without a substitute, `"raise"` raises
        /// `DecodeError` at its position.
        on_error: OnError = "skip", free, elsewhere(handler, errors, ignore_errors, skip_errors);
        /// Policy for documents that the system fails to read, after retries: `"raise"` raises `OSError` at
        /// the document's position, `"skip"` leaves it out like a bad one.
        on_io_error: OnError = "raise", free, elsewhere(io_errors, read_errors);
        /// Number of different documents that may fail on this rank before `DecodeError` is raised; see
        /// `Loader`. None: no bound.
        max_errors: OptionalMaxErrors = None, free, elsewhere(max_failures, error_limit);
        /// Number of consecutive documents that may fail on this rank before `DecodeError` is raised. None:
        /// no bound.
        max_consecutive_errors: OptionalInt = None, free, elsewhere(max_consecutive_failures);
        /// Rows that are never read, and are left out like bad ones without counting as errors; see `Loader`.
        exclude: Exclude = None, state(exclude), elsewhere(skip_rows, blacklist, exclude_rows, bad_rows);
        /// Added to the niceness of the threads that tokenize, so that the training loop comes first where
        /// all cores are busy: 0 to 19; 0 gives them the same share of the cores. Linux only. Does not affect
        /// batches.
        worker_nice: Int = 10, free, range(0, 19), elsewhere(nice, niceness, priority, thread_priority);
        /// The CPUs that the loader's threads run on, as a list such as `"0-7,16"`: processes of one machine
        /// share its cores out, each near its accelerator. `n_workers="auto"` is at most their number. Linux
        /// only. Does not affect batches. None: all that the process may use.
        cpus: OptionalText = None, free, elsewhere(cpu_affinity, affinity, cpu_set, cpuset);
        /// Seconds after which a waiting `next()` logs a warning that names the thread it waits for, and
        /// again after ten times as long. Does not affect batches. None: never.
        stall_warning_s: OptionalFloat = 30.0, free, above(0), elsewhere(stall_timeout);
        /// Options of stores for URLs, as in `Loader`. Not part of the state.
        storage_options: StoreOptions = None, free, elsewhere(client_kwargs, credentials, fs_options);
        } }
    };
}

crate::token_parameters!(config_struct);

impl TokenConfig {
    /// The shuffle window of each packer: the parameter, or its default.
    pub fn window(&self) -> i64 {
        self.shuffle_min_size.unwrap_or(if self.seed.is_some() { self.buffer_size } else { 0 })
    }

    /// How documents fill rows.
    pub fn fit(&self) -> &str {
        self.crop.as_deref().unwrap_or(&self.fit)
    }

    /// Which targets count.
    fn loss(&self) -> LossPlan {
        LossPlan {
            is_masked: self.parquet_files.rows.iter().any(TextRows::is_masked),
            is_weighted: self.parquet_files.rows.iter().any(TextRows::is_weighted),
            across: self.loss_across,
        }
    }

    /// Whether rows are pairs, each of two rows of a batch.
    pub fn is_paired(&self) -> bool {
        self.parquet_files.rows.iter().any(TextRows::is_paired)
    }

    /// Whether targets may be -100.
    pub fn ignores(&self) -> bool {
        self.loss().ignores() || self.fit() == "pad" || self.pad_multiple > 1
    }

    /// The rows of a batch: of a pair both.
    pub fn batch_rows(&self) -> usize {
        self.batch_size.clamp(0, 1 << 20) as usize * if self.is_paired() { 2 } else { 1 }
    }

    /// What is wrong with the parameters for pairs.
    fn pair_problem(&self) -> Option<String> {
        if !self.is_paired() {
            return None;
        }
        let other = self.parquet_files.rows.iter().position(|rows| !rows.is_paired());
        Some(match other {
            Some(other) => format!(
                "{} has no pairs, and other sources have; mix forebay.text.Pairs with itself only",
                self.parquet_files.name(other)
            ),
            None if self.fit() != "pad" => format!(
                "fit is {:?}, but each document of forebay.text.Pairs has a row of its own, which is padded; pass fit=\"pad\"",
                self.fit()
            ),
            None if self.on_long == "split" => {
                "on_long is \"split\", but forebay.text.Pairs are never split; pass \"cut\" or \"skip\"".to_owned()
            }
            None if self.pad_multiple > 1 => {
                "pad_multiple is for several documents in a row, and forebay.text.Pairs have one; leave it out".to_owned()
            }
            None => return None,
        })
    }

    /// What is wrong with the parameters of `fit` together.
    fn fit_problem(&self) -> Option<String> {
        let usual = Self::default();
        let is_padded = self.fit() == "pad";
        if self.pad_multiple > 1 && self.seq_len % self.pad_multiple != 0 {
            return Some(format!(
                "pad_multiple is {}, must divide seq_len, which is {}",
                self.pad_multiple, self.seq_len
            ));
        }
        if self.pad_multiple > 1 && self.dtype == "uint16" {
            return Some(
                "dtype is \"uint16\", which cannot hold the targets -100 of pad_multiple".to_owned(),
            );
        }
        if self.max_documents.is_some() && !self.extras.iter().any(|extra| extra == "cu_seqlens") {
            return Some(
                "max_documents is for the length of the extra \"cu_seqlens\"; add it to extras".to_owned(),
            );
        }
        if let Some(crop) = self.crop.as_ref().filter(|crop| self.fit != usual.fit && self.fit != **crop) {
            return Some(format!(
                "crop is {crop:?} and fit is {:?}; crop is its former name, leave it out",
                self.fit
            ));
        }
        if is_padded && self.dtype == "uint16" {
            return Some("dtype is \"uint16\", which cannot hold the targets -100 of fit=\"pad\"".to_owned());
        }
        let loss = self.loss();
        if loss.ignores() && self.dtype == "uint16" {
            let why = if loss.is_masked { "tokens that are not trained on" } else { "loss_across=False" };
            return Some(format!("dtype is \"uint16\", which cannot hold the targets -100 of {why}"));
        }
        let inputs = (self.batch_rows() as i64).saturating_mul(self.seq_len);
        if let Some(most) = self.max_documents.filter(|most| *most > inputs) {
            return Some(format!("max_documents is {most}, must be at most {inputs}, the inputs of a batch"));
        }
        let given = match () {
            () if is_padded => return None,
            () if self.on_long != usual.on_long => "on_long",
            () if self.pad_id.is_some() && self.pad_multiple == 1 => "pad_id",
            () => return None,
        };
        Some(format!("{given} is for fit=\"pad\", and fit is {:?}; leave it out", self.fit()))
    }

    /// What becomes of a document that no row has room for.
    fn crop(&self) -> CropRule {
        let long = match &*self.on_long {
            "cut" => LongRule::Cut,
            "split" => LongRule::Split,
            _ => LongRule::Skip,
        };
        match self.fit() {
            "carry" => CropRule::Carry,
            "pad" => CropRule::Pad(long),
            _ => CropRule::Drop,
        }
    }

    /// The outputs besides inputs and targets.
    fn planned_extras(&self, problems: &mut Vec<String>) -> Extras {
        let mut extras = Extras::default();
        for extra in &self.extras {
            match &**extra {
                "doc_ids" => extras.doc_ids = true,
                "position_ids" => extras.position_ids = true,
                "cu_seqlens" => extras.cu_seqlens = true,
                "documents" => extras.documents = true,
                "source" => extras.source = true,
                _ => {
                    let names = ["doc_ids", "position_ids", "cu_seqlens", "documents", "source"];
                    problems.extend(table::one_of("an entry of extras", extra, &names));
                }
            }
        }
        extras
    }

    /// Checks that streams divide the ranks' batches, that ids fit their type, and that batches fit memory.
    fn check_sizes(&self, id_type: DataType, n_vocab: Option<usize>, problems: &mut Vec<String>) {
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
        let batch =
            (self.batch_rows() as u64).saturating_mul(self.seq_len.max(0) as u64).saturating_mul(2 * bytes);
        if batch > MAX_BATCH_BYTES {
            problems.push(format!(
                "batch_size={} and seq_len={} make batches of {} GiB, at most {} are allowed",
                self.batch_size,
                self.seq_len,
                batch >> 30,
                MAX_BATCH_BYTES >> 30
            ));
        }
    }

    /// The plans of a loader over files whose row groups have these rows. `bos` and, if known, the number of
    /// ids are the tokenizer's; its EOS is for the caller to set.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that names every wrong parameter.
    pub fn check(
        &self,
        files: Vec<Vec<std::ops::Range<u64>>>,
        bos: u32,
        n_vocab: Option<usize>,
    ) -> Result<(Plan, PackPlan)> {
        let mut problems = self.problems();
        problems.extend(rank_problem(self.rank, self.world_size));
        let cpus = bound_cpus(self.cpus.as_deref(), &mut problems);
        let (n_workers, auto_workers) =
            workers(self.n_workers, self.cpu_budget, cpus.as_ref(), &mut problems);
        let (prefetch_batches, auto_prefetch) = prefetched(self.prefetch_batches);
        problems.extend(self.pair_problem());
        problems.extend(self.fit_problem());
        self.mix_problems(&mut problems);
        let id_type = match &*self.dtype {
            "int32" => DataType::Int32,
            "uint16" => DataType::Uint16,
            _ => DataType::Int64,
        };
        let stride = self.stride.as_deref().map(|stride| match stride {
            "global" => Stride::Global,
            "balanced" => Stride::Balanced,
            _ => Stride::File,
        });
        let extras = self.planned_extras(&mut problems);
        self.check_sizes(id_type, n_vocab, &mut problems);
        let policy = PolicyConfig {
            on_error: self.on_error.clone(),
            on_io_error: self.on_io_error.clone(),
            max_errors: self.max_errors,
            max_consecutive_errors: self.max_consecutive_errors,
        };
        let policy = policy.check(&mut problems);
        if !problems.is_empty() {
            return Err(Error::new(ErrorKind::Config, problems.join("; ")));
        }
        let end = files.iter().flatten().map(|group| group.end).max();
        let starts = files.iter().flatten().map(|group| group.start).chain(end).collect();
        let groups = Groups::new(files, stride, self.seed.is_some());
        let plan = Plan {
            seed: self.seed.unwrap_or_default(),
            order: Order::Groups,
            groups: Some(Arc::new(groups)),
            window: self.window().max(1) as u64,
            batching: Batching::Collator(self.batch_size as usize),
            rank: self.rank as u64,
            world_size: self.world_size as u64,
            n_streams: self.n_streams.map(|n| n as u64),
            infinite: self.infinite,
            drop_last: self.drop_last,
            policy,
            // Enough for the workers to continue while the packer takes a refill.
            buffer_size: 2 * self.tokenizer_batch_size as u64,
            n_workers: n_workers as usize,
            worker_nice: self.worker_nice as u8,
            cpus,
            channel_size: self.raw_channel_size as usize,
            channel_bytes: self.raw_channel_bytes as usize,
            prefetch_batches: prefetch_batches as usize,
            auto: Auto { workers: auto_workers, prefetch: auto_prefetch },
            ..Plan::default()
        };
        let is_paired = self.is_paired();
        let pack = PackPlan {
            seq_len: self.seq_len as usize,
            bos,
            eos: None,
            crop: self.crop(),
            pad: self.pad_id.map_or(bos, |id| id as u32),
            // Pairs are not chosen by their length.
            buffer_size: if is_paired { 1 } else { self.buffer_size as usize },
            unit: if is_paired { 1 } else { self.tokenizer_batch_size as usize },
            // Units of a mixture have documents of several files.
            is_mixed: self.window() > 1 || self.parquet_files.rows.len() > 1,
            groups: starts,
            id_type,
            extras,
            loss: self.loss(),
            mix: SourceMix::one(),
            max_documents: self.max_documents.map(|most| most as usize),
            pad_multiple: self.pad_multiple as usize,
            is_paired,
        };
        Ok((plan, pack))
    }

    /// What is wrong with the parameters of a mixture.
    fn mix_problems(&self, problems: &mut Vec<String>) {
        let Some(names) = &self.parquet_files.names else {
            let given = [
                ("weights", !self.weights.0.is_empty()),
                ("weights_in", self.weights_in.is_some()),
                ("stop", self.stop.is_some()),
            ];
            for (name, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
                problems.push(format!("{name} is given, but parquet_files is no dict of sources to mix"));
            }
            return;
        };
        if names.is_empty() {
            problems.push("parquet_files is an empty dict, must name at least one source".to_owned());
        }
        if self.weights_in.as_deref() == Some("tokens") && self.weights.0.is_empty() {
            problems.push(
                "weights_in is \"tokens\", but there are no weights; without them shares are the numbers of documents"
                    .to_owned(),
            );
        }
        match (self.stop.as_deref(), self.infinite) {
            (Some("restart"), false) => {
                problems.push("stop is \"restart\", which never ends; give infinite=True as well".to_owned());
            }
            (Some(stop), true) if stop != "restart" => problems
                .push(format!("stop is {stop:?}, which ends; give infinite=False as well, or \"restart\"")),
            _ => {}
        }
        let mut before = None;
        for (batch, weights) in self.weights.of(names, problems) {
            match before.replace(batch) {
                None if batch != 0 => {
                    problems.push(format!("the first weights begin at batch {batch}, must begin at batch 0"));
                }
                Some(before) if batch <= before => problems.push(format!(
                    "weights from batch {batch} follow those from batch {before}: the batches must increase"
                )),
                _ => {}
            }
            let is_weight = |weight: &f64| *weight >= 0.0 && weight.is_finite();
            for (name, weight) in names.iter().zip(&weights).filter(|(_, weight)| !is_weight(weight)) {
                problems.push(format!(
                    "the weight of {name:?} from batch {batch} on is {weight}, must be a finite number of at least 0"
                ));
            }
            if !weights.is_empty() && weights.iter().all(|weight| *weight == 0.0) {
                problems.push(format!(
                    "all weights from batch {batch} on are 0; at least one source must have a positive weight"
                ));
            }
        }
    }

    /// How the sources are mixed, whose first rows are `starts`, with the number of all rows at the end.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a source with a positive weight has no rows.
    pub fn mix(&self, starts: &[u64]) -> Result<SourceMix> {
        let Some(names) = &self.parquet_files.names else { return Ok(SourceMix::one()) };
        let sizes: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mut stages: Vec<(u64, Vec<f64>)> = self
            .weights
            .of(names, &mut Vec::new())
            .into_iter()
            .map(|(batch, weights)| (batch.max(0) as u64, weights))
            .collect();
        if stages.is_empty() {
            stages.push((0, sizes.iter().map(|&size| size as f64).collect()));
        }
        // The dealing of row groups finds a source without rows.
        if let Some((name, _)) = names.iter().zip(&sizes).find(|(_, size)| **size == 0) {
            let message =
                format!("the source {name:?} has no documents; leave it out of parquet_files and weights");
            return Err(Error::new(ErrorKind::Config, message));
        }
        Ok(SourceMix {
            names: names.iter().map(|name| name.to_string()).collect(),
            starts: starts.into(),
            stages,
            in_tokens: !self.weights.0.is_empty() && self.weights_in.as_deref() != Some("documents"),
            end: match self.stop.as_deref() {
                Some("all_exhausted_without_replacement") => MixEnd::AllExhausted,
                _ => MixEnd::FirstExhausted,
            },
        })
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
            fit: "cut".into(),
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
            "fit is \"cut\", must be \"drop\", \"carry\" or \"pad\"",
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
    fn parameters_of_fit() {
        let pad = TokenConfig { fit: "pad".into(), on_long: "split".into(), ..TokenConfig::default() };
        let (_, pack) = check(&pad).unwrap();
        assert_eq!((pack.crop, pack.pad), (CropRule::Pad(LongRule::Split), 7));
        let (_, pack) = check(&TokenConfig { pad_id: Some(3), ..pad.clone() }).unwrap();
        assert_eq!(pack.pad, 3);
        let (_, pack) = check(&TokenConfig { crop: Some("carry".into()), ..TokenConfig::default() }).unwrap();
        assert_eq!(pack.crop, CropRule::Carry);
        for (config, part) in [
            (TokenConfig { dtype: "uint16".into(), ..pad.clone() }, "cannot hold the targets -100"),
            (TokenConfig { crop: Some("carry".into()), ..pad.clone() }, "crop is its former name"),
            (
                TokenConfig { fit: "carry".into(), ..pad.clone() },
                "on_long is for fit=\"pad\", and fit is \"carry\"",
            ),
            (TokenConfig { pad_id: Some(3), ..TokenConfig::default() }, "pad_id is for fit=\"pad\""),
            (
                TokenConfig { loss_across: false, dtype: "uint16".into(), ..TokenConfig::default() },
                "cannot hold the targets -100 of loss_across=False",
            ),
        ] {
            let message = check(&config).unwrap_err().message;
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn a_seed_mixes() {
        let (plan, pack) = check(&TokenConfig { seed: Some(3), ..TokenConfig::default() }).unwrap();
        assert_eq!((plan.window, plan.seed, pack.is_mixed), (1000, 3, true));
        let (plan, pack) = check(&TokenConfig::default()).unwrap();
        assert_eq!((plan.window, pack.is_mixed), (1, false));
    }
}

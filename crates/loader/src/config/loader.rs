//! The table of the parameters of a loader of recordings: see [`table`](super::table).

/// Hands the rows to a macro.
#[macro_export]
#[doc(hidden)]
macro_rules! loader_parameters {
    ($with:ident) => {
        $crate::parameter_table! { $with
        /// Parameters of a loader of recordings, in the order of its signature. The default is `train`.
        #[derive(Debug, Clone, PartialEq)]
        struct LoaderConfig as "Loader" {
        /// Shards: a file, a folder, a pattern with `*`, `?`, `[...]` or `**`, or a list of these, which
        /// keeps its order; files of folders and patterns are sorted by path, numbers by value. Arrow IPC
        /// streams (Hugging Face `datasets` shards) or files, or Parquet files, whose names end in
        /// `.parquet`; all of one kind. Or a folder written by `save_to_disk`, or a `datasets.Dataset`, whose
        /// files are read: all of their rows, by their own column names. Or recordings in files of their own:
        /// a folder of them, a table (`.csv`, `.tsv`, `.jsonl`, a `forebay.Manifest`), a tar, or their paths.
        /// A dict names sources that are mixed by `weights`.
        arrow_files: Sources, data, elsewhere(data_files, files, shards, urls, path, paths);
        /// Seed of all random decisions, 0 to `2**64 - 1`.
        seed: Seed = 0, state, elsewhere(random_seed, random_state, generator);
        /// Examples per batch; the last batch of a finite pass may be shorter.
        batch_size: Int = 64, state(global_batch_size), range(1, 1 << 20), elsewhere(batchsize, bs, batch);
        /// Decoded examples held at most; affects memory and speed, never batches. Fewer are held while they
        /// are enough. Each takes `4 * n_mels * n_frames` bytes, half of that with a 16-bit `dtype`.
        shuffle_buffer_size: Int = 10_000, free, range(1, 1 << 40), eval(1000),
            elsewhere(buffer_size, shuffle_buffer, bufsize, initial_fill);
        /// Shuffle window of the order `"window"`: number of examples that each draw chooses from; a larger
        /// window shuffles better, 0 keeps the reading order. The default `order` depends on it, too.
        shuffle_min_size: Int = 8000, state(shuffle_min_size), range(0, 1 << 30), eval(0),
            elsewhere(shuffle, shuffle_size, random_shuffle, min_buffer_size, initial);
        /// Sample rate of the clips in Hz; recordings are resampled to it.
        sample_rate: Int = 32_000, state, range(1, 768_000),
            elsewhere(sr, sampling_rate, samplerate, rate, fs, orig_freq, new_freq);
        /// Length of the clips; longer recordings are cropped, shorter ones padded with zeros.
        clip_seconds: Float = 5.0, state, above(0, 3600),
            elsewhere(duration, clip_duration, clip_length, chunk_length_s, segment_seconds, max_length);
        /// Number of mel bands.
        n_mels: Int = 128, state, range(1, 4096),
            elsewhere(num_mels, num_mel_bins, nfilter, feature_size, mel_bins);
        /// FFT size in samples.
        n_fft: Int = 1024, state, range(2, 65_536), elsewhere(nfft, fft_size, fft_length, window_size);
        /// Samples between frames.
        hop_length: Int = 320, state, range(1, 1 << 20),
            elsewhere(hop, hop_size, hopsize, frame_shift, window_step, stride);
        /// Decoding threads; threads beyond the number of cores stay parked while all cores are busy.
        /// `"auto"`: as many as raise throughput, at most `cpu_budget`. The loader then begins with two,
        /// wakes more while `next()` waits for them and cores are free, and parks some while batches pile up.
        n_workers: CountOrAuto = 8, free, range(1, 1024), eval(4),
            elsewhere(num_workers, workers, worker_count, num_threads, n_threads, num_proc, n_jobs);
        /// Upper limit of the number of records that were read ahead and wait for a worker.
        raw_channel_size: Int = 256, free, range(1, 1 << 20), elsewhere(read_ahead, prefetch_records);
        /// True: epoch after epoch without end, bad records replaced. False: one pass per `iter()`, bad
        /// records left out. A batch in which all records are bad is left out too. With several ranks it is
        /// returned without rows, since all ranks must take the same number of steps.
        infinite: Bool = true, state, eval(false), elsewhere(repeat, resampled, endless, loop_forever);
        /// True: random crops (short recordings are padded with zeros at the end). False: center crops (zeros
        /// on both sides). A list of objects of `forebay.augment`, such as `[Gain(db=(-6, 6), p=0.5)]`:
        /// random crops, and these steps in their order.
        augment: Augment = true, state(augment), eval(false),
            elsewhere(random_crop, train, training, augmentation, augmentations);
        "*";
        /// What a model takes of each clip: an object of `forebay.features`, or the name of a preset, such as
        /// `"whisper"`. The field of a batch is `spectrogram`, or `waveform` for a `Waveform`. The object has
        /// the parameters `sample_rate`, `n_mels`, `n_fft`, `hop_length`, `dtype`, `layout` and `n_frames`,
        /// which may then not be given as well. None: a `LogMel` with these parameters.
        features: Features = None, state(features),
            elsewhere(transform, transforms, feature_extractor, extractor, frontend, front_end, preset);
        /// What a loss function takes of each row: a dict of field names and objects of `forebay.targets`,
        /// such as `{"label": MultiHot("labels")}`; an object alone is the field `label`. None: the
        /// field `label` with the values of the column `label_column`.
        targets: Targets = None, state(targets),
            elsewhere(target_transform, target_columns, labels, multilabel);
        /// Columns that batches have as they are: numbers as arrays, text as a list of str, lists of one
        /// length in the schema as 2-D arrays, other lists as `JaggedArray` (of text: a list of lists). A
        /// point separates the names of fields within a struct. A null is NaN, -1, empty text or an empty
        /// list. Not part of the state.
        columns: Texts = None, free, elsewhere(metadata_columns, keep_columns, passthrough);
        /// Number of rows: a random part of the rows, the same in every epoch and for every `seed`. None:
        /// all.
        n_samples: OptionalInt = None, state(subset), range(1, 1 << 40),
            elsewhere(num_samples, max_samples, limit, take);
        /// Which rows are read, and how often each comes: an object of `forebay.sampling`, such as
        /// `Balanced("label")` or `Where("quality", minimum=3)`. None: all rows, once.
        sampling: Sampling = None, state(subset), elsewhere(subset, indices);
        /// The place of a clip in its recording: an object of `forebay.crops`, such as `Windows(step=2.5)`,
        /// which makes each window of each recording an example. None: `Random()` with `augment=True`,
        /// `Center()` with `augment=False`.
        crop: Crop = None, state(crop), elsewhere(windows, cropping, crop_mode, clip_selector);
        /// Which examples become a batch: an object of `forebay.batching`, such as
        /// `Buckets(max_duration=400.0)`, which puts recordings of about the same length together, with
        /// `crop=Whole()`. None: `batch_size` examples each.
        batching: Batching = None, state(batching), elsewhere(batch_sampler, bucketing, batch_duration);
        /// `"sequential"` (files and rows as given), `"window"` (shards in a new order each epoch, mixed
        /// within `shuffle_min_size`), `"global"` (a new permutation of all rows each epoch; one read per
        /// row) or `"era"` (the same within each `era_length` rows). None: sequential if finite with
        /// `shuffle_min_size=0`; else global for a mixture, for recordings in local files (a folder, list,
        /// table or tar), and for at most `shuffle_min_size` rows that are read one by one (no Parquet, no
        /// compressed shards); else window. `print(loader)` shows the choice and its reason.
        order: OptionalText = None, state(order), one_of("sequential", "window", "global", "era"),
            elsewhere(shuffle, sampler, shuffle_mode);
        /// Rank of this process among those that share each batch, from 0.
        rank: Int = 0, free, elsewhere(shard_id, local_rank, process_index, process_id, node_rank);
        /// Number of processes that share each batch of `batch_size * world_size` rows. Their parts,
        /// concatenated, are the batch that one process would have made (`"window"`: from the same state,
        /// with `n_streams` set at the first start).
        world_size: Int = 1, state(global_batch_size), range(1, 1 << 20),
            elsewhere(num_replicas, num_shards, process_count, n_ranks, num_processes);
        /// Number of streams of the order `"window"`, which is then the default, or of `Buckets()`: a
        /// multiple of every world size of the run. None: `world_size`.
        n_streams: OptionalInt = None, data, range(1, 1 << 20), elsewhere(num_streams);
        /// Drops an incomplete last batch.
        drop_last: Bool = false, state(drop_last),
            elsewhere(drop_last_batch, drop_remainder, partial, last_batch_policy);
        /// Number of rows in an era, for `order="era"`.
        era_length: Int = 8192, state(era_length), range(1, 1 << 40), elsewhere(era_size);
        /// Share of each source in a mixture; a list of `(batch, dict)` changes the shares at these batches.
        /// None: proportional to the sizes of the sources.
        weights: Weights = None, state(weights, source_sizes),
            elsewhere(probabilities, probs, sampling_weights);
        /// Number of consecutive examples in which the weights hold exactly. None: `batch_size * world_size`;
        /// with `batching` 64, and a list of `weights` counts batches of 64 examples.
        mixture_block: OptionalInt = None, state(mixture_block), range(1, Mixture::MAX_BLOCK as i64),
            elsewhere(block_size);
        /// When a finite mixture stops: `"first_exhausted"` (default; when one source is exhausted) or
        /// `"all_exhausted"`; an infinite mixture has `"restart"`.
        stop: OptionalText = None, state(stop), one_of("restart", "first_exhausted", "all_exhausted"),
            elsewhere(stopping_strategy, longest);
        /// Number of I/O threads, each with one read in flight: a single record in the orders `"global"` and
        /// `"era"` and at the start, else a block of about 3 MiB, at most 16 blocks ahead; 1 disables
        /// read-ahead. Waiting threads cost little. By URL there are twice as many in `"global"` and `"era"`.
        n_readers: Int = 32, free, range(1, MOST_READERS as i64),
            elsewhere(num_readers, io_threads, reader_threads);
        /// Batches prefetched ahead of the loop; affects memory and speed, never batches. `"auto"`: 2 to 8,
        /// raised by half when `next()` sometimes waits and batches sometimes pile up.
        prefetch_batches: CountOrAuto = 3, free, range(1, 1024),
            elsewhere(prefetch, prefetch_factor, prefetch_queue_depth, prefetch_size, num_prefetch);
        /// Upper limit for `n_workers="auto"`. None: the cores that this process may use.
        cpu_budget: OptionalInt = None, free, range(1, 1024), elsewhere(max_workers, max_cpus);
        /// Upper limit of the bytes that the loader may hold. A configuration that may hold more raises
        /// ConfigError, which lists all parts. `"auto"` numbers and `raw_channel_bytes=None` are chosen to
        /// fit. None: no limit.
        memory_budget: OptionalInt = None, free, range(1, 1 << 60),
            elsewhere(max_memory, memory_limit, max_bytes);
        /// Upper limit of the bytes of records that wait for a worker; a record above 4 MiB counts from
        /// before its read until a worker has processed it. One record of any size is always admitted. None:
        /// 512 MiB, or less within a `memory_budget`.
        raw_channel_bytes: OptionalInt = None, free, range(1, 1 << 40), elsewhere(read_ahead_bytes);
        /// Upper limit of a record's bytes: a larger one is a bad record (`too_large`), and its bytes are not
        /// read.
        max_record_bytes: Int = 1_073_741_824, state, elsewhere(max_file_size);
        /// Upper limit of a recording's seconds: a longer one is a bad record (`too_large`), and its samples
        /// are not decoded.
        max_decoded_seconds: Float = 86400.0, state;
        /// What becomes of frames or packets of a recording that cannot be decoded. `"silence"`: zeros, as in
        /// players, up to `max_damage` of a clip. `"error"`: a clip with one is a bad record (`corrupt`).
        damage: Text = "silence", state, one_of("error", "silence"), elsewhere(on_damage, conceal, error_concealment);
        /// The largest share of a clip that may be silence in place of damaged frames. A clip with more is a
        /// bad record (`corrupt`), and so is one that is nothing else.
        max_damage: Float = 0.1, state(max_damage), above(0, 1), elsewhere(max_silence, damage_limit);
        /// Type of the spectrograms: `"float32"`, `"float16"` or `"bfloat16"`; the last two are rounded to
        /// nearest even and take half the memory. Values are between -23.03 (the floor) and about 20, so
        /// float16 is within 0.008 of float32 and bfloat16 within 0.063. numpy has no bfloat16, so its bits
        /// are returned as uint16. `forebay.torch` and `forebay.jax` convert them; otherwise
        /// `torch.from_numpy(a).view(torch.bfloat16)` or `a.view(ml_dtypes.bfloat16)` reinterpret the same
        /// memory.
        dtype: Text = "float32", state, one_of("float32", "float16", "bfloat16"),
            elsewhere(precision, torch_dtype, output_dtype);
        /// Axis order of the spectrograms: `"mel"` is `[batch, n_mels, n_frames]`, `"time"` is
        /// `[batch, n_frames, n_mels]`.
        layout: Text = "mel", state, one_of("mel", "time"), elsewhere(time_first, data_format, transpose);
        /// Number of frames of each spectrogram: longer clips are cut at the end, shorter ones padded with
        /// silence, log(1e-10). None: `1 + clip_samples // hop_length` (odd `n_fft`:
        /// `1 + (clip_samples - 1) // hop_length`).
        n_frames: OptionalInt = None, state(n_frames), range(1, 1 << 24),
            elsewhere(num_frames, target_length, nb_max_frames);
        /// Several recordings of a row: a dict of names of fields and columns, such as `{"noisy":
        /// "noisy_path", "clean": "clean_path"}`, or `{"stems": ["vocals", "drums"]}`, whose field has an
        /// axis for them after that of the batch. All are cut at the same samples; the first one named
        /// decides where. A batch has these fields instead of `spectrogram` or `waveform`. None: one
        /// recording.
        audio: Waveforms = None, state(audio), elsewhere(stems, audio_columns, waveforms);
        /// What becomes of a row without one of the recordings in `audio`, where its column is null:
        /// `"error"`, it is a bad record (`unreadable`); `"zeros"`, zeros are in its place, and the field
        /// `audio_mask`, uint8 `[batch, recordings]`, is 0 there and 1 elsewhere, in the order of `audio`.
        /// The first recording named, which decides where clips are, must be there.
        missing_audio: Text = "error", state(missing_audio), one_of("error", "zeros"),
            elsewhere(missing_stems, fill_missing);
        /// Names in `audio` whose recordings are not cut where the first one is, but at a random place, or
        /// wherever `crop=` says; they may have any length. A list, or a dict of names and columns: with
        /// `{"enrolment": "speaker"}` the recording of another row with an equal `speaker` is taken, or the
        /// row's own if there is none, and `partner_index`, int64 `[batch, recordings]`, tells which row each
        /// recording is from. These names come last in `audio`.
        independent: Independent = None, state(independent), elsewhere(enrolment, reference, unaligned);
        /// Name of the column of recordings, or of their paths; of samples whose rate no column has, with the
        /// rate: `"samples@16000"`. None: the schema's Audio feature, else `audio`; in a table `path`,
        /// `file_name`, `audio` or the like.
        audio_column: OptionalText = None, state, elsewhere(audio_key, audio_field);
        /// Number of the audio track of a recording, counted from 0 among the audio tracks of its file, in
        /// order: MP4, Matroska and WebM may have several. With `audio=`, also a dict of its names, as in
        /// `{"mixture": 0, "vocals": 4}`, with a list for a list of columns; names left out have None. A
        /// recording without this track is a bad record (`unsupported`). None: the first, or the one that the
        /// file marks as its default.
        track: Tracks = None, state(track), elsewhere(track_index, audio_track, stream, stream_index);
        /// Name of the column of labels. None: `label`, `labels`, or the only ClassLabel feature, if there is
        /// one. Empty: batches have no labels.
        label_column: OptionalText = None, state,
            elsewhere(label, label_key, target, target_column, label_names);
        /// Maps the files into memory, so that records are not copied: for local disks. A file that is
        /// truncated while it is mapped may end the process (SIGBUS); replacing it by a rename is safe.
        /// Compressed shards are still read, not mapped.
        mmap: Bool = false, free, elsewhere(memory_map, dont_use_mmap, use_mmap);
        /// Files that may be read for rows with a path instead of bytes. None or False: files below the
        /// folder of the row's shard. One or more folders: also files below these, such as the download cache
        /// from which a dataset was made. True: any file that this process may open, for trusted shards.
        /// Symbolic links and `..` are resolved first. A row with another path is a bad record
        /// (`unreadable`). Not part of the state, since folders have other names on another machine.
        allow_paths: Folders = None, free, elsewhere(allow_path);
        /// Options of stores for URLs, as `{"aws_region": "eu-west-1"}`: text by the names of the clouds'
        /// tools, which docs/remote.md lists. They override the environment. Secrets among them are in no
        /// message, state or pickle. Not part of the state.
        storage_options: StoreOptions = None, free, elsewhere(client_kwargs, credentials, fs_options);
        /// Folder on a local disk in which what is read by URL is kept, for later epochs and for other
        /// processes that name it, such as the ranks of a node: see docs/remote.md. Batches do not depend on
        /// it. Files of this machine are not copied. None: each epoch reads from the server.
        cache_dir: OptionalPath = None, free, elsewhere(cache_folder, local_cache, download_dir, local_dir);
        /// Upper limit of the bytes in `cache_dir`, of all processes together. What was used least recently
        /// is removed.
        cache_bytes: Int = 107_374_182_400, free, range(16_777_216, 1 << 60),
            elsewhere(cache_size, cache_limit, max_cache_size);
        /// Policy for bad records: `"skip"` leaves the record out (finite) or replaces it by another row
        /// (infinite), and counts, lists and logs it; `"raise"` raises `DecodeError` at its position.
        on_error: OnError = "skip", free, elsewhere(handler, errors, ignore_errors, skip_errors);
        /// Policy for records that the system fails to read, after retries: `"raise"` raises `OSError` at the
        /// record's position; `"skip"` handles it like a bad record, and the state lists the lost records.
        on_io_error: OnError = "raise", free, elsewhere(io_errors, read_errors);
        /// Limit of the number of different records that fail on this rank, as a number or as a share of all
        /// records (a float between 0 and 1); more raise `DecodeError`. None: no bound.
        max_errors: OptionalMaxErrors = None, free, elsewhere(max_failures, error_limit);
        /// Limit of the number of consecutive positions of this rank whose records fail; more raise
        /// `DecodeError`. None: no bound.
        max_consecutive_errors: OptionalInt = None, free, elsewhere(max_consecutive_failures);
        /// Rows that are never read, and are left out or replaced like bad ones without counting as errors:
        /// the path of a report by `forebay check`, or row numbers over all files. Other rows keep their
        /// positions. For few rows only: each position in an infinite stream has 16 substitutes.
        exclude: Exclude = None, state(exclude), elsewhere(skip_rows, blacklist, exclude_rows, bad_rows);
        /// Additional fields of a batch: any of `"path"`, `"start"`, `"valid_samples"`, `"valid_frames"`,
        /// `"shard"`, `"row"`, `"window"`, `"augment_bits"`, `"slot"`, `"audio_valid_samples"` and
        /// `"audio_valid_frames"`, and the draws of `augment`.
        /// `"path"`: list of str, the recording's path in its row; empty if there is none, if it is not
        /// UTF-8, or above 4096 bytes. `"start"`: float64 `[batch]`, start of the clip in its recording, in
        /// seconds; below 0 if zeros precede it. `"valid_samples"`: int64 `[batch]`, samples at
        /// `sample_rate` that are not padding. `"valid_frames"`: int64 `[batch]`, frames of these samples.
        /// `"shard"` and `"row"`: int64 `[batch]`, number of the shard and row within it. `"window"`: int64
        /// `[batch]`, number of the window in its recording. `"augment_bits"`: int64 `[batch]`, the random
        /// bits of the clip, from which steps of augmentation draw, for `forebay.torch.Augment`. `"slot"`:
        /// int64 `[batch]`, the place of the example in the batch as it was drawn; above its row number
        /// where a finite pass leaves out bad records before it. `"audio_valid_samples"` and
        /// `"audio_valid_frames"`: int64 `[batch, recordings]`, the valid samples and frames of each
        /// recording, in the order of `audio`; 0 for one that is missing. Draws of `augment`, float64
        /// `[batch]` (`"mix_index"` and `"reverb_index"` int64): see docs/augmentation.md. Not part of the
        /// state.
        outputs: Texts = None, free, elsewhere(return_fields, extra_fields, extras, keys, return_keys);
        /// Added to the niceness of the threads that decode, so that the training loop comes first where all
        /// cores are busy: 0 to 19; 0 gives them the same share of the cores. Linux only. Does not affect
        /// batches.
        worker_nice: Int = 10, free, range(0, 19), elsewhere(nice, niceness, priority, thread_priority);
        /// The CPUs that the loader's threads run on, as a list such as `"0-7,16"`: processes of one machine
        /// share its cores out, each near its accelerator. `n_workers="auto"` is at most their number. Linux
        /// only. Does not affect batches. None: all that the process may use.
        cpus: OptionalText = None, free, elsewhere(cpu_affinity, affinity, cpu_set, cpuset);
        /// Seconds after which a waiting `next()` logs a warning that names the thread it waits for, and
        /// again after ten times as long. Does not affect batches. None: never.
        stall_warning_s: OptionalFloat = 30.0, free, above(0), elsewhere(stall_timeout);
        } }
    };
}

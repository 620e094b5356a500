//! The parameters of random access to recordings.

use super::{
    LoaderConfig, MOST_WORKERS,
    table::{check, choices, config_struct, first, identity_word, value},
};
use crate::{Error, ErrorKind, Result, engine::cores, tasks::AudioPlan};

/// Hands the rows of the table of `forebay.AudioDataset` to a macro.
#[macro_export]
#[doc(hidden)]
macro_rules! access_parameters {
    ($with:ident) => {
        $crate::parameter_table! { $with
        /// Parameters of a dataset of recordings, in the order of its signature.
        #[derive(Debug, Clone, PartialEq)]
        struct AccessConfig as "AudioDataset" {
        /// The recordings, as a `Loader` takes them: files, folders, patterns, a `datasets.Dataset`, or a
        /// dict of names and these. Rows are counted over all of them, in the order given.
        source: Sources, data,
            elsewhere(arrow_files, dataset, data_files, files, shards, urls, path, paths, data_source);
        "*";
        /// What a model takes of each clip: an object of `forebay.features`, or the name of a preset, such as
        /// `"whisper"`. None: a `LogMel` with the parameters `sample_rate`, `n_mels`, `n_fft`, `hop_length`,
        /// `dtype`, `layout` and `n_frames`, which may not be given beside an object.
        features: Features = None, free,
            elsewhere(transform, transforms, feature_extractor, extractor, frontend, front_end, preset);
        /// Length of the clips; longer recordings are cropped, shorter ones padded with zeros.
        clip_seconds: Float = 5.0, free, above(0, 3600),
            elsewhere(duration, clip_duration, clip_length, chunk_length_s, segment_seconds, max_length);
        /// The place of a clip in its recording: an object of `forebay.crops`. `Random()` depends on `seed`
        /// and row alone: it is the crop of a `Loader` with this seed in its epoch 0. With `Windows()` each
        /// window of each recording is a row. None: `Center()`.
        crop: Crop = None, free, elsewhere(augment, random_crop, windows, crop_mode);
        /// What a loss function takes of each row: a dict of field names and objects of `forebay.targets`; an
        /// object alone is the field `label`. None: the field `label` with the values of `label_column`.
        targets: Targets = None, free, elsewhere(target_transform, target_columns, labels, multilabel);
        /// Columns that rows have as they are, under their own names. A point separates the names of fields
        /// within a struct.
        columns: Texts = None, free, elsewhere(metadata_columns, keep_columns, passthrough);
        /// Additional fields: any of `"path"`, `"start"`, `"valid_samples"`, `"valid_frames"`, `"shard"`,
        /// `"row"`, `"window"`, `"augment_bits"` (0 for clips whose start is given), `"slot"`, the place in
        /// the batch, and `"audio_valid_samples"` and `"audio_valid_frames"`, the valid samples and frames
        /// of each recording in `audio`.
        outputs: Texts = None, free, elsewhere(return_fields, extra_fields, extras, keys, return_keys);
        /// Threads that read and decode. None: as many as cores. More hide the latency of a slow file system.
        n_threads: OptionalInt = None, free, range(1, 1024),
            elsewhere(num_threads, n_workers, num_workers, workers, num_proc, n_jobs, n_readers);
        /// Seed of random crops, 0 to `2**64 - 1`.
        seed: Seed = 0, free, elsewhere(random_seed, random_state, generator);
        /// Sample rate of the clips in Hz; recordings are resampled to it.
        sample_rate: Int = 32_000, free, range(1, 768_000),
            elsewhere(sr, sampling_rate, samplerate, rate, fs, orig_freq, new_freq);
        /// Number of mel bands.
        n_mels: Int = 128, free, range(1, 4096),
            elsewhere(num_mels, num_mel_bins, nfilter, feature_size, mel_bins);
        /// FFT size in samples.
        n_fft: Int = 1024, free, range(2, 65_536), elsewhere(nfft, fft_size, fft_length, window_size);
        /// Samples between frames.
        hop_length: Int = 320, free, range(1, 1 << 20),
            elsewhere(hop, hop_size, hopsize, frame_shift, window_step, stride);
        /// Type of the spectrograms: `"float32"`, `"float16"` or `"bfloat16"`, whose bits are uint16.
        dtype: Text = "float32", free, one_of("float32", "float16", "bfloat16"),
            elsewhere(precision, torch_dtype, output_dtype);
        /// Axis order of the spectrograms: `"mel"` is `[n_mels, n_frames]`, `"time"` is `[n_frames, n_mels]`.
        layout: Text = "mel", free, one_of("mel", "time"), elsewhere(time_first, data_format, transpose);
        /// Number of frames of each spectrogram: longer clips are cut at the end, shorter ones padded with
        /// silence. None: as many as the clip has.
        n_frames: OptionalInt = None, free, range(1, 1 << 24),
            elsewhere(num_frames, target_length, nb_max_frames);
        /// Number of rows: a random part of the rows, as of a `Loader`. None: all.
        n_samples: OptionalInt = None, free, range(1, 1 << 40),
            elsewhere(num_samples, max_samples, limit, take);
        /// Which rows there are: an object of `forebay.sampling`, such as `Subset([3, 5, 17])`. They are
        /// numbered from 0; the field `index` has the row over all files. None: all.
        sampling: Sampling = None, free, elsewhere(subset, indices);
        /// Several recordings of a row: a dict of names of fields and columns, such as
        /// `{"noisy": "noisy_path", "clean": "clean_path"}`, or `{"stems": ["vocals", "drums"]}`, whose field
        /// has an axis for them after that of the batch. All are cut at the same samples; the first one named
        /// decides where. A row has these fields instead of `spectrogram` or `waveform`. None: one recording.
        audio: Waveforms = None, free, elsewhere(stems, audio_columns, waveforms);
        /// What becomes of a row without one of the recordings in `audio`, where its column is null:
        /// `"error"` raises `DecodeError`; `"zeros"`, zeros are in its place, and the field `audio_mask`,
        /// uint8 `[batch, recordings]`, is 0 there and 1 elsewhere, in the order of `audio`. The first
        /// recording named must be there.
        missing_audio: Text = "error", free, one_of("error", "zeros"),
            elsewhere(missing_stems, fill_missing);
        /// Names in `audio` whose recordings are not cut where the first one is, but at a random place, or
        /// wherever `crop=` says; they may have any length. A list, or a dict of names and columns: with
        /// `{"enrolment": "speaker"}` the recording of another row with an equal `speaker` is taken, or the
        /// row's own if there is none, and `partner_index`, int64 `[batch, recordings]`, tells which row each
        /// recording is from. These names come last in `audio`.
        independent: Independent = None, free, elsewhere(enrolment, reference, unaligned);
        /// Name of the column of recordings, or of their paths. None: the schema's Audio feature, else
        /// `audio`; in a table `path`, `file_name`, `audio` or the like.
        audio_column: OptionalText = None, free, elsewhere(audio_key, audio_field);
        /// Number of the audio track of a recording, counted from 0 among the audio tracks of its file, in
        /// order: MP4, Matroska and WebM may have several. With `audio=`, also a dict of its names, as in
        /// `{"mixture": 0, "vocals": 4}`, with a list for a list of columns; names left out have None. A
        /// recording without this track raises `DecodeError`. None: the first, or the one that the
        /// file marks as its default.
        track: Tracks = None, free, elsewhere(track_index, audio_track, stream, stream_index);
        /// Name of the column of labels. None: `label`, `labels`, or the only ClassLabel feature, if there is
        /// one. Empty: rows have no labels.
        label_column: OptionalText = None, free,
            elsewhere(label, label_key, target, target_column, label_names);
        /// Upper limit of a record's bytes; a row with a larger one raises `DecodeError`.
        max_record_bytes: Int = 1_073_741_824, free, elsewhere(max_file_size);
        /// Upper limit of a recording's seconds; a row with a longer one raises `DecodeError`.
        max_decoded_seconds: Float = 86400.0, free;
        /// What becomes of frames or packets of a recording that cannot be decoded. `"silence"`: zeros, as in
        /// players, up to `max_damage` of a clip. `"error"`: a clip with one raises `DecodeError`.
        damage: Text = "silence", free, one_of("error", "silence"), elsewhere(on_damage, conceal, error_concealment);
        /// The largest share of a clip that may be silence in place of damaged frames. A clip with more
        /// raises `DecodeError`, and so does one that is nothing else.
        max_damage: Float = 0.1, free, above(0, 1), elsewhere(max_silence, damage_limit);
        /// Maps the files into memory, as in `Loader`: for local disks.
        mmap: Bool = false, free, elsewhere(memory_map, dont_use_mmap, use_mmap);
        /// Files that may be read for rows with a path instead of bytes, as in `Loader`. None or False: files
        /// below the folder of the row's shard. One or more folders: also files below these. True: any file.
        allow_paths: Folders = None, free, elsewhere(allow_path);
        /// Options of stores for URLs, as in `Loader`.
        storage_options: StoreOptions = None, free, elsewhere(client_kwargs, credentials, fs_options);
        /// Folder on a local disk in which what is read by URL is kept, for later reads and for other
        /// processes that name it, such as the ranks of a node: see docs/remote.md. Batches do not depend on
        /// it. Files of this machine are not copied. None: all is read from the server.
        cache_dir: OptionalPath = None, free, elsewhere(cache_folder, local_cache, download_dir, local_dir);
        /// Upper limit of the bytes in `cache_dir`, of all processes together. What was used least recently
        /// is removed.
        cache_bytes: Int = 107_374_182_400, free, range(16_777_216, 1 << 60),
            elsewhere(cache_size, cache_limit, max_cache_size);
        } }
    };
}

crate::access_parameters!(config_struct);

impl AccessConfig {
    /// The parameters of a loader with the same examples.
    fn loader(&self) -> LoaderConfig {
        LoaderConfig {
            arrow_files: self.source.clone(),
            batch_size: 1,
            crop: self.crop.clone(),
            features: self.features.clone(),
            clip_seconds: self.clip_seconds,
            targets: self.targets.clone(),
            columns: self.columns.clone(),
            outputs: self.outputs.clone(),
            seed: self.seed,
            sample_rate: self.sample_rate,
            n_mels: self.n_mels,
            n_fft: self.n_fft,
            hop_length: self.hop_length,
            dtype: self.dtype.clone(),
            layout: self.layout.clone(),
            n_frames: self.n_frames,
            n_samples: self.n_samples,
            sampling: self.sampling.clone(),
            audio: self.audio.clone(),
            missing_audio: self.missing_audio.clone(),
            independent: self.independent.clone(),
            audio_column: self.audio_column.clone(),
            track: self.track.clone(),
            label_column: self.label_column.clone(),
            max_record_bytes: self.max_record_bytes,
            max_decoded_seconds: self.max_decoded_seconds,
            damage: self.damage.clone(),
            max_damage: self.max_damage,
            mmap: self.mmap,
            allow_paths: self.allow_paths.clone(),
            storage_options: self.storage_options.clone(),
            cache_dir: self.cache_dir.clone(),
            cache_bytes: self.cache_bytes,
            ..LoaderConfig::eval()
        }
    }

    pub fn threads(&self) -> usize {
        self.n_threads.map_or_else(|| cores().min(MOST_WORKERS as usize), |n| n as usize)
    }

    /// The plan of the examples, and the parameters of a loader that has the same.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that names every wrong parameter.
    pub fn check(&self) -> Result<(LoaderConfig, AudioPlan)> {
        let loader = self.loader();
        let own = self.problems();
        let theirs = loader.check();
        // The loader's parameters are checked by the same rows; both lists would have the same problem twice.
        if !own.is_empty() {
            return Err(Error::new(ErrorKind::Config, own.join("; ")));
        }
        let (_, plan) = theirs?;
        if self.sampling.as_ref().is_some_and(|object| object.sampling.weighs()) {
            return Err(Error::new(
                ErrorKind::Config,
                "sampling says how often a row comes, and a dataset has each row once; give the weights to a Loader, or \
                 to the sampler of your own loop",
            ));
        }
        Ok((loader, plan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_told_in_its_own_words() {
        let config = AccessConfig { n_threads: Some(0), clip_seconds: 0.0, ..AccessConfig::default() };
        let message = config.check().unwrap_err().message;
        for part in ["n_threads is 0, must be 1", "clip_seconds is 0.0, must be"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let long = AccessConfig { n_fft: 2048, clip_seconds: 0.01, ..AccessConfig::default() };
        assert!(long.check().unwrap_err().message.contains("half of n_fft"));
        let wrong = AccessConfig { outputs: vec!["seconds".to_owned()], ..AccessConfig::default() };
        assert!(wrong.check().unwrap_err().message.contains("outputs has \"seconds\""));
        for (unknown, advice) in [
            ("arrow_files", "use source instead"),
            ("n_workers", "use n_threads instead"),
            ("augment", "use crop instead"),
            ("batch_size", "a dataset has rows"),
            ("epochs", "a dataset has rows"),
            ("clip_second", "did you mean clip_seconds?"),
        ] {
            let found = AccessConfig::TABLE.advice(unknown);
            assert!(found.starts_with(advice), "{unknown}: {found}");
        }
    }
}

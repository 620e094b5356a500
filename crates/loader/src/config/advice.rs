//! What replaces a parameter that there is not: of another library, or the most similar name.

/// What replaces parameters of other libraries: the classes, or none for all loaders; the names; the advice.
pub(super) const INSTEAD: [(&[&str], &[&str], &str); 13] = [
    (
        &["Loader", "AudioDataset"],
        &[
            "center",
            "channel",
            "channels",
            "dct_type",
            "f_max",
            "f_min",
            "fmax",
            "fmin",
            "mel_scale",
            "mono",
            "n_channels",
            "n_mfcc",
            "norm",
            "normalization",
            "normalize",
            "normalized",
            "pad_mode",
            "power",
            "preemphasis",
            "top_db",
            "win_length",
            "window",
            "window_fn",
        ],
        "an object of forebay.features has it, as features=forebay.features.LogMel(win_length=400); \
         help(forebay.features.LogMel) lists the parameters",
    ),
    (
        &["Loader", "AudioDataset"],
        &["max_duration", "min_duration", "max_seconds", "min_seconds", "duration_range", "max_length_s"],
        "rows are chosen by a column: sampling=forebay.sampling.Where(\"duration\", minimum=1.0, maximum=20.0), or, as whole \
         recordings, by crop=forebay.crops.Whole(min_seconds=1.0, max_seconds=20.0); the seconds of a batch are those of \
         batching=forebay.batching.Buckets(max_duration=400.0)",
    ),
    (
        &["Loader", "AudioDataset", "TokenLoader"],
        &["split", "splits"],
        "pass the files of one split, such as \"recordings/train\" or \"data/train-*.parquet\"",
    ),
    (
        &["Loader", "AudioDataset", "TokenLoader"],
        &["streaming", "stream", "preload", "in_memory"],
        "leave it out: files are read as rows are needed",
    ),
    (
        &["Loader", "AudioDataset"],
        &["root", "file_root", "data_dir", "audio_dir"],
        "the folder of a table's paths is given with the table, as in forebay.Manifest(\"t.csv\", root=\"recordings\"); folders that \
         links and other paths may lead to are allow_paths",
    ),
    (
        &["AudioDataset"],
        &[
            "batch_size",
            "shuffle",
            "sampler",
            "batch_sampler",
            "order",
            "drop_last",
            "rank",
            "world_size",
            "epochs",
            "num_epochs",
            "n_epochs",
            "max_epochs",
            "infinite",
            "repeat",
            "collate_fn",
            "collate",
            "pin_memory",
            "prefetch",
            "prefetch_batches",
        ],
        "a dataset has rows and no order: get_batch(indices) makes a batch of any, and forebay.Loader makes batches in an order",
    ),
    (
        &["DataLoader"],
        &["shuffle", "sampler", "batch_sampler", "order", "shuffle_min_size", "shuffle_buffer_size"],
        "shuffle the dataset: PermutationDataset(dataset, seed), or EraShufflingDataset(dataset, era_length, seed)",
    ),
    (
        &["DataLoader"],
        &["seed", "generator", "random_seed", "random_state"],
        "the dataset has the seed of its order: PermutationDataset(dataset, seed)",
    ),
    (
        &["DataLoader"],
        &["weights", "probabilities", "probs", "sampling_weights"],
        "mix the datasets: MixtureDataset({name: dataset}, {name: weight})",
    ),
    (
        &["DataLoader"],
        &["epochs", "num_epochs", "n_epochs", "max_epochs", "infinite", "repeat"],
        "each iter() makes the next pass over the dataset: write the loop over epochs around the loop over batches",
    ),
    (
        &[],
        &["epochs", "num_epochs", "n_epochs", "max_epochs"],
        "pass infinite=False, and each iter() makes the next pass: write the loop over epochs around the loop over batches",
    ),
    (
        &[],
        &["collate_fn", "collate", "batch_sampler"],
        "the loader makes whole batches, dicts of arrays: convert them in the loop",
    ),
    (
        &[],
        &["pin_memory", "pin_memory_device", "device"],
        "forebay.torch.DataLoader(loader, pin_memory=True) pins batches, and with device= it copies them to a device",
    ),
];

/// The advice for an unknown keyword of the function or class `path`: the parameter with the most similar
/// name, the only one of which it is the first words, or else where the parameters are listed.
pub fn nearest<'a>(path: &str, names: impl Iterator<Item = &'a str>, unknown: &str) -> String {
    let bare = |name: &str| -> String {
        let letters = name.chars().take(64).filter(|letter| !matches!(letter, '_' | '-'));
        letters.flat_map(char::to_lowercase).collect()
    };
    let (mut nearest, mut longer) = (None, Vec::new());
    for name in names {
        let steps = distance(&bare(unknown), &bare(name));
        if nearest.is_none_or(|(least, _)| steps < least) {
            nearest = Some((steps, name));
        }
        if name.strip_prefix(unknown).is_some_and(|rest| rest.starts_with('_')) {
            longer.push(name);
        }
    }
    match nearest {
        // Short names are similar to many others, and `bare` cuts a text to 64 letters.
        Some((steps, parameter)) if unknown.len() > 3 && steps <= 1 + parameter.len() / 8 => {
            format!("did you mean {parameter}?")
        }
        _ => match longer[..] {
            [parameter] if unknown.len() > 2 => format!("did you mean {parameter}?"),
            _ => format!("help({path}) lists the parameters"),
        },
    }
}

/// The edit distance of two texts: insertions, deletions, replacements and swaps of adjacent letters.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<_>, Vec<_>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

"""Unknown keywords and wrong values of classes and functions: the message says what to use."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import cache

DATASET = cache.ListAsyncDataset([{"input_ids": np.arange(9)}])
"""A small dataset."""


ANY: Any = None
"""A value that is never read, since the keywords are checked first."""


def tokens(_text: str) -> list[int]:
    return [1]


CALLS: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "forebay.Loader": (
        lambda **keywords: forebay.Loader("x.arrow", **keywords),
        {
            "shuffle": "use shuffle_min_size and order",
            "sampler": "use order",
            "num_workers": "use n_workers",
            "win_length": "features=forebay.features.LogMel(",
            "mono": "an object of forebay.features has it",
            "split": "pass the files of one split",
            "streaming": "leave it out",
        },
    ),
    "forebay.TokenLoader": (
        lambda **keywords: forebay.TokenLoader("x.parquet", tokens, **keywords),
        {"shuffle": "use seed", "sampler": "use shuffle_min_size", "num_workers": "use n_workers"},
    ),
    "forebay.cache.DataLoader": (
        lambda **keywords: cache.DataLoader(DATASET, 2, **keywords),
        {
            "shuffle": "shuffle the dataset: PermutationDataset(dataset, seed)",
            "sampler": "shuffle the dataset: PermutationDataset(dataset, seed)",
            "seed": "the dataset has the seed of its order",
            "weights": "mix the datasets: MixtureDataset(",
            "num_workers": "use n_workers instead",
        },
    ),
    "forebay.cache.CacheDataset": (
        lambda **keywords: cache.CacheDataset("x", **keywords),
        {"shuffle": "PermutationDataset(ds, seed)", "cache_dir": "use path instead", "splitt": "did you mean split?"},
    ),
    "forebay.cache.TokenSeqDataset": (
        lambda **keywords: cache.TokenSeqDataset(DATASET, 3, **keywords),
        {
            "seq_len": "use max_seq_len instead",
            "stride": "help(forebay.cache.TokenSeqDataset)",
            "doc_id": "did you mean doc_ids?",
        },
    ),
    "forebay.cache.ListAsyncDataset": (
        lambda **keywords: cache.ListAsyncDataset([], **keywords),
        {"shuffle": "Permutation"},
    ),
    "forebay.cache.WeightedDataset": (
        lambda **keywords: cache.WeightedDataset(DATASET, [1.0], **keywords),
        {"num_samples": "use epoch_size instead", "replacement": "nothing is drawn with replacement"},
    ),
    "forebay.cache.PermutationDataset": (
        lambda **keywords: cache.PermutationDataset(DATASET, **keywords),
        {"generator": "use seed instead", "batch_size": "forebay.cache.DataLoader"},
    ),
    "forebay.cache.EraShufflingDataset": (
        lambda **keywords: cache.EraShufflingDataset(DATASET, **keywords),
        {"buffer_size": "use era_length instead", "era_lenght": "did you mean era_length?"},
    ),
    "forebay.cache.MixtureDataset": (
        lambda **keywords: cache.MixtureDataset({"a": DATASET}, {"a": 1}, **keywords),
        {"probabilities": "use weights instead", "n_workers": "forebay.cache.DataLoader"},
    ),
    "forebay.cache.build": (
        lambda **keywords: cache.build({}, None, "x", **keywords),
        {
            "num_proc": "use n_workers instead",
            "shuffle": "shuffle when reading",
            "commit_second": "did you mean commit_seconds?",
        },
    ),
    "forebay.AsyncDataLoader": (
        lambda **keywords: forebay.AsyncDataLoader(ANY, ANY, 2, **keywords),
        {
            "n_workers": "use num_workers instead",
            "prefetch_batches": "use buffers_ahead instead",
            "window": "help(forebay.",
        },
    ),
    "forebay.BufferPool": (
        lambda **keywords: forebay.BufferPool(1, 2, "f4", **keywords),
        {"size": "use num_buffers instead"},
    ),
    "forebay.MappedReader": (
        lambda **keywords: forebay.MappedReader("x", **keywords),
        {"meta_data": "did you mean metadata?"},
    ),
    "forebay.augment.Noise": (forebay.augment.Noise, {"snr": "did you mean snr_db?"}),
    "forebay.crops.Windows": (forebay.crops.Windows, {"steps": "did you mean step?", "overlap": "use step instead"}),
    "forebay.features.LogMel": (
        forebay.features.LogMel,
        {"n_mel": "did you mean n_mels?", "sr": "use sample_rate instead", "fmax": "use f_max instead"},
    ),
    "forebay.manifest.Manifest": (
        lambda **keywords: forebay.Manifest("t.csv", **keywords),
        {
            "audio_column": "use path_column instead",
            "label_column": "Loader(manifest, label_column=)",
            "sep": "are found by themselves",
            "unitt": "did you mean unit?",
        },
    ),
    "forebay.targets.MultiHot": (forebay.targets.MultiHot, {"sep": "use separator instead"}),
    "forebay.sampling.Where": (forebay.sampling.Where, {"min": "help(forebay.sampling.Where) lists the parameters"}),
    "forebay.SpectrogramTransform": (
        forebay.SpectrogramTransform,
        {"n_mel": "did you mean n_mels?", "window": "help(forebay.SpectrogramTransform) lists the parameters"},
    ),
}
"""Calls by the name in the message: for each unknown keyword a part of the advice."""

KEYWORDS = [(name, keyword) for name, (_, advice) in CALLS.items() for keyword in advice]


@pytest.mark.parametrize(("name", "keyword"), KEYWORDS)
def test_an_unknown_keyword_is_answered(name: str, keyword: str) -> None:
    call, advice = CALLS[name]
    own = name.rpartition(".")[2]
    message = rf"^{own}\(\) got an unexpected keyword argument '{keyword}'; .*{re.escape(advice[keyword])}"
    with pytest.raises(TypeError, match=message):
        call(**{keyword: 1})


@pytest.mark.parametrize("name", ["forebay.Loader", "forebay.TokenLoader", "forebay.cache.DataLoader"])
@pytest.mark.parametrize(
    "keyword", ["shuffle", "num_workers", "collate_fn", "epochs", "sampler", "drop_lst", "pin_memory"]
)
def test_habits_from_torch(name: str, keyword: str) -> None:
    """No loader answers a parameter of torch's `DataLoader` with the list of its parameters only."""
    with pytest.raises(TypeError, match="unexpected keyword argument") as raised:
        CALLS[name][0](**{keyword: 1})
    assert "help(" not in str(raised.value)


def test_signatures_are_unchanged() -> None:
    """The advice needs no catch-all parameter, so a missing argument is Python's own error."""
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'max_seq_len'"):
        cache.TokenSeqDataset(DATASET)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes from 2 to 3 positional arguments"):
        cache.PermutationDataset(DATASET, 1, 2)  # type: ignore[call-arg]


@pytest.mark.parametrize("data", [None, "a.wav", Path("a.wav"), 3])
def test_decode_takes_bytes(data: Any) -> None:
    with pytest.raises(
        TypeError, match=r"^data is .* \(type \w+\), must be bytes or a bytearray, the content of an audio"
    ):
        forebay.decode(data)


@pytest.mark.parametrize("name", ["f_min", "f_max"])
def test_frequencies_are_floats(name: str) -> None:
    bad: Any = "x"
    with pytest.raises(TypeError, match=rf"^{name} is 'x' \(type str\), must be a float"):
        forebay.SpectrogramTransform(**{name: bad})


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ((2, 4), "the first weights begin at batch 2, must begin at batch 0"),
        ((0, 5, 5), "weights from batch 5 follow those from batch 5: the batches must increase"),
    ],
)
def test_weights_are_counted_in_batches(starts: tuple[int, ...], message: str) -> None:
    weights = [(start, {"a": 1.0, "b": 1.0}) for start in starts]
    with pytest.raises(forebay.ConfigError, match=message):
        forebay.Loader({"a": ["a.arrow"], "b": ["b.arrow"]}, batch_size=32, weights=weights)

"""Scenes whose states and next batches were recorded by forebay 0.1, and what the installed forebay makes of them.

`python tests/python/helpers/released.py` writes `tests/data/released/0.1.json` and the cache beside it. It was run
once, with forebay 0.1 (commit 2e7eb2b), and is not to be run again: they stand for what users have on their disks.
"""

import itertools
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import forebay
from forebay.cache import (
    DataLoader,
    EraShufflingDataset,
    ListAsyncDataset,
    MixtureDataset,
    PermutationDataset,
    build,
)
from forebay.sampling import Weighted
from paths import DATA
from pinned import Prints

RELEASED = DATA / "released"
STATES = RELEASED / "0.1.json"
CACHE = RELEASED / "0.1_cache"
N_BEFORE, N_AFTER = 3, 2
"""Batches before the state, and batches after it that are compared."""

CLIPS: dict[str, Any] = {
    "seed": 3,
    "batch_size": 4,
    "clip_seconds": 0.5,
    "shuffle_min_size": 8,
    "n_mels": 20,
    "n_workers": 2,
}

Make = Callable[[], Any]


def files(*endings: str) -> list[str]:
    """Bundled recordings, by the endings of their names."""
    return sorted(str(path) for path in (DATA / "recordings").iterdir() if path.suffix in endings)


def without(parameters: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in parameters.items() if key != name}


def tokens(**parameters: Any) -> Make:
    """A loader of packed text."""
    defaults = {"batch_size": 2, "seq_len": 100, "buffer_size": 30, "tokenizer_batch_size": 8, "n_workers": 2}
    tokenizer = DATA / "tokens" / "gpt2.tiktoken"
    return lambda: forebay.TokenLoader(DATA / "token-golden", tokenizer, bos_id=50256, **defaults | parameters)


def numbered(n: int, base: int = 0) -> ListAsyncDataset:
    return ListAsyncDataset([{"number": base + i} for i in range(n)])


def dataset(make: Make) -> Make:
    return lambda: DataLoader(make(), batch_size=6, n_workers=2)


def mixture() -> MixtureDataset:
    parts = {"a": numbered(50), "b": numbered(80, 1000)}
    return MixtureDataset(parts, {"a": 0.4, "b": 0.6}, block_size=20, seed=2)


def scenes(**now: Any) -> dict[str, Make]:
    """All scenes by name.

    Their parameters mean the same in 0.1 and now; `now` are those that loaders of clips need today for what 0.1 did.
    """

    def clips(**parameters: Any) -> Make:
        given = without(CLIPS, "n_mels") if "features" in parameters else CLIPS
        return lambda: forebay.Loader(every, **given | parameters | now)

    augment = [
        forebay.augment.Gain((-6.0, 6.0), p=0.5),
        forebay.augment.Speed((0.9, 1.0, 1.1)),
        forebay.augment.SpecAugment(),
        forebay.augment.Mixup(0.4),
    ]
    table = str(DATA / "recordings" / "recordings.csv")
    every = files(".flac", ".mp3", ".ogg", ".wav")
    sources = {"a": files(".flac"), "b": files(".ogg", ".wav")}
    return {
        **{
            f"clips, {order}, {'infinite' if infinite else 'finite'}": clips(
                order=order, infinite=infinite, era_length=8
            )
            for order in ["sequential", "window", "global", "era"]
            for infinite in [True, False]
        },
        "clips, rank 1 of 2": clips(order="window", batch_size=2, rank=1, world_size=2, n_streams=2),
        "clips, augmented": clips(order="global", augment=augment),
        "clips, waveforms": clips(order="global", features=forebay.features.Waveform(sample_rate=16_000)),
        "clips, preset": clips(order="global", features="birdset"),
        "clips, windows": clips(order="sequential", infinite=False, crop=forebay.crops.Windows(1.0)),
        "clips, table": lambda: forebay.Loader(
            forebay.Manifest(table, path_column="file"),
            targets={"label": forebay.targets.Text("label")},
            outputs=["path", "start"],
            order="global",
            seed=2,
            batch_size=4,
            clip_seconds=0.5,
            **now,
        ),
        "clips, mixture": lambda: forebay.Loader(
            sources, weights={"a": 0.3, "b": 0.7}, order="global", seed=3, batch_size=4, clip_seconds=0.5, **now
        ),
        "clips, weights": clips(order="global", sampling=Weighted([i % 5 / 3 for i in range(19)], epoch_size=40)),
        **{f"tokens, {crop}": tokens(crop=crop) for crop in ["drop", "carry"]},
        "tokens, finite, rank 1 of 2": tokens(crop="drop", infinite=False, rank=1, world_size=2),
        "tokens, shuffled, extras": tokens(
            seed=5, shuffle_min_size=30, extras=["doc_ids", "position_ids", "cu_seqlens"]
        ),
        "dataset, permutation": dataset(lambda: PermutationDataset(numbered(97), seed=3)),
        "dataset, eras": dataset(lambda: EraShufflingDataset(numbered(97), 16, seed=3)),
        "dataset, mixture": dataset(mixture),
    }


def walk(batches: Iterable[dict[str, Any]], n: int) -> dict[str, Any]:
    """Digests of the next `n` batches."""
    prints = Prints()
    for batch in itertools.islice(batches, n):
        prints.batch({key: names(values) for key, values in batch.items()})
    return without(prints.result(), "bits")


def names(values: Any) -> Any:
    """Paths of the bundled recordings without their folder."""
    return [Path(value).name if "/" in str(value) else value for value in values] if type(values) is list else values


def documents() -> list[dict[str, Any]]:
    """The processed documents of the cache: two fields, of rank 1 and 2."""
    return [
        {"ids": np.arange(n, dtype=np.int32) * n, "values": np.full((1 + n % 3, 4), n, np.float32)} for n in range(12)
    ]


def write_cache() -> None:
    def identity(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return batch

    build({"a": documents()}, identity, CACHE, n_workers=1)


def main() -> None:
    if STATES.exists():
        sys.exit(f"{STATES} exists: it stands for what forebay 0.1 wrote")
    found = {}
    for name, make in scenes().items():
        with make() as loader:
            batches = iter(loader)
            walk(batches, N_BEFORE)
            state = loader.state_dict()
            found[name] = {"state": state, **walk(batches, N_AFTER)}
    RELEASED.mkdir(exist_ok=True)
    write_cache()
    STATES.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(f"{len(found)} scenes\n")


if __name__ == "__main__":
    main()

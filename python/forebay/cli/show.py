"""`forebay show`: one HTML page to look at and listen to a source, which needs no other file and no network.

The rows are drawn from the whole source with `--seed`. With `--recipe` each card has two pictures of one clip: before
the steps of augmentation, and after them. All text of the source is escaped, and the page forbids every request.
`show_texts` makes the page of texts.
"""

import argparse
import inspect as signatures
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay import _pictures, recipes
from forebay._core import AudioDataset, ConfigError, ForebayError, Loader
from forebay._files import write_new
from forebay.augment import FrameRoll, Mix, SpecAugment
from forebay.cli import inspect, show_texts, texts
from forebay.cli.common import (
    a_path,
    add_json,
    add_reading,
    add_source,
    check_new,
    counted,
    out_of,
    reading,
    size,
    subcommand,
    using,
)
from forebay.cli.show_page import Card, Table, written
from forebay.features import Waveform, preset
from forebay.sampling import Balanced

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

RECIPES: dict[str, Callable[..., recipes.Recipe]] = {
    name: getattr(recipes, name) for name in ("ast", "birdclef", "birdset", "librispeech", "passt")
}
"""The recipes of `--recipe`: those that need no tokenizer, table or noise, and take clips of one recording."""
MOST_ROWS = 200
"""The most cards of a page: each has up to 0.4 MB of sound."""
MOST_SECONDS = 30.0
"""The longest clip of a card."""
SURVEYED = 200
"""The rows whose headers are read for durations and codecs."""
SHOWN_CLASSES = 40
"""The most classes of the page's table."""
WIDTH, HEIGHT = 320, 128
"""Size of a spectrogram in pixels."""
HEARD_HZ = 24_000
"""The highest rate of the sound in the page."""
EDGES = (0, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
"""The first seconds of the classes of durations."""


def add(subparsers: "Subparsers") -> None:
    """Adds the subcommand."""
    parser = subcommand(
        subparsers,
        "show",
        "write an HTML page with spectrograms and players, or packed rows of texts",
        "Writes one HTML page of a source: spectrograms and players of some rows, their columns, and tables of "
        "durations, codecs and classes. The page needs no other file and no network. With --recipe it shows clips "
        "before and after augmentation. With --tokenizer, SOURCE has texts: the page shows packed rows, each token in "
        "the color of its document.",
        "  forebay show shards/ -o look.html\n"
        "  forebay show 'shards/**/*.parquet' -n 40 --seconds 10 --seed 3 -o look.html\n"
        "  forebay show birdset/ --recipe birdset --label-column ebird_code -o a.html\n"
        "  forebay show texts.jsonl -t tokenizer.json --seq-len 512 -o rows.html\n"
        "  forebay show sft.jsonl -t Qwen3/ --kind chat --fit pad -o chats.html",
        "path, rows, shown (row, error; of texts row, documents, tokens, trained, padding), recipe",
    )
    add_source(parser)
    parser.add_argument("-o", "--output", type=a_path, required=True, metavar="FILE", help="the page, a new file")
    parser.add_argument("-n", "--rows", type=int, default=12, metavar="N", help="rows shown (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="length of the clips in s (default: %(default)g)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the drawn rows (default: 0)")
    parser.add_argument(
        "--recipe", choices=sorted(RECIPES), metavar="NAME",
        help=f"show clips before and after the augmentation of {', '.join(sorted(RECIPES))}",
    )  # fmt: skip
    parser.add_argument("--label-column", metavar="NAME", help="the column of classes, if it is not detected")
    add_reading(parser, "SOURCE")
    show_texts.add(texts.add(parser))
    add_json(parser)
    parser.set_defaults(run=run, parameters={"source": "SOURCE", "arrow_files": "SOURCE", "batch_size": "--rows"})


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Writes the page."""
    texts.check(options, show_texts.OPTIONS, show_texts.BOTH)
    check(options)
    if texts.are_meant(options):
        return show_texts.run(options)
    given = reading(options)
    with using("SOURCE", options), texts.hinted(), inspect.opened(options.files, given) as dataset:
        if not len(dataset):
            raise ConfigError("SOURCE has no rows, must have at least one")
        column = label_column(dataset, options.label_column)
        if options.recipe is None:
            rows = drawn(len(dataset), options.rows, options.seed)
            found = inspect.read(options.files, rows, inspect.readable(dataset), given)
            cards = [recorded(dataset, options, *one) for one in zip(rows, found, strict=True)]
        else:
            cards = augmented(options, dataset, column, given)
        tables = [*surveyed(dataset, options.seed), *classes(options, column, given)]
        name = ", ".join(map(str, options.files))
        page = written(name, inspect.summed(dataset.shards), tables, cards, options.recipe)
        n_rows = len(dataset)
    write_new(options.output, page.encode(errors="replace"))
    out_of(options).write(f"{counted(len(cards), 'row')} in {options.output}, {size(len(page))}\n")
    shown = [{"row": card.row, "error": card.error} for card in cards]
    return 0, {"path": str(options.output), "rows": n_rows, "shown": shown, "recipe": options.recipe}


def check(options: argparse.Namespace) -> None:
    """Raises `ConfigError` for options that cannot be used, before any work."""
    check_new("--output", options.output)
    if not 1 <= options.rows <= MOST_ROWS:
        raise ConfigError(f"--rows is {options.rows}, must be 1 to {MOST_ROWS}")
    if not 0 < options.seconds <= MOST_SECONDS:
        raise ConfigError(f"--seconds is {options.seconds:g}, must be above 0 and at most {MOST_SECONDS:g}")
    if options.seed < 0:
        raise ConfigError(f"--seed is {options.seed}, must be at least 0")


def drawn(n: int, most: int, seed: int) -> list[int]:
    """Up to `most` of `n` rows, in order."""
    return sorted(np.random.default_rng(seed).choice(n, min(n, most), replace=False).tolist())


def label_column(dataset: AudioDataset, given: str | None) -> str | None:
    """The column of classes: the given one, or the first that has names, or one that is called so."""
    if given is not None:
        if given not in dataset.columns:
            raise ConfigError(
                f"--label-column is {given}, must be a column: {', '.join(dataset.columns) or 'there are none'}"
            )
        return given
    return next((name for name in (*dataset._classes, "label", "labels") if name in dataset.columns), None)


def named(dataset: AudioDataset, values: Mapping[str, Any]) -> dict[str, str]:
    """The values of a row as text, with the names of classes in place of their numbers."""

    def name(names: list[str], value: Any) -> str:
        known = isinstance(value, int) and 0 <= value < len(names)
        return names[value] if known else "none" if value is None else str(value)

    found = {}
    for column, value in values.items():
        names = dataset._classes.get(column)
        if names is None:
            text = str(value)
        else:
            text = ", ".join(name(names, one) for one in (value if isinstance(value, list) else [value]))
        found[column] = text[: inspect.SHOWN_TEXT]
    return found


def recorded(dataset: AudioDataset, options: argparse.Namespace, row: int, values: Mapping[str, Any]) -> Card:
    """The start of a recording; a bad one has its error in place of the picture."""
    path = dataset.path(row)
    facts = {**({} if path is None else {"path": path}), **named(dataset, values)}
    try:
        info = dataset.info(row)
        samples, rate = dataset.waveform(row, 0.0, options.seconds)
        own, nyquist = _pictures.mono(samples), rate / 2
        if rate > HEARD_HZ:
            samples, rate = dataset.waveform(row, 0.0, options.seconds, sample_rate=HEARD_HZ)
    except (ForebayError, OSError) as error:
        return Card(row, facts, error=str(error))
    heard = _pictures.mono(samples)
    title = f"{sort(info)}, {info['seconds']:.1f} s"
    shown = f"{min(options.seconds, info['seconds']):.1f} s from the start, up to {nyquist / 1000:g} kHz"
    if nyquist > rate / 2:
        shown += f" (sound: {rate / 2000:g} kHz)"
    picture = _pictures.png(_pictures.colored(_pictures.spectrogram(own, WIDTH, HEIGHT)))
    return Card(row, facts, title, [(shown, picture)], [(shown, _pictures.wav(heard[None], rate))])


def augmented(
    options: argparse.Namespace, dataset: AudioDataset, column: str | None, given: Mapping[str, Any]
) -> list[Card]:
    """Clips of a batch before and after the steps of a recipe.

    Three loaders have the same order and crops: without the steps, with all of them, and with those on the waveform
    alone, to listen to.
    """
    make = RECIPES[options.recipe]
    first = next(iter(signatures.signature(make).parameters.values()))
    labels = first.default if column is None or first.default in dataset.columns else column
    # The page has no targets, so that any source works.
    recipe = {**make(labels), "targets": {}}
    # Clips of --seconds, of recordings of any length.
    recipe.pop("crop", None)
    if labels not in dataset.columns:
        recipe.pop("sampling", None)
    features = recipe["features"]
    features = preset(features) if isinstance(features, str) else features
    steps = [replace(step, targets="keep") if isinstance(step, Mix) else step for step in recipe["augment"]]
    common: dict[str, Any] = {
        **given, **recipe, "augment": steps, "clip_seconds": options.seconds, "batch_size": options.rows,
        "seed": options.seed, "order": "global", "n_workers": 2, "outputs": ["path", "start"],
    }  # fmt: skip
    sound = Waveform(sample_rate=features.sample_rate)
    on_waveforms = [step for step in steps if not isinstance(step, SpecAugment | FrameRoll)]
    plain, done, heard, before = (
        first_batch(options, {**common, **changes})
        for changes in (
            {"augment": True, "features": features},
            {"features": features},
            {"augment": on_waveforms, "features": sound},
            {"augment": True, "features": sound},
        )
    )
    assert all((one["index"] == plain["index"]).all() for one in (done, heard, before))
    rate = features.sample_rate
    cards = []
    for i, row in enumerate(plain["index"].tolist()):
        pictures = [("before", pictured(plain, i)), ("after", pictured(done, i))]
        sounds = [(name, sounded(batch, i, rate)) for name, batch in (("before", before), ("after", heard))]
        facts = {"path": str(plain["path"][i]), "start": f"{plain['start'][i]:.2f} s"}
        cards.append(Card(row, facts, f"clip of {options.seconds:g} s", pictures, sounds))
    return cards


def first_batch(options: argparse.Namespace, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The first batch of a loader."""
    with Loader(options.files, **parameters) as loader:
        return next(iter(loader))


def pictured(batch: Mapping[str, Any], i: int) -> bytes:
    """The features of a clip as a PNG, the lowest band at the bottom, from the quietest to the loudest value."""
    name = "spectrogram" if "spectrogram" in batch else next(k for k, v in batch.items() if getattr(v, "ndim", 0) == 3)
    values = np.asarray(batch[name][i], np.float32)
    values = values if values.shape[0] < values.shape[1] else values.T
    low, high = np.percentile(values, (5, 99.8))
    return _pictures.png(_pictures.colored(((values[::-1] - low) / max(float(high - low), 1e-6)).clip(0, 1)))


def sounded(batch: Mapping[str, Any], i: int, rate: int) -> bytes:
    """The waveform of a clip as a WAV file."""
    return _pictures.wav(np.asarray(batch["waveform"][i], np.float32).reshape(1, -1), rate)


def sort(info: Mapping[str, Any]) -> str:
    """Codec, rate and channels."""
    channels = {1: "mono", 2: "stereo"}.get(info["channels"], f"{info['channels']} channels")
    return f"{info['codec']}, {info['sample_rate'] / 1000:g} kHz, {channels}"


def surveyed(dataset: AudioDataset, seed: int) -> list[Table]:
    """Durations and codecs of some rows, from their headers."""
    rows = drawn(len(dataset), SURVEYED, seed)
    durations: Counter[int] = Counter()
    codecs: Counter[str] = Counter()
    for row in rows:
        try:
            info = dataset.info(row)
        except (ForebayError, OSError):
            codecs["(bad)"] += 1
            continue
        durations[max(edge for edge in EDGES if edge <= info["seconds"])] += 1
        codecs[sort(info)] += 1
    of = f"of {counted(len(rows), 'row')}"
    ends = [f"to {edge} s" for edge in EDGES[1:]] + ["s or more"]
    spans = {f"{edge} {end}": durations[edge] for edge, end in zip(EDGES, ends, strict=True) if durations[edge]}
    return [Table(f"Durations {of}", spans), Table(f"Codecs {of}", dict(codecs.most_common()))]


def classes(options: argparse.Namespace, column: str | None, given: Mapping[str, Any]) -> list[Table]:
    """Rows of each class, the most common ones first."""
    if column is None:
        return []
    counts = inspect.balanced(options.files, Balanced(column), given)
    pairs = sorted(zip(counts["classes"], counts["rows"], strict=True), key=lambda pair: -pair[1])
    shown = {("(none)" if name is None else str(name)): n for name, n in pairs[:SHOWN_CLASSES]}
    more = f", the {SHOWN_CLASSES} most common of {len(pairs)}" if len(pairs) > SHOWN_CLASSES else ""
    return [Table(f"Rows by {column}{more}", shown)]

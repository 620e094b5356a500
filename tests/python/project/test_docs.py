"""Checks README and docs: Python blocks run, commands parse, links and named files exist.

The blocks of a page run unchanged and in order, in one namespace, except that a loop ends after two rounds and
"cuda" is the CPU on a machine without a GPU. `assumed` has the names that the blocks presuppose, which are data of
a reader: a page imports what it uses. Blocks that need torch run only where it is installed (`make test-torch`).
"""

import ast
import importlib.util
import json
import re
import shlex
import shutil
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from datasets import Audio, ClassLabel, Features, List, Value
from datasets.arrow_writer import ArrowWriter

import forebay
from forebay import cache, cli
from paths import ROOT
from recordings import Row, write_shard
from utterances import whisper_tokenizer

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ROUNDS = 2
HAS_TORCH = importlib.util.find_spec("torch") is not None


@dataclass(frozen=True)
class Block:
    """A fenced code block of a page."""

    page: Path
    line: int
    text: str

    @property
    def needs_torch(self) -> bool:
        return bool(
            re.search(
                r"\btorch\b|onnxruntime|forebay\.(queue|lightning|transformers|accelerate)|DatasetConsumer|DataProviderBase",
                self.text,
            )
        )


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text()
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(page, text.count("\n", 0, one.start(2)), one[2]) for one in found if one[1] == language]


class Runnable(ast.NodeTransformer):
    """Limits loops to `ROUNDS` rounds, and replaces "cuda" where there is no GPU."""

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        node.iter = ast.Call(ast.Name("few", ast.Load()), [node.iter], [])
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(device()) if node.value == "cuda" else node


def few(items: Iterable[Any]) -> Iterator[Any]:
    return islice(items, ROUNDS)


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def take(*arrays: Any) -> None:
    """A training step."""
    assert all(len(array) for array in arrays)


class Images:
    """A reader of images."""

    def __init__(self) -> None:
        self.storage_state = np.random.default_rng(0).integers(0, 256, (200, 40, 40), np.uint8)
        self.metadata = {"label": np.arange(200)}

    def __len__(self) -> int:
        return len(self.storage_state)


DOCUMENTS = [{"input_ids": np.arange(5000, dtype=np.uint16)}] * 40


@pytest.fixture(scope="module")
def folder(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the blocks name."""
    folder = tmp_path_factory.mktemp("docs")
    for name in ("train-0.arrow", "train-1.arrow"):
        write_shard(folder / name, rows)
    assert cli.main(["check", *map(str, sorted(folder.glob("*.arrow"))), "-o", str(folder / "report")]) == 0
    write_labelled(folder, rows)
    annotations = [f"{row.path},{i / 10},{i / 10 + 1},{['owl', 'wren'][i % 2]}\n" for i, row in enumerate(rows)]
    (folder / "annotations.csv").write_text("path,start,end,label\n" + "".join(annotations))
    for row, kind in zip(rows, ("bird", "music"), strict=False):
        (folder / "recordings" / kind).mkdir(parents=True)
        (folder / "recordings" / kind / "1.ogg").write_bytes(row.audio or b"")
    shutil.copytree(folder / "recordings" / "music", folder / "validation" / "music")
    write_annotated(folder / "soundscapes", rows)
    for name in ("gpt2.tiktoken", "bpe.model"):
        (folder / name).symlink_to(ROOT / "tests" / "data" / "tokens" / name)
    (folder / "speech").mkdir()
    for i, row in enumerate(rows[:4]):
        (folder / "speech" / f"{i}.ogg").write_bytes(row.audio or b"")
    utterances = [{"path": f"{i}.ogg", "text": f"it's number {'abcd'[i]}"} for i in range(4)]
    for row, utterance in zip(rows, utterances, strict=False):
        samples, rate = forebay.decode(row.audio or b"")
        utterance["duration"] = samples.shape[-1] / rate
    (folder / "speech" / "utterances.jsonl").write_text("".join(json.dumps(row) + "\n" for row in utterances))
    write_kaldi(folder / "kaldi", rows)
    write_sources(folder)
    (folder / "whisper").mkdir()
    whisper_tokenizer(folder / "whisper").rename(folder / "whisper" / "tokenizer.json")
    turns = [f"SPEAKER {i % 4} 1 {i / 8} 0.5 <NA> <NA> {'ab'[i % 2]} <NA> <NA>\n" for i in range(16)]
    (folder / "speech" / "turns.rttm").write_text("".join(turns))
    texts = [f"Document {i} says {'forebay ' * (i % 90)}and that is all." for i in range(3000)]
    for shards in (folder / "shards", folder / "fineweb", folder / "forebay" / "base_data"):
        shards.mkdir(parents=True)
        for n in range(3):
            pq.write_table(
                pa.table({"text": texts[n * 1000 : (n + 1) * 1000]}), shards / f"{n}.parquet", row_group_size=250
            )
    for name in ("web", "code"):
        cache.build({"all": range(len(DOCUMENTS))}, lambda numbers: DOCUMENTS[: len(numbers)], folder / "caches" / name)
    return folder


def write_sources(folder: Path) -> None:
    """The tables and folders of docs/stems.md: equally long recordings of noise."""
    tables = {
        "librimix/train.csv": (["mixture_path", "source_1_path", "source_2_path"], 8000, 1),
        "librispeech/rows.csv": (["mixture", "enrolment"], 16_000, 1),
        "vctk/train.csv": (["path"], 16_000, 1),
        "musdb/train.csv": (["drums", "bass", "other", "vocals"], 44_100, 2),
    }
    for name, (columns, rate, channels) in tables.items():
        table = folder / name
        table.parent.mkdir(exist_ok=True)
        lines = [",".join(columns)]
        for row in range(4):
            lines.append(",".join(f"{table.stem}-{row}-{column}.wav" for column in columns))
            for column in columns:
                noise = np.random.default_rng(row).normal(0, 0.1, (rate // 2, channels))
                soundfile.write(table.parent / f"{table.stem}-{row}-{column}.wav", noise, rate)
        table.write_text("\n".join(lines))
    (folder / "musdb18").mkdir()
    for song in range(4):
        shutil.copy(ROOT / "tests/data/audio/tracks/stems.mp4", folder / f"musdb18/{song}.stem.mp4")
    (folder / "musdb18/train.csv").write_text("path\n" + "".join(f"{song}.stem.mp4\n" for song in range(4)))
    for place in ("rooms", "noise"):
        (folder / place).mkdir()
        soundfile.write(folder / place / "1.wav", np.random.default_rng(1).normal(0, 0.1, 3000), 16_000)


def write_kaldi(folder: Path, rows: list[Row]) -> None:
    """A data folder whose paths begin at the folder above it."""
    (folder / "train").mkdir(parents=True)
    (folder / "wav").mkdir()
    for i, row in enumerate(rows[:4]):
        (folder / "wav" / f"{i}.ogg").write_bytes(row.audio or b"")
    lines = {
        "wav.scp": "r{0} wav/{0}.ogg",
        "segments": "u{0} r{0} 0 0.9",
        "utt2spk": "u{0} s",
        "text": "u{0} it is {0}",
    }
    for name, line in lines.items():
        (folder / "train" / name).write_text("".join(line.format(i) + "\n" for i in range(4)))


def write_annotated(folder: Path, rows: list[Row]) -> None:
    """The recordings and the table of docs/files.md."""
    (folder / "audio").mkdir(parents=True)
    lines = ["Begin Path,Begin Time (s),End Time (s),species,quality"]
    for i, row in enumerate(rows[:4]):
        (folder / "audio" / f"{i}.ogg").write_bytes(row.audio or b"")
        lines += [f"{i}.ogg,{at},{at + 1.5},species {i % 3},{'A' if i % 2 else ''}" for at in (0.0, 0.25)]
    (folder / "annotations.csv").write_text("\n".join(lines))


def write_labelled(folder: Path, rows: list[Row]) -> None:
    """Writes shards with the columns of docs/targets.md: BirdSet's by `datasets`, the others with plain columns."""
    n, kinds = len(rows), ["bird", "music", "soundscape", "speech"]
    species = ClassLabel(names=["blujay", "amecro", "norcar"])
    events = List(List(Value("float64")))
    columns = {"ebird_code": species, "ebird_code_multilabel": List(species), "secondary": List(species)}
    columns["detected_events"] = events
    features = Features({"audio": Audio(), **columns, "lat": Value("float32"), "quality": Value("string")})
    with ArrowWriter(features=features, path=str(folder / "birdset.arrow"), writer_batch_size=4) as writer:
        for i, row in enumerate(rows):
            labels: dict[str, Any] = {
                "ebird_code": i % 3 if i % 4 else None,
                "ebird_code_multilabel": [i % 3, 2][: i % 3],
            }
            audio = {"audio": {"bytes": row.audio, "path": row.path}}
            labels["detected_events"] = [[0.5, 1.2], [3.0, 4.4]][: i % 3]
            writer.write({**audio, **labels, "secondary": [1] if i % 2 else None, "lat": 0.5 * i, "quality": "A"})
        writer.finalize()
    (folder / "class_labels_indices.csv").write_text(
        'index,mid,display_name\n0,/m/09x0r,"Speech"\n1,/m/04rlf,"Music"\n2,/m/015p6,"Bird, and others"\n'
    )
    tables: dict[str, dict[str, Any]] = {
        "audioset": {"labels": [["/m/09x0r,/m/04rlf", "/m/015p6", None][i % 3] for i in range(n)]},
        "esc50": {"target": [7 * i % 50 for i in range(n)], "category": [["dog", "rain"][i % 2] for i in range(n)]},
        "votes": {"votes": [[0.5, 0.0, 0.25, 0.25, 0.0, i / n] for i in range(n)]},
        "captions": {
            "caption": [f"recording number {i}" for i in range(n)],
            "rating": [i if i % 2 else None for i in range(n)],
            "kind": [kinds[row.label or 0] for row in rows],
            "meta": [{"site": f"site {i}"} if i % 3 else None for i in range(n)],
            "embedding": pa.array([[i, 1.0] for i in range(n)], pa.list_(pa.float32(), 2)),
            "tags": [[3, 1], []] * (n // 2) + [None] * (n % 2),
        },
    }
    for name, table in tables.items():
        pq.write_table(pa.table({"audio": [row.audio for row in rows], **table}), folder / f"{name}.parquet")


def assumed(page: str) -> dict[str, Any]:
    """The names that the blocks of a page presuppose."""
    files = ["train-0.arrow", "train-1.arrow"]
    names: dict[str, Any] = {
        "few": few,
        "step": take,
        "train": take,
        "steps": 10,
        "rank": 1,
        "world_size": 2,
    }
    if page == "tokens.md":
        ranks = [
            forebay.TokenLoader("fineweb/", "gpt2.tiktoken", batch_size=16, rank=rank, world_size=2) for rank in (0, 1)
        ]
        return {**names, "states": [loader.state_dict() for loader in ranks]}
    if page in ("shuffle.md", "troubleshooting.md", "tuning.md"):
        return {**names, "loader": forebay.Loader(files, batch_size=4, n_workers=2)}
    if page == "hangs.md":
        started = forebay.Loader(files, batch_size=4, n_workers=2)
        next(started)
        return {**names, "loader": started}
    if page in ("accelerate.md", "lightning.md", "transformers.md"):
        import torch

        model = torch.nn.Linear(128, 4)
        return {**names, "files": files, "model": model, "optimizer": torch.optim.SGD(model.parameters())}
    if page == "queue.md":
        import torch

        return {**names, "train_ids": torch.arange(50_000), "val_ids": torch.arange(9_000)}
    return {
        **names,
        "model": SimpleNamespace(state_dict=dict),  # for machines without torch
        "files": files,
        "shards": files,
        "bird_shards": files[:1],
        "noise_shards": files[1:],
        "reader": Images(),
        "documents": DOCUMENTS,
        "other": cache.TokenSeqDataset(cache.ListAsyncDataset(DOCUMENTS), 2048),
    }


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_blocks_run(
    page: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    found = [block for block in blocks(page, "python") if HAS_TORCH or not block.needs_torch]
    if not found:
        pytest.skip("needs torch")
    for entry in folder.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if HAS_TORCH:
        import queues

        monkeypatch.setattr("forebay.queue.DataProviderBase.run", queues.fill)
        if page.name == "beyond_audio.md":  # its provider is only a sketch
            queues.filled(Path("data/words"), 1)
    names = assumed(page.name)
    if any(
        block not in found and re.search(r"^import forebay\b", block.text, re.MULTILINE)
        for block in blocks(page, "python")
    ):
        names["forebay"] = forebay
    # A page on preemption has handlers of signals.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    request.addfinalizer(lambda: [signal.signal(number, handler) for number, handler in handlers.items()])
    for block in found:
        names["step"] = take  # also if a block assigned another value to it
        tree = ast.fix_missing_locations(Runnable().visit(ast.parse(block.text)))
        exec(compile(ast.increment_lineno(tree, block.line), str(page), "exec"), names)


def test_commands_parse() -> None:
    lines = [line for page in PAGES for block in blocks(page, "") for line in block.text.splitlines()]
    commands = [line.removeprefix("forebay ") for line in lines if line.startswith("forebay ")]
    assert len(commands) >= 3
    for command in commands:
        assert cli.parser().parse_args(shlex.split(command, comments=True)).run


@pytest.mark.parametrize(
    "page",
    [*PAGES, *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benches/README.md"))],
    ids=lambda page: page.name,
)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def anchors(page: Path) -> set[str]:
    """The link anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_are_there(page: Path) -> None:
    folders = ("benches", "crates", "docs", "examples", "python", "src", "tests")
    files = [str(path) for folder in folders for path in (ROOT / folder).rglob("*.*")]
    for name in re.findall(r"`([\w./-]+\.(?:md|py|rs))\b", page.read_text()):
        assert any(file.endswith(f"/{name}") for file in files) or (ROOT / name).exists(), name


def test_named_types_are_there() -> None:
    """The names of the code in design.md, which a rename would leave behind."""
    files = [
        path
        for folder in ("crates", "src", "python")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in (".rs", ".py")
    ]
    words = {word for file in files for word in re.findall(r"\w+", re.sub(r"//.*", "", file.read_text()))}
    names = re.findall(r"`((?:\w+::)*[A-Z]\w*[a-z]\w*(?:::\w+)?)`", (ROOT / "docs" / "design.md").read_text())
    assert len(names) > 50
    assert not [name for name in names if not set(name.split("::")) <= words]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pictures_of_batches_have_their_axes(page: Path) -> None:
    """Hertz and seconds are shown only with `loader=`."""
    for arguments in re.findall(r"plot\.batch\(([^)]*)\)", page.read_text()):
        assert "loader=" in arguments


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 160


def test_citation_has_the_version() -> None:
    assert f"version: {forebay.__version__}\n" in (ROOT / "CITATION.cff").read_text()

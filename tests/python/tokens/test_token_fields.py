"""Rows of ids with labels and weights, equal to those of a plain oracle; targets that are ignored, and bad rows."""

import itertools
import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
import packing
from digests import digest
from documents import BOS, SMALL, document, encode
from forebay.text import Documents, Ids

EOS = 257
COUNT, GROUP = 300, 16
PARAMETERS: dict[str, Any] = {name: value for name, value in SMALL.items() if name != "tokenizer"} | {"val": []}
FIELDS = {"labels": {"labels"}, "weights": {"weights"}, "both": {"labels", "weights"}}
FITS: list[dict[str, Any]] = [
    {"fit": "drop"},
    {"fit": "carry"},
    *({"fit": "pad", "on_long": on_long} for on_long in ("skip", "cut", "split")),
]

Token = tuple[int, bool, float]
"""An id, whether it is trained on, and its weight."""


def row_of(number: int) -> list[Token]:
    """The tokens of a document: some begin with BOS, some end with EOS, as a tokenizer may have framed them."""
    random_ = random.Random(1000 + number)
    ids = encode(document(number))
    ids = [BOS] * (number % 5 == 0) + ids + [EOS] * (number % 3 == 0)
    is_trained = number % 2 == 0
    tokens = []
    for id_ in ids:
        is_trained ^= random_.random() < 0.1
        tokens.append((id_, is_trained, random_.randrange(8) / 4))
    return tokens


def framed(number: int, *, eos: bool, fields: set[str]) -> list[Token]:
    """The tokens that are packed."""
    tokens = row_of(number)
    if "labels" not in fields:
        tokens = [(id_, True, weight) for id_, _, weight in tokens]
    if "weights" not in fields:
        tokens = [(id_, is_trained, 1.0) for id_, is_trained, _ in tokens]
    if tokens[0][0] != BOS:
        tokens = [(BOS, "labels" not in fields, 0.0), *tokens]
    if eos and tokens[-1][0] != EOS:
        tokens = [*tokens, (EOS, *tokens[-1][1:])]
    return tokens


def write(folder: Path, kinds: tuple[pa.DataType, pa.DataType] = (pa.int64(), pa.float32())) -> Path:
    rows = [row_of(number) for number in range(COUNT)]
    columns = {
        "input_ids": pa.array([[id_ for id_, _, _ in row] for row in rows], pa.list_(pa.int32())),
        "labels": pa.array([[id_ if on else -100 for id_, on, _ in row] for row in rows], pa.list_(kinds[0])),
        "weights": pa.array([[weight for _, _, weight in row] for row in rows], pa.list_(kinds[1])),
    }
    pq.write_table(pa.table(columns), folder / "a.parquet", row_group_size=GROUP)
    return folder / "a.parquet"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("rows"))


def loader(path: Any, fields: set[str], **parameters: Any) -> forebay.TokenLoader:
    return forebay.TokenLoader(Ids(path, **{name: name for name in fields}), **PARAMETERS | parameters)


def oracle(fields: set[str], parameters: dict[str, Any]) -> Iterator[list[Token]]:
    """The rows of one packer without a seed."""
    eos = "eos_id" in parameters

    def slices() -> Iterator[list[list[Any]]]:
        while True:
            for first in range(0, COUNT, GROUP):
                yield [framed(at, eos=eos, fields=fields) for at in range(first, min(first + GROUP, COUNT))]

    # The BOS before a carried rest is no token of the source.
    added = (BOS, "labels" not in fields, 0.0)
    plain = packing.rows(slices(), 64, 20, parameters["fit"], parameters.get("on_long", "skip"), added)
    yield from plain  # type: ignore[misc]


def expected(row: list[Token], *, across: bool, pad: int) -> tuple[list[int], list[int], list[float]]:
    """The inputs, targets and weights of a row."""
    inputs = [id_ for id_, _, _ in row][:63]
    targets, weights = [], []
    for id_, is_trained, weight in row[1:]:
        counts = is_trained and (across or id_ != BOS)
        targets.append(id_ if counts else -100)
        weights.append(weight if counts else 0.0)
    inputs += [pad] * (63 - len(inputs))
    return inputs, targets + [-100] * (63 - len(targets)), weights + [0.0] * (63 - len(weights))


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("fit", FITS, ids=lambda fit: "-".join(fit.values()))
@pytest.mark.parametrize("fields", FIELDS)
def test_rows_are_those_of_a_plain_list(rows: Path, fields: str, fit: dict[str, Any], across: bool) -> None:
    for more in ({}, {"eos_id": EOS, "dtype": "int32"}):
        parameters = {**fit, **more, "loss_across": across}
        pad = EOS if more else BOS
        plain = oracle(FIELDS[fields], parameters)
        with loader(rows, FIELDS[fields], **parameters) as found:
            for batch in itertools.islice(found, 60):
                made = [expected(row, across=across, pad=pad) for row in itertools.islice(plain, 4)]
                assert batch["inputs"].tolist() == [inputs for inputs, _, _ in made]
                assert batch["targets"].tolist() == [targets for _, targets, _ in made]
                assert ("weights" in batch) == ("weights" in FIELDS[fields])
                if "weights" in batch:
                    assert batch["weights"].dtype == np.float32
                    assert batch["weights"].tolist() == [weights for _, _, weights in made]


@pytest.mark.parametrize("kinds", [(pa.int32(), pa.float64()), (pa.int16(), pa.float32()), (pa.int32(), pa.float16())])
def test_types_of_lists(tmp_path: Path, rows: Path, kinds: tuple[pa.DataType, pa.DataType]) -> None:
    other = write(tmp_path, kinds)
    with loader(rows, FIELDS["both"]) as one, loader(other, FIELDS["both"]) as two:
        assert digests(one, 10) == digests(two, 10)


def digests(found: forebay.TokenLoader, n: int) -> list[str]:
    return [digest(batch) for batch in itertools.islice(found, n)]


@pytest.mark.parametrize(
    "parameters",
    [
        {"fit": "carry"},
        {"fit": "carry", "seed": 5, "n_streams": 2, "loss_across": False, "extras": ["doc_ids", "documents"]},
        {"fit": "drop", "infinite": False, "eos_id": EOS},
        {"fit": "pad", "on_long": "split", "extras": ["position_ids", "cu_seqlens"], "seed": 1},
    ],
)
@pytest.mark.parametrize("fields", FIELDS)
def test_resume_before_every_batch(rows: Path, fields: str, parameters: dict[str, Any]) -> None:
    n, of = 16, FIELDS[fields]
    with loader(rows, of, n_workers=1, **parameters) as whole:
        states, made = [json.loads(json.dumps(whole.state_dict()))], []
        for batch in itertools.islice(whole, n):
            made.append(digest(batch))
            states.append(json.loads(json.dumps(whole.state_dict())))
    for n_workers in (2, 8):
        with loader(rows, of, n_workers=n_workers, **parameters) as again:
            assert digests(again, len(made)) == made
    for at in range(len(made)):
        with loader(rows, of, n_workers=2, **parameters) as resumed:
            resumed.load_state_dict(states[at])
            assert resumed.state_dict() == states[at]
            assert digests(resumed, min(3, len(made) - at)) == made[at : at + 3]


def test_ranks(rows: Path) -> None:
    common: dict[str, Any] = {"n_streams": 4, "seed": 4, "shuffle_min_size": 0, "fit": "carry"}
    names = ["inputs", "targets", "weights"]
    with loader(rows, FIELDS["both"], **common) as alone:
        whole = [[batch[name].tolist() for name in names] for batch in itertools.islice(alone, 8)]
    for world_size in (2, 4):
        parts = []
        for rank in range(world_size):
            ranked = common | {"batch_size": 4 // world_size, "rank": rank, "world_size": world_size}
            with loader(rows, FIELDS["both"], **ranked) as part:
                parts.append([[batch[name].tolist() for name in names] for batch in itertools.islice(part, 8)])
        joined = [
            [[*itertools.chain(*field)] for field in zip(*batches, strict=True)] for batches in zip(*parts, strict=True)
        ]
        assert joined == whole


def test_labels_that_mask_nothing_change_nothing(tmp_path: Path) -> None:
    """Ids with labels equal to them, each with a BOS of its own, are the batches of the ids."""
    lists = [[BOS, *encode(document(number))] for number in range(100)]
    ones = [[1] * len(row) for row in lists]
    pq.write_table(pa.table({"input_ids": lists, "labels": lists, "weights": ones}), tmp_path / "a.parquet")
    with loader(tmp_path, set(), fit="drop") as one, loader(tmp_path, FIELDS["both"], fit="drop") as two:
        for plain, marked in itertools.islice(zip(one, two, strict=True), 12):
            assert marked.pop("weights").tolist() == [[1.0] * 63] * 4
            assert digest(plain) == digest(marked)


def test_bad_rows(tmp_path: Path) -> None:
    good = [1, 2, 3] * 9
    ones = [1.0] * 27
    lists: list[tuple[Any, Any, Any]] = [
        (good, good, ones),
        (good, good[:-1], ones),
        (good, good, [1.0]),
        (good, [2, *good[1:]], ones),
        (good, good, [-0.25, *ones[1:]]),
        (good, good, [float("nan"), *ones[1:]]),
        (good, None, ones),
        (good, good, None),
        (good, [None, *good[1:]], ones),
        (good, good, [None, *ones[1:]]),
        (None, good, ones),
        ([], [], []),
    ]
    table = {
        "input_ids": pa.array([row[0] for row in lists * 9], pa.list_(pa.int64())),
        "labels": pa.array([row[1] for row in lists * 9], pa.list_(pa.int64())),
        "weights": pa.array([row[2] for row in lists * 9], pa.list_(pa.float32())),
    }
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    with loader(tmp_path, FIELDS["both"], infinite=False, fit="carry", extras=["documents"]) as found:
        kept = {row % len(lists) for batch in found for row in batch["documents"][:, 4].tolist()}
        errors = [(error["row"] % len(lists), error["kind"], error["reason"]) for error in found.errors()]
    assert kept == {0}
    assert len(errors) == 9 * (len(lists) - 1)
    for at, kind, part in [
        (1, "corrupt", "27 ids and 26 labels"),
        (2, "corrupt", "27 ids and 1 weights"),
        (3, "corrupt", "label 0 is 2, expected the id, 1, or -100"),
        (4, "corrupt", "weight 0 is -0.25"),
        (5, "corrupt", "weight 0 is NaN"),
        (6, "unreadable", "the list of labels is null"),
        (7, "unreadable", "the list of weights is null"),
        (8, "corrupt", "a label in the list is null"),
        (9, "corrupt", "a weight in the list is null"),
        (10, "unreadable", "the list of ids is null"),
        (11, "empty", "the list of ids is empty"),
    ]:
        assert all(found == kind and part in reason for row, found, reason in errors if row == at), (at, errors)


def test_a_wrong_byte_in_the_header_of_a_page_of_lists_ends_a_pass(tmp_path: Path) -> None:
    """Among them headers that claim fewer repetition levels than values: the decoder would skip rows for ever."""
    lists = [list(range(at % 3 + 2)) for at in range(60)]
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"input_ids": lists}),
        path,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        data_page_version="2.0",
    )
    whole = path.read_bytes()
    messages = set()
    # The first page's header begins behind the file's signature.
    for at in range(4, 40):
        path.write_bytes(whole[:at] + b"\0" + whole[at + 1 :])
        try:
            with forebay.TokenLoader(Ids(path), **PARAMETERS | {"infinite": False, "seq_len": 16}) as loader:
                for _ in loader:
                    pass
                messages |= {str(error) for error in loader.errors()}
        except (forebay.ForebayError, OSError) as error:
            messages.add(str(error))
    assert any("repetition levels" in message for message in messages), messages


def test_parameters(tmp_path: Path, rows: Path) -> None:
    source = Ids(rows, labels="labels", weights="weights")
    assert Ids(rows, "input_ids", "labels", "weights") == source
    with forebay.TokenLoader(source, **PARAMETERS) as found:
        copy = pickle.loads(pickle.dumps(found))
        assert digests(copy, 3) == digests(found, 3)
        copy.close()
        state = found.state_dict()
    with loader(rows, {"labels"}) as other, pytest.raises(forebay.StateError, match="weights"):
        other.load_state_dict(state)
    with (
        loader(rows, FIELDS["both"], loss_across=False) as other,
        pytest.raises(forebay.StateError, match="loss_across"),
    ):
        other.load_state_dict(state)
    with loader(rows, set()) as plain:
        assert not {"loss_across", "labels", "weights"} & {*plain.state_dict()["config"], *plain.state_dict()["data"]}
    with pytest.raises(forebay.ConfigError, match="cannot hold the targets -100 of tokens that are not trained on"):
        loader(rows, {"labels"}, dtype="uint16")
    with pytest.raises(forebay.ConfigError, match="the targets -100 of loss_across=False"):
        loader(rows, set(), dtype="uint16", loss_across=False)
    # Weights alone leave all targets.
    with loader(rows, {"weights"}, dtype="uint16") as found:
        assert next(found)["targets"].dtype == np.uint16
    for wrong in ({"labels": ""}, {"labels": "input_ids"}):
        with pytest.raises(forebay.ConfigError, match=r"labels is .* must be the name of another column"):
            Ids(rows, **wrong)
    with pytest.raises(forebay.ConfigError, match='there is no column "mask"'):
        forebay.TokenLoader(Ids(rows, labels="mask"), **PARAMETERS)
    with pytest.raises(forebay.ConfigError, match=r'column "weights" is .*, expected lists of integers, the labels'):
        forebay.TokenLoader(Ids(rows, labels="weights"), **PARAMETERS)
    np.save(tmp_path / "a.npy", np.zeros((9, 9), "<i4"))
    with pytest.raises(forebay.ConfigError, match="has ids alone; labels and weights are columns of lists in Parquet"):
        forebay.TokenLoader(Ids(tmp_path / "a.npy", labels="labels"), **PARAMETERS)


def test_the_bos_of_other_documents(tmp_path: Path) -> None:
    """Without `loss_across` the targets of text differ only where they are the BOS of a document."""
    pq.write_table(pa.table({"text": [document(at) for at in range(200)]}), tmp_path / "a.parquet")
    given = PARAMETERS | {"eos_id": EOS, "fit": "carry"}
    with (
        forebay.TokenLoader(Documents(tmp_path), encode, **given) as one,
        forebay.TokenLoader(Documents(tmp_path), encode, **given, loss_across=False) as two,
    ):
        n_bos = n_eos = 0
        for usual, within in itertools.islice(zip(one, two, strict=True), 20):
            is_bos = usual["targets"] == BOS
            np.testing.assert_array_equal(usual["inputs"], within["inputs"])
            np.testing.assert_array_equal(within["targets"], np.where(is_bos, -100, usual["targets"]))
            n_bos += is_bos.sum()
            n_eos += (within["targets"] == EOS).sum()
        assert n_bos > 20
        assert n_eos > 20

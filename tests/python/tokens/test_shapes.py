"""Extras of one shape, `max_documents`, and documents padded to a multiple, `pad_multiple`."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from documents import BOS, loader

EXTRAS = ["doc_ids", "position_ids", "cu_seqlens", "documents"]


@pytest.mark.parametrize("parameters", [{}, {"fit": "pad", "on_long": "split"}, {"infinite": False, "fit": "carry"}])
def test_cu_seqlens_of_one_length(parquets: Path, parameters: dict[str, Any]) -> None:
    with loader(parquets, extras=EXTRAS, **parameters) as free:
        expected = list(itertools.islice(free, 20))
    with loader(parquets, extras=EXTRAS, max_documents=120, **parameters) as found:
        batches = list(itertools.islice(found, 20))
    assert len(batches) == len(expected) > 10
    for batch, other in zip(batches, expected, strict=True):
        starts = batch.pop("cu_seqlens")
        n = len(other["cu_seqlens"])
        assert starts.shape == (121,)
        assert starts.dtype == np.int32
        np.testing.assert_array_equal(starts[:n], other["cu_seqlens"])
        assert (starts[n:] == batch["inputs"].size).all()
        for name, values in batch.items():
            np.testing.assert_array_equal(values, other[name])


def test_more_documents_than_max_documents(parquets: Path) -> None:
    with loader(parquets, extras=EXTRAS) as free:
        counts = [len(batch["cu_seqlens"]) - 1 for batch in itertools.islice(free, 30)]
    at = next(n for n, count in enumerate(counts) if count > counts[0] and count == max(counts[: n + 1]))
    most = max(counts[:at])
    with loader(parquets, extras=EXTRAS, max_documents=most) as small:
        batches = [next(small) for _ in range(at)]
        state = json.loads(json.dumps(small.state_dict()))
        with pytest.raises(forebay.ConfigError, match=f"batch {at} has {counts[at]} documents, and max_documents is"):
            next(small)
    with loader(parquets, extras=EXTRAS, max_documents=max(counts)) as large:
        large.load_state_dict(state)
        batches += [next(large) for _ in range(30 - at)]
    assert [int((np.diff(batch["cu_seqlens"]) > 0).sum()) for batch in batches] == counts


@pytest.mark.parametrize("multiple", [1, 3, 9, 21])
@pytest.mark.parametrize("fit", ["drop", "carry", "pad"])
def test_documents_padded_to_a_multiple(parquets: Path, multiple: int, fit: str) -> None:
    more: dict[str, Any] = {"on_long": "split"} if fit == "pad" else {}
    more |= {"pad_id": 300} if multiple > 1 or fit == "pad" else {}
    with loader(parquets, fit=fit, pad_multiple=multiple, extras=EXTRAS, **more) as found:
        states = [json.loads(json.dumps(found.state_dict()))]
        batches = []
        for batch in itertools.islice(found, 12):
            batches.append(batch)
            states.append(json.loads(json.dumps(found.state_dict())))
        padded = found.stats()["packing"]["padded"]
    assert (padded > 0) == (multiple > 1 or fit == "pad")
    for batch in batches:
        inputs, targets = batch["inputs"], batch["targets"]
        if multiple > 1:
            assert not (batch["cu_seqlens"] % multiple).any()
        positions = batch["position_ids"]
        assert (positions.ravel()[batch["cu_seqlens"][:-1]] == 0).all()
        assert (np.diff(batch["doc_ids"]) == (positions[:, 1:] == 0)).all()
        # A target is the next input of the same document, or ignored; with padding documents never meet.
        inside = positions[:, 1:] > 0
        ignored = targets == -100
        assert (ignored[:, :-1] | (targets[:, :-1] == inputs[:, 1:]))[inside].all()
        if multiple > 1:
            assert ignored[:, :-1][~inside].all()
            assert (inputs[positions == 0] == BOS)[batch["doc_ids"][positions == 0] == 0].all()
        assert ignored[inputs == 300].all()
    for at in range(len(batches)):
        with loader(parquets, fit=fit, pad_multiple=multiple, extras=EXTRAS, n_workers=1 + at % 3, **more) as again:
            again.load_state_dict(states[at])
            for batch, other in zip(itertools.islice(again, 3), batches[at:], strict=False):
                for name, values in batch.items():
                    np.testing.assert_array_equal(values, other[name])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"pad_multiple": 4}, "pad_multiple is 4, must divide seq_len, which is 63"),
        ({"pad_multiple": 0}, "pad_multiple is 0, must be 1"),
        ({"pad_multiple": 3, "dtype": "uint16"}, "cannot hold the targets -100 of pad_multiple"),
        ({"max_documents": 9}, "max_documents is for the length of the extra"),
        ({"max_documents": 0, "extras": ["cu_seqlens"]}, "max_documents is 0, must be 1"),
        ({"max_documents": 253, "extras": ["cu_seqlens"]}, "max_documents is 253, must be at most 252"),
    ],
)
def test_bad_parameters(parquets: Path, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(forebay.ConfigError, match=message):
        loader(parquets, **parameters)

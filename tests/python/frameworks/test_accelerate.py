"""`forebay.accelerate` on one and two processes, with kill -9 and resume: the rows are those of an undisturbed run."""

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import forebay
from launched import global_batches, kill_at, run, start, steps
from paths import EXAMPLES
from recordings import SMALL, TINY
from utterances import UTTERANCES

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")

import forebay.accelerate  # noqa: E402
from forebay.torch import DataLoader, IterableDataset  # noqa: E402

LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--num_machines=1", "--mixed_precision=no"]
LAUNCH += ["--dynamo_backend=no", "--main_process_port=0"]


def launch(n: int, script: Path, *arguments: object) -> list[object]:
    """`accelerate launch` on `n` processes."""
    return [*LAUNCH, f"--num_processes={n}", *(["--multi_gpu"] if n > 1 else []), script, *arguments]


def example(n: int, folder: Path, *arguments: object) -> list[object]:
    return launch(n, EXAMPLES / "train_accelerate.py", folder, *arguments)


@pytest.mark.parametrize("length", [("--steps", 30), ("--epochs", 2)], ids=["infinite", "finite"])
def test_killed_and_resumed_on_two_processes(
    length: tuple[object, ...], tiny_shards: list[Path], tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run(example(2, whole, *tiny_shards, *length))
    kill_at(23, example(2, killed, *tiny_shards, *length), killed, 2)
    run(example(2, killed, *tiny_shards, *length))
    assert [steps(killed, rank) for rank in range(2)] == [steps(whole, rank) for rank in range(2)]
    rows = list(global_batches(whole, 2).values())
    if length[0] == "--epochs":
        with forebay.Loader.eval(tiny_shards, **TINY) as loader:
            good = [row for batch in loader for row in batch["index"].tolist()]
        assert [sorted(chain.from_iterable(part)) for part in (rows[:25], rows[25:])] == [good, good]
        # Every second step, and at the end of each pass.
        applied = [step for step, (_, is_applied) in steps(whole, 0).items() if is_applied == "True"]
        assert applied == [*range(2, 25, 2), 25, *range(27, 50, 2), 50]
    else:
        assert all(len(batch) == 12 for batch in rows)


def test_resumed_on_one_process(tiny_shards: list[Path], tmp_path: Path) -> None:
    whole, moved = tmp_path / "whole", tmp_path / "moved"
    run(example(2, whole, *tiny_shards, "--steps", 20))
    run(example(2, moved, *tiny_shards, "--steps", 10))
    (moved / "rows-0.txt").unlink()
    run(example(1, moved, *tiny_shards, "--steps", 20))
    expected = global_batches(whole, 2)
    assert global_batches(moved, 1) == {step: expected[step] for step in range(11, 21)}


PREPARED = """
import sys
import torch.utils.data
from accelerate import Accelerator
import forebay
from forebay.torch import IterableDataset, rank_and_world_size, to_tensors

class Own(torch.utils.data.IterableDataset):
    def __init__(self, loader):
        self.loader = loader
    def __iter__(self):
        for batch in self.loader:
            yield to_tensors(batch)

accelerator = Accelerator(cpu=True)
parameters = dict(sample_rate=8000, clip_seconds=0.02, n_fft=64, hop_length=32, n_mels=8, batch_size=8)
loader = forebay.Loader.eval(sys.argv[2:], **parameters, **rank_and_world_size())
dataset = Own(loader) if sys.argv[1] == "own" else IterableDataset(loader)
for batch in accelerator.prepare(torch.utils.data.DataLoader(dataset, batch_size=None)):
    pass
print("went through")
"""


@pytest.mark.parametrize("dataset", ["own", "ours"])
def test_a_plain_dataloader_is_refused(dataset: str, tiny_shards: list[Path], tmp_path: Path) -> None:
    """It would deal the rows of rank 0 to both."""
    script = tmp_path / "script.py"
    script.write_text(PREPARED)
    process = start(launch(2, script, dataset, *tiny_shards))
    output, _ = process.communicate()
    assert process.returncode != 0
    assert "use forebay.accelerate.prepare(accelerator, loader)" in output
    assert "went through" not in output


@pytest.fixture
def accelerator() -> Iterator[Any]:
    yield accelerate.Accelerator(cpu=True)
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()


def test_prepare_twice_changes_nothing(accelerator: Any, finite: forebay.Loader) -> None:
    batches = forebay.accelerate.prepare(accelerator, finite)
    assert accelerator.prepare(batches) is batches
    assert forebay.accelerate.prepare(accelerator, batches) is batches
    assert forebay.accelerate.prepare(accelerator, DataLoader(finite)).loader is finite
    own = DataLoader(finite)
    assert accelerator.prepare(own) is own


def test_the_last_batch_is_known(accelerator: Any, finite: forebay.Loader) -> None:
    batches = forebay.accelerate.prepare(accelerator, finite)
    n, state = len(batches), accelerator.gradient_state
    assert [state.end_of_dataloader for _ in batches] == [False] * (n - 1) + [True]
    assert not state.in_dataloader
    for number, _ in enumerate(batches):
        if number == 4:
            break
    del _
    assert not state.in_dataloader
    assert len(list(batches)) == n


def test_whole_recordings_in_batches_by_duration(accelerator: Any, utterances: Path, tmp_path: Path) -> None:
    """The last batch is known, and a checkpoint has the position."""
    with forebay.Loader(utterances, **UTTERANCES, infinite=False) as loader:
        expected = [[batch["index"].tolist() for batch in loader] for _ in range(2)]
        batches = forebay.accelerate.prepare(accelerator, loader)
        state, n = accelerator.gradient_state, len(batches)
        found = []
        for number, batch in enumerate(batches):
            found.append(batch["index"].tolist())
            assert batch["spectrogram"].shape[-1] >= int(batch["valid_frames"].max())
            assert state.end_of_dataloader == (number == n - 1)
            if number == 4:
                accelerator.save_state(tmp_path / "middle")
    assert n == len(found) == len(expected[0])
    assert sorted(chain.from_iterable(found)) == [*range(60)]
    with forebay.Loader(utterances, **UTTERANCES, infinite=False) as loader:
        accelerator._custom_objects.clear()
        batches = forebay.accelerate.prepare(accelerator, loader)
        accelerator.load_state(tmp_path / "middle")
        assert [batch["index"].tolist() for batch in batches] == found[5:]


def test_batches_are_not_skipped_twice(accelerator: Any, finite: forebay.Loader) -> None:
    batches = forebay.accelerate.prepare(accelerator, finite)
    with pytest.raises(forebay.ConfigError, match="skip_first_batches would leave out 5 batches more"):
        next(iter(accelerator.skip_first_batches(batches, 5)))


def test_wrong_arguments(accelerator: Any, tiny_shards: list[Path]) -> None:
    with forebay.Loader(tiny_shards, **SMALL, rank=1, world_size=2) as loader:
        with pytest.raises(forebay.ConfigError, match=r"rank 1 of world_size 2, but this is process 0 of 1, .*after"):
            forebay.accelerate.prepare(accelerator, loader)
        with pytest.raises(TypeError, match="accelerator is of type SimpleNamespace, which has no device"):
            forebay.accelerate.prepare(SimpleNamespace(), loader)
    wrong: Any = IterableDataset
    with pytest.raises(TypeError, match="'loader': "):
        forebay.accelerate.prepare(accelerator, wrong)

"""`forebay.transformers`: runs that are killed and resumed, and evaluations, on one rank and two; names; errors."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import cache
from paths import EXAMPLES, HELPERS

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import safetensors.torch  # noqa: E402

import forebay.torch  # noqa: E402
import trainings  # noqa: E402
from forebay.transformers import STATE_FILE, Trainer, TrainerMixin  # noqa: E402
from trainings import Net, Words, arguments, make_loader, of_tokens, run  # noqa: E402

SECONDS = 300
"""A limit for what hangs."""

FINITE: dict[str, Any] = {"loader": {"infinite": False}, "num_train_epochs": 3}
INFINITE: dict[str, Any] = {"max_steps": 40}
TOKENS: dict[str, Any] = {"tokens": True, "max_steps": 20, "save_steps": 5}


@pytest.fixture(autouse=True)
def _one_thread(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level("ERROR", "forebay")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def start(scenes: list[dict[str, Any]], ranks: int = 1) -> "subprocess.Popen[str]":
    """The program `trainings.py`, in as many processes as ranks."""
    launcher = []
    if ranks > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={port}"]
    command = [sys.executable, *launcher, str(HELPERS / "trainings.py"), json.dumps(scenes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def end(process: "subprocess.Popen[str]") -> tuple[int, str]:
    with process:
        try:
            said, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return process.returncode, said


def taken(output: Path, name: str = "whole", rank: int = 0) -> list[Any]:
    batches: list[Any] = json.loads((output / f"{name}-{rank}.json").read_text())["taken"]
    return batches


def checkpoints(output: Path) -> list[Path]:
    return sorted(output.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))


def same_weights(one: Any, other: Any) -> bool:
    weights = zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in weights)


@pytest.fixture(scope="module")
def killed(mixed_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outputs of four runs that SIGKILL ended: `finite` and `infinite` of one rank, `audio` and `words` of two."""
    output = tmp_path_factory.mktemp("killed")
    folder = str(mixed_folder)
    alone = [
        {**FINITE, "folder": folder, "output": str(output / "finite"), "kill_at": 26},
        {**INFINITE, "folder": folder, "output": str(output / "infinite"), "kill_at": 33},
    ]
    processes = [
        start(alone),
        start([{**FINITE, "folder": folder, "output": str(output / "audio"), "kill_at": 17}], ranks=2),
        start([{**TOKENS, "folder": folder, "output": str(output / "words"), "kill_at": 13}], ranks=2),
    ]
    for number, process in enumerate(processes):
        code, said = end(process)
        assert code == (1 if number else 0), said
        assert not number or "Signal 9 (SIGKILL)" in said
    return output


class TestResume:
    """On one rank. Batches and weights are those of a run that nobody ended."""

    @pytest.mark.parametrize(("name", "scene", "done"), [("finite", FINITE, 21), ("infinite", INFINITE, 28)])
    def test_after_sigkill(
        self, killed: Path, mixed_folder: Path, tmp_path: Path, name: str, scene: dict[str, Any], done: int
    ) -> None:
        whole = run(mixed_folder, tmp_path, **scene)
        expected = taken(tmp_path)
        with make_loader(mixed_folder, **scene.get("loader", {})) as loader:
            passes = [[batch["index"].tolist() for batch in islice(loader, 20)] for _ in range(3)]
        assert expected[:19] + expected[19:38] == [*passes[0], *passes[1], *passes[2]][:38]
        resumed = run(mixed_folder, killed / name, resume=True, name="resumed", **scene)
        assert taken(killed / name, "resumed") == expected[done:]
        assert same_weights(whole, resumed)
        assert resumed.state.epoch == whole.state.epoch

    @pytest.mark.parametrize(
        "scene",
        [
            {**FINITE, "gradient_accumulation_steps": 2, "save_steps": 5},  # 19 batches are 10 steps
            {**FINITE, "save_strategy": "epoch"},
            {**INFINITE, "gradient_accumulation_steps": 3, "max_steps": 8, "save_steps": 3},
            {"tokens": True, "loader": {"infinite": False, "batch_size": 64}, "max_steps": 16, "save_steps": 4},
            {"utterances": True, "loader": {"infinite": False}, "num_train_epochs": 2, "save_steps": 4},
            {"utterances": True, "max_steps": 16, "save_steps": 4},
        ],
        ids=["accumulation", "epochs", "infinite", "tokens", "utterances", "infinite-utterances"],
    )
    def test_from_every_checkpoint(
        self, mixed_folder: Path, utterances: Path, tmp_path: Path, scene: dict[str, Any]
    ) -> None:
        """Also at the end of a pass, and of the run."""
        if scene.get("utterances"):
            mixed_folder = utterances
        whole = run(mixed_folder, tmp_path, **scene)
        expected = taken(tmp_path)
        for checkpoint in checkpoints(tmp_path):
            resumed = run(mixed_folder, tmp_path / "again", resume=str(checkpoint), **scene)
            found = taken(tmp_path / "again")
            assert found == expected[len(expected) - len(found) :]
            assert resumed.state.global_step == whole.state.global_step
            assert same_weights(whole, resumed)
        assert found == []

    def test_no_batch_is_read_again(self, mixed_folder: Path, tmp_path: Path) -> None:
        """Whatever `ignore_data_skip` says."""
        run(mixed_folder, tmp_path, **FINITE)
        for ignores in (False, True):
            with make_loader(mixed_folder, infinite=False) as loader:
                args = arguments(tmp_path, num_train_epochs=2, ignore_data_skip=ignores)
                trainer = Trainer(Net(), args, train_dataset=loader)
                trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-28"))
                assert loader.stats()["delivered"]["batches"] == len(trainer.model.taken) == 10
                assert trainer.args.ignore_data_skip is ignores

    @pytest.mark.parametrize("wrap", [forebay.torch.IterableDataset, forebay.torch.DataLoader])
    def test_other_faces(self, mixed_folder: Path, tmp_path: Path, wrap: Any) -> None:
        with make_loader(mixed_folder) as loader:
            expected = [batch["index"].tolist() for batch in islice(loader, 12)]
        for resume, begin in ((None, 0), (True, 7)):
            with make_loader(mixed_folder) as loader:
                trainer = Trainer(Net(), arguments(tmp_path, max_steps=12, save_steps=7), train_dataset=wrap(loader))
                if resume:
                    (tmp_path / "checkpoint-12").rename(tmp_path / "done")
                trainer.train(resume_from_checkpoint=resume)
            assert trainer.model.taken == expected[begin:]

    def test_a_cache(self, tmp_path: Path) -> None:
        rows = [
            {"spectrogram": np.full((8, 6), n, np.float32), "label": np.int64(n % 4), "index": n} for n in range(40)
        ]
        rows = [{name: np.asarray(value) for name, value in row.items()} for row in rows]
        dataset = cache.PermutationDataset(cache.ListAsyncDataset(rows), seed=1)
        found = []
        for resume in (None, str(tmp_path / "checkpoint-7")):
            with cache.DataLoader(dataset, 8) as loader:
                trainer = Trainer(Net(), arguments(tmp_path, max_steps=12), train_dataset=loader)
                trainer.train(resume_from_checkpoint=resume)
                found.append(trainer.model.taken)
        assert found[1] == found[0][7:]
        assert len(found[0]) == 12

    def test_training_twice_goes_on(self, mixed_folder: Path, tmp_path: Path) -> None:
        with make_loader(mixed_folder, infinite=False) as loader:
            expected = [batch["index"].tolist() for _ in range(2) for batch in loader]
        with make_loader(mixed_folder, infinite=False) as loader:
            args = arguments(tmp_path, num_train_epochs=1, save_strategy="no")
            trainer = Trainer(Net(), args, train_dataset=loader)
            trainer.train()
            trainer.train()
        assert trainer.model.taken == expected

    def test_training_twice_after_a_pass_that_was_left(self, mixed_folder: Path, tmp_path: Path) -> None:
        """The second run begins with the next pass, not with the rest of this one or with this one again."""
        with make_loader(mixed_folder, infinite=False) as loader:
            passes = [[batch["index"].tolist() for batch in loader] for _ in range(2)]
        assert all(len(whole) > 3 for whole in passes)
        with make_loader(mixed_folder, infinite=False) as loader:
            trainer = Trainer(Net(), arguments(tmp_path, max_steps=3, save_strategy="no"), train_dataset=loader)
            trainer.train()
            trainer.train()
        assert trainer.model.taken == [*passes[0][:3], *passes[1][:3]]


class TestRanks:
    """On two ranks, by torchrun."""

    @pytest.fixture(scope="class")
    @classmethod
    def resumed(cls, killed: Path, mixed_folder: Path) -> Path:
        """After `killed`: the two runs of two ranks are resumed, and there are evaluations."""
        folder, output = str(mixed_folder), str(killed)
        scenes = [
            {**FINITE, "folder": folder, "output": f"{output}/audio", "resume": True, "name": "resumed"},
            {**TOKENS, "folder": folder, "output": f"{output}/words", "resume": True, "name": "resumed"},
            *[
                {**scene, "folder": folder, "output": output, "name": f"{scene['name']}-2"}
                for scene in (*EVALUATIONS, lonely(mixed_folder))
            ],
        ]
        code, said = end(start(scenes, ranks=2))
        assert code == 0, said
        return killed

    def test_a_rank_without_any_batch(self, resumed: Path, mixed_folder: Path) -> None:
        """Takes part in the evaluation of the other's."""
        found = json.loads((resumed / "lonely-2.json").read_text())
        assert found["eval_rows"] == found["num_examples"] == lonely(mixed_folder)["loader"]["batch_size"]

    def test_audio_after_sigkill(self, resumed: Path, mixed_folder: Path) -> None:
        """Of each rank the rows that its loader has; a rank without rows has a row of zeros in their place."""
        for rank in range(2):
            with make_loader(mixed_folder, infinite=False, rank=rank, world_size=2) as loader:
                expected = [batch["index"].tolist() or [0] for _ in range(3) for batch in loader]
            assert len(expected) == 30
            assert taken(resumed / "audio", "resumed", rank) == expected[14:]

    def test_tokens_after_sigkill(self, resumed: Path, mixed_folder: Path) -> None:
        for rank in range(2):
            with make_loader(mixed_folder, tokens=True, rank=rank, world_size=2) as loader:
                expected = [of_tokens(batch["inputs"], batch["targets"]) for batch in islice(loader, 20)]
            assert taken(resumed / "words", "resumed", rank) == expected[10:]

    def test_weights_stay_finite(self, resumed: Path) -> None:
        weights = safetensors.torch.load_file(checkpoints(resumed / "audio")[-1] / "model.safetensors")
        assert all(torch.isfinite(weight).all() for weight in weights.values())

    def test_one_rank_goes_on(self, resumed: Path, mixed_folder: Path, tmp_path: Path) -> None:
        """From the checkpoint of two: its batches are theirs, side by side."""
        for name, scene, steps, done in (("audio", FINITE, 30, 14), ("words", TOKENS, 20, 10)):
            parameters = scene.get("loader", {})
            ranks: list[list[Any]] = []
            for rank in range(2):
                with make_loader(mixed_folder, name == "words", rank=rank, world_size=2, **parameters) as loader:
                    batches = [batch for _ in range(3) for batch in islice(loader, steps)]
                    ranks.append(batches[:steps])
            resume = str(resumed / name / f"checkpoint-{done}")
            sizes = {"batch_size": 2 * (4 if name == "words" else 16)}
            run(mixed_folder, tmp_path, **{**scene, "loader": {**parameters, **sizes}, "resume": resume})
            expected = []
            for parts in zip(*ranks, strict=True):
                both = {field: np.concatenate([part[field] for part in parts]) for field in parts[0]}
                is_tokens = "inputs" in both
                expected.append(of_tokens(both["inputs"], both["targets"]) if is_tokens else both["index"].tolist())
            assert taken(tmp_path) == expected[done:]

    @pytest.mark.parametrize("number", range(4))
    def test_evaluations(self, resumed: Path, mixed_folder: Path, tmp_path: Path, number: int) -> None:
        """Are those of one rank, and of all rows, each once."""
        scene = EVALUATIONS[number]
        loader = {**scene["loader"]}
        for name in ("batch_size", "shuffle_min_size"):  # of a rank
            loader[name] *= 2
        alone = {**scene, "loader": loader}
        del alone["evaluates"]
        trainings.evaluate(mixed_folder, tmp_path, **alone)
        one = json.loads((tmp_path / f"{scene['name']}.json").read_text())
        two = json.loads((resumed / f"{scene['name']}-2.json").read_text())
        assert two["eval_loss"] == pytest.approx(one["eval_loss"], rel=1e-5)
        for name in ("eval_rows", "eval_labels", "num_examples"):
            assert two[name] == one[name]
        assert two["index"] == one["index"]
        if not scene.get("tokens"):
            assert one["num_examples"] == 285  # 15 of 300 are bad
            assert sorted(one["index"]) == [n for n in range(300) if n % 20 != 7]
        assert two["calls"][-1] is True
        assert not any(two["calls"][:-1])


EVALUATIONS: list[dict[str, Any]] = [
    {"evaluates": True, "name": "short", "loader": {"batch_size": 16, "shuffle_min_size": 0, "n_streams": None}},
    {"evaluates": True, "name": "shuffled", "loader": {"batch_size": 47, "shuffle_min_size": 40}},
    {
        "evaluates": True,
        "name": "online",
        "loader": {"batch_size": 20, "shuffle_min_size": 40},
        "batch_eval_metrics": True,
    },
    {"evaluates": True, "name": "tokens", "tokens": True, "loader": {"batch_size": 16, "shuffle_min_size": 20}},
]


class TestNames:
    """Fields of a batch, and arguments of the model."""

    class Renamed(Net):
        def forward(self, input_values: Any, rows: Any = None, labels: Any = None) -> Any:
            assert rows is not None
            return super().forward(input_values, rows, labels)

    def train(self, model: Any, loader: Any, tmp_path: Path, fields: Any = None, **changes: Any) -> Any:
        args = arguments(tmp_path, max_steps=2, save_strategy="no", **changes)
        trainer = Trainer(model, args, train_dataset=loader, fields=fields)
        trainer.train()
        return trainer

    def test_given(self, mixed_folder: Path, tmp_path: Path) -> None:
        """`path`, which the model does not take, is no error."""
        with make_loader(mixed_folder, outputs=["path"]) as loader:
            trainer = self.train(self.Renamed(), loader, tmp_path, {"spectrogram": "input_values", "index": ("rows",)})
            assert len(trainer.model.taken) == 2

    def test_missing(self, mixed_folder: Path, tmp_path: Path) -> None:
        with make_loader(mixed_folder) as loader:
            with pytest.raises(
                forebay.ConfigError, match=r"Renamed needs input_values; it takes .* batches have spectrogram, "
            ):
                self.train(self.Renamed(), loader, tmp_path)
            with pytest.raises(
                forebay.ConfigError, match=r"fields has wave; batches have spectrogram, label, index only"
            ):
                self.train(self.Renamed(), loader, tmp_path, {"wave": "input_values"})

    def test_all_are_passed_on_request(self, mixed_folder: Path, tmp_path: Path) -> None:
        with make_loader(mixed_folder, outputs=["start"]) as loader, pytest.raises(TypeError, match="'start'"):
            self.train(Net(), loader, tmp_path, remove_unused_columns=False)

    @pytest.mark.parametrize("dtype", ["int64", "uint16"])
    def test_targets_are_not_shifted_twice(self, mixed_folder: Path, tmp_path: Path, dtype: str) -> None:
        with make_loader(mixed_folder, tokens=True, infinite=False, dtype=dtype) as loader:
            batches = forebay.torch.IterableDataset(loader)
            model = Words().eval()
            found = Trainer(model, arguments(tmp_path)).evaluate(loader)["eval_loss"]
            losses, rows = 0.0, 0
            loader.set_epoch(0)
            for batch in batches:
                inputs, targets = batch["inputs"].long(), batch["targets"].long()
                with torch.no_grad():
                    logits = model(input_ids=inputs).logits
                losses += torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item() * len(
                    inputs
                )
                rows += len(inputs)
        assert found == pytest.approx(losses / rows, rel=1e-5)

    def test_a_second_shift_is_refused(self, mixed_folder: Path, tmp_path: Path) -> None:
        with make_loader(mixed_folder, tokens=True) as loader:
            with pytest.raises(
                forebay.ConfigError, match=r"Words shifts its labels by one, and 'targets' .* 'shift_labels'"
            ):
                self.train(Words(), loader, tmp_path, {"targets": "labels"})
            with pytest.raises(forebay.ConfigError, match=r"label_smoothing_factor shifts labels by one"):
                self.train(Words(), loader, tmp_path, label_smoothing_factor=0.1)

            class Old(Words):
                accepts_loss_kwargs = False

            with pytest.raises(forebay.ConfigError, match=r"Old shifts its labels by one and takes no shift_labels"):
                self.train(Old(), loader, tmp_path)

            class Wrapped(torch.nn.Module):  # type: ignore[misc, name-defined]
                def __init__(self) -> None:
                    super().__init__()
                    self.inner = Words()

                def forward(self, input_ids: Any, labels: Any) -> Any:
                    return self.inner(input_ids=input_ids, labels=labels)

            with pytest.raises(forebay.ConfigError, match=r"Wrapped shifts its labels by one"):
                self.train(Wrapped(), loader, tmp_path)


class TestRefused:
    """What would be wrong without a word, and what a checkpoint lacks."""

    def test_a_checkpoint_without_position(self, mixed_folder: Path, tmp_path: Path) -> None:
        run(mixed_folder, tmp_path, max_steps=7)
        path = tmp_path / "checkpoint-7" / STATE_FILE
        whole = path.read_text()
        damages = {
            whole[:40]: r"forebay_state.json is damaged .* resume from another checkpoint",
            "{}": "has another format",
            whole.replace('"batch_size": 16', '"batch_size": 17').replace("fingerprint", "other"): "belongs to another",
        }
        for text, message in damages.items():
            path.write_text(text)
            with pytest.raises(forebay.StateError, match=message):
                run(mixed_folder, tmp_path, max_steps=9, resume=True)
        path.unlink()
        with pytest.raises(
            forebay.StateError, match=r"checkpoint-7 has no forebay_state.json, .* Resume from a checkpoint"
        ):
            run(mixed_folder, tmp_path, max_steps=9, resume=True)

    def test_no_checkpoint(self, mixed_folder: Path, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="No valid checkpoint"):
            run(mixed_folder, tmp_path, max_steps=9, resume=True)

    def test_other_accumulation(self, mixed_folder: Path, tmp_path: Path) -> None:
        run(mixed_folder, tmp_path, **{**FINITE, "num_train_epochs": 1})
        with pytest.raises(
            forebay.ConfigError, match=r"gradient_accumulation_steps is 2, .* saved after 7 batches of epoch 0"
        ):
            run(mixed_folder, tmp_path, **FINITE, gradient_accumulation_steps=2, resume=str(tmp_path / "checkpoint-7"))

    def test_what_does_not_fit(self, mixed_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def make(loader: Any, *, evaluation: Any = None, **changes: Any) -> None:
            Trainer(Net(), arguments(tmp_path, max_steps=1, **changes), train_dataset=loader, eval_dataset=evaluation)

        with make_loader(mixed_folder) as loader, make_loader(mixed_folder, rank=1, world_size=2) as other:
            with pytest.raises(
                forebay.ConfigError, match=r"rank 1 of world_size 2, the Trainer has rank 0 of 1; make the"
            ):
                make(other)
            for evaluation in (loader, {"a": loader}):
                with pytest.raises(forebay.ConfigError, match=r"eval_dataset: the loader is infinite"):
                    make(None, evaluation=evaluation)
            with pytest.raises(forebay.ConfigError, match=r"eval_dataset has the loader of train_dataset"):
                make(loader, evaluation=forebay.torch.IterableDataset(loader))
            with pytest.raises(forebay.ConfigError, match=r"auto_find_batch_size is True"):
                make(loader, auto_find_batch_size=True)
            with pytest.raises(forebay.ConfigError, match=r"train_dataset is a DevicePrefetcher"):
                make(forebay.torch.DevicePrefetcher(loader, "cpu"))
            with pytest.warns(UserWarning, match=r"dataloader_num_workers is 2 and has no effect"):
                make(loader, dataloader_num_workers=2)
            with pytest.raises(ValueError, match="max_steps has to be specified"):
                Trainer(Net(), arguments(tmp_path), train_dataset=loader)
        monkeypatch.setattr(transformers.TrainingArguments, "world_size", 2)
        finite = make_loader(mixed_folder, tokens=True, infinite=False, world_size=2)
        with (
            finite,
            pytest.raises(forebay.ConfigError, match=r"finite TokenLoader may differ by some batches between ranks"),
        ):
            make(finite)

    def test_batch_sizes_are_those_of_the_loader(self, mixed_folder: Path, tmp_path: Path) -> None:
        with (
            make_loader(mixed_folder, infinite=False) as loader,
            make_loader(mixed_folder, infinite=False, batch_size=50) as evaluation,
        ):
            args = arguments(tmp_path, num_train_epochs=1, per_device_train_batch_size=4, save_strategy="no")
            with pytest.warns(
                UserWarning, match=r"per_device_train_batch_size is 4, the loader returns batches of 16 rows"
            ):
                trainer = Trainer(Net(), args, train_dataset=loader, eval_dataset=evaluation)
            assert (args.per_device_train_batch_size, args.per_device_eval_batch_size) == (16, 50)
            assert trainer.get_total_train_batch_size(args) == 16
            assert trainer.num_examples(trainer.get_train_dataloader()) == 300
            assert trainer.train().global_step == 19

    def test_a_trainer_that_skips_otherwise(self, mixed_folder: Path, tmp_path: Path) -> None:
        """As another version might: nothing is lost without a word."""
        with make_loader(mixed_folder) as loader:
            trainer = Trainer(Net(), arguments(tmp_path, max_steps=9), train_dataset=loader)
            batches = trainer.get_train_dataloader()
            batches.steps.done, batches.steps._is_resumed = 3, True
            with pytest.raises(forebay.StateError, match="requested batch 0 of epoch 0, but the next one is batch 3"):
                next(iter(batches))


class TestWithoutTheMixin:
    """The Trainer alone says that it needs it."""

    def test_a_dataset(self, mixed_folder: Path, tmp_path: Path) -> None:
        with make_loader(mixed_folder) as loader:
            dataset = forebay.torch.IterableDataset(loader)
            trainer = transformers.Trainer(Net(), arguments(tmp_path, max_steps=1), train_dataset=dataset)
            with pytest.raises(
                forebay.ConfigError, match=r"batch_size of DataLoader is 8, .*class MyTrainer\(TrainerMixin"
            ):
                trainer.train()

    @pytest.mark.parametrize("is_ours", [False, True])
    def test_a_dataloader_of_the_user(self, mixed_folder: Path, tmp_path: Path, is_ours: bool) -> None:
        class Mine(transformers.Trainer):  # type: ignore[misc, name-defined]
            def get_train_dataloader(self) -> Any:
                if is_ours:
                    return forebay.torch.DataLoader(self.train_dataset)
                dataset = forebay.torch.IterableDataset(self.train_dataset)
                return torch.utils.data.DataLoader(dataset, batch_size=None)

        with make_loader(mixed_folder) as loader:
            trainer = Mine(Net(), arguments(tmp_path, max_steps=1), train_dataset=loader)
            trainer.compute_loss = lambda model, batch, **_: model(
                batch["spectrogram"], batch["index"], batch["label"]
            )["loss"]
            with pytest.warns(UserWarning, match=r"will not hold the position in the data.*TrainerMixin"):
                trainer.train()

    def test_other_datasets_pass(self, tmp_path: Path) -> None:
        rows = [{"spectrogram": torch.full((8, 6), float(n)), "labels": n % 4, "index": n} for n in range(20)]

        class Mine(TrainerMixin, transformers.Trainer):  # type: ignore[misc, name-defined]
            pass

        args = arguments(tmp_path, max_steps=4, save_steps=2)
        whole = Mine(Net(), args, train_dataset=rows, eval_dataset=rows)
        whole.train()
        assert not list(tmp_path.glob(f"*/{STATE_FILE}"))
        resumed = Mine(Net(), args, train_dataset=rows)
        resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
        assert resumed.model.taken == whole.model.taken[2:]
        assert whole.evaluate()["eval_loss"] > 0
        assert len(whole.predict(rows).label_ids) == 20


def test_an_evaluation_does_not_move_training(mixed_folder: Path, tmp_path: Path) -> None:
    """Each is the same pass; also by name, and in the middle of an epoch."""
    with (
        make_loader(mixed_folder, infinite=False) as loader,
        make_loader(mixed_folder, infinite=False, batch_size=50) as evaluation,
    ):
        expected = [batch["index"].tolist() for _ in range(2) for batch in loader]
        loader.set_epoch(0)
        args = arguments(tmp_path, num_train_epochs=2, eval_strategy="steps", eval_steps=8)
        trainer = Trainer(Net(), args, train_dataset=loader, eval_dataset={"a": evaluation, "b": evaluation})
        trainer.train()
        assert trainer.model.taken == expected
        found = [entry for entry in trainer.state.log_history if "eval_a_loss" in entry]
        assert len(found) == 5
        metrics = trainer.evaluate()
        assert metrics["eval_a_loss"] == metrics["eval_b_loss"]


def test_example(tmp_path: Path) -> None:
    """Is killed, and resumes."""
    example = EXAMPLES / "train_transformers.py"
    assert len(example.read_text().splitlines()) <= 60
    for options, code in ((["--kill-at", "11"], -signal.SIGKILL), ([], 0)):
        command = [sys.executable, str(example), "--output", str(tmp_path), *options]
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env=one_thread)
        assert ended.returncode == code, ended.stderr
    assert ended.stdout.endswith(f"began at {tmp_path / 'checkpoint-8'}, ended at step 24\n")


def lonely(folder: Path) -> dict[str, Any]:
    """An evaluation in which one of two ranks has documents for one batch, and the other for none."""
    rows = []
    for rank in range(2):
        with make_loader(folder, tokens=True, infinite=False, rank=rank, world_size=2, shuffle_min_size=20) as loader:
            rows.append(sum(len(batch["inputs"]) for batch in loader))
    assert rows[0] != rows[1]
    loader = {"batch_size": max(rows), "drop_last": True, "shuffle_min_size": 20}
    return {"evaluates": True, "name": "lonely", "tokens": True, "loader": loader}

"""`forebay.queue` with a provider process and a trainer process, which are killed, stopped or slow.

A trainer logs each batch that it consumed as a line of a file, and saves its states. Tests compare the batches with
those that a provider makes from the same seeds.
"""

import json
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.queue import DatasetConsumer, read_meta
from forebay.queue.files import list_files
from paths import EXAMPLES, HELPERS
from queues import eventually, expected, names, numbers
from timing import claim, fresh, timed

PROVIDERS = ("char_lm", "char_diffusion", "mlm", "classification")

PRODUCE = """
    import sys, time
    sys.path.insert(0, {folder!r})
    from pathlib import Path
    from forebay.queue.files import list_files
    from queues import numbers
    provider = numbers(Path({data!r}), batches_per_file={per_file}, max_backlog_files={backlog})
    provider.pause_s = {pause}
    provider.run(splits=["train"])
    print("stopped")
"""

TRAIN = """
    import json, os, sys, time
    sys.path.insert(0, {folder!r})
    from pathlib import Path
    from forebay.queue.files import list_files
    from queues import consumer, first
    data, checkpoint = Path({data!r}), Path({data!r}, "checkpoint.json")
    while not (data / "meta.pkl").exists():
        time.sleep(0.01)
    saved = json.loads(checkpoint.read_text()) if checkpoint.exists() else {{"found": [], "queue": None}}
    queue, found = consumer(data, delete={delete!r}), saved["found"]
    log = open(data / "log.txt", "a")
    if saved["queue"]:
        queue.load_state_dict(saved["queue"])
    while len(found) < {n}:
        batch = first(queue.get_batch("train", "cpu", timeout=200))
        found.append(batch)
        log.write(f"{{batch}}\\n")
        log.flush()
        time.sleep({pause})
        if {delete!r} == "on_state" and len(found) % 7 == 0:
            text = json.dumps({{"found": found, "queue": queue.state_dict()}})
            temporary = checkpoint.with_suffix(".tmp")
            temporary.write_text(text)
            os.replace(temporary, checkpoint)
    print(json.dumps(found))
"""


started: "list[subprocess.Popen[str]]" = []


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Ends processes that a failed test has started."""
    yield
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
    started.clear()


def start(code: str, data: Path, **values: Any) -> "subprocess.Popen[str]":
    text = textwrap.dedent(code).format(folder=str(HELPERS), data=str(data), **values)
    started.append(subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True))
    return started[-1]


def stop(process: "subprocess.Popen[str]", how: signal.Signals = signal.SIGTERM) -> str:
    process.send_signal(how)
    return process.communicate(timeout=200)[0]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("slow", ["producer", "consumer", "neither"])
def test_two_processes(tmp_path: Path, slow: str, soak: int) -> None:
    """Of thousands of batches each is consumed once and in order, whichever process is slower."""
    n, per_file = 2000 * min(soak, 5), 40
    pause = 0.001
    producer = start(PRODUCE, tmp_path, per_file=per_file, backlog=2, pause=pause * (slow == "producer"))
    trainer = start(TRAIN, tmp_path, delete="consumed", n=n, pause=pause * (slow == "consumer"))
    found = json.loads(trainer.communicate(timeout=280)[0])
    assert len(names(tmp_path)) <= 3  # including a temporary file
    assert stop(producer) == "stopped\n"
    assert found == expected(numbers(tmp_path, per_file), range(n // per_file))
    assert not [name for name in names(tmp_path) if name.startswith(".tmp-")]


@pytest.mark.timeout(3600)
def test_killed_producers(tmp_path: Path, soak: int) -> None:
    """If providers are killed (SIGKILL) at random times, no batch is lost or made twice."""
    kills, per_file, n = 6 * soak, 5, 60 * soak
    trainer = start(TRAIN, tmp_path, delete="consumed", n=n * per_file, pause=0.002)
    random_ = random.Random(soak)
    counter = tmp_path / "queue" / ".state" / "train.sequence.json"
    for _ in range(kills):
        before = counter.read_bytes() if counter.exists() else b""
        producer = start(PRODUCE, tmp_path, per_file=per_file, backlog=2, pause=0.001)
        eventually(
            lambda before=before: trainer.poll() is not None or (counter.exists() and counter.read_bytes() != before),
            timeout=120,
        )
        time.sleep(random_.random() * 0.3)
        stop(producer, signal.SIGKILL)
        if trainer.poll() is not None:
            break
    producer = start(PRODUCE, tmp_path, per_file=per_file, backlog=2, pause=0)
    found = json.loads(trainer.communicate(timeout=3000)[0])
    stop(producer)
    assert found == expected(numbers(tmp_path, per_file), range(n))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("delete", ["consumed", "on_state"])
def test_killed_trainers(tmp_path: Path, soak: int, delete: str) -> None:
    """If trainers are killed (SIGKILL) at random times, no batch is lost; with restored states none is repeated."""
    kills, per_file, n = 4 * soak, 5, 400 * soak
    random_ = random.Random(soak)
    producer = start(PRODUCE, tmp_path, per_file=per_file, backlog=3, pause=0)
    eventually((tmp_path / "meta.pkl").exists, timeout=200)
    log = tmp_path / "log.txt"
    for kill in range(kills):
        before = log.stat().st_size if log.exists() else 0
        trainer = start(TRAIN, tmp_path, delete=delete, n=10**9, pause=0.003)
        eventually(lambda before=before: log.exists() and log.stat().st_size > before, timeout=120)
        time.sleep(random_.random() * 0.5 + kill % 2 * 0.1)
        stop(trainer, signal.SIGKILL)
    trainer = start(TRAIN, tmp_path, delete=delete, n=n, pause=0)
    found = json.loads(trainer.communicate(timeout=3000)[0])
    stop(producer)
    if delete == "on_state":
        assert found == expected(numbers(tmp_path, per_file), range(-(-len(found) // per_file)))[: len(found)]
        return
    consumed = [int(line) for line in log.read_text().split("\n")[:-1]]
    counts = Counter(consumed)
    due = expected(numbers(tmp_path, per_file), range(len(counts) // per_file + 1))[: len(counts)]
    assert set(due) == set(counts)
    doubled = sum(count - 1 for count in counts.values())
    assert doubled <= per_file * kills  # at most one file per kill is repeated


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@timed
def test_signals(tmp_path: Path, how: signal.Signals) -> None:
    """A signal ends a provider soon, with exit status 0 and without temporary files."""
    seconds = []
    for pause in (0.0, 0.02):
        data = fresh(tmp_path)
        producer = start(PRODUCE, data, per_file=20, backlog=2, pause=pause)
        eventually(lambda data=data: (data / "meta.pkl").exists(), timeout=200)
        time.sleep(0.1)
        begun = time.monotonic()
        assert stop(producer, how) == "stopped\n"
        seconds.append(time.monotonic() - begun)
        assert producer.returncode == 0
        assert not [name for name in names(data) if name.startswith(".tmp-")]
    claim(max(seconds) < 15, seconds)


def example(script: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    return started[-1]


@pytest.mark.parametrize("name", PROVIDERS)
def test_examples(tmp_path: Path, name: str) -> None:
    """Each example writes a queue for a consumer, the same batches as legacy files, and a new queue."""
    script, flags = f"queue/{name}.py", ["--data_dir", str(tmp_path / "q"), "--batch_size", "5", "--block_size", "24"]
    flags += ["--batches_per_file", "4", "--max_backlog_files", "1", "--sleep_seconds", "0.01"]
    process = example(script, *flags)
    eventually((tmp_path / "q" / "meta.pkl").exists, timeout=200)
    with DatasetConsumer(tmp_path / "q", "cpu") as queue:
        batches = [queue.get_batch(split, "cpu", timeout=200) for split in ("train", "val") for _ in range(9)]
        check(name, batches, queue.meta)
    stop(process)
    assert process.returncode == 0
    size = ["--target_size", "3"] if name == "char_lm" else []
    process = example(script, *flags, "--force_regenerate", *size)
    folder = tmp_path / "q" / "queue" / "train"
    eventually(lambda: [name.split("-")[1] for name in list_files(folder)] == ["000000"], timeout=200)
    assert (read_meta(tmp_path / "q").get("target_size") == 3) is bool(size)
    stop(process)
    old = [flag.replace(str(tmp_path / "q"), str(tmp_path / "old")) for flag in flags]
    process = example(script, *old, "--legacy")
    process.communicate(timeout=200)
    assert sorted(path.name for path in (tmp_path / "old").iterdir()) == [
        *("meta.json", "meta.pkl", "train_batches_0000.pt", "val_batches_0000.pt"),
    ]
    with DatasetConsumer(tmp_path / "old", "cpu") as queue:
        again = [queue.get_batch("train", "cpu") for _ in range(4)]
        check(name, again, queue.meta)
    assert all(same(a, b) for a, b in zip(again, batches, strict=False))


def same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return all((x == y).all() for x, y in zip(a, b, strict=True))
    return a.keys() == b.keys() and all((a[name] == b[name]).all() for name in a)


def check(name: str, batches: list[Any], meta: dict[str, Any]) -> None:
    """Checks shapes, types and targets of the batches of an example."""
    for batch in batches:
        if name == "mlm":
            assert {field: str(tensor.dtype) for field, tensor in batch.items()} == {
                "input_ids": "torch.int64",
                "attention_mask": "torch.int8",
                "labels": "torch.int64",
            }
            assert (batch["input_ids"][:, 0] == meta["cls_token_id"]).all()
            assert (batch["labels"][batch["attention_mask"] == 0] == -100).all()
            continue
        x, y = batch
        assert x.shape == (5, 24)
        if name == "char_lm":
            assert (x[:, 1:] == y[:, :-1]).all()
        elif name == "char_diffusion":
            hidden = x == meta["mask_token_id"]
            assert ((y != -100) == hidden).all()
            assert hidden.any()
        else:
            assert y.shape == (5,)
            assert set(y.tolist()) == {0, 1}


def test_stages_of_diffusion(tmp_path: Path) -> None:
    stages = '[["token", 0.0], ["span", 0.5]]'
    flags = ["--data_dir", str(tmp_path), "--batch_size", "4", "--block_size", "20", "--batches_per_file", "2"]
    process = example("queue/char_diffusion.py", *flags, "--stages", stages, "--legacy")
    process.communicate(timeout=200)
    with DatasetConsumer(tmp_path, "cpu") as queue:
        assert queue.meta["stages"] == json.loads(stages)
        x, _ = queue.get_batch("train", "cpu")
        hidden = x == queue.meta["mask_token_id"]
    assert hidden.sum(dim=1).tolist() == [0, 10, 0, 10]
    assert all(int(row.diff().abs().sum()) <= 2 for row in hidden[1::2].int())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["char_lm", "mlm"])
def test_training(name: str) -> None:
    """The training example lowers the validation loss, with tuples and with dicts."""
    process = example("train_queue.py", "--provider", name, "--steps", "50", "--device", "cpu")
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    assert "step   50" in out


@pytest.mark.timeout(300)
def test_training_goes_on(tmp_path: Path) -> None:
    """With a checkpoint, the second run continues with the files after those of the first."""
    flags = ["--data_dir", str(tmp_path / "q"), "--sleep_seconds", "0.05", "--batches_per_file", "20"]
    provider = example("queue/classification.py", *flags)
    eventually((tmp_path / "q" / "meta.pkl").exists, timeout=200)
    for _ in range(2):
        arguments = ["--data_dir", str(tmp_path / "q"), "--steps", "30", "--device", "cpu"]
        process = example("train_queue.py", *arguments, "--checkpoint", str(tmp_path / "c.pt"))
        _, err = process.communicate(timeout=200)
        assert process.returncode == 0, err
    stop(provider)
    record = json.loads((tmp_path / "q" / "queue" / ".state" / "train.consumer.json").read_text())
    assert record["released"] + len(record["held"]) + 1 == 3

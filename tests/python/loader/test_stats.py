"""`stats()`, `repr()`, `headspace()` and `trace()` show what limits the loader."""

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import _core
from recordings import TINY
from timing import claim, timed

WINDOW: dict[str, Any] = {"shuffle_buffer_size": 100, "shuffle_min_size": 20, "batch_size": 8, "n_workers": 2}
KEYS = {
    "threads", "items", "busy_s", "blocked_s", "blocked_on", "p50_s", "p99_s", "items_per_s", "busy_share",
    "blocked_share", "run_queue_share",
}  # fmt: skip


def test_keys(tiny_shards: list[Path]) -> None:
    with forebay.Loader(tiny_shards, **TINY, **WINDOW) as loader:
        before = loader.stats()
        assert before["verdict"].startswith("idle")
        for _ in range(3):
            next(loader)
        stats = loader.stats()
    assert set(stats) == set(before)
    assert set(stats["stages"]) == {"read", "decode", "collate", "consumer"}
    stages = stats["stages"]
    for stage in (stages["read"], stages["decode"], stages["collate"], stages["consumer"]):
        assert set(stage) == KEYS
        assert stage["run_queue_share"] is None or 0 <= stage["run_queue_share"] <= 1
        assert stage["blocked_s"] == pytest.approx(sum(stage["blocked_on"].values()))
    assert set(stats["stages"]["read"]["blocked_on"]) == {"credit_s", "turn_s", "bytes_s", "channel_s"}
    assert stats["stages"]["consumer"]["items"] == stats["batches"] == 3
    assert stats["delivered"]["batches"] == 3
    assert stats["delivered"]["examples"] == 3 * 8
    assert set(stats["queues"]) == {"records", "record_bytes", "read_bytes", "examples", "batches"}
    assert set(stats["batch_times"]) == {"start_s", "ready_p50_s", "ready_p99_s", "starved_p50_s", "starved_p99_s"}
    assert stats["verdict"].startswith("starting")
    after = loader.stats()  # no worker decodes now
    assert after["stages"]["decode"]["items"] == after["records_decoded"] >= stats["records_decoded"]


@timed
def test_slow_workers(tiny_shards: list[Path]) -> None:
    _core._inject_delays(fixed_ms=4)
    with forebay.Loader(tiny_shards, **TINY, **WINDOW) as loader:
        assert "bound" not in repr(loader)
        for _ in range(20):
            next(loader)
        stats, text = loader.stats(), repr(loader)
        assert stats["stages"]["decode"]["p50_s"] > 0.0035
    after = loader.stats()["verdict"]
    claim(stats["verdict"].startswith("CPU-bound (decoding)"), stats)
    assert "n_workers" in stats["verdict"]
    assert stats["verdict"] in text
    claim(stats["stages"]["decode"]["busy_share"] > 0.8, stats)
    # Batches may become ready in pairs, so the consumer does not wait for each.
    claim(stats["batch_times"]["starved_p99_s"] > 0.004, stats)
    claim(stats["stages"]["consumer"]["blocked_s"] > 0.1, stats)
    assert after == stats["verdict"], "the verdict changed after close()"


@timed
def test_slow_loop(tiny_shards: list[Path]) -> None:
    with forebay.Loader(tiny_shards, **TINY, **WINDOW) as loader:
        for _ in range(15):
            next(loader)
            time.sleep(0.02)
        stats, text = loader.stats(), repr(loader)
    assert stats["stages"]["consumer"]["p50_s"] > 0.017
    claim(stats["verdict"].startswith("consumer-bound"), stats)
    claim("consumer-bound" in text, text)
    claim(stats["batch_times"]["ready_p50_s"] > 0.017, stats)
    claim(stats["queues"]["examples"] >= 20 - 8, stats)


@timed
def test_headspace(tiny_shards: list[Path]) -> None:
    _core._inject_delays(fixed_ms=2)
    with forebay.Loader(tiny_shards, **TINY, **WINDOW) as loader:
        next(loader)
        state, batches = loader.state_dict(), loader.stats()["batches"]
        begin = time.perf_counter()
        measured = loader.headspace(0.5)
        seconds = time.perf_counter() - begin
        assert loader.state_dict() == state
        assert loader.stats()["batches"] == batches
        assert measured["seconds"] >= 0.5
        with pytest.raises(forebay.ConfigError, match="seconds is -1, must be 0 to 3600"):
            loader.headspace(-1)
        with pytest.raises(forebay.ConfigError, match="seconds"):
            loader.headspace(float("nan"))
    with pytest.raises(forebay.ForebayError, match="closed"):
        loader.headspace()
    claim(seconds < 5, seconds)
    # Two workers take 2 ms per record.
    claim(200 < measured["decoded_per_s"] < 1000, measured)
    claim(100 < measured["examples_per_s"] < 1000, measured)
    claim(measured["handover_per_s"] > 5 * measured["decoded_per_s"], measured)
    claim(measured["verdict"].startswith("CPU-bound"), measured)


def test_headspace_says_whether_the_window_was_full(tiny_shard: Path) -> None:
    _core._inject_delays(fixed_ms=4)  # 12000 rows take two workers 24 s
    wide = WINDOW | {"shuffle_min_size": 12_000, "shuffle_buffer_size": 12_000}
    with forebay.Loader(tiny_shard, **TINY, **wide, order="window") as loader:
        measured = loader.headspace(0)
    assert (measured["filled"], measured["fill_seconds"]) == (False, 0)
    assert "the shuffle window was still filling" in measured["verdict"]
    with forebay.Loader(tiny_shard, **TINY, **WINDOW | {"shuffle_min_size": 0}) as loader:
        measured = loader.headspace(0)
    assert (measured["filled"], measured["fill_seconds"]) == (True, 0)
    assert "filling" not in measured["verdict"]


def test_headspace_of_a_short_pass(tiny_shards: list[Path]) -> None:
    with forebay.Loader(tiny_shards[0], **TINY, **WINDOW, infinite=False) as loader:
        assert loader.headspace(0.2)["examples_per_s"] > 0
        assert sum(len(batch["index"]) for batch in loader) == 57


@timed
def test_headspace_is_interrupted(tiny_shards: list[Path]) -> None:
    with forebay.Loader(tiny_shards, **TINY, **WINDOW) as loader:
        timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
        timer.start()
        begin = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            loader.headspace(60)
        seconds = time.perf_counter() - begin
        timer.join()
        assert len(next(loader)["index"]) == 8
    claim(seconds < 1.5, seconds)


@timed
def test_trace(tiny_shards: list[Path], tmp_path: Path) -> None:
    _core._inject_delays(fixed_ms=2)
    path = tmp_path / "trace.json"
    path.unlink(missing_ok=True)
    with forebay.Loader(tiny_shards, **TINY, **WINDOW) as loader:
        next(loader)
        with pytest.raises(FileNotFoundError, match="where"):
            loader.trace(tmp_path / "no" / "where")
        with pytest.raises(forebay.ConfigError, match="seconds is -1, must be 0 to 3600"):
            loader.trace(path, -1)
        loader.trace(path, 0.3)
        end = time.monotonic() + 120
        while not path.exists():
            assert time.monotonic() < end
            next(loader)
        events = json.loads(path.read_text())["traceEvents"]
        threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
        workers = {"forebay-worker-0", "forebay-worker-1"}
        spans = [event for event in events if event["ph"] == "X"]
        assert all(event["tid"] in threads and event["dur"] >= 0 for event in spans)
        decoding = sum(event["dur"] for event in spans if event["name"] == "decode")
        # However late the end of the trace was noticed, two workers decode at most twice as long as it is.
        seen = max(event["ts"] + event["dur"] for event in spans) - min(event["ts"] for event in spans)
        assert decoding <= 2 * seen + 1, "more than two workers"
        assert {event["name"] for event in events if event["ph"] == "C"} == {
            "records", "record_bytes", "read_bytes", "examples", "batches", "workers",
        }  # fmt: skip
        # A second trace, which ends when the loader closes.
        loader.trace(str(path), 600)
        with pytest.raises(forebay.StateError, match="already"):
            loader.trace(path)
        next(loader)
    assert json.loads(path.read_text())["traceEvents"] != events
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]
    with pytest.raises(forebay.ForebayError, match="closed"):
        loader.trace(path)
    claim(set(threads.values()) >= {"forebay-io", *workers, "forebay-collator", "consumer"}, threads)
    claim({event["name"] for event in spans} >= {"read", "decode", "collate", "batch", "wait for a batch"}, spans)
    claim(decoding > 0.3e6, decoding)

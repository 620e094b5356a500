"""Recordings by URL: how much of a link a loader uses, and what it requests, by latency and order.

    python benches/remote.py [--rate 125] [--latency 0,10,50] [--rounds 3] [--repeats 8]
        [--seconds 30] [--shards 4] [--cache] [--files] [--peer]

The server is a process of its own on the loopback: each answer begins `--latency` ms after its request, and all answers
together have `--rate` MB/s. The recordings are 240 of OGG Vorbis of `--seconds` at 32 kHz (soundfile, the
recordings of tests/data), each `--repeats` times, in Arrow shards with 100 rows a record batch; clips of 5 s, the
default log-mel, two workers, one pass. `link` is the bytes of the pass over its time, as a share of the rate; `sent`
the bytes that the server sent over those of the shards. Digests of all batches must be those of local files.
`--cache`: two epochs of one loader with `cache_dir`, and one of another loader over the same folder.
`--files`: the same recordings as an object each, named by a table, in `global`; forebay reads what a clip needs.
`--peer`: a DataLoader of torch with two worker processes over `datasets` in streaming mode, which reads the same URLs
by fsspec, and over WebDataset, which reads the recordings in tars by curl; crops by soundfile, log-mel by forebay, no
shuffling. It needs torch, datasets, aiohttp, webdataset and curl.
"""

import argparse
import hashlib
import http.server
import io
import json
import multiprocessing
import statistics
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import soundfile
from sounds import sound

import forebay

RATE, RECORDINGS = 32_000, 240
CHUNK = 1 << 18
PARAMETERS: dict[str, Any] = {
    "batch_size": 16, "n_workers": 2, "shuffle_buffer_size": 256, "shuffle_min_size": 128, "infinite": False,
}  # fmt: skip


class Link:
    """A link of `rate` bytes per second, which all answers share."""

    def __init__(self, rate: float, latency: float) -> None:
        self.rate, self.latency = rate, latency
        self.lock = threading.Lock()
        self.free = 0.0
        self.sent = self.requests = 0

    def wait_for(self, n: int) -> None:
        """Waits until `n` bytes are through."""
        with self.lock:
            self.free = max(self.free, time.monotonic()) + n / self.rate
            self.sent += n
            pause = self.free - time.monotonic()
        if pause > 0:
            time.sleep(pause)


def serve(folder: str, rate: float, latency: float, port: Any) -> None:
    """Serves the files of `folder`; `/figures` has the bytes sent and the requests."""
    link = Link(rate, latency)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16

        def log_message(self, *_: Any) -> None:
            """Prints nothing."""

        def do_HEAD(self) -> None:
            self.answer(has_body=False)

        def do_GET(self) -> None:
            self.answer(has_body=True)

        def answer(self, *, has_body: bool) -> None:
            if self.path == "/figures":
                body = json.dumps([link.sent, link.requests]).encode()
                link.sent = link.requests = 0
                self.start(200, 0, len(body) - 1, len(body), "")
                self.wfile.write(body)
                return
            time.sleep(link.latency)
            link.requests += 1
            path = Path(folder, self.path.lstrip("/"))
            size = path.stat().st_size
            wanted = self.headers.get("Range", f"bytes=0-{size - 1}").removeprefix("bytes=").split("-")
            first, last = int(wanted[0]), min(int(wanted[1] or size - 1), size - 1)
            self.start(206 if "Range" in self.headers else 200, first, last, size, f'"{size:x}"')
            if not has_body:
                return
            with path.open("rb") as file:
                file.seek(first)
                left = last + 1 - first
                while left:
                    body = file.read(min(CHUNK, left))
                    link.wait_for(len(body))
                    self.wfile.write(body)
                    left -= len(body)

        def start(self, status: int, first: int, last: int, size: int, tag: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(last + 1 - first))
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", tag)
            if status == 206:
                self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            self.end_headers()

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A loader may close a connection at any time."""

    server = Server(("127.0.0.1", 0), Handler)
    port.value = server.server_address[1]
    server.serve_forever()


def served(folder: Path, rate: float, latency: float) -> Iterator[str]:
    """The URL of a server, while it runs."""
    port = multiprocessing.Value("i", 0)
    process = multiprocessing.get_context("fork").Process(
        target=serve, args=(str(folder), rate, latency, port), daemon=True
    )
    process.start()
    while not port.value:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port.value}"
    process.terminate()
    process.join()


def write(folder: Path, options: argparse.Namespace) -> list[Path]:
    """The shards."""
    sounds, n = sound(RATE), options.seconds * RATE
    encoded = []
    for number in range(RECORDINGS):
        one = np.take(sounds, np.arange(number * n, (number + 1) * n), mode="wrap")
        with soundfile.SoundFile(folder / "one.ogg", "w", RATE, 1, format="OGG", subtype="VORBIS") as file:
            # libsndfile overflows its stack if it encodes a long recording in one go.
            for part in np.split(one, options.seconds):
                file.write(part)
        encoded.append((folder / "one.ogg").read_bytes())
    paths = []
    for number in range(options.shards):
        part = (encoded * options.repeats)[number :: options.shards]
        table = pa.table({"audio": [{"bytes": one, "path": None} for one in part], "label": list(range(len(part)))})
        paths.append(folder / f"{number}.arrow")
        with pa.OSFile(str(paths[-1]), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=100)
    return paths


def write_files(folder: Path, shards: list[Path]) -> Path:
    """A table of the recordings, each of them a file."""
    lines = ["path,label"]
    for shard in shards:
        with pa.ipc.open_stream(shard) as reader:
            for row in (row for batch in reader for row in batch.to_pylist()):
                name = f"{shard.stem}-{row['label']}.ogg"
                (folder / name).write_bytes(row["audio"]["bytes"])
                lines.append(f"{name},{row['label']}")
    table = folder / "recordings.csv"
    table.write_text("\n".join(lines))
    return table


def one_pass(source: Any, order: str) -> tuple[float, float, int, str, dict[str, Any]]:
    """Seconds to the first batch and of the whole pass, examples, the digest, and the statistics."""
    begin = time.perf_counter()
    first, n, digest = 0.0, 0, hashlib.sha256()
    with forebay.Loader(source, order=order, **PARAMETERS) as loader:
        for batch in loader:
            first = first or time.perf_counter() - begin
            n += len(batch["label"])
            digest.update(batch["spectrogram"].tobytes())
        stats: dict[str, Any] = dict(loader.stats())
    return first, time.perf_counter() - begin, n, digest.hexdigest(), stats


def kept(source: list[str], order: str, folder: str) -> Iterator[tuple[str, float, float, int, str, dict[str, Any]]]:
    """As `one_pass`, with a name in front: two epochs of a loader that keeps what it reads, and one of another."""
    for names in (["first epoch, keeps", "second epoch, kept"], ["another loader, kept"]):
        begin = time.perf_counter()
        with forebay.Loader(source, order=order, cache_dir=folder, **PARAMETERS) as loader:
            for name in names:
                first, n, digest = 0.0, 0, hashlib.sha256()
                for batch in loader:
                    first = first or time.perf_counter() - begin
                    n += len(batch["label"])
                    digest.update(batch["spectrogram"].tobytes())
                yield name, first, time.perf_counter() - begin, n, digest.hexdigest(), dict(loader.stats())
                begin = time.perf_counter()


def write_tars(shards: list[Path]) -> list[Path]:
    """The recordings of the shards as tars, for WebDataset."""
    paths = []
    for shard in shards:
        paths.append(shard.with_suffix(".tar"))
        with tarfile.open(paths[-1], "w") as tar, pa.ipc.open_stream(shard) as reader:
            number = 0
            for batch in reader:
                for row in batch.to_pylist():
                    for ending, data in (("ogg", row["audio"]["bytes"]), ("cls", str(row["label"]).encode())):
                        member = tarfile.TarInfo(f"{number:06}.{ending}")
                        member.size = len(data)
                        tar.addfile(member, io.BytesIO(data))
                    number += 1
    return paths


class Example:
    """A clip of a recording at a random place, by soundfile, and its log-mel, by forebay."""

    def __init__(self) -> None:
        self.mel, self.draw = forebay.SpectrogramTransform(), np.random.default_rng()

    def __call__(self, recording: bytes, label: int) -> dict[str, Any]:
        with soundfile.SoundFile(io.BytesIO(recording)) as file:
            file.seek(int(self.draw.integers(file.frames - 5 * RATE)))
            return {"spectrogram": self.mel.transform(file.read(5 * RATE, dtype="float32")), "label": label}


def timed(data: Any) -> tuple[float, float, int]:
    """Seconds to the first batch and of a whole pass, and examples, by a DataLoader with two worker processes."""
    import torch

    begin = time.perf_counter()
    first, n = 0.0, 0
    for batch in torch.utils.data.DataLoader(data, batch_size=16, num_workers=2):
        first = first or time.perf_counter() - begin
        n += len(batch["label"])
    return first, time.perf_counter() - begin, n


def by_datasets(source: list[str]) -> tuple[float, float, int]:
    """`datasets` in streaming mode, which reads by fsspec."""
    import datasets

    example = Example()
    data = datasets.load_dataset("arrow", data_files=source, split="train", streaming=True)
    return timed(data.map(lambda row: example(row["audio"]["bytes"], row["label"]), remove_columns=["audio"]))


def by_webdataset(source: list[str]) -> tuple[float, float, int]:
    """WebDataset, which reads tars by curl."""
    import webdataset

    example = Example()
    data = webdataset.WebDataset([url.replace(".arrow", ".tar") for url in source], shardshuffle=False)
    return timed(data.map(lambda sample: example(sample["ogg"], int(sample["cls"]))))


PEERS = {"`datasets`, streaming": by_datasets, "WebDataset": by_webdataset}


def figures(url: str) -> list[int]:
    """Bytes that the server sent, and requests, since the last call."""
    import urllib.request

    with urllib.request.urlopen(f"{url}/figures") as answer:
        found: list[int] = json.loads(answer.read())
    return found


def print_kept(url: str, source: list[str], order: str, options: Any, size: int, expected: str) -> None:
    """Prints a row for each epoch with `cache_dir`: medians of the rounds, each with an empty folder."""
    rows: dict[str, list[tuple[float, float, int, int, int, str]]] = {}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name, first, took, n, digest, stats in kept(source, order, folder):
                assert name.startswith("second") or digest == expected, "the batches are not those of local files"
                rows.setdefault(name, []).append((took, first, n, *figures(url), stats["verdict"]))
    for name, runs in rows.items():
        took, first, n, sent, requests, verdict = sorted(runs)[len(runs) // 2]
        cells = [
            f"{order}, {name}", f"{n / took:.0f}", f"{100 * sent / took / options.rate / 1e6:.0f} %", f"{first:.2f}",
            requests, f"{sent / size:.2f}", verdict.split(":")[0],
        ]  # fmt: skip
        print(f"| | {' | '.join(map(str, cells))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rate", type=float, default=125.0, help="MB/s")
    parser.add_argument("--latency", default="0,10,50", help="ms, several separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--repeats", type=int, default=8, help="8: a pass of some 4 s; 32 tells steady state from opening"
    )
    parser.add_argument("--seconds", type=int, default=30, help="length of a recording")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--cache", action="store_true")
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--peer", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder), options)
        size = sum(path.stat().st_size for path in paths)
        if options.peer:
            write_tars(paths)
        local = {order: one_pass([str(path) for path in paths], order) for order in ("window", "global")}
        if options.files:
            table = write_files(Path(folder), paths)
            local["global, files"] = one_pass(forebay.Manifest(table), "global")
        rates = {order: f"{n / took:.0f}" for order, (_, took, n, _, _) in local.items()}
        print(f"{size / 1e6:.1f} MB in {len(paths)} shards; local files, examples/s: {rates}")
        print("| latency, ms | order | examples/s | link | first batch, s | requests | sent | verdict |")
        print("|---:|---|---:|---:|---:|---:|---:|---|")
        for latency in map(float, options.latency.split(",")):
            for url in served(Path(folder), options.rate * 1e6, latency / 1e3):
                source = [f"{url}/{path.name}" for path in paths]
                sources: dict[str, Any] = dict.fromkeys(("window", "global"), source)
                if options.files:
                    sources["global, files"] = forebay.Manifest(f"{url}/{table.name}")
                for order in local:
                    runs = []
                    for _ in range(options.rounds):
                        first, took, n, digest, stats = one_pass(sources[order], order.split(",")[0])
                        assert digest == local[order][3], "the batches are not those of local files"
                        runs.append((took, first, n, *figures(url), stats["verdict"]))
                    took, first, n, sent, requests, verdict = sorted(runs)[len(runs) // 2]
                    link = sent / took / options.rate / 1e6
                    cells = [
                        f"{latency:g}", order, f"{n / took:.0f}", f"{100 * link:.0f} %", f"{first:.2f}", requests,
                        f"{sent / size:.2f}", verdict.split(":")[0],
                    ]  # fmt: skip
                    print(f"| {' | '.join(map(str, cells))} |", flush=True)
                if options.cache:
                    for order in ("window", "global"):
                        print_kept(url, source, order, options, size, local[order][3])
                for name, peer in PEERS.items() if options.peer else ():
                    found = [peer(source) for _ in range(options.rounds)]
                    took, first = (statistics.median(run[i] for run in found) for i in (1, 0))
                    sent, requests = (figure / options.rounds for figure in figures(url))
                    cells = [
                        f"{latency:g}", name, f"{found[0][2] / took:.0f}",
                        f"{100 * sent / took / options.rate / 1e6:.0f} %", f"{first:.2f}", f"{requests:.0f}",
                        f"{sent / size:.2f}", "",
                    ]  # fmt: skip
                    print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()

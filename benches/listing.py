"""Lists of objects: time and memory to list a bucket and a dataset of the Hub.

    python benches/listing.py [--objects 1000000] [--latency 0]

The server is a process of its own on the loopback, which lists `--objects` objects in pages of 1000, each page
`--latency` ms after its request. The objects are recordings in folders of 1000; only a pattern that matches one of them
is opened, by an error that says so, since the server has no objects. `memory` is the growth of the largest resident
set.
"""

import argparse
import http.server
import json
import multiprocessing
import os
import resource
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

import forebay

PAGE = 1000


def key(number: int) -> str:
    return f"recordings/{number // 1000:06}/recording-of-some-length-{number:09}.flac"


def serve(n: int, latency: float, port: Any, sent: Any) -> None:
    """Lists `n` objects."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Prints nothing."""

        def do_GET(self) -> None:
            time.sleep(latency)
            url = urllib.parse.urlsplit(self.path)
            asked = dict(urllib.parse.parse_qsl(url.query))
            more = {}
            if asked.get("list-type") == "2":
                first = int(asked.get("continuation-token", 0))
                end = min(first + PAGE, n)
                items = "".join(
                    f"<Contents><Key>{key(one)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                    '<ETag>"d41d8cd98f00b204e9800998ecf8427e"</ETag><Size>1000000</Size>'
                    "<StorageClass>STANDARD</StorageClass></Contents>"
                    for one in range(first, end)
                )
                token = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < n else ""
                body = f"<ListBucketResult>{items}{token}</ListBucketResult>".encode()
            else:
                first = int(asked.get("cursor", 0))
                end = min(first + PAGE, n)
                items = [
                    {"type": "file", "oid": "0" * 40, "size": 1_000_000, "path": key(one)} for one in range(first, end)
                ]
                body = json.dumps(items).encode()
                if end < n:
                    more["Link"] = f'<http://127.0.0.1:{port.value}{url.path}?recursive=true&cursor={end}>; rel="next"'
            self.send_response(200)
            for name, value in {"Content-Length": str(len(body)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            sent.value += len(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port.value = server.server_address[1]
    server.serve_forever()


def measured(work: Callable[[], str]) -> tuple[float, float, str]:
    """Seconds, MB and the text of an error, of work in a process of its own."""
    queue: Any = multiprocessing.get_context("fork").Queue()

    def run() -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin = time.perf_counter()
        text = work()
        took = time.perf_counter() - begin
        queue.put((took, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, text))

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    found: tuple[float, float, str] = queue.get()
    process.join()
    return found


def listed(source: str) -> str:
    try:
        with forebay.Loader(source, infinite=False) as loader:
            return f"{loader.num_records} rows"
    except (OSError, forebay.ForebayError) as error:
        return str(error)[:160]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--latency", type=float, default=0.0, help="ms")
    options = parser.parse_args()
    port, sent = multiprocessing.Value("i", 0), multiprocessing.Value("q", 0)
    process = multiprocessing.get_context("fork").Process(
        target=serve, args=(options.objects, options.latency / 1e3, port, sent), daemon=True
    )
    process.start()
    while not port.value:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{port.value}"
    os.environ |= {
        "AWS_ENDPOINT_URL": url, "AWS_SKIP_SIGNATURE": "true", "AWS_REGION": "x", "HF_ENDPOINT": url,
        "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1",
    }  # fmt: skip
    print("| list | objects | s | memory, MB | received, MB | then |")
    print("|---|---:|---:|---:|---:|---|")
    for name, source in (
        ("S3, folder", "s3://bucket"), ("S3, pattern of none", "s3://bucket/**/*.parquet"),
        ("Hub, folder", "hf://datasets/o/n"), ("Hub, pattern of none", "hf://datasets/o/n/**/*.parquet"),
    ):  # fmt: skip
        before = sent.value
        took, memory, text = measured(lambda source=source: listed(source))  # type: ignore[misc]
        print(
            f"| {name} | {options.objects} | {took:.1f} | {memory:.0f} | {(sent.value - before) / 1e6:.0f} | {text} |",
            flush=True,
        )
    process.terminate()


if __name__ == "__main__":
    main()

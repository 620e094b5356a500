"""Runs random configurations: every property of each, from a seed.

    export PYTHONPATH=tests/python/helpers
    build/venv/bin/python tests/python/exactness/fuzz.py --first 0 --count 2000

runs 2000 of them, and `--first SEED --count 1` repeats one. The number on stderr is the one that is running. It needs
a build with debug assertions (`make wheel`).
"""

import argparse
import faulthandler
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import documents
import packed
import properties
import stored
from case import Case
from configurations import configuration
from corpus import Corpus
from forebay import ConfigError, _core

SHARES = {"loader": 0.86, "packed": 0.07, "stored": 0.07}
"""Which kind of loader a configuration is of."""


@dataclass
class Fuzz:
    """Runs configurations, and counts what it compared."""

    folder: Path
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.corpus = Corpus(self.folder / "recordings")
        (self.folder / "documents").mkdir()
        self.documents = documents.write_documents(self.folder / "documents")

    def run(self, seed: int) -> None:
        """Checks one configuration. An error has a note with the configuration and the command that repeats it."""
        rng = Random(f"configuration {seed}")
        kind = rng.choices(list(SHARES), list(SHARES.values()))[0]
        described: Any = kind
        name = "construction"
        try:
            case: Any
            checks: Iterable[Callable[[Any], None]]
            if kind == "loader":
                described = configuration(seed)
                try:
                    case, checks = Case(described, self.corpus, rng), properties.PROPERTIES
                except ConfigError:
                    self.counts["refused"] += 1
                    return
            elif kind == "packed":
                case, checks = packed.Packed(self.documents, rng), packed.PROPERTIES
                described = case.keywords
            else:
                case, checks = stored.Stored(self.folder / f"cache-{seed}", rng), stored.PROPERTIES
                described = (case.shards, case.build, case.dataset, case.keywords)
            for check in checks:
                name = check.__name__
                check(case)
                self.counts[name] += 1
            self.counts[kind] += 1
        except BaseException as error:
            error.add_note(
                f"{name} of configuration {seed}: {described!r}\nto repeat it: PYTHONPATH=tests/python/helpers "
                f"build/venv/bin/python tests/python/exactness/fuzz.py --first {seed} --count 1"
            )
            raise
        finally:
            _core._inject_delays()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--keep-going", action="store_true", help="print differences, and continue")
    given = parser.parse_args()
    logging.getLogger("forebay").setLevel(logging.ERROR)
    begin, wrong = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        fuzz = Fuzz(Path(folder))
        for seed in range(given.first, given.first + given.count):
            sys.stderr.write(f"\r{seed}")
            faulthandler.dump_traceback_later(900, exit=True)  # for a hang; no claim about time
            try:
                fuzz.run(seed)
            except Exception as error:
                if not given.keep_going:
                    raise
                wrong.append(seed)
                sys.stdout.write(f"{type(error).__name__}: {str(error)[:600]}\n" + "\n".join(error.__notes__) + "\n\n")
            if seed % 100 == 99:
                sys.stdout.write(f"up to {seed}: {time.monotonic() - begin:.0f} s, {dict(fuzz.counts)}, {wrong=}\n")
            sys.stdout.flush()
    faulthandler.cancel_dump_traceback_later()
    sys.stdout.write(f"{given.count} configurations: {dict(fuzz.counts)}, differences in {wrong}\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

"""Random access to the rows of Hugging Face shards: memory-mapped, copied only on request."""

from bisect import bisect_right
from itertools import accumulate

import pyarrow as pa


class Rows:
    """All rows of the shards as one sequence of `(audio, label)`; `audio` is a `pyarrow.Buffer`."""

    def __init__(self, files: list[str]):
        self.files = list(files)
        self._open()

    def _open(self) -> None:
        self.batches = []
        for path in self.files:
            self.batches += pa.ipc.open_stream(pa.memory_map(path)).read_all().to_batches()
        self.columns = [
            (batch.column("audio").field("bytes"), batch.column("label").to_numpy()) for batch in self.batches
        ]
        self.ends = list(accumulate(batch.num_rows for batch in self.batches))

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, index: int) -> tuple[pa.Buffer, int]:
        number = bisect_right(self.ends, index)
        row = index - (self.ends[number - 1] if number else 0)
        audio, labels = self.columns[number]
        return audio[row].as_buffer(), int(labels[row])

    def file(self, index: int) -> pa.BufferReader:
        """The audio of a row as a file-like object over the mapped bytes."""
        return pa.BufferReader(self[index][0])

    def __getstate__(self) -> list[str]:
        return self.files

    def __setstate__(self, files: list[str]) -> None:
        self.files = files
        self._open()

"""Files of tensors: writing, and reading into owned memory.

Files are not trusted. The archive's checksums are verified, since torch does not verify them; the pickle
inside is loaded with `weights_only=True`; and no tensor may be larger than its file. The bytes are mapped and
copied once, by numpy, which releases the GIL and, unlike torch, starts no threads that would take cores from
the training step.
"""

import errno
import os
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

Tensors = dict[str, Any]


_saving = threading.RLock()
"""The option for checksums is one of the process. Two savers at once could leave it changed.

A signal handler may save within a save of its own thread. A fork waits for other savers, so that no child
inherits a held lock.
"""
os.register_at_fork(before=_saving.acquire, after_in_parent=_saving.release, after_in_child=_saving.release)


class CorruptFileError(Exception):
    """The file is not a file of tensors, or is damaged; the message says why."""


def save(file: Any, content: Mapping[str, Any]) -> None:
    """Writes tensors with checksums, regardless of torch's settings."""
    with _saving:
        before = torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(True)
        try:
            torch.save(dict(content), file)
        finally:
            torch.serialization.set_crc32_options(before)


def read(path: Path) -> Any:
    """Reads a file, with mapped tensors. Raises `CorruptFileError`, and `OSError` if it cannot be read."""
    try:
        if not path.is_file() and path.exists():  # opening a FIFO would block
            raise CorruptFileError("it is not a regular file")
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise CorruptFileError("it is compressed, which torch never does")
            if (damaged := archive.testzip()) is not None:
                raise CorruptFileError(f"the checksum of {damaged} is wrong")
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (MemoryError, CorruptFileError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # EINVAL: a wrong offset
            raise
        reason = str(error).partition("\n")[0][:200]
        raise CorruptFileError(f"{type(error).__name__}: {reason}") from error


def check_tensors(tensors: Any, path: Path) -> int:
    """The number of rows; `CorruptFileError` unless tensors are plain, equally long, and no larger than the file."""
    if not isinstance(tensors, dict) or not tensors:
        raise CorruptFileError("it holds no tensors")
    rows = set()
    for name, tensor in tensors.items():
        if not isinstance(name, str) or type(tensor) is not torch.Tensor:
            raise CorruptFileError(f"{name!r} is a {type(tensor).__name__}, not a tensor")
        if (
            tensor.layout is not torch.strided
            or tensor.device.type != "cpu"
            or tensor.is_quantized
            or tensor.is_neg()
            or tensor.is_conj()
        ):
            raise CorruptFileError(f"{name!r} is not a plain tensor")
        if tensor.ndim == 0:
            raise CorruptFileError(f"{name!r} has no batch axis")
        rows.add(tensor.shape[0])
    if sum(tensor.nbytes for tensor in tensors.values()) > path.stat().st_size:
        raise CorruptFileError("its tensors are larger than the file")
    if len(rows) > 1:
        raise CorruptFileError(f"its tensors have {sorted(rows)} rows")
    return int(rows.pop())


def own(tensor: Any, pin: bool) -> Any:
    """A contiguous copy, in pinned memory if `pin` is set."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pin)
    source = tensor.detach().contiguous()
    if copy.numel():
        copy.view(-1).view(torch.uint8).numpy()[:] = source.view(-1).view(torch.uint8).numpy()
    return copy


def describe(name: str, tensor: Any) -> dict[str, Any]:
    """The schema's entry for a tensor."""
    return {"name": name, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape[1:])}


def cut(tensors: Tensors, first_row: int, rows: int, batch_size: int, pin: bool) -> list[Any]:
    """Cuts tensors into batches from a row on: views, except a short last batch, which is filled by repeating its rows.

    A batch is a tuple (x, y) if these are the fields, else a dict.
    """
    if first_row >= rows:
        return []
    fields = {name: list(tensor[first_row:rows].split(batch_size)) for name, tensor in tensors.items()}
    if short := (rows - first_row) % batch_size:
        again = torch.arange(batch_size) % short
        for parts in fields.values():
            filled = parts[-1].index_select(0, again)
            parts[-1] = filled.pin_memory() if pin else filled
    if fields.keys() == {"x", "y"}:
        return list(zip(fields["x"], fields["y"], strict=True))
    return [dict(zip(fields, parts, strict=True)) for parts in zip(*fields.values(), strict=True)]

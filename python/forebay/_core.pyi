"""Signatures of the extension module; `help()` shows the full documentation."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    NotRequired,
    Protocol,
    Self,
    SupportsIndex,
    TextIO,
    TypeAlias,
    TypedDict,
    Unpack,
    final,
    overload,
    type_check_only,
)

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar, disjoint_base

from forebay._recipe import Recipe
from forebay.augment import _StepPart
from forebay.batching import _BatchingPart
from forebay.cache.datasets import AsyncDataset
from forebay.crops import _CropPart
from forebay.features import _FrontEndPart
from forebay.manifest import Manifest
from forebay.sampling import _SamplingPart
from forebay.targets import _TargetPart
from forebay.text import _TextPart

__all__ = [
    "AudioDataset",
    "ConfigError",
    "DataLoader",
    "DecodeError",
    "ForebayError",
    "Loader",
    "LoaderBase",
    "SpectrogramTransform",
    "StateError",
    "TokenLoader",
    "Tokenizer",
    "_Batching",
    "_CacheBuild",
    "_CacheReader",
    "_Check",
    "_Crop",
    "_Dataset",
    "_FrontEnd",
    "_Index",
    "_List",
    "_Manifest",
    "_ParquetText",
    "_Sampling",
    "_ShardWork",
    "_Step",
    "_Target",
    "_TextRows",
    "__version__",
    "_array_metadata",
    "_augment_features",
    "_augment_numbers",
    "_augment_waveform",
    "_cache_fields",
    "_cache_ledger",
    "_close_all",
    "_cores",
    "_function_name",
    "_inject_delays",
    "_inject_panic",
    "_inject_records",
    "_inject_slow_values",
    "_parameters",
    "_parquet_files",
    "_permutation",
    "_shards",
    "_unknown_keyword",
    "_values_in_the_making",
    "decode",
]

__version__: Final[str]

@type_check_only
class _HubDataset(Protocol):
    """`datasets.Dataset`."""

    @property
    def cache_files(self) -> list[dict[str, Any]]: ...
    def __len__(self) -> int: ...

@type_check_only
class _HubTokenizer(Protocol):
    """`tokenizers.Tokenizer`."""

    def to_str(self, pretty: bool = False) -> str: ...

_Files: TypeAlias = str | PathLike[str] | Manifest | Sequence[str | PathLike[str] | Manifest] | _HubDataset
_TextFiles: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]] | _HubDataset | _TextPart
_TextSources: TypeAlias = _TextFiles | Mapping[str, _TextFiles]
_Sources: TypeAlias = _Files | Mapping[str, _Files]
_Features: TypeAlias = str | _FrontEndPart
_Crops: TypeAlias = _CropPart
_Batches: TypeAlias = _BatchingPart
_Rows: TypeAlias = _SamplingPart
_Steps: TypeAlias = Sequence[_StepPart]
_Targets: TypeAlias = _TargetPart | Mapping[str, _TargetPart]
_Weights: TypeAlias = Mapping[str, float] | Sequence[tuple[int, Mapping[str, float]]]
_Value = TypeVar("_Value", default=Any)

@type_check_only
class _Overrides(TypedDict, total=False):
    seed: int
    batch_size: int
    shuffle_buffer_size: int
    shuffle_min_size: int
    sample_rate: int
    clip_seconds: float
    n_mels: int
    n_fft: int
    hop_length: int
    n_workers: int | Literal["auto"]
    raw_channel_size: int
    infinite: bool
    augment: bool | _Steps
    features: _Features | None
    targets: _Targets | None
    columns: Sequence[str] | None
    n_samples: int | None
    sampling: _Rows | None
    crop: _Crops | None
    batching: _Batches | None
    order: str | None
    rank: int
    world_size: int
    n_streams: int | None
    drop_last: bool
    era_length: int
    weights: _Weights | None
    mixture_block: int | None
    stop: str | None
    n_readers: int
    prefetch_batches: int | Literal["auto"]
    cpu_budget: int | None
    memory_budget: int | None
    raw_channel_bytes: int | None
    max_record_bytes: int
    max_decoded_seconds: float
    damage: str
    max_damage: float
    dtype: str
    layout: str
    n_frames: int | None
    audio: Mapping[str, str | Sequence[str]] | None
    missing_audio: str
    independent: Sequence[str] | Mapping[str, str | None] | None
    audio_column: str | None
    track: int | Mapping[str, int | Sequence[int]] | None
    label_column: str | None
    mmap: bool
    allow_paths: bool | str | PathLike[str] | Iterable[str | PathLike[str]] | None
    storage_options: Mapping[str, str | bool | None] | None
    cache_dir: str | PathLike[str] | None
    cache_bytes: int
    on_error: Literal["skip", "raise"]
    on_io_error: Literal["skip", "raise"]
    max_errors: float | None
    max_consecutive_errors: int | None
    exclude: str | PathLike[str] | Iterable[int] | None
    outputs: Sequence[str] | None
    worker_nice: int
    cpus: str | None
    stall_warning_s: float | None

@type_check_only
class _BadPartner(TypedDict):
    index: int
    shard: str
    row: int
    step: NotRequired[int]
    recording: NotRequired[str]
    kind: str
    reason: str

@type_check_only
class _BadRecord(TypedDict):
    index: int
    shard: str
    row: int
    path: str | None
    kind: str
    reason: str

@type_check_only
class _BatchField(TypedDict):
    name: str
    dtype: str
    shape: tuple[int, ...] | None
    meaning: str

@type_check_only
class _Shard(TypedDict):
    path: str
    first_row: int
    num_rows: int
    num_bytes: int
    damage: str | None

@type_check_only
class _StageStats(TypedDict):
    threads: int
    items: int
    busy_s: float
    blocked_s: float
    blocked_on: dict[str, float]
    p50_s: float
    p99_s: float
    items_per_s: float
    busy_share: float
    blocked_share: float
    run_queue_share: float | None

@type_check_only
class _Stages(TypedDict):
    read: _StageStats
    decode: _StageStats
    collate: _StageStats
    consumer: _StageStats

@type_check_only
class _Queues(TypedDict):
    records: int
    record_bytes: int
    read_bytes: int
    examples: int
    batches: int

@type_check_only
class _BatchTimes(TypedDict):
    start_s: float
    ready_p50_s: float
    ready_p99_s: float
    starved_p50_s: float
    starved_p99_s: float

@type_check_only
class _Thread(TypedDict):
    name: str
    state: str
    since: float
    item: int | None
    shard: str | None
    row: int | None

@type_check_only
class _Delivered(TypedDict):
    batches: int
    examples: int
    substitutes: int
    records_failed: int
    records_excluded: int
    records_lost: int
    records_good: int

@type_check_only
class _FileReads(TypedDict):
    """What a `Loader` of recordings in files did."""

    opened: int
    open: int
    reads: int
    read_bytes: int
    indexed: int
    index_hits: int
    indexes: int
    index_bytes: int

@type_check_only
class _Classes(TypedDict):
    """The classes of a column."""

    column: str
    source: str | None
    classes: list[str | int | None]
    rows: list[int]

@type_check_only
class _ClassCounts(_Classes):
    examples: list[int]

@type_check_only
class _ExpectedClasses(_Classes):
    expected: list[float]

@type_check_only
class _RequestTimes(TypedDict):
    first_byte_p50_s: float
    first_byte_p99_s: float

@type_check_only
class _Stats(TypedDict):
    records_read: int
    records_decoded: int
    records_failed: int
    records_excluded: int
    records_lost: int
    retries: int
    requests: int
    received_bytes: int
    cache_hits: int
    cached_bytes: int
    request_times: _RequestTimes
    substitutes: int
    batches: int
    decoded_at_first_batch: int
    delivered: _Delivered
    failed_kinds: dict[str, int]
    n_workers: int
    prefetch_batches: int
    verdict: str
    stages: _Stages
    queues: _Queues
    batch_times: _BatchTimes
    threads: list[_Thread]
    files: NotRequired[_FileReads]
    classes: NotRequired[list[_ExpectedClasses]]
    redraws: NotRequired[int]

@type_check_only
class _Headspace(TypedDict):
    examples_per_s: float
    decoded_per_s: float
    handover_per_s: float
    seconds: float
    fill_seconds: float
    filled: bool
    verdict: str

class ForebayError(Exception):
    """The base of forebay's errors; itself raised by a loader that is closed or was made before a fork."""

class ConfigError(ForebayError, ValueError):
    """Parameters are out of range or files cannot be used; names every problem found."""

class DecodeError(ForebayError):
    """A record failed, and the loader may not skip or replace it."""

class StateError(ForebayError):
    """A state does not belong to this loader, or the call is not possible in its current state."""

@disjoint_base
class LoaderBase(Generic[_Value]):
    """The base class of `Loader`, `TokenLoader` and `cache.DataLoader`; it has no instances of its own."""

    def __iter__(self) -> Iterator[dict[str, _Value]]: ...
    def __next__(self) -> dict[str, _Value]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, _index: object, /) -> None: ...
    def __bool__(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __setstate__(self, state: dict[str, Any]) -> None: ...
    def _take_back(self) -> None: ...
    def close(self) -> None:
        """Ends all threads; a waiting `next()` in another thread, and every later one, raises `ForebayError`."""

    @property
    def closed(self) -> bool:
        """Whether `close()` was called."""

    @property
    def batch_size(self) -> int:
        """Rows of a batch on this rank, the parameter; with `batching`, the most rows of a batch."""

    @property
    def rank(self) -> int:
        """The rank, the parameter."""

    @property
    def world_size(self) -> int:
        """The number of ranks, the parameter."""

    @property
    def batch(self) -> int:
        """The number of the next batch."""

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""

    def set_epoch(self, epoch: int) -> None:
        """Chooses the pass that the next `iter()` of a finite loader begins, 0 to 2**62."""

    def seek(self, batch: int) -> None:
        """Makes batch number `batch` the next one; `ConfigError` for a `TokenLoader`, but for 0."""

    def skip(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Leaves out the batches in `ranges`, pairs of (first, end); `ConfigError` for a `TokenLoader`."""

    def stats(self) -> _Stats:
        """Counts (`delivered`: of the returned batches only), times by stage, depths of the queues, and a verdict."""

    def trace(self, path: str | PathLike[str], seconds: float = 5.0) -> None:
        """Records the activity of every thread for the next `seconds` and writes it to `path` as trace events."""

    def headspace(self, seconds: float = 2.0) -> _Headspace:
        """Measures the loader's speed with a loop that does nothing, on a copy at the same position."""

    def progress(self, total: int | None = None, file: TextIO | None = None) -> Iterator[dict[str, _Value]]:
        """Iterates as the loader itself does, and shows how far the loop is, its rate, its waits and the verdict."""

    def _repr_html_(self) -> str: ...
    def state_dict(self) -> dict[str, Any]:
        """The loader's position, as a dict that JSON can hold."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes at the position of `state`."""

@final
class Loader(LoaderBase[NDArray[Any]]):
    """Yields batches of features and labels of recordings: in folders, tables, archives or shards."""

    def __new__(
        cls,
        arrow_files: _Sources,
        seed: int = 0,
        batch_size: int = 64,
        shuffle_buffer_size: int = 10000,
        shuffle_min_size: int = 8000,
        sample_rate: int = 32000,
        clip_seconds: float = 5.0,
        n_mels: int = 128,
        n_fft: int = 1024,
        hop_length: int = 320,
        n_workers: int | Literal["auto"] = 8,
        raw_channel_size: int = 256,
        infinite: bool = True,
        augment: bool | _Steps = True,
        *,
        features: _Features | None = None,
        targets: _Targets | None = None,
        columns: Sequence[str] | None = None,
        n_samples: int | None = None,
        sampling: _Rows | None = None,
        crop: _Crops | None = None,
        batching: _Batches | None = None,
        order: str | None = None,
        rank: int = 0,
        world_size: int = 1,
        n_streams: int | None = None,
        drop_last: bool = False,
        era_length: int = 8192,
        weights: _Weights | None = None,
        mixture_block: int | None = None,
        stop: str | None = None,
        n_readers: int = 32,
        prefetch_batches: int | Literal["auto"] = 3,
        cpu_budget: int | None = None,
        memory_budget: int | None = None,
        raw_channel_bytes: int | None = None,
        max_record_bytes: int = 1073741824,
        max_decoded_seconds: float = 86400.0,
        damage: str = "silence",
        max_damage: float = 0.1,
        dtype: str = "float32",
        layout: str = "mel",
        n_frames: int | None = None,
        audio: Mapping[str, str | Sequence[str]] | None = None,
        missing_audio: str = "error",
        independent: Sequence[str] | Mapping[str, str | None] | None = None,
        audio_column: str | None = None,
        track: int | Mapping[str, int | Sequence[int]] | None = None,
        label_column: str | None = None,
        mmap: bool = False,
        allow_paths: bool | str | PathLike[str] | Iterable[str | PathLike[str]] | None = None,
        storage_options: Mapping[str, str | bool | None] | None = None,
        cache_dir: str | PathLike[str] | None = None,
        cache_bytes: int = 107374182400,
        on_error: Literal["skip", "raise"] = "skip",
        on_io_error: Literal["skip", "raise"] = "raise",
        max_errors: float | None = None,
        max_consecutive_errors: int | None = None,
        exclude: str | PathLike[str] | Iterable[int] | None = None,
        outputs: Sequence[str] | None = None,
        worker_nice: int = 10,
        cpus: str | None = None,
        stall_warning_s: float | None = 30.0,
    ) -> Self: ...
    @classmethod
    def train(cls, arrow_files: _Sources, **overrides: Unpack[_Overrides]) -> Self:
        """A loader for training: infinite, random crops, buffer 10000 / minimum 8000, 8 workers."""

    @classmethod
    def eval(cls, arrow_files: _Sources, **overrides: Unpack[_Overrides]) -> Self:
        """A loader for evaluation: one pass in order, center crops, buffer 1000 / minimum 0, 4 workers."""

    @property
    def left_out(self) -> dict[str, int]:
        """The rows that are not read because of their length: `too_short`, `too_long`, and `too_many_tokens`.

        `too_many_per_second` are those with too many tokens for their seconds.
        """

    @property
    def buckets(self) -> list[dict[str, float]] | None:
        """The buckets of `batching=Buckets(...)`: sizes, rows, and the batches of an epoch with their padding."""

    @property
    def padding(self) -> dict[str, float] | None:
        """The share of padding in the batches of `batching=Buckets(...)`, beside that of random batches."""
    def partner_errors(self) -> list[_BadPartner]:
        """The recordings of `Mix`, `Reverb` and `independent=` that could not be decoded; others were taken."""

    def errors(self) -> list[_BadRecord]:
        """The records that were skipped, each with its index and the reason."""

    def replay(self, batch: int) -> dict[str, NDArray[Any]]:
        """Returns batch number `batch` without a change of position."""

    @overload
    def plan(self, n: int, *, outputs: None = None) -> NDArray[np.int64]:
        """The row numbers of the next `n` examples, without reading any data."""
    @overload
    def plan(self, n: int, *, outputs: Sequence[str]) -> dict[str, NDArray[Any]]:
        """The row numbers as `index`, and what augmentation will do to these examples, by names of outputs."""

    def class_counts(self, epoch: int | None = None, *, column: str | None = None) -> list[_ClassCounts]:
        """Counts rows and examples of each class in an epoch, before and after balancing, without decoding."""

    @property
    def num_records(self) -> int:
        """The number of rows in all shards; with `crop=Windows()` the number of their windows."""

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches in one pass."""

    @property
    def source_names(self) -> list[str] | None:
        """The names of the sources of a mixture."""

    @property
    def _bfloat16_fields(self) -> list[str]: ...
    @property
    def class_names(self) -> list[str] | dict[str, list[str]] | None:
        """The names of the classes, by number; a dict if several targets have names."""

    @property
    def fields(self) -> list[_BatchField]:
        """The fields of a batch."""

    @property
    def recipe(self) -> Recipe:
        """What the loader makes of a recording, for `print`; `to_dict()` has it as JSON."""

    @property
    def shards(self) -> list[_Shard]:
        """The shards in the given order."""

@type_check_only
class _Recording(TypedDict):
    codec: str
    sample_rate: int
    channels: int
    n_samples: int
    seconds: float

@final
class AudioDataset:
    """Random access to recordings: rows by number, batches of any rows, crops at any time."""

    def __new__(
        cls,
        source: _Sources,
        *,
        features: _Features | None = None,
        clip_seconds: float = 5.0,
        crop: _Crops | None = None,
        targets: _Targets | None = None,
        columns: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        n_threads: int | None = None,
        seed: int = 0,
        sample_rate: int = 32000,
        n_mels: int = 128,
        n_fft: int = 1024,
        hop_length: int = 320,
        dtype: str = "float32",
        layout: str = "mel",
        n_frames: int | None = None,
        n_samples: int | None = None,
        sampling: _Rows | None = None,
        audio: Mapping[str, str | Sequence[str]] | None = None,
        missing_audio: str = "error",
        independent: Sequence[str] | Mapping[str, str | None] | None = None,
        audio_column: str | None = None,
        track: int | Mapping[str, int | Sequence[int]] | None = None,
        label_column: str | None = None,
        max_record_bytes: int = 1073741824,
        max_decoded_seconds: float = 86400.0,
        damage: str = "silence",
        max_damage: float = 0.1,
        mmap: bool = False,
        allow_paths: bool | str | PathLike[str] | Iterable[str | PathLike[str]] | None = None,
        storage_options: Mapping[str, str | bool | None] | None = None,
        cache_dir: str | PathLike[str] | None = None,
        cache_bytes: int = 107374182400,
    ) -> Self: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> dict[str, Any]:
        """The fields of a row, or for a slice or several rows a batch."""

    @overload
    def __getitem__(self, index: slice | Sequence[int] | NDArray[np.integer[Any]], /) -> dict[str, NDArray[Any]]: ...
    def __getitems__(self, indices: Sequence[int] | NDArray[np.integer[Any]], /) -> list[dict[str, Any]]:
        """The fields of each of these rows."""

    def get_batch(
        self,
        indices: Iterable[int] | NDArray[np.integer[Any]],
        starts: Iterable[float | None] | NDArray[np.floating[Any]] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """A batch of these rows; `starts` has the seconds at which the clips begin."""

    def waveform(
        self,
        index: SupportsIndex,
        start: float | None = None,
        seconds: float | None = None,
        *,
        sample_rate: int | None = None,
    ) -> tuple[NDArray[np.float32], int]:
        """The samples of a row, `[channels, n_samples]`, and their rate."""

    def info(self, index: SupportsIndex) -> _Recording:
        """The codec, rate, channels and length of a row."""

    def path(self, index: SupportsIndex) -> str | None:
        """The path of a row's recording, as its table, its folder or its shard has it."""

    def column(self, name: str) -> Any:
        """A column of all rows, without the recordings."""

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the files, and their types."""

    @property
    def _classes(self) -> dict[str, list[str]]: ...
    @property
    def fields(self) -> list[_BatchField]:
        """The fields of a row."""

    @property
    def class_names(self) -> list[str] | dict[str, list[str]] | None:
        """The names of the classes, by number; a dict if several targets have names."""

    @property
    def source_names(self) -> list[str] | None:
        """The names of the sources, if there are several."""

    @property
    def recipe(self) -> Recipe:
        """What the dataset makes of a recording, for `print`; `to_dict()` has it as JSON."""

    @property
    def shards(self) -> list[_Shard]:
        """The files in the given order."""

    @property
    def _bfloat16_fields(self) -> list[str]: ...
    def close(self) -> None:
        """Ends the threads."""

    @property
    def closed(self) -> bool:
        """Whether `close()` was called."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def _repr_html_(self) -> str: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@type_check_only
class _Packing(TypedDict):
    documents: int
    tokens: int
    bytes: int
    delivered: int
    dropped: int
    padded: int

@type_check_only
class _TokenSource(TypedDict):
    documents: int
    tokens: int
    dropped: int
    epoch: int

@type_check_only
class _TokenStats(_Stats):
    packing: _Packing
    sources: NotRequired[dict[str, _TokenSource]]

@final
class TokenLoader(LoaderBase[NDArray[Any]]):
    """Yields packed batches of tokens from Parquet shards of documents."""

    def __new__(
        cls,
        parquet_files: _TextSources,
        tokenizer: str | PathLike[str] | Tokenizer | _HubTokenizer | Callable[[str], Iterable[int]] | None = None,
        batch_size: int = 32,
        seq_len: int = 2048,
        split: str = "train",
        *,
        val: str | Sequence[str] | None = None,
        buffer_size: int = 1000,
        tokenizer_batch_size: int = 128,
        n_workers: int | Literal["auto"] = 4,
        rank: int = 0,
        world_size: int = 1,
        seed: int | None = None,
        infinite: bool = True,
        weights: _Weights | None = None,
        weights_in: str | None = None,
        stop: str | None = None,
        text_column: str = "text",
        fit: str = "drop",
        on_long: str = "skip",
        pad_id: int | None = None,
        pad_multiple: int = 1,
        crop: str | None = None,
        n_streams: int | None = None,
        stride: str | None = None,
        shuffle_min_size: int | None = None,
        drop_last: bool = False,
        dtype: str = "int64",
        extras: Sequence[str] | None = None,
        max_documents: int | None = None,
        pattern: str | None = None,
        special_tokens: Mapping[str, int] | None = None,
        bos_id: int | None = None,
        eos_id: int | None = None,
        loss_across: bool = True,
        prefetch_batches: int | Literal["auto"] = 3,
        raw_channel_size: int = 256,
        cpu_budget: int | None = None,
        raw_channel_bytes: int = 536870912,
        cache_dir: str | PathLike[str] | None = None,
        cache_bytes: int = 107374182400,
        on_error: Literal["skip", "raise"] = "skip",
        on_io_error: Literal["skip", "raise"] = "raise",
        max_errors: float | None = None,
        max_consecutive_errors: int | None = None,
        exclude: str | PathLike[str] | Iterable[int] | None = None,
        worker_nice: int = 10,
        cpus: str | None = None,
        stall_warning_s: float | None = 30.0,
        storage_options: Mapping[str, str | bool | None] | None = None,
    ) -> Self: ...
    def stats(self) -> _TokenStats: ...
    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Resumes at the position of `state`, or of the states of all ranks."""

    def errors(self) -> list[_BadRecord]:
        """The documents that were skipped, each with its index and the reason."""

    @property
    def _is_paired(self) -> bool: ...
    @property
    def _has_ignored(self) -> bool: ...
    @property
    def num_documents(self) -> int:
        """The number of rows in all shards of the split."""

    @property
    def bos_id(self) -> int:
        """The id that begins each document."""

    @property
    def eos_id(self) -> int | None:
        """The id that ends each document, if any."""

    @property
    def shards(self) -> list[_Shard]:
        """The shards in the order in which they are read."""

@final
class SpectrogramTransform:
    """Turns waveforms into log-mel spectrograms."""

    def __new__(
        cls,
        sample_rate: int = 32000,
        n_fft: int = 1024,
        hop_length: int = 320,
        n_mels: int = 128,
        *,
        win_length: int | None = None,
        f_min: float = 0.0,
        f_max: float | None = None,
    ) -> Self: ...
    def transform(self, waveform: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the log-mel energies `[n_mels, n_frames]` of a waveform `[n_samples]`."""

    def n_frames(self, n_samples: int) -> int:
        """The number of frames of a waveform of `n_samples`."""

    def __getnewargs_ex__(self) -> tuple[tuple[int, int, int, int], dict[str, Any]]: ...
    @property
    def n_mels(self) -> int:
        """The number of mel bands."""

@final
class _FrontEnd:
    """The plan of an object of `forebay.features`."""

    def __new__(cls, kind: str, fields: dict[str, Any]) -> Self: ...
    @staticmethod
    def check_part(fields: dict[str, Any]) -> None: ...
    def shape(self, n_samples: int) -> list[int]: ...
    def transform(self, waveform: NDArray[np.float32]) -> NDArray[Any]: ...
    @property
    def sample_rate(self) -> int: ...

@final
class _Target:
    """The description of an object of `forebay.targets`."""

    def __new__(
        cls,
        kind: str,
        fields: dict[str, Any],
        names: list[str] | None,
        annotations: list[tuple[str, float, float, str]] | None = None,
    ) -> Self: ...

@final
class _Batching:
    """The description of an object of `forebay.batching`."""

    def __new__(cls, kind: str, fields: dict[str, Any]) -> Self: ...

@final
class _TextRows:
    """The description of an object of `forebay.text`."""

    def __new__(cls, kind: str, fields: dict[str, Any]) -> Self: ...
    @property
    def paths(self) -> list[str]: ...

@final
class _Crop:
    """The description of an object of `forebay.crops`."""

    def __new__(
        cls, kind: str, fields: dict[str, Any], regions: Sequence[tuple[str, float, float]] | None = None
    ) -> Self: ...
    def annotated_seconds(self, paths: Sequence[str]) -> list[float]: ...

@final
class _Manifest:
    """The description of a `forebay.Manifest`."""

    def __new__(cls, fields: dict[str, Any]) -> Self: ...

@final
class _Sampling:
    """The description of an object of `forebay.sampling`."""

    def __new__(cls, kind: str, fields: dict[str, Any]) -> Self: ...
    def joined(self, other: _Sampling) -> Self: ...

@final
class _Step:
    """The description of an object of `forebay.augment`."""

    def __new__(cls, kind: str, fields: dict[str, Any]) -> Self: ...

@final
class Tokenizer:
    """Turns text into token ids."""

    def __new__(
        cls,
        path: str | PathLike[str] | Tokenizer | _HubTokenizer,
        *,
        pattern: str | None = None,
        special_tokens: Mapping[str, int] | None = None,
        bos_id: int | None = None,
        eos_id: int | None = None,
    ) -> Self: ...
    def __getnewargs_ex__(self) -> tuple[tuple[Any], dict[str, Any]]: ...
    def decode(self, ids: Sequence[int] | NDArray[np.integer[Any]]) -> str:
        """The text of ids; bytes that are not UTF-8 become U+FFFD."""

    def encode(self, text: str, *, dropout: float = 0.0, seed: int = 0) -> NDArray[np.uint32]:
        """The ids of a text; with `dropout` some merges are left out, at random by `seed`."""

    def encode_batch(self, texts: Sequence[str], n_threads: int = 1) -> list[NDArray[np.uint32]]:
        """The ids of each text."""

    def token_to_id(self, token: str) -> int | None:
        """The id of the token with this text, if there is one."""

    @property
    def n_vocab(self) -> int:
        """The largest id plus one."""

    @property
    def unk_id(self) -> int | None:
        """The id of unknown characters in a SentencePiece model."""

    @property
    def pad_id(self) -> int | None:
        """The id of the padding piece of a SentencePiece model."""

    @property
    def bos_id(self) -> int | None:
        """The id that begins each document, if any."""

    @property
    def eos_id(self) -> int | None:
        """The id that ends each document, if any."""

    @property
    def name(self) -> str:
        """The file's name without its ending."""

@type_check_only
class _DatasetStats(_Stats):
    rows: int
    bytes: int

@final
class DataLoader(LoaderBase[Any]):
    """Yields batches of a dataset, made ahead, starting at any step."""

    def __new__(
        cls,
        dataset: AsyncDataset,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        start_step: int = 0,
        prefetch_batches: int | Literal["auto"] = 4,
        *,
        n_workers: int | Literal["auto"] = 4,
        drop_last: bool = False,
        dtype: str | None = None,
        worker_nice: int = 10,
        cpus: str | None = None,
        stall_warning_s: float | None = 30.0,
    ) -> Self: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def stats(self) -> _DatasetStats: ...
    @property
    def dataset(self) -> AsyncDataset:
        """The dataset that the loader reads."""

_FieldTuple = tuple[str, str, int, list[int] | None]

@final
class _List:
    def __new__(cls, fields: list[_FieldTuple]) -> Self: ...
    def append(self, document: Sequence[tuple[list[int], NDArray[np.uint8]]]) -> None: ...
    def finish(self) -> None: ...

@final
class _Dataset:
    @staticmethod
    def list(documents: _List) -> _Dataset: ...
    @staticmethod
    def cache(path: str | PathLike[str], split: str) -> _Dataset: ...
    @staticmethod
    def python(dataset: AsyncDataset) -> _Dataset: ...
    @staticmethod
    def mixture(
        sources: Sequence[tuple[str, _Dataset]],
        stages: Sequence[tuple[int, Sequence[float]]],
        block_size: int | None,
        stop: str,
        seed: int,
    ) -> _Dataset: ...
    def tokens(self, field: str, max_seq_len: int, doc_ids: bool, dtype: str) -> _Dataset: ...
    def with_integers(self, dtype: str) -> _Dataset: ...
    def weighted(self, weights: NDArray[np.float64] | str, epoch_size: int | None, seed: int) -> _Dataset: ...
    def permutation(self, seed: int) -> _Dataset: ...
    def eras(self, era_length: int, seed: int) -> _Dataset: ...
    def describe(self) -> str: ...
    def fields(self) -> Sequence[_FieldTuple]: ...
    def length(self, epoch: int = 0) -> tuple[int | None, bool]: ...
    def wait(self, rows: int, timeout_s: float | None = None, epoch: int = 0) -> tuple[int | None, bool]: ...
    def locate(self, positions: NDArray[np.int64], epoch: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
    def read(self, positions: NDArray[np.int64], epoch: int = 0) -> dict[str, Any]: ...
    def leaves(self) -> Sequence[Any]: ...

def decode(
    data: bytes | bytearray,
    start: int = 0,
    num_samples: int | None = None,
    *,
    damage: str = "silence",
    max_damage: float = 0.1,
    track: int | None = None,
) -> tuple[NDArray[np.float32], int]:
    """A span of a recording, `[n]` or `[channels, n]`, and its sample rate."""

# For tests; no release wheel has these five.
def _inject_delays(fixed_ms: float = 0.0, random_ms: float = 0.0) -> None: ...
def _inject_panic(row: int | None = None) -> None: ...
def _inject_records(n: int) -> None: ...
def _inject_slow_values(pause_ms: int) -> None: ...
def _values_in_the_making() -> int: ...
def _permutation(seed: int, epoch: int, n: int, start: int = 0, stop: int | None = None) -> NDArray[np.int64]: ...
def _augment_features(
    given: Sequence[_StepPart],
    features: NDArray[np.float32],
    layout: str,
    silence: list[float] | None,
    seed: int,
    n_valid: int,
) -> None: ...
def _augment_numbers(
    given: Sequence[_StepPart],
    front_end: _FrontEndPart,
    bits: NDArray[np.int64],
    *,
    slots: NDArray[np.int64],
    first: NDArray[np.int64],
    valid: NDArray[np.int64],
    n_samples: NDArray[np.int64],
    padded: int,
) -> NDArray[np.float64]: ...
def _augment_waveform(
    given: Sequence[_StepPart], waveform: NDArray[np.float32], sample_rate: int, seed: int
) -> NDArray[np.float32]: ...
def _cores() -> int: ...
def _cache_ledger(
    folder: str | PathLike[str],
) -> tuple[int, bool, str, list[tuple[str, str, int]], str | None] | None: ...
def _cache_fields(folder: str | PathLike[str]) -> list[str]: ...
def _array_metadata(folder: str | PathLike[str]) -> str: ...
def _function_name(function: Any) -> str: ...
def _parameters() -> dict[str, list[dict[str, Any]]]: ...
def _unknown_keyword(path: str, names: list[str], unknown: str) -> TypeError: ...
def _close_all() -> None: ...

@final
class _CacheBuild:
    def __new__(
        cls,
        shards: Sequence[str] | Sequence[tuple[str, Callable[[int], Iterable[Any]]]],
        processor: dict[str, Any],
        path: str | PathLike[str],
        split: str,
        *,
        fields: Sequence[tuple[str, str | None]] | None,
        batch_size: int,
        order: str,
        n_workers: int,
        compression: str,
        made_by: str,
        overwrite: bool,
        commit_seconds: float,
        commit_documents: int,
        on_error: str = "raise",
        max_errors: float | None = None,
        is_processed: bool = False,
    ) -> Self: ...
    @staticmethod
    def identity(
        shards: Sequence[str] | Sequence[tuple[str, Callable[[int], Iterable[Any]]]], processor: dict[str, Any]
    ) -> dict[str, Any]: ...
    def wait(self, seconds: float) -> int | None: ...
    def cancel(self) -> None: ...
    def progress(self) -> dict[str, Any]: ...

@final
class _CacheReader:
    def __new__(cls, path: str | PathLike[str], split: str) -> Self: ...
    def fields(self) -> list[tuple[str, str, int]]: ...
    def errors(self) -> list[tuple[str, int, str, str]]: ...
    def n_errors(self) -> int: ...
    def length(self) -> tuple[int, bool]: ...
    def refresh(self) -> tuple[int, bool]: ...
    def wait(self, documents: int) -> tuple[int, bool]: ...
    def flat_len(self, field: int) -> int: ...
    def flat(self, field: int, start: int, stop: int) -> NDArray[np.uint8]: ...
    def documents(
        self, field: int, indices: Sequence[int]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]: ...

@final
class _ShardWork:
    def __new__(
        cls,
        shard: Sequence[str] | Sequence[tuple[str, Callable[[int], Iterable[Any]]]],
        processor: dict[str, Any],
        skip_batches: int,
        batch_size: int,
        on_error: str,
    ) -> Self: ...
    def next(self) -> tuple[Any, list[tuple[int, str, str]]] | None: ...

@final
class _Check:
    def __new__(
        cls,
        files: Sequence[str | PathLike[str]],
        *,
        audio_column: str | None = None,
        allow_paths: bool | str | PathLike[str] | Iterable[str | PathLike[str]] | None = None,
        damage: str = "silence",
        max_damage: float = 0.1,
        track: int | None = None,
    ) -> Self: ...
    def seek(self, first_row: int) -> None: ...
    def next(self) -> list[dict[str, Any]] | None: ...
    def close(self) -> None: ...
    @property
    def step(self) -> int: ...
    @property
    def fingerprint(self) -> int: ...
    @property
    def shards(self) -> list[_Shard]: ...

@type_check_only
class _Surveyed(TypedDict):
    recordings: int
    bytes: int
    rates: list[tuple[int, int, int]]
    channels: list[tuple[int, int]]
    codecs: list[tuple[str, int]]
    classes: list[tuple[int, str | None, int]]
    n_classes: int
    found: int
    written: int
    needless: int
    unwritten: int
    why_unwritten: str | None
    n_bad: int
    bad: list[dict[str, Any]]

@final
class _Index:
    def __new__(
        cls,
        files: Sequence[str | PathLike[str]],
        *,
        audio_column: str | None = None,
        label_column: str | None = None,
        allow_paths: bool | str | PathLike[str] | Iterable[str | PathLike[str]] | None = None,
        track: int | None = None,
        lengths: bool = False,
    ) -> Self: ...
    def next(self) -> tuple[int, int, bool]: ...
    def totals(self) -> _Surveyed: ...
    def recordings(self, first: int, most: int) -> list[tuple[str | None, float, str | None]]: ...
    def close(self) -> None: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def n_recordings(self) -> int: ...
    @property
    def has_indexes(self) -> bool: ...
    @property
    def folder(self) -> Path | None: ...
    @property
    def shards(self) -> list[_Shard]: ...

@final
class _ParquetText:
    def __new__(cls, files: Sequence[str | PathLike[str]], text_column: str) -> Self: ...
    def row_groups(self) -> list[int]: ...
    def texts(self, file: int, row_group: int) -> list[str]: ...

def _parquet_files(paths: _Files, part: str, val: Sequence[str] | None = None) -> list[Path]: ...
def _shards(name: str, given: _Files, reads: str) -> list[str]: ...

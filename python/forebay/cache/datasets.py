"""Datasets with random access: lists, caches, windows of tokens, and shuffles and mixtures of any of them.

Datasets compose: a shuffle takes a dataset and is a dataset. The core maps positions arithmetically, at any
depth of the tree; your own dataset is a leaf.
"""

import asyncio
import operator
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Self, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from forebay._checks import advised, check, shown, whole, wrong_type
from forebay._core import ConfigError, _Dataset, _List
from forebay.cache._documents import leaves, nested
from forebay.cache.store import TreeStore, folder_of

__all__ = [
    "AsyncDataset",
    "CacheDataset",
    "Document",
    "EraShufflingDataset",
    "ListAsyncDataset",
    "MixtureDataset",
    "PermutationDataset",
    "TokenSeqDataset",
    "WeightedDataset",
]

Document = dict[str, Any]
"""A dict of arrays by field; dicts may be nested. In batches a nested field's name is a path, `prompt/input_ids`."""

IdType: TypeAlias = Literal["int32", "int64", "uint16", "uint32"]
"""A type of token ids."""

_OF_LOADERS = dict.fromkeys(
    ("shuffle", "batch_size", "num_workers", "n_workers", "drop_last", "collate_fn", "sampler", "epochs"),
    "shuffle with PermutationDataset(ds, seed); batches and threads are parameters of forebay.cache.DataLoader",
)
"""Parameters that users give to datasets and that are not theirs, with the advice."""

# How long a thread may still wait for an asyncio task that was cancelled.
_SLICE_S = 0.25

_Field = tuple[str, str, int, list[int] | None]


def _rows(indices: ArrayLike) -> NDArray[np.int64]:
    """The indices as an int64 array for the core."""
    given = np.asarray(indices)
    beyond: list[int] = []
    if given.dtype.kind == "u" and given.size and given.max() >= 2**63:
        beyond = [int(given.max())]
    elif given.dtype.kind in "fO":
        # A list with whole numbers that int64 does not hold.
        each = np.asarray(indices, object).ravel().tolist()
        if all(type(one) is int for one in each):
            beyond = [one for one in each if not -(2**63) <= one < 2**63]
    if beyond:
        raise IndexError(f"there is no index {shown(beyond[0])}")
    if given.size and given.dtype.kind not in "iu":
        raise TypeError(f"indices are {given.dtype}, must be whole numbers")
    return np.ascontiguousarray(given, np.int64).ravel()


def _seed(seed: int) -> int:
    check(seed=(seed, 0, 2**64 - 1))
    return operator.index(seed)


class AsyncDataset:
    """Base class of datasets: documents with random access, some of which may not be written yet.

    Three methods return the length. `current_len()` is the number of documents that can be read now; it never
    decreases. `final_length_is_known()` is whether this number is final. `len()` waits for the final length.
    Reading beyond the current length waits too; reading beyond the final length raises `IndexError`, and so
    does a negative index. If the writer of a cache fails, waiting readers raise its error.

    For your own dataset, derive from this class and define `get_batch` (or `async_get_batch`) and `__len__`.
    If it grows, define `current_len` and `final_length_is_known` too. `get_batch` is called from several
    threads. In a `DataLoader` a field of one or more dimensions is a `JaggedArray`, unless `fields` gives its
    shape.
    """

    fields: Mapping[str, tuple[Sequence[int] | None, DTypeLike]] | None = None
    """For your own class, by field: the shape of each document, None if shapes differ, and the type.

    Without `fields`, the first document determines names, types and numbers of dimensions.
    """

    _known_fields: list[_Field] | None = None
    _for_windows = ""
    """The advice for windows of tokens over a dataset that has none."""

    # Methods that your own dataset defines.

    def __len__(self) -> int:
        """The final number of documents; waits until it is known."""
        raise NotImplementedError(f"{type(self).__name__} defines no __len__")

    def get_batch(self, indices: ArrayLike) -> list[Document]:
        """Returns the documents at `indices`, in this order; an index may be repeated."""
        if type(self).async_get_batch is AsyncDataset.async_get_batch:
            raise NotImplementedError(f"{type(self).__name__} defines neither get_batch nor async_get_batch")
        return asyncio.run(self.async_get_batch(indices))

    async def async_get_batch(self, indices: ArrayLike) -> list[Document]:
        """As `get_batch`, for asyncio."""
        return await asyncio.to_thread(self.get_batch, indices)

    def current_len(self) -> int | None:
        """The number of documents that can be read now; None if the dataset is infinite."""
        return len(self)

    def final_length_is_known(self) -> bool:
        """Whether `current_len()` is final."""
        return True

    # Methods derived from these.

    def is_finite(self) -> bool:
        """Whether the dataset has a last document."""
        return self.current_len() is not None

    def wait_until_len_at_least(self, n: int) -> int:
        """Waits until there are `n` documents or the length is final; returns the number of documents."""
        length, _ = self._native().wait(max(operator.index(n), 0))
        return n if length is None else length

    async def async_wait_until_len_at_least(self, n: int) -> int:
        """As `wait_until_len_at_least`, for asyncio."""
        native = self._native()
        length, is_final = await asyncio.to_thread(native.length)
        while not (is_final or length is None or length >= n):
            length, is_final = await asyncio.to_thread(native.wait, operator.index(n), _SLICE_S)
        return n if length is None else length

    async def async_len(self) -> int:
        """The final length, for asyncio."""
        length = await self.async_wait_until_len_at_least(2**63 - 1)
        if not self.is_finite():
            raise TypeError("the dataset is infinite, so it has no length")
        return length

    def __getitem__(self, index: int) -> Document:
        """Returns one document; for many, `get_batch` is much faster."""
        return self.get_batch([whole("index", index)])[0]

    def __bool__(self) -> bool:
        """Always True, even for an empty dataset."""
        return True

    def shuffle(self, seed: int = 0) -> "PermutationDataset":
        """Shuffles all documents: `PermutationDataset(self, seed)`."""
        return PermutationDataset(self, seed)

    def era_shuffle(self, era_length: int = 8192, seed: int = 0) -> "EraShufflingDataset":
        """Shuffles documents within eras: `EraShufflingDataset(self, era_length, seed)`."""
        return EraShufflingDataset(self, era_length, seed)

    # Methods that the core calls.

    def _native(self) -> _Dataset:
        """The core's dataset."""
        return _Dataset.python(self)

    def _length(self) -> tuple[int | None, bool]:
        # In this order, so that a change between the calls does not mark a wrong length as final.
        is_final = self.final_length_is_known()
        return self.current_len(), is_final

    def _field_tuples(self) -> list[_Field] | None:
        if self._known_fields is None:
            if self.fields is not None:
                self._known_fields = [_given_field(name, spec) for name, spec in self.fields.items()]
            elif self.current_len() == 0:
                return None
            else:
                self._known_fields = [_field(name, value) for name, value in leaves(self.get_batch([0])[0])]
        return self._known_fields

    def _columns(self, indices: NDArray[np.int64]) -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        """The concatenated bytes and the shapes of the documents, for each field."""
        documents = self.get_batch(indices)
        if len(documents) != len(indices):
            raise ValueError(f"get_batch returned {len(documents)} documents for {len(indices)} indices")
        flat = [dict(leaves(document)) for document in documents]
        return [_column(field, flat, indices) for field in self._field_tuples() or []]


def _field(name: str, value: ArrayLike, shape: list[int] | None = None) -> _Field:
    array = np.asarray(value)
    return name, array.dtype.name, array.ndim, shape


def _column(
    field: _Field, documents: Sequence[Mapping[str, ArrayLike]], indices: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    name, dtype, rank, shape = field
    arrays = []
    for index, document in zip(indices.tolist(), documents, strict=True):
        if name not in document:
            raise ValueError(f"document {index} has no field {name!r}, but {', '.join(map(repr, document))}")
        array = np.asarray(document[name])
        is_like_all = array.ndim == rank and (shape is None or list(array.shape) == shape)
        if not (is_like_all and np.can_cast(array.dtype, dtype, "safe")):
            expected = f"{dtype} {'[' + ', '.join(map(str, shape)) + ']' if shape else f'of {rank} dimensions'}"
            raise ValueError(f"{name!r} of document {index} is {array.dtype} {list(array.shape)}, expected {expected}")
        arrays.append(np.asarray(array, dtype, order="C"))
    shapes = np.array([array.shape for array in arrays], np.int64).ravel()
    return np.concatenate([array.ravel() for array in arrays]).view(np.uint8), shapes


def _given_field(name: str, spec: object) -> _Field:
    """A field of `AsyncDataset.fields`."""
    try:
        shape, dtype = cast("tuple[Sequence[int] | None, DTypeLike]", spec)
        lengths = None if shape is None else [*map(operator.index, shape)]
        return name, np.dtype(dtype).name, 1 if lengths is None else len(lengths), lengths
    except (TypeError, ValueError):
        raise ConfigError(
            f"fields[{name!r}] is {spec!r}, expected (shape, dtype): the shape of each document, or None if shapes "
            "differ, and the type of its numbers, as in ((257,), 'float32')"
        ) from None


class _CoreDataset(AsyncDataset):
    """A dataset of the core; `_arguments` recreate it."""

    _core: _Dataset
    _arguments: tuple[Any, ...]
    _epoch = 0

    def _native(self) -> _Dataset:
        return self._core

    def __len__(self) -> int:
        length, _ = self._core.wait(2**63 - 1, None, self._epoch)
        if length is None:
            raise TypeError(f"{self!r} is infinite, so it has no length")
        return length

    def current_len(self) -> int | None:
        """The number of documents that can be read now; None if the dataset is infinite."""
        return self._core.length(self._epoch)[0]

    def final_length_is_known(self) -> bool:
        """Whether `current_len()` is final."""
        return self._core.length(self._epoch)[1]

    def epoch(self, epoch: int) -> Self:
        """Returns the dataset in the order of another epoch; a `DataLoader` changes epochs by itself."""
        check(epoch=(epoch, 0, 2**62))
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__, _epoch=operator.index(epoch))
        return other

    def locate(self, indices: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the leaves of the documents at `indices`, numbered from left to right, and the rows in them."""
        return self._core.locate(_rows(indices), self._epoch)

    def get_batch(self, indices: ArrayLike) -> list[Document]:
        """Returns the documents at `indices`, in this order; an index may be repeated.

        Documents read by one call are views of shared memory.
        """
        rows = _rows(indices)
        if not len(rows):
            return []
        own = self._core.leaves()
        if any(leaf is None for leaf in own):
            return nested(len(rows), self._core.read(rows, self._epoch).items())
        # The user's documents are returned unchanged: they need not be arrays unless a batch is made of them.
        leaves, numbers = self._core.locate(rows, self._epoch)
        documents: list[Any] = [None] * len(rows)
        for number in np.unique(leaves).tolist():
            places = np.flatnonzero(leaves == number)
            found = own[number].get_batch(numbers[places])
            for place, document in zip(places.tolist(), found, strict=True):
                documents[place] = document
        return documents

    async def async_get_batch(self, indices: ArrayLike) -> list[Document]:
        """As `get_batch`, for asyncio."""
        rows = _rows(indices)
        native, epoch = self._core, self._epoch
        needed = int(rows.max(initial=-1)) + 1
        length, is_final = await asyncio.to_thread(native.length, epoch)
        while not (is_final or length is None or length >= needed):
            length, is_final = await asyncio.to_thread(native.wait, needed, _SLICE_S, epoch)
        return await asyncio.to_thread(self.get_batch, rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments, {"_epoch": self._epoch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        text = self._core.describe()
        return f"<forebay.cache.{type(self).__name__}: {text if len(text) < 200 else text[:200] + '...'}>"


class ListAsyncDataset(_CoreDataset):
    """A dataset of documents in memory, copied; with `is_complete=False` it may grow while other threads read.

    A document is a dict of numbers or arrays; all documents have the same fields. If the list is complete and
    a field has the same shape in all documents, the dataset's field has that shape.
    """

    @advised("forebay.cache.ListAsyncDataset", is_finite="is_complete", **_OF_LOADERS)
    def __init__(self, documents: Sequence[Mapping[str, Any]], is_complete: bool = True) -> None:
        if not documents:
            raise ConfigError("the first document determines the fields: pass at least one, or build a cache")
        documents = [{name: np.asarray(value) for name, value in leaves(document)} for document in documents]
        shapes = {
            name: list(array.shape)
            for name, array in documents[0].items()
            if is_complete and all(name in other and other[name].shape == array.shape for other in documents)
        }
        self._fields = [_field(name, array, shapes.get(name)) for name, array in documents[0].items()]
        self._list = _List(self._fields)
        self._arguments = (documents, is_complete)
        self._documents = documents
        self._is_complete = False
        self._core = _Dataset.list(self._list)
        for document in documents:
            self._add(document)
        if is_complete:
            self.finalize()

    def append(self, document: Mapping[str, Any]) -> None:
        """Appends a document, and wakes readers that wait for it."""
        arrays = {name: np.asarray(value) for name, value in leaves(document)}
        self._add(arrays)
        self._documents.append(arrays)

    def _add(self, document: Mapping[str, NDArray[Any]]) -> None:
        if extra := sorted(document.keys() - {field[0] for field in self._fields}):
            raise ValueError(f"the document has extra fields that the first one lacks: {', '.join(extra)}")
        number = np.array([self.current_len() or 0])
        columns = [_column(field, [document], number) for field in self._fields]
        self._list.append([(shape.tolist(), values) for values, shape in columns])

    def finalize(self) -> None:
        """Marks the list as complete: no more documents can be appended."""
        self._list.finish()
        self._is_complete = True

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._documents, self._is_complete), {"_epoch": self._epoch}


class CacheDataset(_CoreDataset):
    """A dataset over a cache, even while the cache is being built.

    Opening reads only the ledger. Raises `FileNotFoundError` if the cache does not exist yet. `TreeStore`
    reads the same cache, and has the concatenated values of all documents, the types, and the documents left
    out. `folder` is the absolute path of the split, or its URL.

    `dtype` converts fields of whole numbers while they are read: `"int32"`, `"int64"`, `"uint16"` or
    `"uint32"`. None: the types of the cache. A number that does not fit raises `ConfigError`.
    """

    @advised("forebay.cache.CacheDataset", cache_dir="path", folder="path", **_OF_LOADERS)
    def __init__(self, path: str | PathLike[str], split: str = "train", *, dtype: IdType | None = None) -> None:
        self._arguments = (path, split)
        self._dtype = dtype
        self._core = _Dataset.cache(path, split)
        if dtype is not None:
            self._core = self._core.with_integers(dtype)
        self.folder = folder_of(path, split)

    def __reduce__(self) -> tuple[Any, ...]:
        return _cache, (*self._arguments, self._dtype), {"_epoch": self._epoch}


def _cache(path: str | PathLike[str], split: str, dtype: IdType | None) -> CacheDataset:
    return CacheDataset(path, split, dtype=dtype)


class TokenSeqDataset(_CoreDataset):
    """Windows of `max_seq_len` tokens over the concatenated documents of a cache or list.

    Window i is `tokens[i * max_seq_len : (i + 1) * max_seq_len]`: boundaries of documents are ignored,
    windows do not overlap, and the tail is left out. There are no targets: shift the tokens inside the loss.

    Parameters
    ----------
    cache : CacheDataset or ListAsyncDataset
        The source of the documents.
    max_seq_len : int
        Tokens per window.
    field : str
        The field of the tokens, of one dimension.
    doc_ids : bool
        True: adds a field `doc_ids`, int32 `[max_seq_len]`, the number of each token's document within its
        window, from 0. Compare these numbers to keep attention within a document.
    dtype : str
        Type of the tokens: `"int32"`, `"int64"`, `"uint16"` or `"uint32"`, whatever the cache stores. Tokens
        are converted while they are read; one that does not fit raises `ConfigError` with window and token.
        Does not affect states. A field of floats keeps its type.

    """

    @advised(
        "forebay.cache.TokenSeqDataset",
        seq_len="max_seq_len",
        block_size="max_seq_len",
        max_length="max_seq_len",
        context_length="max_seq_len",
        ds="cache",
        dataset="cache",
        **_OF_LOADERS,
    )
    def __init__(
        self,
        cache: AsyncDataset,
        max_seq_len: int,
        *,
        field: str = "input_ids",
        doc_ids: bool = False,
        dtype: IdType = "int32",
    ) -> None:
        if not isinstance(field, str):
            raise wrong_type("field", "the name of one field (str)", field)
        self._arguments = (cache, max_seq_len, field, doc_ids, dtype)
        try:
            self._core = _native(cache).tokens(field, max_seq_len, doc_ids, dtype)
        except TypeError as error:
            if isinstance(cache, AsyncDataset) and cache._for_windows:
                raise TypeError(f"{error}; {cache._for_windows}") from None
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return _token_windows, self._arguments, {"_epoch": self._epoch}


def _token_windows(
    cache: AsyncDataset, max_seq_len: int, field: str, doc_ids: bool, dtype: IdType = "int32"
) -> TokenSeqDataset:
    return TokenSeqDataset(cache, max_seq_len, field=field, doc_ids=doc_ids, dtype=dtype)


class WeightedDataset(_CoreDataset):
    """Each document as often as its weight says, exactly: copies in storage order, other ones each epoch.

    In an epoch of N documents (`epoch_size`) a document of weight w is there `N * w / sum of weights` times, rounded
    down or up, in every epoch, and one of weight 0 never. So equal weights give each document once. Nothing is drawn
    with replacement: see docs/sampling.md. Copies are neighbours; shuffle the result for another order, as in
    `PermutationDataset(WeightedDataset(ds, weights), seed)`.

    Each index takes O(1) time. Memory is at most 9 bytes a document, and that of the array. Until the final length of
    `ds` is known, `current_len()` is 0, and reading waits.

    Parameters
    ----------
    ds : CacheDataset, TokenSeqDataset, ListAsyncDataset or your own AsyncDataset
        The documents. A shuffle or a mixture is refused, since its rows are others in each epoch.
    weights : sequence of float, or str
        A number from 0 on for each document, in any unit; or the name of a field of one number, which is read for all
        documents at once, after the final length is known.
    seed : int
        Seed of which documents are rounded up.
    epoch_size : int, optional
        Documents of an epoch, 1 to 2^40. None: as many as `ds` has.

    Raises
    ------
    ConfigError
        A weight is negative or not finite (the message has its row), none is above 0, or there are more or fewer
        weights than documents.

    """

    @advised(
        "forebay.cache.WeightedDataset",
        dataset="ds",
        num_samples="epoch_size",
        generator="seed",
        random_state="seed",
        replacement="nothing is drawn with replacement: a document comes as often as its weight says, rounded",
        **_OF_LOADERS,
    )
    def __init__(
        self,
        ds: AsyncDataset,
        weights: ArrayLike | str,
        seed: int = 0,
        *,
        epoch_size: int | None = None,
    ) -> None:
        if not isinstance(weights, str):
            weights = _numbers(weights)
        if epoch_size is not None:
            check(epoch_size=(epoch_size, 1, 1 << 40))
            epoch_size = operator.index(epoch_size)
        self._arguments = (ds, weights, seed, epoch_size)
        self._core = _native(ds).weighted(weights, epoch_size, _seed(seed))

    def __reduce__(self) -> tuple[Any, ...]:
        return _weighted, self._arguments, {"_epoch": self._epoch}


def _weighted(ds: AsyncDataset, weights: ArrayLike | str, seed: int, epoch_size: int | None) -> WeightedDataset:
    return WeightedDataset(ds, weights, seed, epoch_size=epoch_size)


def _numbers(weights: ArrayLike) -> NDArray[np.float64]:
    """The weights as an array of the core."""
    given = np.asarray(weights)
    if given.ndim != 1 or given.dtype.kind not in "buif":
        raise TypeError(
            f"weights are {given.dtype} of shape {list(given.shape)}, must be a number for each document, or the "
            "name of a field"
        )
    # A copy, so that a later change of the user's array changes nothing.
    return np.array(given, np.float64, order="C")


class PermutationDataset(_CoreDataset):
    """A global shuffle: all documents in a new order each epoch, a function of `(seed, epoch)`.

    Each index takes O(1) time and memory. The position of a document depends on the number of documents.
    Until the final length is known, `current_len()` is 0, and reading waits. While a cache is being built,
    use `EraShufflingDataset`, which begins at once.
    """

    @advised("forebay.cache.PermutationDataset", dataset="ds", generator="seed", random_state="seed", **_OF_LOADERS)
    def __init__(self, ds: AsyncDataset, seed: int = 0) -> None:
        self._arguments = (ds, seed)
        self._core = _native(ds).permutation(_seed(seed))


class EraShufflingDataset(_CoreDataset):
    """A local shuffle: the documents within each era of `era_length`, in a new order each epoch.

    While documents are still added, the dataset has full eras only: the current length is rounded down, and a
    wait is rounded up. The last era may be shorter. A negative index raises `ValueError`.
    """

    @advised(
        "forebay.cache.EraShufflingDataset",
        dataset="ds",
        era_size="era_length",
        buffer_size="era_length",
        **_OF_LOADERS,
    )
    def __init__(self, ds: AsyncDataset, era_length: int = 8192, seed: int = 0) -> None:
        self._arguments = (ds, era_length, seed)
        self._core = _native(ds).eras(era_length, _seed(seed))

    def locate(self, indices: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the leaves of the documents at `indices`, numbered from left to right, and the rows in them."""
        return super().locate(_not_negative(indices))

    def get_batch(self, indices: ArrayLike) -> list[Document]:
        """Returns the documents at `indices`, in this order; an index may be repeated."""
        return super().get_batch(_not_negative(indices))


def _not_negative(indices: ArrayLike) -> NDArray[np.int64]:
    rows = _rows(indices)
    if rows.min(initial=0) < 0:
        raise ValueError(f"index {rows.min()} is negative; the first index is 0")
    return rows


_Weights = Mapping[str, float]


class MixtureDataset(_CoreDataset):
    """A mixture of datasets by weight: fixed counts in each block of positions, in a new order for each block.

    Counts are the weights' shares of the block by largest remainder (ties go to the first source). A source
    yields its documents in order, each once per epoch; shuffle the source for another order.

    Parameters
    ----------
    datasets : dict of str to AsyncDataset
        The sources; all have the same fields.
    weights : dict of str to float, or sequence of pairs (position, dict)
        The share of each source, in any unit; 0 leaves a source out. Pairs change the weights at positions,
        which are examples (in `Loader`, batches): 0 in the first pair, the start of a block in the others.
        Sources continue at their positions.
    block_size : int, optional
        Positions in which the counts are exact, 1 to 65536. None: the global batch of the `DataLoader`.
    seed : int
        Seed of the order in the blocks.
    stop : str
        `"restart"`: infinite; an exhausted source begins again, in the order of its next epoch.
        `"first_exhausted"`, `"all_exhausted"`: stops with the last document of the source that is exhausted
        first, or last.

    Raises
    ------
    ConfigError
        A weight is negative, all weights are 0, or a source with a positive weight is empty or gets no place
        in a block; the error then names the smallest block in which it gets a place.

    """

    @advised("forebay.cache.MixtureDataset", probabilities="weights", stopping_strategy="stop", **_OF_LOADERS)
    def __init__(
        self,
        datasets: Mapping[str, AsyncDataset],
        weights: _Weights | Sequence[tuple[int, _Weights]],
        block_size: int | None = None,
        seed: int = 0,
        stop: Literal["restart", "first_exhausted", "all_exhausted"] = "restart",
    ) -> None:
        if not isinstance(datasets, Mapping):
            raise TypeError(
                "datasets must be a dict of names and datasets, as weights are of names and numbers, not "
                f"{type(datasets).__name__}"
            )
        self._arguments = (dict(datasets), weights, block_size, seed, stop)
        stages = _stages(weights)
        for start, stage in stages:
            if stage.keys() != datasets.keys():
                missing, unknown = sorted(datasets.keys() - stage.keys()), sorted(stage.keys() - datasets.keys())
                where = f" from position {start} on" if start else ""
                raise ConfigError(
                    f"weights{where}: no weight for {missing}, no dataset for {unknown}; give one weight for each "
                    "dataset, 0 to leave it out"
                )
        if block_size is not None:
            check(block_size=(block_size, 1, 1 << 16))
        self._core = _Dataset.mixture(
            [(name, _native(dataset)) for name, dataset in datasets.items()],
            [(operator.index(start), [float(stage[name]) for name in datasets]) for start, stage in stages],
            block_size if block_size is None else operator.index(block_size),
            stop,
            _seed(seed),
        )


def _stages(weights: Any) -> list[tuple[int, _Weights]]:
    """The weights as pairs of a position and a dict."""
    if isinstance(weights, Mapping):
        return [(0, weights)]
    try:
        stages = [(start, stage) for start, stage in weights]
    except (TypeError, ValueError):
        stages = [(0, None)]
    if not all(isinstance(stage, Mapping) for _, stage in stages):
        raise TypeError(
            f"weights must be a dict of names and numbers, or pairs (position, dict) of them, not {weights!r}"
        )
    return stages


def _native(dataset: object) -> _Dataset:
    native: Callable[[], _Dataset] | None = getattr(dataset, "_native", None)
    if isinstance(dataset, TreeStore):
        path, split = str(dataset.folder).rsplit("/", maxsplit=1)
        raise TypeError(f"a dataset is expected, not TreeStore: use CacheDataset({path!r}, {split!r})")
    if native is None:
        raise TypeError(f"a dataset is expected, not {type(dataset).__name__}: derive yours from AsyncDataset")
    return native()

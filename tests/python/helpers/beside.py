"""A prelude of scenes with an object of each public kind, and a table of its methods: see `methods`."""

from scenes import PRELUDE

TABLE = (
    PRELUDE
    + """
import numpy as np
import tempfile
from forebay import cache
from methods import calls

work = Path(tempfile.mkdtemp())
documents = [{"x": np.int64(i), "ids": np.arange(i % 5 + 1, dtype=np.int32)} for i in range(40)]

class Own(cache.AsyncDataset):
    '''A dataset of the user.'''
    def __len__(self):
        return len(documents)
    def get_batch(self, indices):
        return [documents[i] for i in np.asarray(indices).tolist()]

def cached():
    path = work / f"cache-{time.monotonic_ns()}"
    cache.build({"a": documents}, lambda found: found, path)
    return path

def of_documents():
    return cache.ListAsyncDataset(documents)

def mixed():
    sources = {"list": of_documents(), "own": Own()}
    return cache.MixtureDataset(sources, {"list": 1, "own": 2}, block_size=8)

tiny = {name: small[name] for name in ("sample_rate", "clip_seconds", "n_fft", "hop_length", "n_mels")}

def recordings():
    return forebay.AudioDataset(shards, **tiny)

MAKE = {
    **LOADERS,
    "AudioDataset": recordings,
    "DataLoader": lambda: cache.DataLoader(of_documents().shuffle(1), 4, n_workers=2),
    "DataLoader of a dataset in Python": lambda: cache.DataLoader(Own(), 4, n_workers=2),
    "_Batches": lambda: iter(audio()),
    "ListAsyncDataset": of_documents,
    "AsyncDataset": Own,
    "PermutationDataset": lambda: of_documents().shuffle(1),
    "EraShufflingDataset": lambda: of_documents().era_shuffle(8, 1),
    "MixtureDataset": mixed,
    "WeightedDataset": lambda: cache.WeightedDataset(of_documents(), np.ones(40)),
    "TokenSeqDataset": lambda: cache.TokenSeqDataset(of_documents(), 16, field="ids"),
    "CacheDataset": lambda: cache.CacheDataset(cached()),
}

# What a call may raise beside another one: the object was closed or moved, the pass is over; and the errors of
# methods that a class only has in order to say so.
MAY_RAISE = (forebay.ForebayError, StopIteration)
REFUSE = {"__len__": TypeError, "__getitem__": TypeError, "batches_per_epoch": TypeError}

def made(kind):
    '''An object, and its methods by name.'''
    thing = MAKE[kind]()
    found = calls(thing, work)
    if kind == "_Batches":
        del found["__reduce__"]  # An iterator is not pickled.
    if kind == "AsyncDataLoader":
        passes = [iter(thing)]
        def take():
            try:
                next(passes[0])
            except (StopIteration, forebay.ForebayError):
                passes[0] = iter(thing)
        found["__next__"] = take
    return thing, found

class Table:
    '''Runs calls in the main thread, in a signal handler and in another thread.'''

    def __init__(self, calls):
        self.calls, self.wrong, self.running = calls, [], None
        self.handled = []

    def attempt(self, name, where):
        try:
            self.calls[name]()
        except MAY_RAISE:
            pass
        except Exception as error:
            if not isinstance(error, REFUSE.get(name, ())):
                self.wrong.append(f"{name} {where}: {type(error).__name__}: {error}")

    def handle(self, left):
        '''Makes SIGALRM call one of `left`, within the running call.'''
        inside = []
        def handler(*_):
            if inside or self.running is None or not left:
                return
            inside.append(True)
            try:
                name = left.pop()
                self.attempt(name, f"in a handler, within {self.running}")
                self.handled.append((self.running, name))
            finally:
                inside.clear()
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)

    def run(self, name):
        self.running = name
        self.attempt(name, "in the main thread")
        self.running = None
"""
)

LOADERS = ["Loader", "TokenLoader", "AsyncDataLoader", "DataLoader", "DataLoader of a dataset in Python"]
DATASETS = [
    "AudioDataset",
    "AsyncDataset",
    "CacheDataset",
    "EraShufflingDataset",
    "ListAsyncDataset",
    "MixtureDataset",
    "PermutationDataset",
    "TokenSeqDataset",
    "WeightedDataset",
]

"""The cache, tokens and asynchronous loading have the names and signatures of the reference designs."""

import forebay
import forebay.cache
import forebay.tokens
from contracts import broken, difference

CACHE = """
    build(shards, processor, path, *, split="train", batch_size=128, order="round_robin", overwrite=False)
    CacheBuild.progress()
    CacheBuild.wait()
    CacheBuild.cancel()
    TreeStore(path, split="train")
    TreeStore.get_batch(indices)
    TreeStore.fields
    TreeStore.is_final
    JaggedArray(data, offsets, shapes=None)
    TreeCache(path, split="train")
    AsyncDataset.current_len()
    AsyncDataset.final_length_is_known()
    AsyncDataset.is_finite()
    AsyncDataset.get_batch(indices)
    AsyncDataset.wait_until_len_at_least(n)
    AsyncDataset.async_len()
    AsyncDataset.async_get_batch(indices)
    AsyncDataset.async_wait_until_len_at_least(n)
    AsyncDataset.shuffle(seed=0)
    AsyncDataset.era_shuffle(era_length=8192, seed=0)
    ListAsyncDataset(documents, is_complete=True)
    ListAsyncDataset.append(document)
    ListAsyncDataset.finalize()
    TokenSeqDataset(cache, max_seq_len)
    WeightedDataset(ds, weights, seed=0, *, epoch_size=None)
    PermutationDataset(ds, seed=0)
    EraShufflingDataset(ds, era_length=8192, seed=0)
    MixtureDataset(datasets, weights, block_size=None, seed=0, stop="restart")
    DataLoader(dataset, batch_size, rank=0, world_size=1, start_step=0, prefetch_batches=4)
    DataLoader.seek(batch)
    DataLoader.state_dict()
    DataLoader.load_state_dict(state)
    DataLoader.set_epoch(epoch)
    DataLoader.close()
"""

TOKENS = """
    list_parquet_files(data_dir=None)
    parquets_iter_batched(split, start=0, step=1)
    document_batches(split, resume_state_dict=None, tokenizer_batch_size=128)
    base_data_dir()
    Tokenizer(path)
    Tokenizer.encode(text)
    Tokenizer.encode_batch(texts)
    Tokenizer.bos_id
    Tokenizer.n_vocab
    TokenLoader(parquet_files, tokenizer, batch_size=32, seq_len=2048, split="train", *, buffer_size=1000)
    TokenLoader.state_dict()
    TokenLoader.load_state_dict(state)
    TokenLoader.close()
"""

ASYNC = """
    AsyncDataLoader(dataset_reader, pipeline, batch_size, num_workers=4, buffers_ahead=3, shuffle=True, seed=42)
    AsyncDataLoader.state_dict()
    AsyncDataLoader.load_state_dict(state)
    AsyncDataLoader.set_epoch(epoch)
    AsyncDataLoader.stats()
    AsyncDataLoader.close()
    BatchResult(data, indices, buffer_id)
    BatchResult.data
    BatchResult.indices
    BatchResult.buffer_id
"""


def test_cache() -> None:
    assert broken(CACHE, forebay.cache) == []


def test_tokens() -> None:
    assert broken(TOKENS, forebay.tokens, forebay) == []


def test_async() -> None:
    assert broken(ASYNC, forebay) == []


def test_differences_are_found() -> None:
    """`difference` and `broken` report each kind of violation."""

    def given(a: int, b: int = 2, *, c: int = 3) -> None: ...

    for expected in ("a", "a, b", "a, b=2", "a, *, c=3", "a, b=2, *, c"):
        assert difference(expected, given) is None, expected
    for expected, problem in {
        "": "a has no default",
        "b": "b has another place",
        "a, b=3": "b is 2 by default",
        "a, d": "d is missing",
        "a, b, c=3": "c has another place",
        "a=1": "a is <class",
    }.items():
        assert problem in (difference(expected, given) or ""), expected
    assert broken("nowhere()\nLoader.nowhere", forebay) == [
        "nowhere(): there is no nowhere", "Loader.nowhere: there is no Loader.nowhere",
    ]  # fmt: skip

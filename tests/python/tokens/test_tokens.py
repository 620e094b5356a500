"""`forebay.tokens`: documents from Parquet files written by pyarrow."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from forebay.tokens import base_data_dir, document_batches, list_parquet_files, parquets_iter_batched
from paths import DATA

N_GROUPS = {"a": 5, "b": 3, "c": 6, "d": 4}
"""The number of row groups of each file; the last file is for validation."""


def texts_of(name: str, row_group: int, n: int = 10) -> list[str]:
    return [f"{name} {row_group} {i} grüße 🙂 " + "x" * (i * 37 % 200) for i in range(n)]


def write(path: Path, groups: list[list[Any]], **options: Any) -> Path:
    column = pa.chunked_array([pa.array(texts, options.pop("type", pa.string())) for texts in groups])
    table = pa.table({"id": range(len(column)), "text": column})
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        row = 0
        for texts in groups:
            writer.write_table(table.slice(row, len(texts)), row_group_size=max(len(texts), 1))
            row += len(texts)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, n in N_GROUPS.items():
        write(tmp_path / f"{name}.parquet", [texts_of(name, i) for i in range(n)])
    (tmp_path / "e.parquet.tmp").write_bytes(b"PAR1 not yet whole")
    (tmp_path / "README.md").write_text("what this is")
    return tmp_path


def reference(files: list[str], rank: int, world_size: int) -> Iterator[tuple[list[str], tuple[int, int, int]]]:
    """One epoch read with pyarrow: row groups rank, rank + world_size, ... of every file."""
    for file, path in enumerate(files):
        parquet = pq.ParquetFile(path)
        for row_group in range(rank, parquet.num_row_groups, world_size):
            yield parquet.read_row_group(row_group)["text"].to_pylist(), (file, row_group, 1)


class TestFiles:
    def test_sorted_names_that_end_in_parquet(self, folder: Path) -> None:
        assert list_parquet_files(folder) == [str(folder / f"{name}.parquet") for name in N_GROUPS]

    def test_the_default_is_where_download_puts_them(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        assert base_data_dir() == folder / "forebay" / "base_data"
        with pytest.raises(FileNotFoundError, match="forebay download"):
            parquets_iter_batched("train")
        base_data_dir().mkdir(parents=True)
        for name in N_GROUPS:
            (folder / f"{name}.parquet").rename(base_data_dir() / f"{name}.parquet")
        assert [Path(path).stem for path in list_parquet_files()] == list(N_GROUPS)
        assert len(list(parquets_iter_batched("val"))) == N_GROUPS["d"]

    def test_a_pattern_or_a_list(self, folder: Path) -> None:
        pattern, two = str(folder / "[ab].parquet"), [folder / "b.parquet", folder / "a.parquet"]
        assert next(parquets_iter_batched("val", data_dir=pattern)) == texts_of("b", 0)
        for files in (two, tuple(map(str, two))):  # a list keeps its order
            assert next(parquets_iter_batched("val", data_dir=files)) == texts_of("a", 0)

    def test_only_one_file_leaves_nothing_to_train_on(self, folder: Path) -> None:
        for iterate in (parquets_iter_batched, document_batches):
            with pytest.raises(forebay.ConfigError, match="only file") as caught:
                iterate("train", data_dir=[folder / "a.parquet"])
            assert isinstance(caught.value, ValueError)

    def test_validation_pinned_by_name_or_pattern(self, folder: Path) -> None:
        first = {val: next(parquets_iter_batched("val", data_dir=folder, val=val)) for val in ("b.parquet", "b*")}
        assert first == {"b.parquet": texts_of("b", 0), "b*": texts_of("b", 0)}
        train = parquets_iter_batched("train", data_dir=folder, val=["b.parquet", "a.parquet"])
        assert [texts[0][0] for texts in train] == ["c"] * 6 + ["d"] * 4
        with pytest.raises(forebay.ConfigError, match=r"z.parquet"):
            parquets_iter_batched("val", data_dir=folder, val="z.parquet")


class TestRowGroups:
    def test_each_is_a_list_of_texts(self, folder: Path) -> None:
        found = list(parquets_iter_batched("train", data_dir=folder))
        assert found == [texts_of(name, i) for name in "abc" for i in range(N_GROUPS[name])]

    @pytest.mark.parametrize("step", [1, 2, 3, 4])
    def test_start_and_step(self, folder: Path, step: int) -> None:
        files = list_parquet_files(folder)[:-1]
        for start in range(step + 1):
            found = list(parquets_iter_batched("train", start, step, data_dir=folder))
            assert found == [texts for texts, _ in reference(files, start, step)]

    @pytest.mark.parametrize("compression", ["NONE", "SNAPPY", "GZIP", "BROTLI", "LZ4", "ZSTD"])
    @pytest.mark.parametrize(
        "options",
        [
            {"use_dictionary": False, "write_page_checksum": True},
            {"use_dictionary": True, "write_page_index": True},
            {"use_dictionary": False, "data_page_version": "2.0", "data_page_size": 1000, "write_batch_size": 3},
            {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
            {"use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}, "store_schema": False},
        ],
    )
    def test_all_that_pyarrow_writes(self, tmp_path: Path, compression: str, options: dict[str, Any]) -> None:
        groups = [texts_of("a", i, 40) for i in range(3)]
        write(tmp_path / "a.parquet", groups, compression=compression, **options)
        assert list(parquets_iter_batched("val", data_dir=tmp_path)) == groups

    @pytest.mark.parametrize(
        "type_", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int32(), pa.string())]
    )
    def test_every_type_of_text(self, tmp_path: Path, type_: pa.DataType) -> None:
        groups: list[list[Any]] = [["one", None, "", "zwei 🙂"], [], ["x" * 100_000]]
        values = [[t if t is None or type_ != pa.binary() else t.encode() for t in texts] for texts in groups]
        column = pa.chunked_array([pa.array(texts, type_) for texts in values])
        with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("text", type_)])) as writer:
            for chunk in column.chunks:
                writer.write_batch(pa.record_batch([chunk], names=["text"]))
        found = [texts for texts in parquets_iter_batched("val", data_dir=tmp_path) if texts]
        assert found == [["one", "", "zwei 🙂"], ["x" * 100_000]]

    @pytest.mark.parametrize(
        ("name", "column"),
        [
            ("alltypes_dictionary", "string_col"),
            ("alltypes_plain.snappy", "date_string_col"),
            ("binary", "foo"),
            ("data_index_bloom_encoding_with_length", "String"),
            ("datapage_v2.snappy", "a"),
            ("delta_encoding_optional_column", "c_email_address"),
            ("delta_length_byte_array", "FRUIT"),
            ("hadoop_lz4_compressed", "c1"),
            ("plain-dict-uncompressed-checksum", "binary_field"),
            ("unknown-logical-type", "column with known type"),
        ],
    )
    def test_files_of_other_writers(self, name: str, column: str) -> None:
        path = DATA / "parquet-testing" / f"{name}.parquet"
        expected = pq.read_table(path, columns=[column])[column].cast(pa.string()).drop_null().to_pylist()
        assert expected
        assert list(parquets_iter_batched("val", data_dir=path, text_column=column)) == [expected]

    def test_another_column(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"id": [1], "content": ["hello"]}), tmp_path / "a.parquet")
        assert list(parquets_iter_batched("val", data_dir=tmp_path, text_column="content")) == [["hello"]]
        for column in ("text", "id"):
            with pytest.raises(forebay.ConfigError, match="content \\(text\\)"):
                parquets_iter_batched("val", data_dir=tmp_path, text_column=column)

    def test_text_that_is_not_utf8(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"text": [b"fine", b"caf\xe9 au lait"]}), tmp_path / "a.parquet")
        with pytest.raises(forebay.DecodeError, match=r"a\.parquet, row 1: .*not UTF-8"):
            list(parquets_iter_batched("val", data_dir=tmp_path))

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda data: data[: len(data) // 2], "cut off"),
            (lambda _: b"", "empty"),
            (lambda _: b"ARROW1\0\0 and more", "Arrow IPC file"),
            (lambda _: b"hello " * 10, "text file"),
            (lambda data: data[:-4] + b"PARE", "encrypted"),
            (lambda data: data[:-8] + b"\xff\xff\xff\x0fPAR1", "impossible length"),
        ],
    )
    def test_what_is_not_parquet(self, folder: Path, damage: Callable[[bytes], bytes], message: str) -> None:
        path = folder / "d.parquet"
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(forebay.ConfigError, match=message) as caught:
            parquets_iter_batched("val", data_dir=folder)
        assert "d.parquet" in str(caught.value)

    def test_a_corrupt_page_names_its_row_group(self, tmp_path: Path) -> None:
        path = tmp_path / "a.parquet"
        groups = [texts_of("a", i, 50) for i in range(3)]
        write(path, groups, compression="ZSTD", use_dictionary=False, write_page_checksum=True)
        column = pq.ParquetFile(path).metadata.row_group(1).column(1)
        data = bytearray(path.read_bytes())
        data[column.data_page_offset + column.total_compressed_size - 20] ^= 0xFF
        path.write_bytes(data)
        found = parquets_iter_batched("val", data_dir=tmp_path)
        assert next(found) == groups[0]
        with pytest.raises(forebay.DecodeError, match=r"a\.parquet, row 50: row group 1 cannot be decoded.*CRC"):
            next(found)
        assert list(parquets_iter_batched("val", 2, data_dir=tmp_path)) == [groups[2]]

    def test_numbers_out_of_range(self, folder: Path) -> None:
        with pytest.raises(forebay.ConfigError, match=r"start is -1.*step is 0"):
            parquets_iter_batched("train", -1, 0, data_dir=folder)
        with pytest.raises(forebay.ConfigError, match=r'"test", expected "train" or "val"'):
            parquets_iter_batched("test", data_dir=folder)


class TestDocumentBatches:
    def test_epochs_of_batches_with_their_places(self, folder: Path) -> None:
        files = list_parquet_files(folder)[:-1]
        expected = [
            (texts[i : i + 4], place) for texts, place in reference(files, 0, 1) for i in range(0, len(texts), 4)
        ]
        found = document_batches("train", tokenizer_batch_size=4, data_dir=folder)
        n = len(expected)
        assert list(islice(found, n)) == expected
        assert list(islice(found, n)) == [(texts, (file, group, 2)) for texts, (file, group, _) in expected]

    @pytest.mark.parametrize("world_size", [1, 2, 3])
    def test_ranks_stride_row_groups_of_every_file(self, folder: Path, world_size: int) -> None:
        files = list_parquet_files(folder)[:-1]
        for rank in range(world_size):
            expected = list(reference(files, rank, world_size))
            found = document_batches("train", rank=rank, world_size=world_size, data_dir=folder)
            assert list(islice(found, len(expected))) == expected
            assert next(found)[1][2] == 2

    def test_more_ranks_than_a_file_has_row_groups(self, folder: Path) -> None:
        places = [(file, group) for file, n in enumerate([5, 3, 6]) for group in range(n)]
        for rank in range(4):
            found = document_batches("train", rank=rank, world_size=4, data_dir=folder)
            mine = places[rank::4]
            assert [place[:2] for _, place in islice(found, len(mine))] == mine
        striding = document_batches("train", rank=3, world_size=4, stride="file", data_dir=folder)
        assert [place[:2] for _, place in islice(striding, 3)] == [(0, 3), (2, 3), (0, 3)]

    @pytest.mark.parametrize(("world_size", "stride"), [(5, None), (5, "global"), (5, "file"), (8, "file")])
    def test_never_spins(self, folder: Path, world_size: int, stride: Any) -> None:
        for rank in range(world_size):
            with pytest.raises(forebay.ConfigError, match=r"4 row groups, but . ranks"):
                document_batches("val", rank=rank, world_size=world_size, stride=stride, data_dir=folder)

    def test_no_documents_at_all(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"text": pa.array([None, None], pa.string())}), tmp_path / "a.parquet")
        with pytest.raises(forebay.ConfigError, match="are null"):
            next(document_batches("val", data_dir=tmp_path))

    @pytest.mark.parametrize("world_size", [1, 2, 3])
    def test_resume_goes_on_after_the_round(self, folder: Path, world_size: int) -> None:
        files = list_parquet_files(folder)[:-1]
        for rank in range(world_size):
            epoch = [place for _, place in reference(files, rank, world_size)]
            stream = epoch + [(file, group, 2) for file, group, _ in epoch]
            for file, n in enumerate([5, 3, 6]):
                for group in range(n):
                    # The reference resumes at row group (group // W + 1) * W + rank, or in the next file.
                    after = (file, (group // world_size + 1) * world_size + rank)
                    expected = next(i for i, place in enumerate(stream) if place[2] == 2 or place[:2] >= after)
                    state = {"pq_idx": file, "rg_idx": group, "epoch": 1}
                    found = document_batches("train", state, rank=rank, world_size=world_size, data_dir=folder)
                    assert [place for _, place in islice(found, 3)] == stream[expected : expected + 3], state

    @pytest.mark.parametrize(
        ("state", "message"),
        [
            ({}, "lacks pq_idx and rg_idx"),
            ({"pq_idx": 3, "rg_idx": 0, "epoch": 1}, "split has 3 files"),
            ({"pq_idx": 0, "rg_idx": -1, "epoch": 1}, "rg_idx is -1"),
            ({"pq_idx": 0, "rg_idx": 0, "epoch": "one"}, "epoch is 'one'"),
        ],
    )
    def test_states_that_do_not_fit(self, folder: Path, state: dict[str, Any], message: str) -> None:
        with pytest.raises(forebay.StateError, match=message):
            document_batches("train", state, data_dir=folder)

    def test_numbers_out_of_range(self, folder: Path) -> None:
        with pytest.raises(forebay.ConfigError, match=r"tokenizer_batch_size is 0.*rank is -1"):
            document_batches("train", None, 0, rank=-1, data_dir=folder)
        with pytest.raises(forebay.ConfigError, match="rank is 2, expected less than world_size, which is 2"):
            document_batches("train", rank=2, world_size=2, data_dir=folder)
        with pytest.raises(forebay.ConfigError, match="stride is 'rows'"):
            document_batches("train", stride="rows", data_dir=folder)  # type: ignore[arg-type]

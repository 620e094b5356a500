"""Writes the small shards of this folder with the real `datasets` and `pyarrow`, and their rows to rows.json.

    python make_shards.py FOLDER_WITH_SOUNDS

The sounds are bd_zum.flac and tabla_te_m.flac of sonic-pi (CC0); the others are tones made here. rows.json has the
rows of each shard as read back by pyarrow: [length of the bytes, their FNV-1a hash, path, label], null for null. It
also names the versions used.
"""

import io
import json
import math
import shutil
import struct
import sys
import wave
from pathlib import Path

import datasets
import pyarrow as pa
from datasets.arrow_writer import ArrowWriter

HERE = Path(__file__).parent
AUDIO = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
NAMES = ["drum", "tabla", "tone"]


def tone(frequency: float, n_samples: int, rate: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        samples = (round(9000 * math.sin(2 * math.pi * frequency * i / rate)) for i in range(n_samples))
        file.writeframes(b"".join(struct.pack("<h", sample) for sample in samples))
    return out.getvalue()


def recordings(sounds: Path) -> list[dict]:
    drum, tabla = ((sounds / name).read_bytes() for name in ("bd_zum.flac", "tabla_te_m.flac"))
    rows = [("bd_zum.flac", drum, 0), ("tabla_te_m.flac", tabla, 1)]
    rows += [(f"tone-{i}.wav", tone(220 * (i + 1), 300 + 97 * i, 8000), 2) for i in range(6)]
    return [{"audio": {"bytes": data, "path": path}, "label": label, "note": path[:4]} for path, data, label in rows]


def features() -> datasets.Features:
    return datasets.Features(
        audio=datasets.Audio(sampling_rate=32000, decode=False),
        label=datasets.ClassLabel(names=NAMES),
        note=datasets.Value("string"),
    )


def table(rows: list[dict], audio=AUDIO, label=pa.int64()) -> pa.Table:
    return pa.table({
        "note": pa.array([row["note"] for row in rows]),
        "audio": pa.array([row["audio"] for row in rows], audio),
        "label": pa.array([row["label"] for row in rows], pa.int64()).cast(label),
    })


def write(name: str, what: pa.Table, batch: int = 3, file: bool = False, **options) -> None:
    new = pa.ipc.new_file if file else pa.ipc.new_stream
    with new(HERE / name, what.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(what, max_chunksize=batch)


def fnv1a(data: bytes) -> str:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def rows_of(path: Path) -> list:
    source = pa.OSFile(str(path))
    is_file = path.read_bytes()[:6] == b"ARROW1"
    what = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source).read_all()
    rows = []
    for row in what.select(["audio", "label"]).to_pylist():
        audio = row["audio"]
        if isinstance(audio, str):
            audio = {"bytes": None, "path": audio}
        elif not isinstance(audio, dict):
            audio = {"bytes": audio, "path": None}
        data = audio["bytes"]
        rows.append([None if data is None else len(data), None if data is None else fnv1a(data), audio["path"], row["label"]])
    return rows


def main(sounds: Path) -> None:
    rows = recordings(sounds)
    tones = rows[2:]

    # By `datasets`, as users write shards.
    shutil.rmtree(HERE / "saved", ignore_errors=True)
    datasets.Dataset.from_list(rows, features=features()).save_to_disk(HERE / "saved", num_shards=2)
    (HERE / "saved" / "cache-0123456789abcdef.arrow").write_bytes(b"left behind by map(); no part of the dataset")
    with ArrowWriter(path=str(HERE / "cache.arrow"), features=features(), writer_batch_size=3) as writer:
        for row in rows:
            writer.write(row)
        writer.finalize()

    # By pyarrow, in other types and formats.
    write("lz4.arrow", table(rows), compression="lz4")
    write("zstd.arrow", table(rows), compression="zstd", file=True)
    write("file.arrow", table(tones), file=True)
    write("legacy.arrow", table(tones), use_legacy_format=True, metadata_version=pa.ipc.MetadataVersion.V4)
    write("large.arrow", table(tones, pa.struct([("path", pa.large_string()), ("bytes", pa.large_binary())]), pa.uint16()))
    write("views.arrow", table(tones, pa.struct([("bytes", pa.binary_view()), ("path", pa.string_view())]), pa.int8()))
    plain = table(tones).set_column(1, "audio", pa.array([row["audio"]["bytes"] for row in tones], pa.binary()))
    write("binary.arrow", plain)
    write("sliced.arrow", pa.concat_tables([table(tones).slice(1, 3), table(tones).slice(4, 2)]), batch=100)
    absent = [
        {"note": "all there", "audio": tones[0]["audio"], "label": None},
        {"note": "no bytes", "audio": {"bytes": None, "path": "tone-9.wav"}, "label": 2},
        {"note": "empty", "audio": {"bytes": b"", "path": None}, "label": 1},
        {"note": "neither", "audio": {"bytes": None, "path": None}, "label": 0},
        {"note": "null", "audio": None, "label": None},
    ]
    write("nulls.arrow", table(absent))
    (HERE / "tone-9.wav").write_bytes(tone(990, 400, 8000))
    paths = pa.array(["tone-9.wav", "saved/../tone-9.wav", "gone.wav"])
    write("paths.arrow", pa.table({"audio": paths, "label": [0, 1, 2]}))

    # Dictionaries that grow from batch to batch, and one that is replaced.
    for name, deltas in (("deltas.arrow", True), ("replaced.arrow", False)):
        path = HERE / name
        schema = pa.schema([
            ("audio", pa.dictionary(pa.int16(), pa.binary())),
            ("label", pa.dictionary(pa.int8(), pa.int64())),
        ])
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)
        with pa.ipc.new_stream(path, schema, options=options) as writer:
            for n in (2, 4, 6):
                data = [row["audio"]["bytes"] for row in tones[:n]] if deltas else [row["audio"]["bytes"] for row in tones[-n:]]
                labels = list(range(10, 10 + n)) if deltas else list(range(50 - n, 50))
                indices = [*range(n), None, 0]
                writer.write_batch(pa.record_batch([
                    pa.DictionaryArray.from_arrays(pa.array(indices, pa.int16()), pa.array(data, pa.binary())),
                    pa.DictionaryArray.from_arrays(pa.array(indices[::-1], pa.int8()), pa.array(labels, pa.int64())),
                ], schema=schema))

    names = sorted(str(path.relative_to(HERE)) for path in HERE.rglob("*.arrow") if "cache-" not in path.name)
    versions = {"datasets": datasets.__version__, "pyarrow": pa.__version__}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(rows_of(HERE / name))}" for name in names)
    (HERE / "rows.json").write_text(f'{{\n  "made with": {json.dumps(versions)},\n{lines}\n}}\n')


main(Path(sys.argv[1]))

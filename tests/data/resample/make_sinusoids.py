"""Cuts the analytic resampling data for crates/dsp/tests/resample.rs.

    python make_sinusoids.py FOLDER     # with RATE_to_32000.npz: x, exact_32k, alias_only_in

Writes RATE.bin, little-endian float32: N input samples, the exact output at 32 kHz of the same duration, and (for rates
above 32 kHz) N samples of tones above 16 kHz only. sizes.tsv lists rate, N, output samples, alias samples.
"""

import pathlib
import sys

import numpy


def main(folder):
    here = pathlib.Path(__file__).parent
    rows = ["# rate\tn_input\tn_exact\tn_alias"]
    for rate in (16000, 22050, 44100, 48000, 96000):
        data = numpy.load(folder / f"{rate}_to_32000.npz")
        n = rate // 10
        parts = [data["x"][:n], data["exact_32k"][:3200]]
        parts.append(data["alias_only_in"][:n] if "alias_only_in" in data else numpy.zeros(0))
        (here / f"{rate}.bin").write_bytes(b"".join(part.astype("<f4").tobytes() for part in parts))
        rows.append("\t".join(str(value) for value in (rate, *map(len, parts))))
    (here / "sizes.tsv").write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

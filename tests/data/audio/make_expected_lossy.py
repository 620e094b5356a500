"""Writes vorbis/expected.txt and mpeg/expected.txt: samples decoded by libsndfile, for tests/decode_{vorbis,mpeg}.rs.

One line per file: name, sample rate, channels, samples per channel, stride; then, channel by channel, every stride-th
sample times 1e6, rounded. Channels are in the order of WAV; for Vorbis libsndfile uses another order.

libsndfile decodes only the first link of a chain, and no stream muxed with others. So this script first separates
links and streams, page by page and frame by frame.

    python -m venv v && v/bin/pip install numpy==2.4.6 soundfile==0.14.0 && v/bin/python make_expected_lossy.py
"""

import pathlib
import tempfile

import numpy as np
import soundfile

HERE = pathlib.Path(__file__).parent
STRIDE = 509
# Maps the channel order of Vorbis (I specification, section 4.3.9) to that of WAV: front left, front right, center, low
# frequency, back left, back right.
WAV_ORDER = {1: [0], 2: [0, 1], 6: [0, 2, 1, 5, 3, 4]}
# Damaged files, and files that forebay refuses.
LEFT_OUT = {
    "ogg_insert_random_1000.ogg",
    "ogg_zero_mid_4k.ogg",
    "surround30_44100.ogg",
    "lame_freeformat.mp3",
    "mp3_append_garbage_4k.mp3",
    "mp3_delete_1000.mp3",
    "mp3_zero_mid_4k.mp3",
    "mp3x_insert_random_1000.mp3",
}


def pages(data):
    at = 0
    while (at := data.find(b"OggS", at)) >= 0:
        n = data[at + 26]
        end = at + 27 + n + sum(data[at + 27 : at + 27 + n])
        yield data[at:end], data[at + 5], data[at + 14 : at + 18]
        at = end


def vorbis_links(data):
    """The first Vorbis stream of each link, without other streams."""
    links, serial, in_head = [], None, False
    for page, flags, its_serial in pages(data):
        if flags & 2:
            if not in_head:
                serial, in_head = None, True
            if serial is None and b"\x01vorbis" in page:
                serial = its_serial
                links.append(b"")
        else:
            in_head = False
        if its_serial == serial:
            links[-1] += page
    return links


def mpeg_links(data):
    """The parts of the recording, cut before each frame with a tag."""
    cuts = [0]
    at = 0
    while (at := min((i for i in (data.find(b"Info", at), data.find(b"Xing", at)) if i >= 0), default=-1)) >= 0:
        for side in (36, 21, 13):
            if data[at - side] == 0xFF and at - side > 1000:
                cuts.append(at - side)
                break
        at += 4
    return [data[a:b] for a, b in zip(cuts, [*cuts[1:], len(data)])]


def decode(data, suffix):
    # A named file, because libsndfile recognises some MPEG audio only by its suffix.
    with tempfile.NamedTemporaryFile(suffix=suffix) as file:
        file.write(data)
        file.flush()
        return soundfile.read(file.name, always_2d=True)


def expected(folder, links_of):
    lines = []
    for path in sorted((HERE / folder).glob("*.[om][gp][g23]")):
        if path.name in LEFT_OUT:
            continue
        decoded = [decode(link, path.suffix) for link in links_of(path.read_bytes())]
        rate = decoded[0][1]
        samples = np.concatenate([one for one, _ in decoded])[:, WAV_ORDER[decoded[0][0].shape[1]]]
        probes = np.round(samples[::STRIDE].T.reshape(-1) * 1e6).astype(int)
        head = [path.name, rate, samples.shape[1], samples.shape[0], STRIDE]
        lines.append(" ".join(map(str, [*head, *probes])) + "\n")
    (HERE / folder / "expected.txt").write_text("".join(lines))


if __name__ == "__main__":
    expected("vorbis", vorbis_links)
    expected("mpeg", mpeg_links)

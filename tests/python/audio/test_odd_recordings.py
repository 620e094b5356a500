"""Recordings with tags, junk or other streams, chained and truncated: samples and spans equal the plain recording's."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, zip_longest

import numpy as np
import pytest

import forebay
from generated import check_spans, signal, write
from ogg import FIRST, LAST, Page, packets, pages_of, put_together, renumbered, take_apart

RATE = 22050
N = 2 * RATE + 617


def mp3(mode: str = "VARIABLE", channels: int = 2) -> bytes:
    samples = signal(N, RATE, channels)
    return write("MP3", "MPEG_LAYER_III", RATE, samples, bitrate_mode=mode, compression_level=0.6)


def vorbis(rate: int = RATE, channels: int = 1, n: int = N) -> bytes:
    return write("OGG", "VORBIS", rate, signal(n, rate, channels))


def same_everywhere(name: str, data: bytes, plain: bytes) -> None:
    """Checks that `data` decodes to the samples of `plain`, whole and in spans."""
    whole, rate = forebay.decode(data)
    expected, expected_rate = forebay.decode(plain)
    assert rate == expected_rate, name
    assert np.array_equal(whole, expected), name
    check_spans(name, data, whole)


def picture(n_bytes: int) -> bytes:
    """An ID3v2.3 tag with a picture, parts of which look like frame headers."""
    random = np.random.default_rng(n_bytes).bytes(n_bytes // 2)
    image = random + bytes([0xFF, 0xFB, 0x92, 0x64]) * (n_bytes // 8)
    content = b"\0image/jpeg\0\x03\0" + image
    frame = b"APIC" + len(content).to_bytes(4, "big") + bytes(2) + content
    size = bytes(len(frame) >> shift & 0x7F for shift in (21, 14, 7, 0))
    return b"ID3\x03\0\0" + size + frame


def id3v1() -> bytes:
    return b"TAG" + b"a title".ljust(125, b"\0")


def ape() -> bytes:
    """An APEv2 tag with header and footer."""
    value = b"\xff\xfb\x92\x64" * 50
    item = len(value).to_bytes(4, "little") + bytes(4) + b"Cover Art (Front)\0" + value
    fields = b"APETAGEX" + (2000).to_bytes(4, "little") + (len(item) + 32).to_bytes(4, "little") + b"\1\0\0\0"
    return fields + b"\0\0\0\xa0" + bytes(8) + item + fields + b"\0\0\0\x80" + bytes(8)


@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
def test_tags_around_mp3(mode: str) -> None:
    plain = mp3(mode)
    dressed = {
        "a picture before": picture(200_000) + plain,
        "two tags before": picture(1000) + picture(200_000) + plain,
        "padding after the tag": picture(5000) + bytes(777) + plain,
        "ID3v1 after": plain + id3v1(),
        "APE after": plain + ape(),
        "APE and ID3v1 after": plain + ape() + id3v1(),
        "all": picture(200_000) + plain + ape() + id3v1(),
        "APE before": ape() + plain,
        "ID3v2 after": plain + picture(3000),
    }
    for name, data in dressed.items():
        same_everywhere(name, data, plain)


@pytest.mark.parametrize("n_bytes", [1, 3, 100, 4096, 60_000])
def test_junk_before_mp3(n_bytes: int) -> None:
    plain = mp3(channels=1)
    for seed in range(3):
        junk = np.random.default_rng(seed).bytes(n_bytes)
        same_everywhere(f"seed {seed}", junk + plain, plain)


def test_tags_around_flac() -> None:
    plain = write("FLAC", "PCM_16", RATE, signal(N, RATE, 2))
    # A PICTURE block of 200 KB after STREAMINFO; other blocks follow.
    block = b"\x06" + (200_000).to_bytes(3, "big") + b"\xff\xf8\xc9\x18" * 50_000
    same_everywhere("a picture", plain[:42] + block + plain[42:], plain)
    same_everywhere("ID3v2 before", picture(200_000) + plain, plain)
    same_everywhere("ID3v1 after", plain + id3v1(), plain)


def test_picture_in_vorbis_comments() -> None:
    plain = vorbis()
    pages = take_apart(plain)
    identification, comment, setup, *_ = packets(pages)
    first_audio = next(i for i, page in enumerate(pages) if page.granule > 0)
    serial = pages[0].serial
    field = b"METADATA_BLOCK_PICTURE=" + b"OggS" * 50_000
    comment = b"\x03vorbis" + bytes(4) + b"\1\0\0\0" + len(field).to_bytes(4, "little") + field + b"\1"
    headers = [pages[0], *pages_of(comment, serial=serial, sequence=1)]
    headers += pages_of(setup, serial=serial, sequence=len(headers))
    audio = [replace(page, sequence=len(headers) + i) for i, page in enumerate(pages[first_audio:])]
    assert identification == pages[0].body
    same_everywhere("a picture", put_together(headers + audio), plain)


@pytest.mark.parametrize("channels", [1, 2])
def test_chained_vorbis(channels: int) -> None:
    first, second = vorbis(channels=channels), vorbis(channels=channels, n=N // 2)
    expected = np.concatenate([forebay.decode(link)[0] for link in (first, second)], axis=-1)
    a, b = take_apart(first), take_apart(second)
    for name, data in {
        "serials as encoded": first + second,
        "one serial": put_together(renumbered(a, 7) + renumbered(b, 7)),
        "two serials": put_together(renumbered(a, 7) + renumbered(b, 8)),
    }.items():
        whole, _ = forebay.decode(data)
        assert np.array_equal(whole, expected), name
        check_spans(name, data, whole)
        at = forebay.decode(first)[0].shape[-1]
        for start, n in [(at - 1, 2), (at - 700, 1400), (at, 1), (at, 5000)]:
            assert np.array_equal(forebay.decode(data, start, n)[0], expected[..., start : start + n]), name


def test_a_link_of_another_kind_ends_the_timeline() -> None:
    first = vorbis()
    for name, other in {"rate": vorbis(rate=32000), "channels": vorbis(channels=2)}.items():
        for serial in [7, 8]:
            link = renumbered(take_apart(first), 7) + renumbered(take_apart(other), serial)
            same_everywhere(f"another {name}, serial {serial}", put_together(link), first)


def other_stream(n_pages: int) -> list[Page]:
    """A stream of an unknown codec, whose positions look like those of audio."""
    last = n_pages - 1
    return [
        Page(
            FIRST if i == 0 else LAST if i == last else 0,
            1000 * i,
            9,
            i,
            bytes([200, 100]),
            (b"\x80theora" if i == 0 else b"\x01vorbis").ljust(300, b"\0"),
        )
        for i in range(n_pages)
    ]


def mixed(a: list[Page], b: list[Page]) -> list[Page]:
    """The pages of two streams, interleaved."""
    return [page for page in chain.from_iterable(zip_longest(a, b)) if page is not None]


def test_two_streams_in_turn() -> None:
    plain = vorbis()
    ours = renumbered(take_apart(plain), 7)
    flac_like = other_stream(3 * len(ours))
    second = renumbered(take_apart(vorbis(rate=32000, channels=2)), 8)
    for name, pages in {
        "another codec after": mixed(ours, flac_like),
        "another codec before": mixed(flac_like, ours),
        "another codec goes on": mixed(ours, flac_like[:2]) + flac_like[2:],
        "two Vorbis streams": mixed(ours, second),
        "all three": mixed(mixed(ours, second), flac_like),
    }.items():
        same_everywhere(name, put_together(pages), plain)
    # Two links, each with another interleaved stream.
    link = mixed(ours, flac_like)
    whole, _ = forebay.decode(plain)
    twice, _ = forebay.decode(put_together(link + link))
    assert np.array_equal(twice, np.concatenate([whole, whole]))
    check_spans("two links", put_together(link + link), twice)


CUT: dict[str, Callable[[], bytes]] = {
    "WAV": lambda: write("WAV", "PCM_16", RATE, signal(N, RATE, 2)),
    "AIFF": lambda: write("AIFF", "PCM_24", RATE, signal(N, RATE, 2)),
    "AU": lambda: write("AU", "FLOAT", RATE, signal(N, RATE, 2)),
    "CAF": lambda: write("CAF", "PCM_16", RATE, signal(N, RATE, 2)),
    "FLAC": lambda: write("FLAC", "PCM_16", RATE, signal(N, RATE, 2)),
    "OGG": lambda: vorbis(channels=2, n=4 * N),
    "MP3, constant": lambda: mp3("CONSTANT"),
    "MP3, variable": mp3,
}


@pytest.mark.parametrize("name", CUT)
def test_cut_short(name: str) -> None:
    """A truncated recording decodes to the beginning of the whole; its length is from the bytes, not a header."""
    data = CUT[name]()
    whole, _ = forebay.decode(data)
    for share in [0.4, 0.6, 0.77, 0.999]:
        cut = data[: int(share * len(data))]
        part, _ = forebay.decode(cut)
        n = part.shape[-1]
        # With a variable bit rate, silence takes few bytes, so the share of samples differs from that of bytes.
        assert 0 < n <= whole.shape[-1]
        assert n >= 0.1 * share * whole.shape[-1]
        assert np.array_equal(part, whole[..., :n])
        check_spans(f"{share}", cut, part)
    for length in [0, 1, 11, 30]:
        with pytest.raises(forebay.DecodeError):
            forebay.decode(data[:length])

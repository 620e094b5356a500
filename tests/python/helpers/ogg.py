"""Parses and writes Ogg pages (RFC 3533)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

CONTINUED, FIRST, LAST = 1, 2, 4


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte << 24
        for _ in range(8):
            crc = (crc << 1 & 0xFFFFFFFF) ^ (0x04C11DB7 if crc >> 31 else 0)
        table.append(crc)
    return table


_CRC = _crc_table()


@dataclass(frozen=True)
class Page:
    """One page without its checksum."""

    flags: int
    granule: int
    serial: int
    sequence: int
    lacing: bytes
    body: bytes

    def __bytes__(self) -> bytes:
        head = b"OggS\0" + bytes([self.flags]) + self.granule.to_bytes(8, "little", signed=True)
        head += self.serial.to_bytes(4, "little") + self.sequence.to_bytes(4, "little")
        tail = bytes([len(self.lacing)]) + self.lacing + self.body
        crc = 0
        for byte in head + bytes(4) + tail:
            crc = (crc << 8 & 0xFFFFFFFF) ^ _CRC[crc >> 24 ^ byte]
        return head + crc.to_bytes(4, "little") + tail


def take_apart(data: bytes) -> list[Page]:
    pages, at = [], 0
    while at < len(data):
        body = at + 27 + data[at + 26]
        lacing = data[at + 27 : body]
        end = body + sum(lacing)
        number = int.from_bytes
        pages.append(
            Page(
                data[at + 5],
                number(data[at + 6 : at + 14], "little", signed=True),
                number(data[at + 14 : at + 18], "little"),
                number(data[at + 18 : at + 22], "little"),
                lacing,
                data[body:end],
            )
        )
        at = end
    return pages


def put_together(pages: Iterable[Page]) -> bytes:
    return b"".join(bytes(page) for page in pages)


def renumbered(pages: Iterable[Page], serial: int) -> list[Page]:
    """The same stream under another serial number."""
    return [replace(page, serial=serial) for page in pages]


def packets(pages: Iterable[Page]) -> Iterator[bytes]:
    packet = b""
    for page in pages:
        at = 0
        for value in page.lacing:
            packet += page.body[at : at + value]
            at += value
            if value < 255:
                yield packet
                packet = b""


def pages_of(packet: bytes, *, serial: int, sequence: int) -> list[Page]:
    """The pages of one packet; only the page on which the packet ends has a granule position."""
    lacing = b"\xff" * (len(packet) // 255) + bytes([len(packet) % 255])
    pages = []
    for i, start in enumerate(range(0, len(lacing), 255)):
        part = lacing[start : start + 255]
        begin = 255 * start
        is_last = start + 255 >= len(lacing)
        flags = CONTINUED if i else 0
        pages.append(Page(flags, 0 if is_last else -1, serial, sequence + i, part, packet[begin : begin + sum(part)]))
    return pages

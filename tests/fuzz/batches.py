"""Record batches as no producer writes them: headers that lie, framing that lies, data that expands without end."""

from __future__ import annotations

import functools
import random
import struct

from moldau.protocol.compression import Codec, compress
from moldau.protocol.primitives import crc32c, varint
from moldau.protocol.record_batch import ATTRIBUTES_POSITION, CRC_POSITION, HEADER_SIZE, LOG_OVERHEAD
from moldau.protocol.record_builder import Record, append_record, assemble, build_batch
from tests.fuzz.mutation import mutate

EXTREMES = {
    "i": (0, 1, -1, 2, 1000, 1 << 20, (1 << 31) - 1, -(1 << 31)),
    "q": (0, 1, -1, 1 << 40, (1 << 63) - 1, -(1 << 63)),
    "h": (0, 1, -1, 2, 3, 4, 8, 16, 32, 64, 127, (1 << 15) - 1, -(1 << 15)),
}
HEADER_FIELDS = (
    (0, "q"),
    (8, "i"),
    (12, "i"),
    (21, "h"),
    (23, "i"),
    (27, "q"),
    (35, "q"),
    (43, "q"),
    (51, "h"),
    (53, "i"),
)
BOMB_SIZE = 1_000_000
"""Compressed: below what a topic takes by default."""
SMALLEST_RECORD = b"\x0c\0\0\0\1\1\0"
"""Seven bytes of a record without key, value or headers; its offset is wrong but in the first."""


def sealed(batch: bytearray) -> bytes:
    """The batch with the checksum that fits it."""
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(bytes(batch[ATTRIBUTES_POSITION:]), 0))
    return bytes(batch)


def valid(chance: random.Random, now_ms: int) -> bytes:
    """A batch that is taken, of any codec."""
    records = [
        Record(
            key=chance.choice((None, b"", b"key", chance.randbytes(20))),
            value=chance.choice((None, b"", chance.randbytes(chance.randrange(200)), b"x" * 1000)),
            timestamp=now_ms + chance.randrange(1000),
            headers=tuple((f"h{i}", chance.choice((None, b"v"))) for i in range(chance.choice((0, 0, 1, 5)))),
        )
        for _ in range(chance.choice((1, 1, 2, 10)))
    ]
    return build_batch(records, codec=chance.choice(tuple(Codec)))


def hostile(chance: random.Random, now_ms: int) -> bytes:
    """A batch whose checksum is right and little else."""
    batch = bytearray(valid(chance, now_ms))
    kind = chance.randrange(5)
    if kind == 0:
        for _ in range(chance.randrange(1, 3)):
            position, form = chance.choice(HEADER_FIELDS)
            struct.pack_into(f">{form}", batch, position, chance.choice(EXTREMES[form]))
    elif kind == 1:
        batch[HEADER_SIZE:] = mutate(chance, bytes(batch[HEADER_SIZE:]))
    elif kind == 2:
        body = mutate(chance, plain_body(chance))
        codec = chance.choice(tuple(Codec))
        return assembled(compress(codec, body), codec, chance.choice((1, 2, 3, 1 << 20)))
    elif kind == 3:
        batch[HEADER_SIZE:] = chance.randbytes(chance.randrange(300))
    else:
        batch = bytearray(mutate(chance, bytes(batch)))
    if len(batch) < HEADER_SIZE:
        return bytes(batch)
    if chance.random() < 0.8:
        struct.pack_into(">i", batch, 8, len(batch) - LOG_OVERHEAD)
    return sealed(batch)


def plain_body(chance: random.Random) -> bytes:
    """Records with sizes of every kind, some of which lie."""
    body = bytearray()
    for index in range(chance.choice((1, 2, 3))):
        sizes = (-1, 0, 1, 3, 100, chance.choice((-2, 1 << 20, (1 << 31) - 1, -(1 << 31))))
        key, value, headers = (chance.choice(sizes if chance.random() < 0.3 else sizes[:4]) for _ in range(3))
        record = b"\0" + varint(chance.choice((0, 1, -1, 1 << 62))) + varint(index)
        record += varint(key) + b"k" * min(max(key, 0), 1000) + varint(value) + b"v" * min(max(value, 0), 1000)
        record += varint(max(headers, 0)) + b"\2h\2v" * min(max(headers, 0), 100)
        body += varint(len(record)) + record
    return bytes(body)


def assembled(stored: bytes, codec: Codec, count: int) -> bytes:
    return assemble((stored,), 0, -1, codec, count - 1, 0, 0, -1, -1, -1, count)


@functools.cache
def bombs() -> tuple[bytes, ...]:
    """Batches of at most a megabyte, in each codec, that expand to ninety (snappy: eighteen): a few large records, all
    of them right; as many records of seven bytes as there can be; and one that goes on past every bound."""
    found = []
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY):
        size = 18 if codec is Codec.SNAPPY else 90
        large = [Record(None, bytes(1 << 20), 1_700_000_000_000) for _ in range(size)]
        found.append(build_batch(large, codec=codec))
        small = SMALLEST_RECORD * (size * 150_000)
        found.append(assembled(compress(codec, small), codec, len(small) // len(SMALLEST_RECORD)))
    record = bytearray()
    append_record(record, Record(None, bytes(200 << 20)), 0, 0)
    found += [assembled(compress(codec, record), codec, 1) for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD)]
    return tuple(each for each in found if len(each) <= BOMB_SIZE)

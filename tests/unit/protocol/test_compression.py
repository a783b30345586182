"""Every codec goes round, refuses what is corrupt or cut short, and never expands past its bound."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import lz4.frame  # type: ignore[import-untyped]
import pytest
import snappy  # type: ignore[import-untyped]
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.compression import (
    GZIP_WINDOW_BITS,
    PIECE_SIZE_MAX,
    XERIAL_HEADER,
    Codec,
    DecompressedSizeExceeded,
    compress,
    decompress,
    expand,
    inflate,
)
from moldau.protocol.primitives import BytesLike, MalformedMessage, uvarint

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"the quick brown fox jumps over the lazy dog. " * 5_000
NOISE = random.Random(7).randbytes(200_000)
MIB = 1 << 20


def plain(codec: Codec, data: BytesLike, size_max: int = 8 * MIB) -> bytes:
    return bytes(decompress(codec, data, size_max=size_max))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE], ids=["empty", "one byte", "text", "noise"])
def test_what_is_compressed_comes_back(codec: Codec, data: bytes) -> None:
    assert plain(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", Codec)
@given(data=st.binary(max_size=2_000))
def test_any_bytes_come_back(codec: Codec, data: bytes) -> None:
    assert plain(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("shape", [bytes, bytearray, lambda data: memoryview(bytearray(b"__" + data))[2:]])
def test_bytes_are_read_in_place_whatever_holds_them(codec: Codec, shape: type) -> None:
    assert compress(codec, shape(TEXT)) == compress(codec, TEXT)
    assert plain(codec, shape(compress(codec, TEXT))) == TEXT


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, [1, 9]), (Codec.LZ4, [1, 2, 9, 17]), (Codec.ZSTD, [-131072, 1, 22])],
)
def test_kafkas_levels_are_taken(codec: Codec, levels: list[int]) -> None:
    for level in levels:
        assert plain(codec, compress(codec, TEXT, level)) == TEXT


def test_lz4_is_written_as_kafka_does() -> None:
    frame = compress(Codec.LZ4, NOISE)
    assert frame[:6].hex() == "04224d186040"  # version 1, independent blocks, no content size, blocks of 64 KiB
    assert lz4.frame.get_frame_info(frame)["content_size"] == 0
    assert len(compress(Codec.LZ4, TEXT, 17)) < len(compress(Codec.LZ4, TEXT, 9))  # 9 is Kafka's name for the fast one


def test_snappy_is_written_in_xerial_blocks() -> None:
    framed = compress(Codec.SNAPPY, NOISE)
    assert framed[:16].hex() == "82534e41505059000000000100000001"
    (size,) = struct.unpack_from(">i", framed, 16)
    assert snappy.decompress(framed[20 : 20 + size]) == NOISE[: 32 << 10]


def test_snappy_is_read_raw_as_c_clients_send_it() -> None:
    assert plain(Codec.SNAPPY, snappy.compress(TEXT)) == TEXT


def test_zstd_is_read_without_a_content_size() -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT)
    assert plain(Codec.ZSTD, frame) == TEXT
    assert plain(Codec.ZSTD, frame + compress(Codec.ZSTD, b"more")) == TEXT + b"more"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_bound_is_exact(codec: Codec) -> None:
    data = compress(codec, TEXT)
    assert plain(codec, data, len(TEXT)) == TEXT
    with pytest.raises(DecompressedSizeExceeded):
        plain(codec, data, len(TEXT) - 1)


def test_plain_data_is_bounded_too() -> None:
    with pytest.raises(DecompressedSizeExceeded):
        plain(Codec.NONE, b"four", 3)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("data", [b"", b"a", TEXT[:300], NOISE[:70_000]], ids=["empty", "byte", "text", "noise"])
def test_no_strict_prefix_is_taken(codec: Codec, data: bytes) -> None:
    whole = compress(codec, data)
    for size in range(0, len(whole), max(1, len(whole) // 300)):
        if codec is Codec.SNAPPY and size in snappy_block_ends(whole):
            continue  # xerial says nowhere how many blocks there are: a cut between two is the record walk's to find
        with pytest.raises(MalformedMessage):
            plain(codec, whole[:size])


def snappy_block_ends(framed: bytes) -> set[int]:
    ends, position = {16}, 16
    while position < len(framed):
        position += 4 + struct.unpack_from(">i", framed, position)[0]
        ends.add(position)
    return ends


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_nothing_may_follow(codec: Codec) -> None:
    with pytest.raises(MalformedMessage):
        plain(codec, compress(codec, TEXT) + b"\x00")


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=300))
def test_random_bytes_are_malformed_or_plain(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        plain(codec, data, MIB)


@pytest.mark.parametrize("codec", COMPRESSED)
@given(position=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_a_damaged_byte_is_malformed_or_plain(codec: Codec, position: int, flip: int) -> None:
    damaged = bytearray(compress(codec, TEXT[:4_000] + NOISE[:100]))
    damaged[position % len(damaged)] ^= flip
    with contextlib.suppress(MalformedMessage):
        plain(codec, damaged, MIB)


HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
"""The header of a gzip member, without optional fields."""


def outcome(data: bytes, size_max: int, is_stored: bool) -> bytes | None:
    """The decompressed gzip data; None if it is refused."""
    try:
        return bytes(decompress(Codec.GZIP, data, size_max=size_max, is_stored=is_stored))
    except MalformedMessage:
        return None


@st.composite
def gzip_streams(draw: st.DrawFn) -> bytes:
    """A gzip member as any of zlib's strategies writes it, and often damaged, cut short, or followed by other data."""
    sample = st.one_of(
        st.binary(max_size=3_000),
        st.text("ab{}:", max_size=3_000).map(str.encode),
        st.integers(0, 100_000).map(bytes),
    )
    packer = zlib.compressobj(
        draw(st.integers(0, 9)),
        zlib.DEFLATED,
        draw(st.integers(25, 31)),
        draw(st.integers(1, 9)),
        draw(st.integers(0, 4)),
    )
    stream = bytearray(packer.compress(draw(sample)) + packer.flush())
    for _ in range(draw(st.integers(0, 3))):
        position = draw(st.integers(0, len(stream)))
        removed, added = draw(st.sampled_from([(1, 1), (0, 2), (3, 0), (len(stream), 0), (1, 0)]))
        stream[position : position + removed] = draw(st.binary(min_size=added, max_size=added))
    return bytes(stream) + draw(st.sampled_from([b"", b"", b"\x00", bytes(stream)]))


@given(stream=gzip_streams(), size_max=st.sampled_from([0, 100, 65_536, MIB]))
def test_stored_gzip_is_read_as_it_was_checked(stream: bytes, size_max: int) -> None:
    assert outcome(stream, size_max, is_stored=True) == outcome(stream, size_max, is_stored=False)


@pytest.mark.parametrize("flags", range(0, 256, 2))
def test_flags_of_a_gzip_header(flags: int) -> None:
    optional = (b"\x03\x00abc" if flags & 4 else b"") + (b"name\x00" if flags & 8 else b"")
    optional += b"comment\x00" if flags & 16 else b""
    header = HEADER[:3] + bytes([flags]) + HEADER[4:] + optional
    checksum = struct.pack("<H", zlib.crc32(header) & 0xFFFF) if flags & 2 else b""
    member = gzip.compress(TEXT)[len(HEADER) :]
    for whole in (header + checksum + member, header + checksum[::-1] + member):
        assert outcome(whole, len(TEXT), is_stored=True) == outcome(whole, len(TEXT), is_stored=False)
    assert (outcome(header + checksum + member, len(TEXT), is_stored=True) is None) == (flags >= 0x20)


def test_without_isal_stored_gzip_is_read_by_zlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal", None)
    assert outcome(gzip.compress(TEXT), len(TEXT), is_stored=True) == TEXT
    assert outcome(gzip.compress(TEXT)[:-1], len(TEXT), is_stored=True) is None


class CountedStream:
    """A decompressor of zlib that counts the bytes it copies because a piece did not need them."""

    def __init__(self) -> None:
        self.stream = zlib.decompressobj(GZIP_WINDOW_BITS)
        self.copied = 0

    @property
    def eof(self) -> bool:
        return self.stream.eof

    @property
    def unconsumed_tail(self) -> bytes:
        return self.stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self.stream.unused_data

    def decompress(self, data: BytesLike, max_length: int, /) -> bytes:
        piece = self.stream.decompress(data, max_length)
        self.copied += len(self.stream.unconsumed_tail)
        return piece


@pytest.mark.parametrize("plain", [random.Random(1).randbytes(2 << 20), bytes(32 << 20)], ids=["noise", "zeros"])
def test_the_rest_of_gzip_data_is_not_copied_for_each_piece(plain: bytes) -> None:
    stream = CountedStream()
    pieces = inflate(stream, zlib.error, gzip.compress(plain, 1), len(plain), PIECE_SIZE_MAX)
    assert b"".join(pieces) == plain
    assert stream.copied < len(plain) / 2


def test_a_zstd_decompressor_is_used_again_after_damage_and_by_two_frames_at_once() -> None:
    frame = compress(Codec.ZSTD, NOISE)
    first, second = (expand(Codec.ZSTD, frame, size_max=MIB, piece_size_max=10_000) for _ in range(2))
    mixed = [(next(first), next(second)) for _ in range(3)]
    parts = [
        b"".join(begun) + b"".join(rest) for begun, rest in zip(zip(*mixed, strict=True), (first, second), strict=True)
    ]
    assert parts == [NOISE, NOISE]
    damaged = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(TEXT))
    damaged[-1] ^= 1
    with pytest.raises(MalformedMessage):
        plain(Codec.ZSTD, damaged)
    abandoned = expand(Codec.ZSTD, frame, size_max=MIB, piece_size_max=10_000)
    next(abandoned)
    del abandoned
    assert plain(Codec.ZSTD, frame) == NOISE


def test_lz4_blocks_that_depend_on_one_another_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="depend on one another"):
        plain(Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True, block_size=4))


def bomb(codec: Codec) -> bytes:
    """A quarter of a gigabyte of zeros in as few bytes as the codec takes."""
    zeros = bytes(256 * MIB)
    if codec is Codec.GZIP:
        return gzip.compress(zeros)
    if codec is Codec.SNAPPY:
        return bytes(snappy.compress(zeros))
    if codec is Codec.LZ4:
        return bytes(lz4.frame.compress(zeros, block_linked=False, block_size=7, store_size=False))
    return zstandard.ZstdCompressor(write_content_size=False).compress(zeros)


def liar(codec: Codec) -> bytes:
    """A few bytes that claim to be a gigabyte, or to need one to be read."""
    if codec is Codec.GZIP:
        stream = zlib.compressobj(wbits=31)
        return (stream.compress(b"small") + stream.flush())[:-4] + b"\xff\xff\xff\x3f"
    if codec is Codec.SNAPPY:
        return XERIAL_HEADER + struct.pack(">i", 12) + uvarint(1 << 30) + b"\x14hello_w"
    if codec is Codec.LZ4:
        header = bytearray(lz4.frame.compress(b"small", block_linked=False, store_size=True))
        struct.pack_into("<Q", header, 6, 1 << 30)
        return bytes(header)
    return bytes.fromhex("28b52ffda000000040010000")  # single segment, content size 1 GiB, one empty last block


WATCH = """
import sys
from moldau.protocol.compression import Codec, decompress
from moldau.protocol.primitives import MalformedMessage

def peak_kib():  # getrusage would give the peak of the process that started this one
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

codec, data = Codec(int(sys.argv[1])), open(sys.argv[2], "rb").read()
try:
    decompress(codec, b"warm up", size_max=1)
except MalformedMessage:
    pass
before = peak_kib()
try:
    decompress(codec, data, size_max=8 << 20)
    print("taken")
except MalformedMessage:
    print(peak_kib() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel for the peak of a process")
@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("attack", [bomb, liar], ids=["bomb", "liar"])
def test_memory_is_bounded_whatever_the_bytes_claim(
    codec: Codec, attack: Callable[[Codec], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "data"
    path.write_bytes(attack(codec))
    grown_kib = int(subprocess.check_output([sys.executable, "-c", WATCH, str(int(codec)), str(path)], text=True))
    assert grown_kib < 24 << 10  # the bound of 8 MiB in pieces, once more as a whole, and the codec's own window

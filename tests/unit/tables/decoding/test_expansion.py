"""Decompressing batch after batch: the same bytes, the same refusals as batch by batch."""

from __future__ import annotations

import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.compression import Codec, compress, decompress
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_reader import RECORDS_SIZE_MAX
from moldau.tables.decoding.expansion import ROOM_MAX, ROOM_MIN, Expander

CODECS = [codec for codec in Codec if codec is not Codec.NONE]


def outcome(expander: Expander | None, codec: Codec, stored: bytes) -> bytes | str:
    try:
        if expander is None:
            return bytes(decompress(codec, stored, size_max=RECORDS_SIZE_MAX))
        return expander.expand(codec, memoryview(stored))
    except MalformedMessage as malformed:
        return str(malformed)


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_any_size_come_back(codec: Codec) -> None:
    expander = Expander()
    for size in (1, 100, ROOM_MIN, ROOM_MIN + 1, 5 * ROOM_MIN, 10, ROOM_MAX + 1, 200_000):
        plain = (b"%07d " % size * (size // 8 + 1))[:size]
        assert expander.expand(codec, memoryview(compress(codec, plain))) == plain


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_refused_once_spoils_no_later_batch(codec: Codec) -> None:
    expander = Expander()
    good = compress(codec, b"some bytes " * 500)
    wrong = [
        good[:-1],
        good[: len(good) // 2],
        good + b"x",
        good[:8],
        b"",
        b"\x00" * 20,
        good[:20] + b"\xff" + good[21:],
    ]
    for stored in wrong:
        assert outcome(expander, codec, stored) == outcome(None, codec, stored)
        assert expander.expand(codec, memoryview(good)) == b"some bytes " * 500


def test_a_frame_that_claims_to_be_empty_and_is_cut_short_is_refused() -> None:
    stored = b"(\xb5/\xfd \x00\x00\x00\x00"
    assert outcome(Expander(), Codec.ZSTD, stored) == "zstd frame is cut short"


@given(st.sampled_from(CODECS), st.binary(max_size=300), st.data())
def test_hostile_bytes_give_what_they_give_elsewhere(codec: Codec, plain: bytes, data: st.DataObject) -> None:
    stored = bytearray(compress(codec, plain))
    for _ in range(data.draw(st.integers(0, 3))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    assert outcome(Expander(), codec, bytes(stored)) == outcome(None, codec, bytes(stored))


def test_frames_as_other_producers_write_them() -> None:
    plain = b"a record " * 3_000
    stream = zstandard.ZstdCompressor().compressobj()
    without_size = stream.compress(plain) + stream.flush()
    two = zstandard.compress(plain) + zstandard.compress(b"more")
    claiming = lz4.frame.compress(plain, block_linked=False, store_size=True)
    expander = Expander()
    assert expander.expand(Codec.ZSTD, memoryview(without_size)) == plain
    assert expander.expand(Codec.ZSTD, memoryview(two)) == plain + b"more"
    assert expander.expand(Codec.LZ4, memoryview(claiming)) == plain

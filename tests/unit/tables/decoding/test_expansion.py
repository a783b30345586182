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
from moldau.tables.decoding import expansion
from moldau.tables.decoding.expansion import DECOMPRESSED_BATCH_SIZE_MAX, Expander

CODECS = [codec for codec in Codec if codec is not Codec.NONE]
KEPT_SIZE = 1 << 20
"""Less than the batches of a test in all: later ones get new room."""


def expand(expander: Expander, codec: Codec, stored: bytes) -> bytes:
    data, start, end = expander.expand(codec, memoryview(stored))
    return bytes(data[start:end])


def outcome(expander: Expander | None, codec: Codec, stored: bytes) -> bytes | str:
    try:
        if expander is None:
            return bytes(decompress(codec, stored, size_max=RECORDS_SIZE_MAX, is_stored=True))
        return expand(expander, codec, stored)
    except MalformedMessage as malformed:
        return str(malformed)


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_any_size_come_back(codec: Codec) -> None:
    expander = Expander(KEPT_SIZE)
    for size in (1, 100, 65_536, 65_537, DECOMPRESSED_BATCH_SIZE_MAX, 10, DECOMPRESSED_BATCH_SIZE_MAX + 1, 200_000):
        plain = (b"%07d " % size * (size // 8 + 1))[:size]
        assert expand(expander, codec, compress(codec, plain)) == plain


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_refused_once_spoils_no_later_batch(codec: Codec) -> None:
    expander = Expander(KEPT_SIZE)
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
        assert expand(expander, codec, good) == b"some bytes " * 500


def test_a_frame_that_claims_to_be_empty_and_is_cut_short_is_refused() -> None:
    stored = b"(\xb5/\xfd \x00\x00\x00\x00"
    assert outcome(Expander(KEPT_SIZE), Codec.ZSTD, stored) == "zstd frame is cut short"


@given(st.sampled_from(CODECS), st.binary(max_size=300), st.data())
def test_hostile_bytes_give_what_they_give_elsewhere(codec: Codec, plain: bytes, data: st.DataObject) -> None:
    stored = bytearray(compress(codec, plain))
    for _ in range(data.draw(st.integers(0, 3))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    assert outcome(Expander(KEPT_SIZE), codec, bytes(stored)) == outcome(None, codec, bytes(stored))


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_one_call_decompresses_a_batch_and_those_before_stay(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(expansion, "decompress")
    expander = Expander(KEPT_SIZE)
    plains = [b"%d bytes " % number * 9_000 for number in range(12)]
    found = [expander.expand(codec, memoryview(compress(codec, plain))) for plain in plains]
    assert [bytes(data[start:end]) for data, start, end in found] == plains
    expander.reuse()
    data, start, end = expander.expand(codec, memoryview(compress(codec, plains[0])))
    assert (start, end) == (0, len(plains[0]))
    assert data is found[-1][0]


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("module", ["no_such_package", "json"])
def test_without_the_library_of_a_codec_its_package_is_used(
    codec: Codec, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = {each: (module, "no such library", functions) for each, (*_, functions) in expansion.LIBRARIES.items()}
    monkeypatch.setattr(expansion, "LIBRARIES", missing)
    monkeypatch.setattr(expansion, "codec_library", expansion.codec_library.__wrapped__)
    assert expand(Expander(KEPT_SIZE), codec, compress(codec, b"some bytes " * 500)) == b"some bytes " * 500


def test_the_library_of_a_codec_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    expand(Expander(KEPT_SIZE), Codec.ZSTD, compress(Codec.ZSTD, b"some bytes"))
    monkeypatch.delattr(expansion, "CDLL")
    assert expand(Expander(KEPT_SIZE), Codec.ZSTD, compress(Codec.ZSTD, b"more bytes")) == b"more bytes"


def test_frames_as_other_producers_write_them() -> None:
    plain = b"a record " * 3_000
    stream = zstandard.ZstdCompressor().compressobj()
    without_size = stream.compress(plain) + stream.flush()
    two = zstandard.compress(plain) + zstandard.compress(b"more")
    claiming = lz4.frame.compress(plain, block_linked=False, store_size=True)
    expander = Expander(KEPT_SIZE)
    assert expand(expander, Codec.ZSTD, without_size) == plain
    assert expand(expander, Codec.ZSTD, two) == plain + b"more"
    assert expand(expander, Codec.LZ4, claiming) == plain

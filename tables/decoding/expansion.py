"""Decompressing batch after batch of a slice: one call of the library for each batch, and buffers that are kept between
the calls.

`moldau.protocol.compression` decompresses in pieces of a few KiB, because a broker shares its interpreter with an event
loop. A task has its interpreter for itself, so it uses a buffer for a whole batch, of the size that earlier batches
needed. Data that does not fit, is corrupt, or has an unusual form is decompressed by `moldau.protocol.compression`,
which has the limits and the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.protocol.compression import (
    LZ4_FLAGS_MASK,
    LZ4_INDEPENDENT_BLOCKS,
    LZ4_MAGIC,
    ZSTD_WINDOW_SIZE_MAX,
    Codec,
    decompress,
)
from moldau.protocol.record_reader import RECORDS_SIZE_MAX

if TYPE_CHECKING:
    from lz4.frame import LZ4FrameDecompressor  # type: ignore[import-untyped]
    from zstandard import ZstdDecompressor

ROOM_MIN: Final = 32 << 10
ROOM_MAX: Final = 4 << 20
"""Bytes that are allocated at once for a decompressed batch, whatever its header claims."""
LZ4_CONTENT_SIZE_BIT: Final = 0x08
LZ4_HEADER_SIZE_MIN: Final = 7


class Expander:
    """Decompresses the records of batches. Only one thread may use it."""

    def __init__(self) -> None:
        self._room = ROOM_MIN
        self._lz4: LZ4FrameDecompressor | None = None
        self._zstd: ZstdDecompressor | None = None

    def expand(self, codec: Codec, stored: memoryview) -> bytes:
        """The decompressed records of a batch. Raises `MalformedMessage`."""
        plain = None
        if codec is Codec.LZ4:
            plain = self._expand_lz4(stored)
        elif codec is Codec.ZSTD:
            plain = self._expand_zstd(stored)
        if plain is not None:
            return plain
        plain = bytes(decompress(codec, stored, size_max=RECORDS_SIZE_MAX))
        self._room = max(self._room, min(2 * len(plain), ROOM_MAX))
        return plain

    def _expand_lz4(self, stored: memoryview) -> bytes | None:
        """The contents of one frame; None where the frame does not fit into the room, is corrupt or is not alone."""
        if len(stored) < LZ4_HEADER_SIZE_MIN or stored[: len(LZ4_MAGIC)] != LZ4_MAGIC:
            return None
        flags = stored[len(LZ4_MAGIC)]
        if flags & LZ4_FLAGS_MASK != LZ4_INDEPENDENT_BLOCKS or flags & LZ4_CONTENT_SIZE_BIT:
            return None
        if self._lz4 is None:
            from lz4.frame import LZ4FrameDecompressor

            self._lz4 = LZ4FrameDecompressor()
        try:
            plain: bytes = self._lz4.decompress(stored, self._room)
        except RuntimeError:
            self._lz4 = None
            return None
        if self._lz4.eof and not self._lz4.unused_data:
            return plain
        self._lz4 = None
        return None

    def _expand_zstd(self, stored: memoryview) -> bytes | None:
        """The contents of one frame; None where the frame does not fit into the room, is corrupt or is not alone."""
        import zstandard

        if self._zstd is None:
            self._zstd = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_SIZE_MAX)
        try:
            size = zstandard.frame_content_size(stored)
            if size > ROOM_MAX or not size:  # The library does not look at a frame that claims to be empty.
                return None
            return self._zstd.decompress(stored, max_output_size=self._room, allow_extra_data=False)
        except zstandard.ZstdError:
            return None

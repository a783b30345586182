"""The codecs of record batches: compression, and decompression with a limit on the decompressed size.

No decoder allocates the size that the data claims to have: data is decompressed in pieces until it ends or the limit is
exceeded. A snappy block can only be decompressed whole, so its claimed size is first compared with the limit and with
the largest size that its bytes can expand to. The libraries are imported when the first batch needs them.

Stored gzip data is decompressed by ISA-L if it is installed, in about a third of zlib's time. A batch that is to be
appended is always decompressed by zlib, as in Java: ISA-L also accepts incomplete Huffman codes, which Java's consumers
refuse (decision 40).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, cast

from moldau.protocol.primitives import BytesLike, MalformedMessage, read_uvarint

if TYPE_CHECKING:
    from typing import Protocol

    from zstandard import ZstdDecompressor

    class Inflater(Protocol):
        """A decompressor object of `zlib`, or of `isal.isal_zlib`."""

        @property
        def eof(self) -> bool: ...

        @property
        def unconsumed_tail(self) -> bytes: ...

        @property
        def unused_data(self) -> bytes: ...

        def decompress(self, data: BytesLike, max_length: int, /) -> bytes: ...


class Codec(IntEnum):
    """The codec in bits 0-2 of a batch's attributes. The name of a member in lower case is Kafka's name of the
    codec."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressedSizeExceeded(MalformedMessage):
    """Raised if the decompressed data would be larger than the limit."""


class RecordSizeExceeded(MalformedMessage):
    """Raised if a record of a compressed batch is larger than the caller's limit. The batch may nevertheless be
    well-formed."""


EXPANSION = 4
"""The typical decompressed size of records divided by their compressed size."""
PIECE_SIZE_MIN = 4 << 10
PIECE_SIZE_MAX = 1 << 16
"""The smallest and the largest size (bytes) of a piece that is decompressed at once.

A piece is small because an executor thread that decompresses it may hold the GIL, so that the event loop waits.
"""
GZIP_WINDOW_BITS = 31  # In zlib this number selects a gzip header and trailer around the data.
GZIP_FLAGS_POSITION = 3
GZIP_RESERVED_FLAGS = 0xE0

INT32 = Struct(">i")
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + INT32.pack(1) + INT32.pack(1)
XERIAL_BLOCK_SIZE = 32 << 10
SNAPPY_EXPANSION_MAX = 22  # An element of 3 bytes produces 64 bytes at most.

LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_FLAGS_MASK = 0xE0
LZ4_INDEPENDENT_BLOCKS = 0x60  # Version 01, and the bit for independent blocks.
LZ4_BLOCK_SIZE_64_KIB = 4
LZ4_LEVEL_DEFAULT = 9  # Kafka's number for the fast compressor, which is 0 in the library.
LZ4_LEVEL_HIGH_MIN = 3

ZSTD_LEVEL_DEFAULT = 3
ZSTD_WINDOW_SIZE_MAX = 1 << 27
ZSTD_WINDOW_SIZE_KEPT = 2 << 20
"""The largest window (bytes) of a zstd frame after which its decompressor, with its buffers, is kept for the next
frame. It is the window of the default compression level."""
ZSTD_BLOCK_HEADER_SIZE = 3
ZSTD_BLOCK_RLE = 1
ZSTD_BLOCK_RESERVED = 3
ZSTD_CHECKSUM_SIZE = 4


def compress(codec: Codec, data: BytesLike, level: int | None = None) -> bytes:
    """Compress data in Kafka's format. `level` is the value of `compression.<codec>.level`; None stands for Kafka's
    default."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return zlib.compress(data, -1 if level is None else level, wbits=GZIP_WINDOW_BITS)
    if codec is Codec.SNAPPY:
        return compress_snappy(data)
    if codec is Codec.LZ4:
        return compress_lz4(data, level)
    import zstandard

    return zstandard.ZstdCompressor(level=ZSTD_LEVEL_DEFAULT if level is None else level).compress(data)


def compress_snappy(data: BytesLike) -> bytes:
    import snappy  # type: ignore[import-untyped]

    view = memoryview(data)
    out = bytearray(XERIAL_HEADER)
    for start in range(0, len(view), XERIAL_BLOCK_SIZE):
        block = snappy.compress(view[start : start + XERIAL_BLOCK_SIZE])
        out += INT32.pack(len(block))
        out += block
    return bytes(out)


def compress_lz4(data: BytesLike, level: int | None) -> bytes:
    import lz4.frame  # type: ignore[import-untyped]

    frame: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level in (None, LZ4_LEVEL_DEFAULT) else max(level, LZ4_LEVEL_HIGH_MIN),
        block_size=LZ4_BLOCK_SIZE_64_KIB,
        block_linked=False,
        store_size=False,
    )
    return frame


def decompress(codec: Codec, data: BytesLike, *, size_max: int, is_stored: bool = False) -> BytesLike:
    """Decompress `data` to at most `size_max` bytes. `Codec.NONE` returns the data itself. With `is_stored` the data is
    from a log, and ISA-L may decompress gzip.

    Raises `DecompressedSizeExceeded` past the limit, and `MalformedMessage` for data that is corrupt, cut short or
    followed by other bytes.
    """
    if codec is Codec.NONE:
        if len(data) > size_max:
            raise DecompressedSizeExceeded(f"{len(data)} bytes exceed {size_max}")
        return data
    pieces = list(expander_of(codec, is_stored)(data, size_max, size_max + 1))  # Pieces that are joined are copied.
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def expand(
    codec: Codec, data: BytesLike, *, size_max: int, piece_size_max: int = PIECE_SIZE_MAX, is_stored: bool = False
) -> Iterator[BytesLike]:
    """Decompress `data`, and yield pieces of at most about `piece_size_max` bytes. A snappy block is one piece of any
    size. `is_stored`: see `decompress`. Raises as `decompress`, but does not compare uncompressed data with
    `size_max`."""
    if codec is Codec.NONE:
        view = memoryview(data)
        return (view[start : start + piece_size_max] for start in range(0, len(view), piece_size_max))
    return expander_of(codec, is_stored)(data, size_max, piece_size_max)


def expander_of(codec: Codec, is_stored: bool) -> Callable[[BytesLike, int, int], Iterator[bytes]]:
    return expand_stored_gzip if is_stored and codec is Codec.GZIP else EXPANDERS[codec]


def pull_pieces(
    pull: Callable[[int], bytes], compressed_size: int, size_max: int, piece_size_max: int
) -> Iterator[bytes]:
    """Call `pull(size)` until it returns no bytes, and yield the pieces that it returns. Raises
    `DecompressedSizeExceeded` if the pieces have more than `size_max` bytes together."""
    piece_size = min(max(EXPANSION * compressed_size, PIECE_SIZE_MIN), piece_size_max)
    total = 0
    while piece := pull(min(piece_size, size_max - total + 1)):
        total += len(piece)
        if total > size_max:
            raise DecompressedSizeExceeded(f"compressed data of {compressed_size} bytes expands past {size_max}")
        yield piece


def expand_gzip(data: BytesLike, size_max: int, piece_size_max: int) -> Iterator[bytes]:
    """Decompress one gzip member in pieces. Raises as `decompress`."""
    return inflate(zlib.decompressobj(GZIP_WINDOW_BITS), zlib.error, data, size_max, piece_size_max)


def expand_stored_gzip(data: BytesLike, size_max: int, piece_size_max: int) -> Iterator[bytes]:
    """Decompress one gzip member in pieces, by ISA-L if it is installed. Raises as `decompress`."""
    try:
        from isal import isal_zlib
    except ImportError:
        yield from expand_gzip(data, size_max, piece_size_max)
        return
    if len(data) > GZIP_FLAGS_POSITION and data[GZIP_FLAGS_POSITION] & GZIP_RESERVED_FLAGS:
        raise MalformedMessage("gzip data with flags that are not defined")  # ISA-L ignores them.
    error = cast("type[Exception]", isal_zlib.error)
    yield from inflate(isal_zlib.decompressobj(GZIP_WINDOW_BITS), error, data, size_max, piece_size_max)


def inflate(
    stream: Inflater, error: type[Exception], data: BytesLike, size_max: int, piece_size_max: int
) -> Iterator[bytes]:
    """Decompress one gzip member in pieces by the decompressor `stream`. `error` is the exception that `stream` raises
    for corrupt data. Raises as `decompress`."""
    view, position = memoryview(data), 0
    rest: BytesLike = b""

    def pull(size: int) -> bytes:
        nonlocal position, rest
        while not stream.eof:
            if not rest:
                # Of what it is given, the stream copies what it does not need for this piece.
                rest = view[position : position + max(size // EXPANSION, PIECE_SIZE_MIN)]
                position += len(rest)
            is_end = position >= len(view)
            piece = stream.decompress(rest, size)
            rest = stream.unconsumed_tail
            if piece:
                return piece
            if is_end and not rest and not stream.eof:
                raise MalformedMessage("gzip data is cut short")
        return b""

    try:
        yield from pull_pieces(pull, len(data), size_max, piece_size_max)
    except error as corrupt:
        raise MalformedMessage(f"corrupt gzip data: {corrupt}") from None
    if stream.unused_data or position < len(view):
        # DIVERGES: Java reads several members in a row. No producer writes them, and each costs a copy of the rest.
        raise MalformedMessage("bytes after the gzip member")


def expand_snappy(data: BytesLike, size_max: int, piece_size_max: int) -> Iterator[bytes]:
    """Decompress snappy data: blocks in xerial's framing, as Java clients send, or the single raw block that many C and
    Go clients send. Each block is one piece. Raises as `decompress`."""
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield decompress_snappy_block(view, size_max)
        return
    if len(view) < len(XERIAL_HEADER):
        raise MalformedMessage("xerial snappy header is cut short")
    position = len(XERIAL_HEADER)
    total = 0
    while position < len(view):
        block_position = position + INT32.size
        if block_position > len(view):
            raise MalformedMessage("xerial snappy block is cut short")
        (size,) = INT32.unpack_from(view, position)
        position = block_position + size
        if size <= 0 or position > len(view):
            raise MalformedMessage(f"xerial snappy block claims {size} bytes")
        block = decompress_snappy_block(view[block_position:position], size_max - total)
        total += len(block)
        yield block


def decompress_snappy_block(block: memoryview, size_max: int) -> bytes:
    """Decompress a raw snappy block. The decoder allocates the size that the block claims, so the claim is checked
    first. Raises as `decompress`."""
    import snappy

    try:
        claimed_size, _ = read_uvarint(block, 0)
    except IndexError:
        raise MalformedMessage("snappy block is cut short") from None
    if claimed_size > len(block) * SNAPPY_EXPANSION_MAX:
        raise MalformedMessage(f"snappy block of {len(block)} bytes claims to hold {claimed_size}")
    if claimed_size > size_max:
        raise DecompressedSizeExceeded(f"snappy block expands to {claimed_size} bytes, past {size_max}")
    try:
        plain: bytes = snappy.decompress(block)
    except snappy.UncompressError as corrupt:
        raise MalformedMessage(f"corrupt snappy block: {corrupt.__cause__}") from None
    return plain


def expand_lz4(data: BytesLike, size_max: int, piece_size_max: int) -> Iterator[bytes]:
    """Decompress one LZ4 frame of independent blocks in pieces. Raises as `decompress`."""
    import lz4.frame

    if len(data) <= len(LZ4_MAGIC) or bytes(data[: len(LZ4_MAGIC)]) != LZ4_MAGIC:
        raise MalformedMessage("no LZ4 frame")
    if data[len(LZ4_MAGIC)] & LZ4_FLAGS_MASK != LZ4_INDEPENDENT_BLOCKS:
        raise MalformedMessage("LZ4 frame whose blocks depend on one another, which Kafka's readers cannot decode")
    stream = lz4.frame.LZ4FrameDecompressor()
    view, position = memoryview(data), 0

    def pull(size: int) -> bytes:
        nonlocal position
        while not stream.eof:
            given: BytesLike = b""
            if stream.needs_input:
                if position >= len(view):
                    raise MalformedMessage("LZ4 frame is cut short")
                # Of what it is given, the stream copies what it does not need for this piece.
                given = view[position : position + max(size // EXPANSION, PIECE_SIZE_MIN)]
                position += len(given)
            piece: bytes = stream.decompress(given, size)
            if piece:
                return piece
        return b""

    try:
        yield from pull_pieces(pull, len(data), size_max, piece_size_max)
    except RuntimeError as corrupt:
        raise MalformedMessage(f"corrupt LZ4 frame: {corrupt}") from None
    if stream.unused_data or position < len(view):
        # DIVERGES: Java's reader stops at the end of the first frame and ignores the rest, other readers do not.
        raise MalformedMessage("bytes after the LZ4 frame")


_kept_decompressors: list[ZstdDecompressor] = []
"""At most one decompressor, which is not in use. A frame removes it from the list while it uses it, because threads
must not share it. A new decompressor takes the time of decompressing 10 KB."""


def expand_zstd(data: BytesLike, size_max: int, piece_size_max: int) -> Iterator[bytes]:
    """Decompress one zstd frame, or several in a row, in pieces. A frame may lack its content size. Raises as
    `decompress`."""
    import zstandard

    try:
        window_size = walk_zstd_frames(data)
        try:
            decompressor = _kept_decompressors.pop()
        except IndexError:
            decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_SIZE_MAX)
        with decompressor.stream_reader(data, read_across_frames=True) as stream:
            yield from pull_pieces(stream.read, len(data), size_max, piece_size_max)
    except zstandard.ZstdError as corrupt:
        raise MalformedMessage(f"corrupt zstd data: {corrupt}") from None
    if window_size <= ZSTD_WINDOW_SIZE_KEPT and not _kept_decompressors:
        _kept_decompressors.append(decompressor)


def walk_zstd_frames(data: BytesLike) -> int:
    """Check by the sizes of the blocks that `data` consists of whole zstd frames, because the library does not report
    truncated data. Returns the largest window size (bytes) of the frames. Raises `MalformedMessage`."""
    import zstandard

    view = memoryview(data)
    position = window_size = 0
    while position < len(view) or position == 0:
        frame = view[position:]
        parameters = zstandard.get_frame_parameters(frame)
        window_size = max(window_size, parameters.window_size)
        position += zstandard.frame_header_size(frame)
        is_last = False
        while not is_last:
            if position + ZSTD_BLOCK_HEADER_SIZE > len(view):
                raise MalformedMessage("zstd frame is cut short")
            block = int.from_bytes(view[position : position + ZSTD_BLOCK_HEADER_SIZE], "little")
            is_last = bool(block & 1)
            kind = block >> 1 & 3
            if kind == ZSTD_BLOCK_RESERVED:
                raise MalformedMessage("zstd block of a reserved kind")
            position += ZSTD_BLOCK_HEADER_SIZE + (1 if kind == ZSTD_BLOCK_RLE else block >> 3)
        position += ZSTD_CHECKSUM_SIZE if parameters.has_checksum else 0
        if position > len(view):
            raise MalformedMessage("zstd frame is cut short")
    return window_size


EXPANDERS: dict[Codec, Callable[[BytesLike, int, int], Iterator[bytes]]] = {
    Codec.GZIP: expand_gzip,
    Codec.SNAPPY: expand_snappy,
    Codec.LZ4: expand_lz4,
    Codec.ZSTD: expand_zstd,
}

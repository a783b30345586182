"""Decompresses the batches of a slice into one buffer, one behind the other. The buffer is reused for the next batches.

`moldau.protocol.compression` decompresses in pieces of a few KiB, so that a broker does not hold its event loop. A task
has no event loop: it decompresses a whole batch by one call, without a copy and without new memory. The Python packages
of the codecs have no such call, so the C libraries inside them are called through ctypes.

Data that does not fit into the buffer, is corrupt, or has an unusual form is decompressed by
`moldau.protocol.compression`, which has the limits and the messages. If no library is found, all data is decompressed
there.
"""

from __future__ import annotations

from ctypes import CDLL, POINTER, byref, c_size_t, c_uint, c_void_p
from functools import cache
from importlib.util import find_spec
from struct import Struct
from typing import Any, Final, Protocol
from weakref import finalize

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from moldau.protocol.compression import (
    LZ4_FLAGS_MASK,
    LZ4_INDEPENDENT_BLOCKS,
    LZ4_MAGIC,
    ZSTD_WINDOW_SIZE_MAX,
    Codec,
    decompress,
)
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_reader import RECORDS_SIZE_MAX

DECOMPRESSED_BATCH_SIZE_MAX: Final = 4 << 20
"""The largest decompressed batch (bytes) that is written into the buffer."""
LZ4_VERSION: Final = 100
LZ4_BEGINNING: Final = Struct(f"{len(LZ4_MAGIC)}sB")
"""The struct of the magic number and the flags with which a frame of LZ4 begins."""
SIZE_POINTER: Final = POINTER(c_size_t)
LZ4_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "LZ4F_createDecompressionContext": (c_size_t, c_void_p, c_uint),
    "LZ4F_resetDecompressionContext": (None, c_void_p),
    "LZ4F_freeDecompressionContext": (c_size_t, c_void_p),
    "LZ4F_decompress": (c_size_t, c_void_p, c_void_p, SIZE_POINTER, c_void_p, SIZE_POINTER, c_void_p),
}
"""The functions of the LZ4 library that are called: the type of the result, and the types of the arguments."""
ZSTD_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "ZSTD_createDCtx": (c_void_p,),
    "ZSTD_freeDCtx": (c_size_t, c_void_p),
    "ZSTD_findFrameCompressedSize": (c_size_t, c_void_p, c_size_t),
    "ZSTD_decompressDCtx": (c_size_t, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t),
    "ZSTD_isError": (c_uint, c_size_t),
}
LIBRARIES: Final = {
    Codec.LZ4: ("lz4.frame._frame", "liblz4.so.1", LZ4_FUNCTIONS),
    Codec.ZSTD: ("zstandard._cffi", "libzstd.so.1", ZSTD_FUNCTIONS),
}
"""For each codec: the extension module that contains its C library, the library of the system to use if that one cannot
be used, and the functions that are called."""


class Frames(Protocol):
    """A decompressor of frames of one codec."""

    def expand(self, target: int, stored: memoryview) -> int | None:
        """Decompress one frame to the address `target`, which has room for `DECOMPRESSED_BATCH_SIZE_MAX` bytes. Returns
        the decompressed size; None if the frame does not fit, is corrupt, is followed by other data, or has an unusual
        form.
        """


class Expander:
    """Decompresses the records of batches. Only one thread may use it."""

    def __init__(self, kept_size: int) -> None:
        """`kept_size`: how many decompressed bytes are kept until `reuse`. The buffer has room for one more batch."""
        self._size = kept_size + DECOMPRESSED_BATCH_SIZE_MAX
        self._room = memoryview(b"")
        self._room_address = 0
        self._end = 0
        """The position in `_room` after the last decompressed batch."""
        self._frames: dict[Codec, Frames | None] = {}

    def expand(self, codec: Codec, stored: memoryview) -> tuple[BytesLike, int, int]:
        """Decompress the records of a batch. Returns a buffer, a start and an end: the records are buffer[start:end]
        until `reuse` is called. Raises `MalformedMessage`."""
        if codec not in self._frames:
            self._frames[codec] = frames_of(codec)
        frames = self._frames[codec]
        if frames is not None:
            start = self._end
            if len(self._room) - start < DECOMPRESSED_BATCH_SIZE_MAX:
                self._room, start = np.empty(self._size, np.uint8).data, 0
                self._room_address = address_of(self._room)
            size = frames.expand(self._room_address + start, stored)
            if size is not None:
                self._end = start + size
                return self._room, start, self._end
        plain = decompress(codec, stored, size_max=RECORDS_SIZE_MAX, is_stored=True)
        return plain, 0, len(plain)

    def reuse(self) -> None:
        """Release the decompressed batches: the next batches overwrite them."""
        self._end = 0


class Lz4Frames:
    """A decompressor of LZ4 frames. Its ctypes objects are made once, because most batches are small."""

    def __init__(self, library: CDLL) -> None:
        self._decompress = library.LZ4F_decompress
        self._reset = library.LZ4F_resetDecompressionContext
        self._context = c_void_p()
        library.LZ4F_createDecompressionContext(byref(self._context), LZ4_VERSION)
        finalize(self, library.LZ4F_freeDecompressionContext, self._context)
        self._written, self._read = c_size_t(), c_size_t()
        self._to_written, self._to_read = byref(self._written), byref(self._read)

    def expand(self, target: int, stored: memoryview) -> int | None:
        size = len(stored)
        if size < LZ4_BEGINNING.size:
            return None
        magic, flags = LZ4_BEGINNING.unpack_from(stored)
        if magic != LZ4_MAGIC or flags & LZ4_FLAGS_MASK != LZ4_INDEPENDENT_BLOCKS:
            return None
        self._written.value, self._read.value = DECOMPRESSED_BATCH_SIZE_MAX, size
        left = self._decompress(self._context, target, self._to_written, address_of(stored), self._to_read, None)
        if left == 0 and self._read.value == size:
            return self._written.value
        self._reset(self._context)
        return None


class ZstdFrames:
    """A decompressor of Zstandard frames."""

    def __init__(self, library: CDLL) -> None:
        from zstandard import ZstdError, get_frame_parameters

        self._parameters, self._error = get_frame_parameters, ZstdError
        self._size_of_frame, self._is_error = library.ZSTD_findFrameCompressedSize, library.ZSTD_isError
        self._decompress = library.ZSTD_decompressDCtx
        self._context = c_void_p(library.ZSTD_createDCtx())
        finalize(self, library.ZSTD_freeDCtx, self._context)

    def expand(self, target: int, stored: memoryview) -> int | None:
        source, source_size = address_of(stored), len(stored)
        if self._size_of_frame(source, source_size) != source_size:
            return None
        try:
            frame = self._parameters(stored)
        except self._error:
            return None
        if frame.window_size > ZSTD_WINDOW_SIZE_MAX:
            return None
        size: int = self._decompress(self._context, target, DECOMPRESSED_BATCH_SIZE_MAX, source, source_size)
        return None if self._is_error(size) else size


def frames_of(codec: Codec) -> Frames | None:
    """Return a decompressor for frames of a codec. Return None if the codec has no frames that can be decompressed in
    one call, or if its library is not found."""
    library = codec_library(codec) if codec in LIBRARIES else None
    if library is None:
        return None
    return Lz4Frames(library) if codec is Codec.LZ4 else ZstdFrames(library)


@cache
def codec_library(codec: Codec) -> CDLL | None:
    """Load the library of a codec, once for all expanders, and declare the functions that are called. Returns None if
    no library has them."""
    module, system, functions = LIBRARIES[codec]
    spec = find_spec(module)
    for name in (system if spec is None or spec.origin is None else spec.origin, system):
        try:
            library = CDLL(name)
            for function, (result, *arguments) in functions.items():
                declared = getattr(library, function)
                declared.restype, declared.argtypes = result, arguments
        except (OSError, AttributeError):
            continue
        return library
    return None


def address_of(data: memoryview) -> int:
    address: int = pa.py_buffer(data).address
    return address

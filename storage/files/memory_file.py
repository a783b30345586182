"""A file whose bytes are in memory. Data that was read from remote storage is sent like data of a log directory."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.protocol.primitives import BytesLike
from moldau.storage.files.file_slice import FileSlice
from moldau.storage.files.open_files import OpenFile


class BytesInMemory:
    """The methods of `File` that are the same for all files whose bytes are in the memory of the process."""

    __slots__ = ()

    def is_cached(self, size: int, position: int) -> bool:
        return True

    def warm(self, size: int, position: int) -> None:
        """Do nothing: all bytes are in memory."""

    def begin_write_back(self, size: int, position: int) -> None:
        """Do nothing: there is no disk."""

    def evict(self) -> None:
        """Do nothing: there is no page cache behind the bytes."""

    def fileno(self) -> int | None:
        """Return None, because there is no descriptor for sendfile(2)."""
        return None

    def send(self, socket_descriptor: int, size: int, position: int) -> int:
        raise AssertionError("it has no descriptor")


class MemoryFile(BytesInMemory):
    """A read-only `File` in memory."""

    __slots__ = ("_data",)

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def pread(self, size: int, position: int) -> bytes:
        return bytes(self._data[position : position + size])

    def pread_cached(self, size: int, position: int) -> BytesLike | None:
        return self._data[position : position + size]

    def append(self, buffers: Sequence[BytesLike]) -> int:
        raise AssertionError("it is only read")

    def pwrite(self, data: BytesLike, position: int) -> None:
        raise AssertionError("it is only read")

    def truncate(self, size: int) -> None:
        raise AssertionError("it is only read")

    def sync(self) -> None:
        raise AssertionError("it is only read")

    def close(self) -> None:
        """Do nothing: no descriptor is open."""

    def release(self) -> None:
        """Do nothing: no descriptor is open."""


def memory_slice(data: memoryview) -> FileSlice:
    """A `FileSlice` over bytes in memory, so that a reply can send them like a part of a file."""
    return FileSlice(OpenFile(MemoryFile(data)), 0, len(data))

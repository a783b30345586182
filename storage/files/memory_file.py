"""Bytes in memory in the place of a file: what was read of remote storage is sent like what lies in a log directory."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.primitives import BytesLike
from storage.files.file_slice import FileSlice
from storage.files.open_file import OpenFile


class MemoryFile:
    """A `File` that is only read, and always in memory."""

    __slots__ = ("_data",)

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def pread(self, size: int, position: int) -> bytes:
        return bytes(self._data[position : position + size])

    def pread_cached(self, size: int, position: int) -> BytesLike | None:
        return self._data[position : position + size]

    def is_cached(self, size: int, position: int) -> bool:
        return True

    def warm(self, size: int, position: int) -> None:
        """It is in memory."""

    def fileno(self) -> int | None:
        """None: there is no descriptor to send from."""
        return None

    def send(self, socket_descriptor: int, size: int, position: int) -> int:
        raise AssertionError("it has no descriptor")

    def append(self, buffers: Sequence[BytesLike]) -> int:
        raise AssertionError("it is only read")

    def pwrite(self, data: BytesLike, position: int) -> None:
        raise AssertionError("it is only read")

    def truncate(self, size: int) -> None:
        raise AssertionError("it is only read")

    def sync(self) -> None:
        raise AssertionError("it is only read")

    def evict(self) -> None:
        """There is no disk behind it."""

    def close(self) -> None:
        """Nothing is open."""

    def release(self) -> None:
        """Nothing is open."""


def memory_slice(data: memoryview) -> FileSlice:
    """Bytes in memory as a place of a reply."""
    return FileSlice(OpenFile(MemoryFile(data)), 0, len(data))

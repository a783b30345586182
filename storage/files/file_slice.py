"""A part of a stored file that is read or sent later, and reads that never wait for the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.protocol.primitives import BytesLike

if TYPE_CHECKING:
    from moldau.storage.files.open_files import OpenFile
    from moldau.storage.files.port import File


class FileSlice:
    """Bytes of a .log file. The slice keeps the file open, so that a reply can hold the slice instead of the bytes."""

    __slots__ = ("open_file", "position", "size")

    def __init__(self, open_file: OpenFile, position: int, size: int) -> None:
        self.open_file = open_file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    @property
    def file(self) -> File:
        return self.open_file.file

    def read(self) -> bytes:
        """Read all bytes of the slice. Waits for the disk if they are not in the page cache. Raises OSError."""
        return self.open_file.file.pread(self.size, self.position)

    def warm(self) -> None:
        """Bring all bytes of the slice into the page cache. Waits for the disk. Raises OSError."""
        self.open_file.file.warm(self.size, self.position)


class NotCached(Exception):
    """A lookup needs bytes that are not in the page cache. The caller brings `place` into the page cache in an executor
    thread, and repeats the lookup."""

    def __init__(self, place: FileSlice) -> None:
        super().__init__()
        self.place = place


class NonBlockingReads:
    """Reads of an open file that raise `NotCached` instead of waiting for the disk."""

    __slots__ = ("_open_file",)

    def __init__(self, open_file: OpenFile) -> None:
        self._open_file = open_file

    def pread(self, size: int, position: int) -> BytesLike:
        data = self._open_file.file.pread_cached(size, position)
        if data is None:
            raise NotCached(FileSlice(self._open_file, position, size))
        return data

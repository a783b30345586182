"""An open file that several may hold, closed when the last of them lets go.

A segment, a reply on its way out and a flush in a thread may all use one descriptor. None of them may close it under
the others: a closed descriptor's number may already be another file.
"""

from __future__ import annotations

from storage.files.file_slice import CachedReads
from storage.files.port import File, Readable


class OpenFile:
    __slots__ = ("file",)

    def __init__(self, file: File) -> None:
        self.file = file

    def __del__(self) -> None:
        self.file.close()

    def reads(self, *, waits: bool) -> Readable:
        """The file, or the part of it that can be read without waiting for the disk."""
        return self.file if waits else CachedReads(self)

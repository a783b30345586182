"""An open file with several holders, closed when the last of them drops its reference.

A segment, a reply that is being sent and a flush in an executor thread may all use one descriptor. None of them may
close it while another uses it: the number of a closed descriptor may already stand for another file. Reference counting
closes the descriptor, so that the three need not coordinate.
"""

from __future__ import annotations

from moldau.storage.files.file_slice import CachedReads
from moldau.storage.files.port import File, Readable


class OpenFile:
    """Keeps a file open for as long as this object lives."""

    __slots__ = ("file",)

    def __init__(self, file: File) -> None:
        self.file = file

    def __del__(self) -> None:
        self.file.close()

    def reads(self, *, waits: bool) -> Readable:
        """The file; without `waits`, a view of it whose reads raise `NotCached` instead of waiting for the disk."""
        return self.file if waits else CachedReads(self)

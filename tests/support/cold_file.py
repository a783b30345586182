"""A file whose bytes are not in the page cache before they are warmed."""

from __future__ import annotations

from moldau.protocol.primitives import BytesLike
from moldau.storage.files.memory_file import MemoryFile


class ColdFile(MemoryFile):
    """`warm` fails with `error` if one is given."""

    def __init__(self, data: bytes, error: OSError | None = None) -> None:
        super().__init__(memoryview(data))
        self.warmed_count = 0
        self._error = error

    def pread_cached(self, size: int, position: int) -> BytesLike | None:
        return super().pread_cached(size, position) if self.warmed_count else None

    def warm(self, size: int, position: int) -> None:
        if self._error is not None:
            raise self._error
        self.warmed_count += 1

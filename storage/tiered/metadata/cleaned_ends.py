"""Counts the cleaned end offsets of the remote segments that are read, and finds the lowest one."""

from __future__ import annotations

from moldau.storage.tiered.metadata.lineage import read_lineage


class CleanedEnds:
    """The counts by cleaned end offset. The lowest one is cached, and computed again after its last segment was
    removed. A segment without a lineage was never cleaned, and counts as 0.
    """

    __slots__ = ("_counts", "_least")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._least: int | None = None

    def add(self, custom_metadata: bytes | None) -> None:
        """Count a segment with this custom metadata, which is read from now on."""
        end_offset = _end_of(custom_metadata)
        if self._least is not None:
            self._least = min(self._least, end_offset)
        elif not self._counts:
            self._least = end_offset
        self._counts[end_offset] = self._counts.get(end_offset, 0) + 1

    def remove(self, custom_metadata: bytes | None) -> None:
        """Remove a counted segment, which is not read any more."""
        end_offset = _end_of(custom_metadata)
        if self._counts[end_offset] > 1:
            self._counts[end_offset] -= 1
            return
        del self._counts[end_offset]
        if end_offset == self._least:
            self._least = None

    def least(self, default: int) -> int:
        """The lowest cleaned end offset; `default` where no segment is read."""
        if self._least is None and self._counts:
            self._least = min(self._counts)
        return default if self._least is None else self._least

    def memory_size(self) -> int:
        """Bytes, without those of the dictionary's values."""
        return self._counts.__sizeof__() + object.__sizeof__(self)


def _end_of(custom_metadata: bytes | None) -> int:
    lineage = read_lineage(custom_metadata)
    return 0 if lineage is None else lineage.cleaned_end_offset

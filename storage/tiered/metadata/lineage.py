"""The lineage of a remote segment: how far it was cleaned and erased, and which remote segments it replaces.

It is the custom metadata of the segments of compacted topics, and of those that an erase order concerned; others have
none. 30 bytes, big-endian: magic (2), generation (2), cleaned end offset (8), number of ancestors (2), digest of their
ids (16). With another magic 8 bytes follow, the erased end offset. The ids themselves are in the manifest. Decisions 14
and 36 describe their use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

FORMAT: Final = Struct(">HHqH16s")
MAGIC: Final = 0x4D01
"""The letter M and the version of this format."""
ERASED_FORMAT: Final = Struct(">HHqH16sq")
ERASED_MAGIC: Final = 0x4D02
DIGEST_SIZE: Final = 16
NO_ANCESTORS: Final = bytes(DIGEST_SIZE)
ANCESTOR_COUNT_MAX: Final = 0xFFFF


class Lineage(NamedTuple):
    """The lineage of a remote segment: the content of its custom metadata."""

    generation: int
    """How many times the records were rewritten: 0 for a segment that was copied from a local log, otherwise one more
    than the largest generation of its ancestors."""
    cleaned_end_offset: int
    """The offset (exclusive) up to which the segment is clean: no record of it below has a later record with the same
    key, except records that cleaning must keep.
    """
    ancestor_count: int = 0
    ancestor_digest: bytes = NO_ANCESTORS
    erased_end_offset: int = 0
    """The segment is erased up to this offset (exclusive): it has no record that an erase order before this offset
    names. 0 if that is not known.
    """

    def encode(self) -> bytes:
        return ERASED_FORMAT.pack(ERASED_MAGIC, *self) if self.erased_end_offset else FORMAT.pack(MAGIC, *self[:-1])


def read_lineage(custom_metadata: bytes | None) -> Lineage | None:
    """Decode the lineage in custom metadata. Returns None if there is no custom metadata, or another
    program wrote it."""
    if custom_metadata is None:
        return None
    for layout, magic in ((FORMAT, MAGIC), (ERASED_FORMAT, ERASED_MAGIC)):
        if len(custom_metadata) == layout.size:
            found, *fields = layout.unpack(custom_metadata)
            return Lineage(*fields) if found == magic else None
    return None


def erased_end_offset(custom_metadata: bytes | None) -> int:
    """The erased end offset of the lineage in custom metadata; 0 if there is no lineage."""
    lineage = read_lineage(custom_metadata)
    return 0 if lineage is None else lineage.erased_end_offset


def ancestor_digest(segment_ids: Iterable[bytes]) -> bytes:
    """The digest of segment ids (16 bytes each), whatever their order: the first half of a SHA-256."""
    return hashlib.sha256(b"".join(sorted(segment_ids))).digest()[:DIGEST_SIZE]


class CleanedEndCounts:
    """Counts the segments that are read by their cleaned end offset, to find the lowest cleaned end offset. It is
    cached until the last segment with it is removed. A segment without lineage counts as 0."""

    __slots__ = ("_counts", "_least")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._least: int | None = None

    def add(self, custom_metadata: bytes | None) -> None:
        """Count a segment with this custom metadata. Called when readers begin to read the segment."""
        end_offset = _end_of(custom_metadata)
        if self._least is not None:
            self._least = min(self._least, end_offset)
        elif not self._counts:
            self._least = end_offset
        self._counts[end_offset] = self._counts.get(end_offset, 0) + 1

    def remove(self, custom_metadata: bytes | None) -> None:
        """Stop counting a segment with this custom metadata. Called when readers stop reading the segment."""
        end_offset = _end_of(custom_metadata)
        if self._counts[end_offset] > 1:
            self._counts[end_offset] -= 1
            return
        del self._counts[end_offset]
        if end_offset == self._least:
            self._least = None

    def lowest_cleaned_end(self, default: int) -> int:
        """The lowest cleaned end offset of the counted segments; `default` if no segment is counted."""
        if self._least is None and self._counts:
            self._least = min(self._counts)
        return default if self._least is None else self._least

    def memory_size(self) -> int:
        """The memory in bytes, without the values of the dictionary."""
        return self._counts.__sizeof__() + object.__sizeof__(self)


def _end_of(custom_metadata: bytes | None) -> int:
    lineage = read_lineage(custom_metadata)
    return 0 if lineage is None else lineage.cleaned_end_offset

"""The lineage of a remote segment: how far it was cleaned, and which remote segments it replaces.

It is the custom metadata of the segments of compacted topics; those of other topics have none. 30 bytes, big-endian:
magic (2), generation (2), cleaned end offset (8), number of ancestors (2), digest of their ids (16). The ids
themselves are in the manifest. Decision 14 describes their use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

FORMAT: Final = Struct(">HHqH16s")
MAGIC: Final = 0x4D01
"""The letter M and the version of this format."""
DIGEST_SIZE: Final = 16
NO_ANCESTORS: Final = bytes(DIGEST_SIZE)
ANCESTOR_COUNT_MAX: Final = 0xFFFF


class Lineage(NamedTuple):
    """The content of the custom metadata of a segment."""

    generation: int
    """0 for a segment that was copied from a local log; one more than the latest of its ancestors otherwise."""
    cleaned_end_offset: int
    """Exclusive: no record here has a later value of its key below this offset, except what cleaning must keep."""
    ancestor_count: int = 0
    ancestor_digest: bytes = NO_ANCESTORS

    def encode(self) -> bytes:
        return FORMAT.pack(MAGIC, *self)


def read_lineage(custom_metadata: bytes | None) -> Lineage | None:
    """Decode the lineage in custom metadata; None where there is none, or another program wrote it."""
    if custom_metadata is None or len(custom_metadata) != FORMAT.size:
        return None
    magic, *fields = FORMAT.unpack(custom_metadata)
    return Lineage(*fields) if magic == MAGIC else None


def ancestor_digest(segment_ids: Iterable[bytes]) -> bytes:
    """The digest of some segment ids (16 bytes each), in any order: the first half of a SHA-256."""
    return hashlib.sha256(b"".join(sorted(segment_ids))).digest()[:DIGEST_SIZE]

"""The records of a batch in runs of whole records, each as large as a piece of what the batch expands to.

However far a batch expands, no more than a piece and the record that goes past its end are held. For batches that are
too large to be held, or walked in one go, by somebody who has other things to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocol.compression import DecompressedSizeExceeded, expand
from protocol.primitives import BytesLike, MalformedMessage
from protocol.record_batch import HEADER_SIZE, BatchHeader
from protocol.record_walk import OFFSETS_DIFFER, walk_records, whole_records

RECORD_SIZE_MAX = 16 << 20
"""A compressed record may expand to this much, or to what a whole batch of its topic may have."""


def record_runs(pieces: Iterable[BytesLike], count: int, record_size_max: int) -> Iterator[tuple[bytes, int]]:
    """Runs of whole records, each with their count, `count` in all.

    What does not end with a whole record, or is no record, comes as the last run with the count that is missing: it is
    for the reader to refuse. Raises `DecompressedSizeExceeded` for a record past `record_size_max`.
    """
    held = bytearray()
    wanted = 0
    for piece in pieces:
        held += piece
        if len(held) < wanted:
            if len(held) > record_size_max:
                raise DecompressedSizeExceeded(f"a record of {wanted} bytes expands past {record_size_max}")
            continue
        if not count:
            break
        window = bytes(held)
        found, size, wanted = whole_records(window, count)
        if found:
            yield window[:size], found
            count -= found
            del held[:size]
    if held or count:
        yield bytes(held), count


def walk_batch(batch: BytesLike, header: BatchHeader, *, size_max: int, record_size_max: int) -> tuple[int, int, int]:
    """What `walk_records` says of all the records of a batch, or of those up to the first offset that is wrong."""
    stored = memoryview(batch)[HEADER_SIZE : header.size]
    flags = 0
    low, high = (1 << 63) - 1, -(1 << 63)
    first = 0
    for run, count in record_runs(
        expand(header.codec, stored, size_max=size_max), header.records_count, record_size_max
    ):
        if count <= 0:
            raise MalformedMessage(f"{len(run)} bytes after the records of the batch")
        run_flags, run_low, run_high = walk_records(run, 0, len(run), count, first)
        flags |= run_flags
        low = min(low, run_low)
        high = max(high, run_high)
        first += count
        if flags & OFFSETS_DIFFER:
            break  # nobody takes such a batch
    return flags, low, high

"""The records of a compressed batch in runs of whole records, decompressed piece by piece.

At most one piece, and the record that crosses its end, are in memory at a time, however large the decompressed batch
is. Executor threads read large batches in this way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moldau.protocol.compression import RecordSizeExceeded, expand
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import (
    HEADER_SIZE,
    OFFSETS_DIFFER,
    BatchHeader,
    largest_record,
    read_raw_varint,
    walk_records,
    whole_records,
)

RECORD_SIZE_MAX = 16 << 20
"""The most bytes of a decompressed record from a producer, if `max.decompressed.message.bytes` has its default and the
topic does not allow larger batches."""
RECORD_SIZE_UNLIMITED = (1 << 31) - 9
"""The default of `max.decompressed.message.bytes`, which Apache Kafka treats as no limit."""


def record_runs(pieces: Iterable[BytesLike], count: int, record_size_max: int) -> Iterator[tuple[bytes, int]]:
    """Split the decompressed records of a batch into runs of whole records. Yields each run with its number of records.

    `count` is the number of records in the header of the batch. If the bytes are not exactly `count` whole records, the
    last run has the bytes that are left over, with the number of records that are missing; that number is 0 if there
    are too many bytes. The caller must refuse such a run. Raises `RecordSizeExceeded` for a record of more than
    `record_size_max` bytes.
    """
    held = bytearray()
    wanted = 0
    for piece in pieces:
        held += piece
        if len(held) < wanted:
            continue
        if not count:
            break
        window = bytes(held)
        found, size, wanted = whole_records(window, count)
        if wanted > record_size_max:
            refuse_large_record(read_raw_varint(window, size)[0] >> 1, record_size_max)
        if found:
            if size > record_size_max:
                refuse_large_record(largest_record(window, found), record_size_max)
            yield window[:size], found
            count -= found
            del held[:size]
    if held or count:
        yield bytes(held), count


def refuse_large_record(size: int, record_size_max: int) -> None:
    """Raise `RecordSizeExceeded` if the size of a record is above the limit."""
    if size > record_size_max:
        raise RecordSizeExceeded(
            f"a record of {size} bytes is above max.decompressed.message.bytes ({record_size_max})"
        )


def walk_batch(batch: BytesLike, header: BatchHeader, *, size_max: int, record_size_max: int) -> tuple[int, int, int]:
    """Check the framing of the records of a batch, run by run. Returns the result of `walk_records` for the whole
    batch. The check ends early at a wrong offset delta (`OFFSETS_DIFFER`), and then the result is that of the runs up
    to it."""
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
            break  # The batch is refused in any case.
    return flags, low, high

"""Prepares the copy of a segment: checks its batches, describes the segment for the metadata, and makes the contents of
its objects.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final, NamedTuple

from moldau.broker.runtime.environment import Environment
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import MAGIC
from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.checkpoints.text_checkpoint import format_checkpoint
from moldau.storage.files.file_slice import FileSlice
from moldau.storage.files.log_paths import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from moldau.storage.files.open_files import OpenFile
from moldau.storage.files.port import FileSystem
from moldau.storage.log.log import Log
from moldau.storage.producers.producer_snapshot import CorruptSnapshot, decode_snapshot
from moldau.storage.segment.batch_scan import DamagedBatch
from moldau.storage.segment.segment import Segment
from moldau.storage.segment.transaction_index import ENTRY as TRANSACTION_ENTRY
from moldau.storage.segment.transaction_index import VERSION as TRANSACTION_VERSION
from moldau.storage.tiered.batch_check import PIECE_SIZE, SegmentBatchCheck, offset_index_problem, time_index_problem
from moldau.storage.tiered.layout import ObjectKind
from moldau.storage.tiered.metadata.lineage import Lineage
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment
from moldau.storage.tiered.port import Content
from moldau.storage.tiered.segment_copy import FileContent

logger = logging.getLogger("moldau.tiering")

PIECES_OF_A_STEP: Final = 32
"""The maximum number of pieces that one call in an executor thread checks, so that other work of the threads can run in
between.
"""


class CannotCopy(Exception):
    """A segment cannot be copied, because a part of it is missing or damaged."""


class DamagedSegment(CannotCopy):
    """A batch of the segment is damaged. The copy must not replace the sound segments of other replicas."""


class CheckedSegment(NamedTuple):
    """The results of the check of a segment, whose batches are all sound."""

    open_file: OpenFile | None
    """The .log file, which stays open even if retention deletes the segment; None for a segment without bytes."""
    crc: int
    """The CRC-32C of the .log file."""
    offset_index: bytes
    time_index: bytes
    max_timestamp: int
    """The largest timestamp (ms) of the records. If no record has one, the time at which the .log file was last
    changed.
    """


class CopyableSegment(NamedTuple):
    """A rolled segment, and the base offset of the segment after it."""

    segment: Segment
    end_offset: int


def copy_limit(log: Log, last_stable_offset: int) -> int:
    """The offset (exclusive) up to which the segments of a log may be copied. Pending erase orders limit it.

    For a compacted log it is at most the end of the clean part. So the records that the first cleaning removes are
    never uploaded, and the local log has all keys of the dirty part.
    """
    limit = min(last_stable_offset, log.erase_orders.copy_end_offset)
    return min(limit, log.first_dirty_offset or 0) if log.config.is_compacted else limit


def copyable_segments(log: Log, from_offset: int, last_stable_offset: int) -> list[CopyableSegment]:
    """The segments that may be copied, oldest first: rolled, wholly below the last stable offset, and with an offset at
    or past `from_offset`.

    A segment of which only a part is copied is copied again, whole. A segment that cleaning left empty is copied as
    well, because a gap between remote segments would stop a consumer.
    """
    pairs = zip(log.segments, log.segments[1:], strict=False)
    return [
        CopyableSegment(segment, later.base_offset)
        for segment, later in pairs
        if (segment.size or log.config.is_compacted) and from_offset < later.base_offset <= last_stable_offset
    ]


def is_due(log: Log, found: CopyableSegment, now_ms: int) -> bool:
    """Whether a segment is to be copied now: it is as old as remote.copy.lag.ms requires, or followed by as many bytes
    as remote.copy.lag.bytes requires. A segment whose timestamps are in the future is copied, too.
    """
    config = log.config
    if 0 in (config.remote_copy_lag_ms, config.remote_copy_lag_bytes):
        return True
    if config.remote_copy_lag_ms > 0:
        age_ms = now_ms - largest_timestamp(log, found.segment)
        if age_ms < 0 or age_ms >= config.remote_copy_lag_ms:
            return True
    if config.remote_copy_lag_bytes < 0:
        return False
    newer_size = sum(each.size for each in log.segments if each.base_offset >= found.end_offset)
    return newer_size >= config.remote_copy_lag_bytes


def largest_timestamp(log: Log, segment: Segment) -> int:
    """The largest timestamp (ms) of a segment's records. If no record has one, the time at which the .log file was last
    written.
    """
    return segment.max_timestamp if segment.max_timestamp >= 0 else log.fs.modified_ms(segment.path(LOG_SUFFIX))


async def check_segment(log: Log, found: CopyableSegment, environment: Environment) -> CheckedSegment:
    """Check every batch of a segment before it is copied, in executor threads.

    The indexes of the copy are made from the checked batches, so that damage of the local index files is not copied.
    The local index files are not changed. Raises `DamagedSegment`, `CannotCopy` and OSError.
    """
    segment, config = found.segment, log.config
    await environment.offload(partial(_refuse_old_format, segment))
    base_offset, size = segment.base_offset, segment.size
    check = SegmentBatchCheck(
        base_offset, found.end_offset, size, segment.index_interval_bytes, config.segment_index_bytes
    )
    open_file = segment.slice(0, size).open_file if size else None
    try:
        while open_file is not None and check.read_size < size:
            await environment.offload(partial(_check_some, check, open_file, size))
        check.check_complete()
    except DamagedBatch as damage:
        raise DamagedSegment(f"{segment.path(LOG_SUFFIX)}: {damage}, offset {check.next_offset}") from None
    await environment.offload(partial(_tell_bad_indexes, log.fs, segment, found.end_offset - 1 - base_offset, size))
    max_timestamp = check.max_timestamp
    if max_timestamp < 0:
        max_timestamp = log.fs.modified_ms(segment.path(LOG_SUFFIX))
    return CheckedSegment(open_file, check.crc, check.offset_index, check.time_index, max_timestamp)


def _refuse_old_format(segment: Segment) -> None:
    """Raise `CannotCopy` if a segment begins with messages of format 0 or 1. Raises OSError, too.

    Such messages have no leader epochs, by which remote segments are found. Apache Kafka cannot copy them either. A
    damaged segment is left to the check of its batches.
    """
    try:
        first = next((header for _, header in segment.headers()), None)
    except MalformedMessage:
        return  # The check tells what is wrong.
    if first is not None and first.magic != MAGIC:
        raise CannotCopy(
            f"{segment.path(LOG_SUFFIX)} has messages of format {first.magic}, which have no leader epochs: it stays"
            " here, and the segments after it too, until DeleteRecords moves the log start offset past it"
        )


def _check_some(check: SegmentBatchCheck, open_file: OpenFile, size: int) -> None:
    """Check the next pieces of a .log file. Blocks. Raises `DamagedBatch` and OSError."""
    for _ in range(PIECES_OF_A_STEP):
        wanted = min(PIECE_SIZE, size - check.read_size)
        if not wanted:
            break
        piece = open_file.file.pread(wanted, check.read_size)
        if not piece:
            raise DamagedBatch(check.read_size, f"the file ends before its size of {size},")
        check.add_piece(piece)


def _tell_bad_indexes(fs: FileSystem, segment: Segment, last_offset_delta: int, size: int) -> None:
    """Log which local index files of a segment are damaged. Blocks."""
    problems = {
        OFFSET_INDEX_SUFFIX: partial(offset_index_problem, last_offset_delta=last_offset_delta, size=size),
        TIME_INDEX_SUFFIX: partial(time_index_problem, last_offset_delta=last_offset_delta),
    }
    for suffix, problem_of in problems.items():
        path = segment.path(suffix)
        try:
            problem = problem_of(bytes(fs.read(path)))
        except OSError as error:
            problem = str(error)
        if problem is not None:
            logger.warning("%s: %s. Its remote copy is made from the batches; the file stays as it is", path, problem)


def describe_segment(
    log: Log, found: CopyableSegment, segment_id: bytes, broker_id: int, now_ms: int, max_timestamp: int
) -> RemoteSegment:
    """The metadata of a segment whose copy begins. The log start offset may lie inside of the segment. Then the log has
    no leader epochs before it, and the first epoch begins at the log start offset, as in Apache Kafka: no reader
    requests an earlier offset. Raises OSError and `CannotCopy`.
    """
    segment = found.segment
    entries = log.epochs.entries
    epochs = [
        EpochStart(epoch, max(start, segment.base_offset))
        for slot, (epoch, start) in enumerate(entries)
        if start < found.end_offset
        and (slot + 1 == len(entries) or entries[slot + 1].start_offset > segment.base_offset)
    ]
    if not epochs or epochs[0].start_offset > max(segment.base_offset, log.log_start_offset):
        raise CannotCopy(f"the leader epoch of offset {segment.base_offset} is not known")
    return RemoteSegment(
        segment_id,
        segment.base_offset,
        found.end_offset - 1,
        broker_id,
        max_timestamp,
        now_ms,
        tuple(epochs),
        segment.size,
        custom_metadata=_lineage(log),
        has_transaction_index=bool(segment.transaction_index.entries()),
    )


def _lineage(log: Log) -> bytes | None:
    """The custom metadata of a copy, its lineage; None if the log is not compacted and has carried out no erase
    order.
    """
    erased_end_offset = log.erase_orders.erased_end_offset
    if not log.config.is_compacted and not erased_end_offset:
        return None
    cleaned_end_offset = log.first_dirty_offset or 0 if log.config.is_compacted else 0
    return Lineage(0, cleaned_end_offset, erased_end_offset=erased_end_offset).encode()


async def contents_of(
    log: Log, found: CopyableSegment, checked_segment: CheckedSegment, environment: Environment
) -> dict[ObjectKind, Content]:
    """The contents of the objects of a copied segment. Raises OSError and `CannotCopy`."""
    segment, size, open_file = found.segment, found.segment.size, checked_segment.open_file
    if found.end_offset not in log.snapshots.offsets:
        raise CannotCopy(f"there is no producer snapshot at offset {found.end_offset}")
    contents: dict[ObjectKind, Content] = {
        ObjectKind.LOG: b"",
        ObjectKind.OFFSET_INDEX: checked_segment.offset_index,
        ObjectKind.TIME_INDEX: checked_segment.time_index,
        ObjectKind.LEADER_EPOCHS: format_checkpoint(
            [f"{epoch} {start}" for epoch, start in log.epochs.entries if start < found.end_offset]
        ),
    }
    if open_file is not None:
        file = open_file

        async def read(size: int, position: int) -> bytes:
            return await environment.offload(FileSlice(file, position, size).read)

        contents[ObjectKind.LOG] = FileContent(read, size)
    aborted = segment.transaction_index.entries()
    if aborted:
        entries = [TRANSACTION_ENTRY.pack(TRANSACTION_VERSION, *each) for each in aborted]
        contents[ObjectKind.TRANSACTION_INDEX] = b"".join(entries)
    path = log.snapshots.path(found.end_offset)
    contents[ObjectKind.PRODUCER_SNAPSHOT] = data = bytes(await environment.offload(partial(log.fs.read, path)))
    check_snapshot(data, path)
    return contents


def check_snapshot(data: bytes, path: str) -> None:
    """Raise `CannotCopy` if a producer snapshot is damaged: by a crash before it was synced, or by the disk."""
    try:
        decode_snapshot(data)
    except CorruptSnapshot as error:
        raise CannotCopy(f"{path}: {error}") from None

"""The contents of a copied segment: its description for the metadata, and its objects."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from broker.runtime.environment import Environment
from storage.checkpoints.leader_epochs import EpochStart
from storage.checkpoints.text_checkpoint import format_checkpoint
from storage.files.file_slice import FileSlice
from storage.files.log_paths import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from storage.log.log import Log
from storage.producers.producer_snapshot import CorruptSnapshot, decode_snapshot
from storage.segment.segment import Segment
from storage.segment.transaction_index import ENTRY as TRANSACTION_ENTRY
from storage.segment.transaction_index import VERSION as TRANSACTION_VERSION
from storage.tiered.layout import ObjectKind
from storage.tiered.metadata.lineage import Lineage
from storage.tiered.metadata.remote_segment import RemoteSegment
from storage.tiered.port import Content
from storage.tiered.segment_copy import FileContent


class CannotCopy(Exception):
    """A part of the copy of a segment is missing."""


class Copyable(NamedTuple):
    """A rolled segment, and the base offset of the next one."""

    segment: Segment
    end_offset: int


def copy_limit(log: Log, last_stable_offset: int) -> int:
    """The offset (exclusive) up to which segments are copied.

    For a compacted log it is the end of the clean part: records that the first cleaning removes are then never
    uploaded, and the keys of the dirty part are in the local log.
    """
    return min(last_stable_offset, log.first_dirty_offset or 0) if log.config.is_compacted else last_stable_offset


def copyable(log: Log, from_offset: int, last_stable_offset: int) -> list[Copyable]:
    """The segments to copy, oldest first: rolled, wholly below the last stable offset, with an offset at or past
    `from_offset`.

    A segment that is copied in part is copied again, whole. A segment that cleaning left empty is copied as well,
    because a gap between remote segments would stop a consumer.
    """
    pairs = zip(log.segments, log.segments[1:], strict=False)
    return [
        Copyable(segment, later.base_offset)
        for segment, later in pairs
        if (segment.size or log.config.is_compacted) and from_offset < later.base_offset <= last_stable_offset
    ]


def described(log: Log, found: Copyable, segment_id: bytes, broker_id: int, now_ms: int) -> RemoteSegment:
    """The metadata of a copy that begins. Where the log start lies inside of the segment, the log has forgotten the
    leader epochs before it, and the first epoch begins at the log start, as in Apache Kafka: no reader requests an
    earlier offset. Raises OSError and `CannotCopy`.
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
        segment.largest_timestamp(),
        now_ms,
        tuple(epochs),
        segment.size,
        custom_metadata=Lineage(0, log.first_dirty_offset or 0).encode() if log.config.is_compacted else None,
        has_transaction_index=bool(segment.transaction_index.entries()),
    )


async def contents_of(log: Log, found: Copyable, environment: Environment) -> dict[ObjectKind, Content]:
    """The contents of the objects. The file of the segment stays open as long as its content is held, also where
    retention deletes the segment meanwhile. Raises OSError and `CannotCopy`.
    """
    segment, fs = found.segment, log.fs
    segment.offset_index.entries.write_pending()
    segment.time_index.entries.write_pending()
    if found.end_offset not in log.snapshots.offsets:
        raise CannotCopy(f"there is no producer snapshot at offset {found.end_offset}")
    file = segment.slice(0, segment.size).open_file

    async def read(size: int, position: int) -> bytes:
        return await environment.offload(FileSlice(file, position, size).read)

    contents: dict[ObjectKind, Content] = {
        ObjectKind.LOG: FileContent(read, segment.size) if segment.size else b"",
        ObjectKind.LEADER_EPOCHS: format_checkpoint(
            [f"{epoch} {start}" for epoch, start in log.epochs.entries if start < found.end_offset]
        ),
    }
    aborted = segment.transaction_index.entries()
    if aborted:
        entries = [TRANSACTION_ENTRY.pack(TRANSACTION_VERSION, *each) for each in aborted]
        contents[ObjectKind.TRANSACTION_INDEX] = b"".join(entries)
    paths = {
        ObjectKind.OFFSET_INDEX: segment.path(OFFSET_INDEX_SUFFIX),
        ObjectKind.TIME_INDEX: segment.path(TIME_INDEX_SUFFIX),
        ObjectKind.PRODUCER_SNAPSHOT: log.snapshots.path(found.end_offset),
    }
    for kind, path in paths.items():
        contents[kind] = data = bytes(await environment.offload(partial(fs.read, path)))
        if kind is ObjectKind.PRODUCER_SNAPSHOT:
            check_snapshot(data, path)
    return contents


def check_snapshot(data: bytes, path: str) -> None:
    """Raises `CannotCopy`: a crash tore a snapshot that was not synced, or the disk has damaged it."""
    try:
        decode_snapshot(data)
    except CorruptSnapshot as error:
        raise CannotCopy(f"{path}: {error}") from None

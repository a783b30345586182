"""Finds the last stable offset of a partition from its files.

The newest producer snapshot at or below the high watermark says which transactions were open at its offset. The batch
headers from this offset to the high watermark show which transactions began and ended since. As on a broker, a
transaction whose marker is past the high watermark is open.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.protocol.primitives import MalformedMessage
from moldau.storage.files.log_paths import SNAPSHOT_SUFFIX, offset_name, offset_of_name
from moldau.storage.files.port import FileSystem
from moldau.storage.producers.producer_snapshot import CorruptSnapshot, decode_snapshot
from moldau.storage.producers.producer_state import read_transaction_marker
from moldau.storage.segment.batch_scan import iterate_batch_headers
from moldau.storage.segment.segment_listing import ListedSegment, locate_batch
from moldau.tables.origins.port import StoredSegment


def last_stable_offset(
    fs: FileSystem, directory: str, segments: Sequence[StoredSegment], log_start_offset: int, high_watermark: int
) -> int:
    """The last stable offset, at least the log start offset and at most the high watermark. Raises OSError and
    `MalformedMessage`."""
    if not segments:
        return high_watermark
    position, opened = newest_snapshot(fs, directory, segments[0].start_offset, high_watermark)
    for segment in segments:
        if segment.start_offset < high_watermark and segment.end_offset > position:
            follow_transactions(fs, directory, segment, position, high_watermark, opened)
    return max(log_start_offset, min([*opened.values(), high_watermark]))


def newest_snapshot(
    fs: FileSystem, directory: str, first_offset: int, high_watermark: int
) -> tuple[int, dict[int, int]]:
    """Read the newest producer snapshot. Returns its offset, and the first offset of the open transaction of each
    producer id that has one.

    If no snapshot is between `first_offset` and the high watermark, returns `first_offset` and no transactions: a
    transaction that began before it has no record in these files.
    """
    names = [name for name in fs.list_directory(directory) if name.endswith(SNAPSHOT_SUFFIX)]
    for offset in sorted((offset_of_name(name) for name in names), reverse=True):
        if not first_offset <= offset <= high_watermark:
            continue
        try:
            entries = decode_snapshot(fs.read(f"{directory}/{offset_name(offset, SNAPSHOT_SUFFIX)}"))
        # The snapshot was torn by a crash, or removed in the meantime: an older one is used.
        except (CorruptSnapshot, FileNotFoundError):
            continue
        opened = {each.producer_id: each.open_transaction_offset for each in entries}
        return offset, {producer_id: offset for producer_id, offset in opened.items() if offset >= 0}
    return first_offset, {}


def follow_transactions(
    fs: FileSystem, directory: str, segment: StoredSegment, start: int, end: int, opened: dict[int, int]
) -> None:
    """Read the transactional batches and markers with offsets in [start, end) of a segment, and apply them to `opened`,
    the first offset of the open transaction of each producer id."""
    listed = ListedSegment(directory, segment.start_offset, segment.size, segment.end_offset)
    place = locate_batch(fs, listed, start) if start > segment.start_offset else None
    if start > segment.start_offset and place is None:
        return
    file = fs.open(segment.name, read_only=True)
    try:
        for _, header in iterate_batch_headers(file, place.position if place else 0, segment.size):
            if header.base_offset >= end:
                return
            if not header.is_transactional or header.base_offset < start:
                continue
            if header.is_control:
                opened.pop(header.producer_id, None)
            else:
                opened.setdefault(header.producer_id, header.base_offset)
    finally:
        file.close()


def is_abort(batch: bytes) -> bool:
    """Whether a control batch aborts a transaction; False if its record cannot be read."""
    try:
        marker = read_transaction_marker(batch)
    except MalformedMessage:
        return False
    return marker is not None and not marker.is_commit

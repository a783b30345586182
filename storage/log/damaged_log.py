"""Finding the first bad batch of a damaged log, and setting aside everything from that batch's segment on.

No file is truncated. The files are moved as they are into a directory of their own, which Kafka calls stray: it is kept
for the operator, and no broker serves it. The newest segments are moved first, so that a crash at any step leaves the
beginning of a log without a gap.
"""

from __future__ import annotations

from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.files.file_slice import FileSlice
from moldau.storage.files.log_paths import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    begins_with_offset,
    offset_name,
    offset_of_name,
)
from moldau.storage.files.port import FileSystem
from moldau.storage.segment.batch_scan import DamagedBatch, FilePieces, iterate_batch_places, verified_batch


class Damage(NamedTuple):
    """The first damaged batch of a log: its stored bytes are not those that were written."""

    segment_base_offset: int
    reason: str
    """A sentence with the path and the position, for the operator."""


def find_damage(fs: FileSystem, directory: str) -> Damage | None:
    """Read a whole log and check that every batch is complete, has a valid checksum and is in order.

    Returns the first damage; None if there is none. Blocks for as long as the disk takes. Raises OSError.
    """
    names = [name for name in fs.list_directory(directory) if name.endswith(LOG_SUFFIX) and begins_with_offset(name)]
    bases = sorted(map(offset_of_name, names))
    next_offset = 0
    for base in bases:
        path = f"{directory}/{offset_name(base, LOG_SUFFIX)}"
        file = fs.open(path, read_only=True)
        try:
            file.evict()  # The check reads the bytes on the disk, not those in the page cache.
            position, size = 0, file.size()
            pieces = FilePieces(file, 0, size)
            while position < size:
                header, _ = verified_batch(pieces, position)
                if header.base_offset < max(next_offset, base) or header.last_offset_delta < 0:
                    return Damage(base, f"{path}: offset {header.base_offset} at position {position}")
                next_offset = header.base_offset + header.last_offset_delta + 1
                position += header.size
        except DamagedBatch as damage:
            return Damage(base, f"{path}: {damage}")
        finally:
            file.close()
    return None


def damage_of(place: FileSlice) -> str | None:
    """Return a description of the first bad batch in a part of a .log file; None if all batches are good.

    A batch that is cut short at the end of the part counts as good. Reads piece by piece. Raises OSError.
    """
    end_position = place.position + place.size
    pieces = FilePieces(place.file, place.position, end_position)
    try:
        for batch in iterate_batch_places(place.file, place.position, end_position):
            verified_batch(pieces, batch.position)
    except (DamagedBatch, MalformedMessage) as damage:
        return str(damage)
    return None


def move_segments_aside(fs: FileSystem, directory: str, aside: str, base_offset: int) -> None:
    """Move the segments that begin at or past `base_offset`, and the producer snapshots past it, into the existing
    directory `aside`. Raises OSError."""
    moved = [name for name in fs.list_directory(directory) if _is_set_aside(name, base_offset)]
    _move(fs, directory, aside, moved)


def move_log_aside(fs: FileSystem, directory: str, aside: str) -> None:
    """Move all files of a log, also those with the topic id and the leader epochs, into the existing directory `aside`.
    Raises OSError."""
    _move(fs, directory, aside, fs.list_directory(directory))


def _is_set_aside(name: str, base_offset: int) -> bool:
    if not begins_with_offset(name):
        return False
    if name.endswith(SNAPSHOT_SUFFIX):
        return offset_of_name(name) > base_offset
    return name.endswith(tuple(SEGMENT_SUFFIXES)) and offset_of_name(name) >= base_offset


def _move(fs: FileSystem, directory: str, aside: str, names: list[str]) -> None:
    for name in sorted(names, reverse=True):
        fs.rename(f"{directory}/{name}", f"{aside}/{name}")
    fs.sync_directory(aside)
    fs.sync_directory(directory)

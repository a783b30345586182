"""A log of which a part is damaged: finding the first bad batch, and setting aside everything from its segment on.

Nothing is cut. The files are moved as they are into a directory of their own, which Kafka calls stray: it is kept, and
no broker serves it. The last segments go first, so that a crash at any step leaves the beginning of a log.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.primitives import MalformedMessage
from storage.files.file_slice import FileSlice
from storage.files.port import FileSystem
from storage.log.log_paths import LOG_SUFFIX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, offset_name, offset_of_name
from storage.log.recovery import DamagedBatch, Pieces, verified_batch
from storage.segment.batch_scan import walk_places


class Damage(NamedTuple):
    """The first batch of a log that is not what was written."""

    segment_base_offset: int
    reason: str


def find_damage(fs: FileSystem, directory: str) -> Damage | None:
    """Check every batch of a log: whole, with its checksum, and in order. Reads all of it. Raises OSError."""
    bases = sorted(offset_of_name(name) for name in fs.list_directory(directory) if name.endswith(LOG_SUFFIX))
    next_offset = 0
    for base in bases:
        path = f"{directory}/{offset_name(base, LOG_SUFFIX)}"
        file = fs.open(path, read_only=True)
        try:
            file.evict()  # what the disk holds counts, not what was read of it before
            position, size = 0, file.size()
            pieces = Pieces(file, 0, size)
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
    """What is wrong with the first bad batch of a stretch, read piece by piece; a batch cut short at its end is none.

    Raises OSError.
    """
    end_position = place.position + place.size
    pieces = Pieces(place.file, place.position, end_position)
    try:
        for batch in walk_places(place.file, place.position, end_position):
            verified_batch(pieces, batch.position)
    except (DamagedBatch, MalformedMessage) as damage:
        return str(damage)
    return None


def set_aside_from(fs: FileSystem, directory: str, aside: str, base_offset: int) -> None:
    """Move the segments that begin at or past an offset, and the snapshots past it, into an existing directory. Raises
    OSError."""
    moved = [name for name in fs.list_directory(directory) if _goes(name, base_offset)]
    _move(fs, directory, aside, moved)


def set_all_aside(fs: FileSystem, directory: str, aside: str) -> None:
    """Also what says whose log it is and its leader epochs. Raises OSError."""
    _move(fs, directory, aside, fs.list_directory(directory))


def _goes(name: str, base_offset: int) -> bool:
    if name.endswith(SNAPSHOT_SUFFIX):
        return offset_of_name(name) > base_offset
    return name.endswith(tuple(SEGMENT_SUFFIXES)) and offset_of_name(name) >= base_offset


def _move(fs: FileSystem, directory: str, aside: str, names: list[str]) -> None:
    for name in sorted(names, reverse=True):
        fs.rename(f"{directory}/{name}", f"{aside}/{name}")
    fs.sync_directory(aside)
    fs.sync_directory(directory)

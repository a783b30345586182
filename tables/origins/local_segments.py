"""Opens a listed .log file in a task, even if the file was renamed since it was listed."""

from __future__ import annotations

from typing import NamedTuple

from moldau.storage.files.local_files import LocalFiles
from moldau.storage.files.log_paths import DELETED_SUFFIX, LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from moldau.storage.files.port import File, FileStamp
from moldau.storage.segment.sparse_index import OffsetIndex, TimeIndex
from moldau.tables.origins.port import Slice, StoredSegment
from moldau.tables.refusals import DataLost, SegmentReplaced


class LocalSegments(NamedTuple):
    """The `SegmentSource` for log directories on a file system that the driver and the tasks can both read. Tasks open
    the files by the same paths as the driver."""

    def open(self, wanted: Slice) -> File:
        """Open the .log file of a slice that was listed, under its name or with the suffix `.deleted`. Retention and
        compaction give a file this suffix, and remove it a minute later.

        Raises `SegmentReplaced` if other files have these names, and `DataLost` if no file has.
        """
        files = LocalFiles()
        segment = wanted.segment
        is_there = False
        for path in (segment.name, segment.name + DELETED_SUFFIX):
            try:
                file = files.open(path, read_only=True)
            except FileNotFoundError:
                continue
            if is_same_file(file.stamp(), segment):
                return file
            file.close()
            is_there = True
        if is_there:
            raise SegmentReplaced(f"{wanted}: another file replaced {segment.name} after the read was planned")
        raise DataLost(f"{wanted}: {segment.name} was deleted after the read was planned")


def is_same_file(now: FileStamp, segment: StoredSegment) -> bool:
    """Whether a file with the attributes `now` is still the file that was listed, by its inode, size and modification
    time. Compaction may put another file of equal size under the same name.

    Appends change the size and the time of a growing segment, so only its inode is compared, and the size must not be
    smaller.
    """
    listed = segment.stamp
    if segment.is_growing:
        return now.size >= segment.size and (listed is None or now.inode == listed.inode)
    return now.size == segment.size if listed is None else now == listed


def damage_at_end(segment: StoredSegment, last_offset: int) -> str | None:
    """Look for batches that the indexes of a sealed .log file name and the file does not have. Returns a description of
    the loss; None if there is none. In a log with gaps no other check finds such a loss.

    `last_offset`: the last offset of the last batch, below 0 if there is no batch. If the file has been replaced
    meanwhile the result is None, because the indexes are those of another file.
    """
    if segment.is_growing or segment.stamp is None:
        return None
    files, stem = LocalFiles(), segment.name.removesuffix(LOG_SUFFIX)
    named_offset = named_position = -1
    try:
        if files.exists(stem + OFFSET_INDEX_SUFFIX):
            index = OffsetIndex(files, stem + OFFSET_INDEX_SUFFIX, segment.batches_start, read_only=True)
            named_position = index.last_position() if index.entries.count else -1
        if files.exists(stem + TIME_INDEX_SUFFIX):
            times = TimeIndex(files, stem + TIME_INDEX_SUFFIX, segment.batches_start, read_only=True)
            named_offset = times.last_entry()[1] if times.entries.count else -1
        if files.stamp(segment.name) != segment.stamp:
            return None
    except FileNotFoundError:
        return None
    if named_position < segment.size and named_offset <= last_offset:
        return None
    return f"{segment.name} ends after offset {last_offset}, and its indexes name later batches"

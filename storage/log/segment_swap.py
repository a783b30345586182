"""Swapping in cleaned segments for the segments from which they were cleaned.

A worker has written and synced the cleaned segment under names that end in `.cleaned`. The swap renames files on the
event loop, and does not wait for the disk:

| step | what is renamed                              | what the next start does after a crash within the step       |
|------|----------------------------------------------|--------------------------------------------------------------|
| 1    | `.cleaned` to `.swap`                        | as long as one of them is `.cleaned` all of them are removed |
| 2    | the replaced files, oldest segment first, to | the `.swap` files take their names; replaced segments behind |
|      | `.deleted`                                   | the last batch of the cleaned one may stay as they were      |
| 3    | `.swap` to the final name, the .log first    | the rest gets its final name                                 |

After a loss of power the renames up to some step are durable, in their order. A replaced segment that stays beside the
cleaned one is harmless: for every dropped record the log still has the later record of its key, and a tombstone is
dropped only if no older record of its key is left. For the same reason segments are cleaned and swapped from the oldest
on, and a segment that cannot be swapped ends the cleaning.

Two more steps have an order on the disk. Before the swap, a recovery point at or past the end of the replaced segments
must be durable, because recovery takes a gap past the recovery point for a loss. After the swap, the directory must be
synced before the checkpoint of the clean part is written.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

from moldau.protocol.late_tuple import NamedTuple
from moldau.storage.files.log_paths import CLEANED_SUFFIX, SWAP_SUFFIX, offset_name
from moldau.storage.files.port import FileSystem
from moldau.storage.log.log_start import rename_deleted
from moldau.storage.log.log_state import LogState
from moldau.storage.segment.segment import Segment

_base_offset = attrgetter("base_offset")


class SegmentSize(NamedTuple):
    """A segment by its first offset and the bytes of its .log file."""

    base_offset: int
    size: int


class SegmentCleaned(NamedTuple):
    """An event: a cleaned segment is written and synced, and can be swapped in."""

    directory: str
    truncation_count: int
    """The truncation count of the log at the time of the request. The swap refuses the segment if the count has
    changed."""
    replaced: tuple[SegmentSize, ...]
    """The segments from which this one was cleaned. It has the base offset of the first of them."""
    replaced_end_offset: int
    """The base offset of the segment after the replaced ones."""
    previous_segment: SegmentSize | None
    """The segment before this one in the log, after the swaps of the earlier events; None for the first segment of the
    log."""
    size: int
    suffixes: tuple[str, ...]
    """The suffixes of the cleaned segment's files, without `.cleaned`."""

    @property
    def base_offset(self) -> int:
        return self.replaced[0].base_offset

    def path(self, suffix: str) -> str:
        """The path that the segment's file with a suffix has after the swap."""
        return f"{self.directory}/{offset_name(self.base_offset, suffix)}"


def swap_cleaned(log: LogState, cleaned: SegmentCleaned, now_ms: int) -> list[str] | None:
    """Swap a cleaned segment in. Returns the paths of the replaced files, renamed to `.deleted`, which the caller
    removes after file.delete.delay.ms.

    Returns None if the log has changed since the cleaning: it was truncated, retention deleted a segment, or the log
    has failed. The caller then discards the cleaned segment (`discard_cleaned`) and ends the cleaning.

    A recovery point at or past `replaced_end_offset` must be durable before the call. Raises OSError, after which the
    log has failed.
    """
    slots = replaced_slots(log, cleaned)
    if slots is None:
        return None
    assert log.recovery_point >= cleaned.replaced_end_offset, "recovery would take the gaps for a loss"
    replaced = log.segments[slots]
    try:
        for suffix in cleaned.suffixes:
            log.fs.rename(cleaned.path(suffix) + CLEANED_SUFFIX, cleaned.path(suffix) + SWAP_SUFFIX)
        log.directory_is_dirty = True
        deleted = [
            path
            for segment in replaced
            for path in rename_deleted(log, segment, keeps_snapshot=segment.base_offset == cleaned.base_offset)
        ]
        for suffix in cleaned.suffixes:
            log.fs.rename(cleaned.path(suffix) + SWAP_SUFFIX, cleaned.path(suffix))
        log.segments[slots] = [Segment.open(log.fs, log.directory, cleaned.base_offset, log.config, now_ms)]
        log.note_change()
    except OSError as error:
        log.fail_log(error)
        raise
    return deleted


def replaced_slots(log: LogState, cleaned: SegmentCleaned) -> slice | None:
    """Return the range of the replaced segments in `log.segments`. Return None if these segments, or the one before
    them, have changed since the cleaning read them."""
    if log.failure is not None or log.truncation_count != cleaned.truncation_count:
        return None
    segments = log.segments
    first = bisect_left(segments, cleaned.base_offset, key=_base_offset)
    end = first + len(cleaned.replaced)
    if end >= len(segments) or segments[end].base_offset != cleaned.replaced_end_offset:
        return None
    if any(
        (each.base_offset, each.size) != known
        for each, known in zip(segments[first:end], cleaned.replaced, strict=True)
    ):
        return None
    if first and (segments[first - 1].base_offset, segments[first - 1].size) != cleaned.previous_segment:
        return None
    return slice(first, end)


def discard_cleaned(fs: FileSystem, cleaned: SegmentCleaned) -> None:
    """Remove the files of a cleaned segment that is not swapped in. May block for the disk. Raises OSError."""
    for suffix in cleaned.suffixes:
        path = cleaned.path(suffix) + CLEANED_SUFFIX
        if fs.exists(path):
            fs.unlink(path)

"""Finishing, or undoing, what an interrupted compaction left in a partition's directory.

    0000.log.cleaned    a cleaned segment that is being written: removed, the segments that it was made of are still
                        there
    0000.log.swap       whole and synced: it replaces the segments whose offsets it covers, and gets its final name
    0000.log.deleted    a segment that was replaced, or deleted by retention: removed

One compaction may make several segments. While the last of them is `.cleaned`, those that are `.swap` already belong to
an unfinished set: a `.swap` at or past the lowest `.cleaned` is removed, too. Apache Kafka uses the same names.
"""

from __future__ import annotations

from collections.abc import Callable

from moldau.storage.files.log_paths import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    begins_with_offset,
    offset_of_name,
)
from moldau.storage.files.open_files import OpenFile
from moldau.storage.files.port import FileSystem
from moldau.storage.segment.batch_scan import iterate_batch_places

OFFSET_NAMED_SUFFIXES = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)


def file_names_of_log(fs: FileSystem, directory: str, report: Callable[[str], None] | None = None) -> list[str]:
    """The names of the files in a log's directory, sorted. A file whose name ends like that of a segment's file but
    does not begin with an offset is left out and reported; it stays on the disk. Raises OSError.

    DIVERGES: Apache Kafka does not start with such a file.
    """
    found = []
    for name in fs.list_directory(directory):
        if begins_with_offset(name) or not name.endswith((*OFFSET_NAMED_SUFFIXES, CLEANED_SUFFIX, SWAP_SUFFIX)):
            found.append(name)
        elif report is not None:
            report(f"{directory}/{name} is ignored: the name of a segment's file begins with an offset")
    return found


def finish_unfinished_cleaning(
    fs: FileSystem, directory: str, report: Callable[[str], None]
) -> tuple[list[str], list[int]]:
    """Remove or finish the files of an unfinished cleaning. Returns the names of the remaining files, sorted, and the
    base offsets of the removed indexes that had no .log file. Raises OSError, and `MalformedMessage` if a `.swap` file
    does not consist of batches."""
    names = file_names_of_log(fs, directory, report)
    cleaned_offsets = [offset_of_name(name) for name in names if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    incomplete = [name for name in swaps if cleaned_offsets and offset_of_name(name) >= min(cleaned_offsets)]
    # Before the `.cleaned` files: after a crash in between, the next start must not take the remaining files for a
    # complete swap.
    unlink_files(fs, directory, incomplete)
    unlink_files(
        fs, directory, [name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX))]
    )
    swaps = [name for name in swaps if name not in incomplete]
    if swaps:
        complete_swaps(fs, directory, swaps)
    names = file_names_of_log(fs, directory)
    present = set(names)
    orphans = [
        name
        for name in names
        if name.endswith(SEGMENT_SUFFIXES[1:]) and name.rpartition(".")[0] + LOG_SUFFIX not in present
    ]
    unlink_files(fs, directory, orphans)
    return sorted(present.difference(orphans)), sorted({offset_of_name(name) for name in orphans})


def remove_cleaned(fs: FileSystem, directory: str) -> None:
    """Remove the `.cleaned` files of an interrupted cleaning. Raises OSError.

    Called before the next cleaning writes a file. If a `.cleaned` file exists, a start would undo a swap at or past its
    offset, although the replaced segments may not exist any more.
    """
    unlink_files(fs, directory, [name for name in fs.list_directory(directory) if name.endswith(CLEANED_SUFFIX)])


def complete_swaps(fs: FileSystem, directory: str, swaps: list[str]) -> None:
    """Remove the segments that the `.swap` files replace, and give the `.swap` files their final names. Raises
    OSError.
    """
    logs = [name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    if logs:
        first_offset = min(offset_of_name(name) for name in logs)
        end_offset = max(end_offset_of_file(fs, directory, name) for name in logs)
        replaced = [
            name
            for name in file_names_of_log(fs, directory)
            if name.endswith(OFFSET_NAMED_SUFFIXES) and first_offset <= offset_of_name(name) < end_offset
        ]
        unlink_files(fs, directory, replaced)
    for name in swaps:
        fs.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    fs.sync_directory(directory)


def end_offset_of_file(fs: FileSystem, directory: str, name: str) -> int:
    """Read a .log file, and return the offset after its last batch. Raises OSError and `MalformedMessage`."""
    opened = OpenFile(fs.open(f"{directory}/{name}"))
    last_offset = offset_of_name(name)
    for place in iterate_batch_places(opened.file, 0, opened.file.size()):
        last_offset = place.last_offset
    return last_offset + 1


def unlink_files(fs: FileSystem, directory: str, names: list[str]) -> None:
    for name in names:
        fs.unlink(f"{directory}/{name}")

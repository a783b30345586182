"""Compaction of a table: several small files of a partition become one, in a commit that changes no row.

Files are joined with files of about the same size: those between the same two powers of 16. So a row is not rewritten
with every commit, but about once each time that its file grows by a factor of 16. If joining gives as many files as
before, because their rows compress so well, these files are not joined again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Final

from pyiceberg.table import FileScanTask, Table

from moldau.lake.sink import CommitAttempt, CommitConflict, LakeTable
from moldau.lake.stored_rows import in_order, stored_rows

FILES_MIN: Final = 16
"""The number of small files of one size class in a partition from which on they are joined."""
SMALL_SIZE: Final = 8 << 20
"""The size (bytes) below which a file is small. One small file at a time is in memory, decompressed."""


def compact_files(table: LakeTable, files_min: int, is_stopping: Callable[[], bool]) -> int:
    """Join the small files of a claimed table, with a commit for each group of them, until no group has `files_min`
    files. Returns the number of files that were replaced. If another program commits meanwhile, the compaction ends.

    Raises `WriterReplaced`, OSError and the errors of the catalog.
    """
    count = 0
    while not is_stopping():
        attempt = table.begin()
        group = small_files(attempt.table, files_min, table.full_files)
        if not group:
            break
        try:
            is_joined = _join(attempt, group)
        except CommitConflict:
            break
        if is_joined:
            count += len(group)
        else:
            table.full_files |= {each.file.file_path for each in group}
    return count


def small_files(table: Table, files_min: int, full: Collection[str] = ()) -> Sequence[FileScanTask]:
    """Return a group of at least `files_min` small files, in the order of their offsets; empty if there is no such
    group. Files from which another program has deleted rows, and those in `full`, are left alone."""
    groups: dict[tuple[str, int], list[FileScanTask]] = defaultdict(list)
    for task in table.scan().plan_files():
        file = task.file
        if file.file_path in full:
            continue
        if file.file_size_in_bytes < SMALL_SIZE and file.spec_id == table.spec().spec_id and not task.delete_files:
            groups[str(file.partition), file.file_size_in_bytes.bit_length() // 4].append(task)
    group = max(groups.values(), key=len, default=[])
    if len(group) < max(files_min, 2):
        return []
    return in_order(group, table.schema())


def _join(attempt: CommitAttempt, group: Sequence[FileScanTask]) -> bool:
    """Write the rows of a group into new files and commit, unless the new files are not fewer. Returns whether it has
    committed."""
    try:
        for task in group:
            for batch in stored_rows(attempt.table.metadata, attempt.table.io, task, attempt.files.schema):
                attempt.add(batch)
            attempt.replace(task.file)
        is_joined = len(attempt.files.finish()) < len(group)
    except BaseException:
        attempt.discard()
        raise
    if is_joined:
        attempt.commit(attempt.ledger.offsets, changes_rows=False)
    else:
        attempt.discard()
    return is_joined

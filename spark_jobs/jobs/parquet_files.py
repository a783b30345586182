"""Writing the rows of a task to a Parquet file, synced to the disk before the driver hears of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from moldau.spark_jobs.jobs.export_ledger import ExportedFile

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

ROW_GROUP_SIZE: Final = 32 << 20
"""Bytes of rows in memory that become one row group of a file."""


def written_file(
    directory: str,
    name: str,
    batches: Iterator[pa.RecordBatch],
    *,
    compression: str = "zstd",
    repeated: Sequence[str] = (),
) -> ExportedFile | None:
    """Write a file; None where there are no rows. `repeated` names columns of few values, which Parquet keeps in
    dictionaries. Raises OSError.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    path, writer, count = f"{directory}/{name}", None, 0
    try:
        for group in row_groups(batches):
            if writer is None:
                writer = pq.ParquetWriter(
                    path, group[0].schema, compression=compression, use_dictionary=list(repeated) or False
                )
            writer.write_table(pa.Table.from_batches(group), row_group_size=1 << 30)
            count += sum(each.num_rows for each in group)
    finally:
        if writer is not None:
            writer.close()
    return ExportedFile(name, count, _synced_size(path)) if writer is not None else None


def row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches joined until they have the size of a row group."""
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= ROW_GROUP_SIZE:
            yield group
            group, size = [], 0
    if group:
        yield group


def _synced_size(path: str) -> int:
    """Sync a file to the disk. Returns its size in bytes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)

"""The choice of the reader for a table, by the name of the table.

Spark makes a reader in a process that has imported nothing of this package, so only the wanted reader is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from moldau.tables.options.read_options import ReadOptions
from moldau.tables.refusals import Refused
from moldau.tables.views.records import RecordsReader

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from moldau.tables.planning.pushed_filters import PushedFilters

INTERNAL: Final = ("offsets", "groups", "transactions")
"""The tables that read internal topics."""


class TableReader(Protocol):
    """Plans the read of a table, and reads its tasks. Reader and tasks can be pickled."""

    def tasks(self) -> Sequence[Any]:
        """Plan the read, and return its tasks, which only this reader can read. Raises `Refused`, OSError and
        `CorruptCheckpoint`."""

    def read_task(self, task: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task. Raises `MalformedMessage`, `DataLost` and OSError."""


def table_reader(
    options: ReadOptions,
    columns: Sequence[str],
    filters: PushedFilters | None = None,
    task_size: int | None = None,
) -> TableReader:
    """Make the reader of the table that the options name. Only `records` takes filters and `task_size` (bytes of
    segments; None chooses it for Spark). Raises `Refused`."""
    table = options.table
    if table == "records":
        return RecordsReader(options, columns, filters=filters, task_size=task_size)
    assert filters is None, f"table={table} takes no filters"
    if table == "batches":
        from moldau.tables.views.batches import BatchesReader

        return BatchesReader(options, columns)
    if table == "latest":
        from moldau.tables.views.latest import LatestReader

        return LatestReader(options, columns)
    if table == "offsets":
        from moldau.tables.views.internal_records import OffsetsReader

        return OffsetsReader(options, columns)
    if table in INTERNAL:
        from moldau.tables.views.internal_records import InternalReader

        return InternalReader(options, columns)
    if options.snapshot is not None:
        raise Refused(f"snapshot: table={table} shows what is there now")
    from moldau.tables.views.listings import ListingReader

    return ListingReader(options, columns)

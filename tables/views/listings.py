"""The tables `topics` and `segments`: where partitions and segments are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from moldau.tables.options.read_options import ReadOptions
from moldau.tables.views.rows import ROWS_MAX, Row, batched, row_batches, time_of
from moldau.tables.views.schemas import arrow_schema, table_columns

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from moldau.tables.planning.partition_view import PartitionView


class ListingReader:
    """Reads the tables `topics` and `segments`, which have one row for each listed partition or segment. A task
    consists of rows that `tasks` has made."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    def tasks(self) -> list[tuple[Row, ...]]:
        return list(batched(self.rows(), ROWS_MAX))

    def read_task(self, task: tuple[Row, ...]) -> Iterator[pa.RecordBatch]:
        return row_batches(task, arrow_schema(table_columns(self._options)), self._columns)

    def rows(self) -> Iterator[Row]:
        """List the partitions, and yield the rows. Raises what `Planner.views` raises."""
        from moldau.storage.files.local_files import LocalFiles
        from moldau.tables.planning.planner import Planner

        views = Planner(LocalFiles(), self._options).views()
        make = self._topic_rows if self._options.table == "topics" else self._segment_rows
        for view in views:
            yield from make(view)

    def _topic_rows(self, view: PartitionView) -> Iterator[Row]:
        from moldau.storage.checkpoints.partition_metadata import uuid_text

        newest = view.newest
        is_stable_wanted = "lastStableOffset" in self._columns and view.is_checkpointed
        yield (
            view.key[0],
            uuid_text(newest.topic_id) if newest.topic_id else None,
            view.key[1],
            newest.node_id,
            newest.place,
            view.log_start_offset,
            view.high_watermark if view.is_checkpointed else None,
            view.last_stable_offset() if is_stable_wanted else None,
            len(newest.segments),
            sum(segment.size for segment in newest.segments),
        )

    def _segment_rows(self, view: PartitionView) -> Iterator[Row]:
        for offer in view.offers:
            for segment in offer.segments:
                latest = offer.largest_timestamp(segment) if "largestTimestamp" in self._columns else None
                yield (
                    *view.key,
                    segment.start_offset,
                    segment.end_offset,
                    segment.size,
                    offer.tier,
                    segment.name,
                    segment.is_growing,
                    time_of(latest),
                )

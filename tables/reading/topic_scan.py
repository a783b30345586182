"""A scan of a table of the data source. The values in the column `value` may be decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from moldau.tables.options.read_options import ReadOptions
from moldau.tables.planning.pushed_filters import PushedFilters
from moldau.tables.reading.scan import NOTHING_PUSHED, Scan
from moldau.tables.refusals import Refused
from moldau.tables.values.column_decoding import MISFIT, PLACE, ColumnDecoding
from moldau.tables.values.frames import HEADERS, framed_column
from moldau.tables.views.readers import TableReader, table_reader
from moldau.tables.views.schemas import arrow_schema, every_column

TASK_SIZE: Final = 16 << 20
"""The bytes of segments for one task. Several threads read tasks at the same time, and their batches are returned in
the order of the tasks."""
VALUE: Final = "value"
"""The name of the column whose values may be decoded by schemas."""
SAMPLE_SLICES: Final = 16
"""The most parts of a read from which a sample is taken, each time from the beginning of the part. The first records of
a topic alone do not show what its last ones are like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicScan(Scan):
    """A scan of one table. If it has a decoding, it decodes the column `value`."""

    options: ReadOptions
    decoding: ColumnDecoding | None = None
    """The decoding of the column `value`; None leaves the column as it is."""

    @property
    def takes_bounds(self) -> bool:
        return self.options.table == "records"

    def planned(self, columns: tuple[str, ...], pushed: PushedFilters | None) -> TableReader:
        if self.decoding is None or not {VALUE, MISFIT} & set(columns):
            return table_reader(self.options, columns, pushed, TASK_SIZE)
        further = (VALUE, *PLACE, *((HEADERS,) if self.decoding.reads_headers else ()))
        needed = tuple(dict.fromkeys([*(name for name in columns if name != MISFIT), *further]))
        return DecodingReader(table_reader(self.options, needed, pushed, TASK_SIZE), self.decoding)

    def every_field(self) -> pa.Schema:
        """The fields of all columns that the table may have."""
        schema = arrow_schema(every_column(self.options))
        if self.decoding is None:
            return schema
        at = schema.get_field_index(VALUE)
        schema = schema.set(at, self.decoding.field)
        return schema.insert(at + 1, pa.field(MISFIT, pa.binary())) if self.decoding.keeps_misfits else schema

    def check_values(self, argument: str) -> None:
        """Raise `Refused` if the table has no column of values. `argument` is the name of the argument
        that needs one."""
        if VALUE not in (column.name for column in every_column(self.options)):
            raise Refused(f"{argument}: table={self.options.table} has no values")

    def sample(self, rows_max: int, *, is_framed: bool) -> Iterator[bytes]:
        """Yield about `rows_max` values, from the starts of segments all over the read. With `is_framed` they have
        their frames, which may be in headers. Raises what `reader` and `TableReader.read_task` raise.
        """
        columns = (VALUE, HEADERS) if is_framed else (VALUE,)
        reader = table_reader(self.options, columns, None if self.pushed == NOTHING_PUSHED else self.pushed, TASK_SIZE)
        slices = [part for task in reader.tasks() for part in task]
        chosen = sorted({len(slices) * each // SAMPLE_SLICES for each in range(SAMPLE_SLICES)} | {len(slices) - 1})
        for each in chosen if slices else ():
            left = max(1, rows_max // len(chosen))
            for batch in reader.read_task((slices[each],)):
                first = batch.slice(0, left)
                values = framed_column(first.column(VALUE), first.column(HEADERS) if is_framed else None, VALUE)
                yield from (value for value in values if value is not None)
                left -= batch.num_rows
                if left <= 0:
                    break


class DecodingReader:
    """A reader of records that decodes their values."""

    def __init__(self, reader: TableReader, decoding: ColumnDecoding) -> None:
        self._reader = reader
        self._decoding = decoding

    def tasks(self) -> Sequence[Any]:
        return self._reader.tasks()

    def read_task(self, task: Any) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a task with decoded values. Raises what `TableReader.read_task` and
        `ColumnDecoding.decode` raise."""
        for batch in self._reader.read_task(task):
            yield with_decoded(batch, self._decoding)


def with_decoded(batch: pa.RecordBatch, decoding: ColumnDecoding) -> pa.RecordBatch:
    """Return a batch with its values decoded. If misfits are kept, the batch has a further column with the bytes of the
    values that could not be decoded."""
    values = batch.column(VALUE)
    headers = batch.column(HEADERS) if decoding.reads_headers else None
    decoded = decoding.decode(values, *(batch.column(name) for name in PLACE), headers=headers)
    batch = batch.set_column(batch.schema.get_field_index(VALUE), decoding.field, decoded.column)
    if not decoding.keeps_misfits:
        return batch
    misfits = set(decoded.misfits)
    is_kept = pa.array([row in misfits for row in range(batch.num_rows)], pa.bool_())
    return batch.append_column(MISFIT, pc.if_else(is_kept, values, pa.scalar(None, pa.binary())))

"""A scan: the columns, the filter and the bounds of a read of a table. Its reader decodes Arrow batches in several
threads. The read is planned when the reader is made."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from moldau.tables.origins.tasks_ahead import TasksAhead
from moldau.tables.planning.pushed_filters import ALL_VALUES, PushedFilters, intersection
from moldau.tables.reading.decoding_threads import DecodingThreads
from moldau.tables.reading.filter_bounds import FilterBounds
from moldau.tables.refusals import Refused, did_you_mean
from moldau.tables.views.readers import TableReader

BATCH_ROWS: Final = 65_536
THREADS_MAX: Final = 4
NOTHING_PUSHED: Final = PushedFilters()
COUNTED: Final = "partition"


class Progress(NamedTuple):
    """The progress of a read, at the time when a batch is returned."""

    rows: int
    tasks: int
    """The number of tasks that are done, out of `tasks_count`."""
    tasks_count: int
    bytes: int
    """The bytes of segments of the tasks that are done, out of `bytes_count`."""
    bytes_count: int


@dataclass(frozen=True, slots=True)
class Scan(ABC):
    """The columns, the filter and the bounds of a read of a table. Nothing is opened before `reader` or `batches` is
    called."""

    columns: tuple[str, ...]
    """The names of the columns. A scan without columns still counts its rows."""
    filter: pc.Expression | None = None
    """A filter: rows for which it is true are kept. None keeps all rows."""
    pushed: PushedFilters = NOTHING_PUSHED
    """Further bounds on partition, offset and timestamp, if the scan accepts bounds. They are applied exactly."""
    batch_rows: int = BATCH_ROWS
    threads: int | None = None
    progress: Callable[[Progress], None] | None = None

    @abstractmethod
    def every_field(self) -> pa.Schema:
        """The fields of all columns that may be requested."""

    @property
    @abstractmethod
    def takes_bounds(self) -> bool:
        """Whether `planned` accepts bounds of partition, offset and timestamp."""

    @abstractmethod
    def planned(self, columns: tuple[str, ...], pushed: PushedFilters | None) -> TableReader:
        """Make the reader of these columns, which plans the read and reads its tasks. Its batches may have further
        columns. Raises `Refused`."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches. Raises `Refused` if the table does not have a requested column."""
        known = {field.name: field for field in self.every_field()}
        for name in self.columns:
            if name not in known:
                meant = did_you_mean(name, known)
                raise Refused(f"columns: there is no column {name}{meant}; the columns are {', '.join(known)}")
        return pa.schema([known[name] for name in self.columns])

    def restricted(self, columns: tuple[str, ...] | None, wanted: pc.Expression | None) -> Self:
        """Return a scan with fewer columns and a further filter. None for `columns` keeps the columns, None for
        `wanted` adds no filter."""
        both = wanted if self.filter is None else self.filter if wanted is None else self.filter & wanted
        return replace(self, columns=self.columns if columns is None else columns, filter=both)

    def reader(self) -> pa.RecordBatchReader:
        """Plan the read, and return a reader of its batches. The reader raises what a task raises.

        Raises `Refused`, `DataLost`, and `CorruptCheckpoint`, `RemoteStorageError`, `MalformedMessage` and OSError of
        the places that are read.
        """
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Plan the read, and return an iterator over the batches of `reader`. The read is planned by this call, and not
        when the first batch is taken."""
        if self.batch_rows < 1:
            raise Refused(f"batch_rows: {self.batch_rows} is below 1")
        schema = self.schema
        needed, pushed = self.columns or (self._counted_column(),), self.pushed
        if self.filter is not None:
            bounds = FilterBounds(self.filter, self.every_field())
            needed = tuple(dict.fromkeys([*needed, *bounds.needed_columns()]))
            if self.takes_bounds:
                pushed = intersected_filters(pushed, bounds.pushed())
        reader = self.planned(needed, None if pushed == NOTHING_PUSHED else pushed)
        tasks = reader.tasks()
        ahead = TasksAhead(tasks)
        threads = DecodingThreads(tasks, FilteredTasks(reader, schema, self.filter, ahead).read, self._threads_max())
        return self._counted(threads, tasks, ahead)

    def _counted_column(self) -> str:
        """The column that is read to count rows. It is `partition` if the table has it, which is not decoded from the
        records. The rows of other tables are made in Python as a whole."""
        names = self.every_field().names
        return COUNTED if COUNTED in names else names[0]

    def _threads_max(self) -> int:
        if self.threads is None:
            return min(THREADS_MAX, os.cpu_count() or 1)
        if self.threads < 0:
            raise Refused(f"threads: {self.threads} is below 0")
        return self.threads

    def _counted(self, threads: DecodingThreads, tasks: Any, ahead: TasksAhead) -> Iterator[pa.RecordBatch]:
        """Yield the batches of all tasks, cut to at most `batch_rows` rows, and report the progress. After the
        iterator is closed, nothing is requested ahead any more."""
        sizes = {id(task): size_of(task) for task in tasks}
        done = Progress(0, 0, len(tasks), 0, sum(sizes.values()))

        def finished(task: Any) -> None:
            nonlocal done
            done = done._replace(tasks=done.tasks + 1, bytes=done.bytes + sizes[id(task)])
            if self.progress is not None:
                self.progress(done)

        try:
            for batch in threads.batches(finished):
                for start in range(0, batch.num_rows, self.batch_rows):
                    part = batch.slice(start, self.batch_rows)
                    done = done._replace(rows=done.rows + part.num_rows)
                    if self.progress is not None:
                        self.progress(done)
                    yield part
        finally:
            ahead.stop()


class FilteredTasks:
    """Reads tasks, keeps the rows for which a filter is true, and returns only the columns of a schema. It requests the
    bytes of the next tasks ahead."""

    def __init__(self, reader: TableReader, schema: pa.Schema, wanted: pc.Expression | None, ahead: TasksAhead) -> None:
        self._reader = reader
        self._schema = schema
        self._wanted = wanted
        self._ahead = ahead

    def read(self, task: Any) -> Iterator[pa.RecordBatch]:
        """Yield the filtered batches of a task. Raises what `TableReader.read_task` raises."""
        self._ahead.begin(task)
        try:
            for batch in self._reader.read_task(task):
                self._ahead.begin(task)
                kept = batch if self._wanted is None else filter_rows(batch, self._wanted)
                if kept.num_rows:
                    yield kept if kept.schema.names == self._schema.names else kept.select(self._schema.names)
        finally:
            self._ahead.end(task)


def filter_rows(batch: pa.RecordBatch, wanted: pc.Expression) -> pa.RecordBatch:
    """Return the rows for which a filter is true. Raises `Refused` if PyArrow cannot evaluate the filter for a row."""
    try:
        return batch.filter(wanted)
    except pa.ArrowException as problem:
        raise Refused(
            f"filter: PyArrow cannot evaluate it for every row: {' '.join(str(problem).split())}. It compares an "
            "integer with a float as floats of the float's size: compare with an integer, or "
            "pc.field(name).cast('float64')"
        ) from None


def intersected_filters(first: PushedFilters, second: PushedFilters) -> PushedFilters:
    """Return the filters that a row satisfies if it satisfies both."""
    both = first if second.partitions is None else first.with_partitions(second.partitions)
    return replace(
        both,
        numbers=intersection(first.numbers, *second.numbers),
        offsets=intersection(first.offsets, *second.offsets),
        times_us=intersection(first.times_us, *second.times_us),
    )


def offsets_within(start: int | None, end: int | None) -> PushedFilters:
    """The filters for offsets in [start, end) of every partition; None sets no bound."""
    low, high = ALL_VALUES
    return PushedFilters(offsets=(low if start is None else start, high if end is None else end))


def size_of(task: Any) -> int:
    """The bytes of the segments of a task; 0 for a task that consists of rows."""
    return sum(getattr(each, "size", 0) for each in task)

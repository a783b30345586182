"""The reader of the table `records`, from which the readers of other tables of batches and records are derived."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from moldau.tables.options.read_options import ReadOptions
from moldau.tables.refusals import DataLost, warn

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from moldau.tables.decoding.record_columns import TimeRange
    from moldau.tables.origins.port import Slice, Task
    from moldau.tables.planning.planner import Plan
    from moldau.tables.planning.pushed_filters import PushedFilters


class RecordsReader:
    """Plans a read in one process, and reads its tasks in the same process or in others: it can be pickled."""

    def __init__(
        self,
        options: ReadOptions,
        columns: Sequence[str],
        *,
        filters: PushedFilters | None = None,
        task_size: int | None = None,
    ) -> None:
        """`task_size`: the bytes of segments for one task; None chooses them for Spark."""
        self._options = options
        self._columns = tuple(columns)
        self._pushed = filters
        self._task_size = task_size

    def tasks(self) -> Sequence[Task]:
        """Return the tasks of the read. Raises what `plan` raises."""
        return self.plan(self._task_size).tasks

    def plan(self, task_size: int | None = None) -> Plan:
        """Plan the read. Raises `Refused`, and OSError and `CorruptCheckpoint` of the files."""
        from moldau.storage.files.local_files import LocalFiles
        from moldau.tables.planning.planner import Planner

        planner = Planner(LocalFiles(), self._options, filters=self._pushed, task_size=task_size)
        return planner.plan()

    def read_task(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task. Raises `MalformedMessage` for a corrupt batch, `DataLost` and OSError."""
        return self.batches(task, self._columns)

    def batches(self, task: Task, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task with these columns, slice after slice."""
        from moldau.tables.origins.tasks_ahead import TasksAhead

        slices = [(each,) for each in task]
        ahead = TasksAhead(slices)
        try:
            for each in slices:
                ahead.begin(each)
                yield from self.batches_of(*each, columns)
        finally:
            ahead.stop()

    def batches_of(self, wanted: Slice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a slice with these columns. Missing records raise `DataLost`; with failOnDataLoss=false
        they only cause a warning."""
        from moldau.tables.decoding.record_columns import record_batches

        try:
            yield from record_batches(wanted, columns, self._times())
        except DataLost as gone:
            self.report(gone)

    def report(self, gone: DataLost) -> None:
        """Raise the error `gone`, or warn if failOnDataLoss=false."""
        if self._options.fails_on_data_loss:
            raise type(gone)(f"{gone}; failOnDataLoss=false reads what is there") from None
        warn(f"{gone}: skipped")

    def _times(self) -> TimeRange | None:
        """The range of timestamps in the pushed filters; None if they set no bound on timestamps."""
        from moldau.tables.decoding.record_columns import TimeRange
        from moldau.tables.planning.pushed_filters import ALL_VALUES

        if self._pushed is None or self._pushed.times_us == ALL_VALUES:
            return None
        return TimeRange(*self._pushed.times_us)

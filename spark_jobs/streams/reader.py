"""A streaming query on the driver: the available offsets, those that a trigger reads, and the tasks that read them.

| Spark asks                    | the reader                                                                     |
|-------------------------------|--------------------------------------------------------------------------------|
| initialOffset                 | gives startingOffsets, if there is no checkpoint                                |
| latestOffset(start, limit)    | lists the partitions, and gives a trigger its share                             |
| partitions(start, end)        | plans the tasks; partitions that are not in `start` begin at their log start    |
| prepareForTriggerAvailableNow | remembers the current ends of the partitions                                    |
| reportLatestOffset            | gives the ends of the partitions at the last listing                            |

A trigger reads maxOffsetsPerTrigger, shared among the partitions by their lag, and waits for minOffsetsPerTrigger until
maxTriggerDelay.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from moldau.spark_jobs.streams.stream_offsets import OffsetsJson, StreamOffsets, as_json, from_json, topic_ids_in
from moldau.spark_jobs.views.records import SegmentReader
from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.tables.options.option_values import TriggerLimits
from moldau.tables.options.read_options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from moldau.tables.planning.stream_plan import StreamPlanner

FILES_PAUSE_S: Final = 0.1
BROKER_PAUSE_S: Final = 0.005
"""The least time (seconds) between two listings of the partitions if brokers are read; `FILES_PAUSE_S` is that for
files. Spark asks for the latest offsets again after some milliseconds if there were no new ones."""


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query: it reads records as `SegmentReader` does, trigger after trigger."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._records = SegmentReader(options, columns)
        self._patience = TriggerDelay(options.limits)
        self._targets: StreamOffsets | None = None
        """With Trigger.AvailableNow, the offsets at which the query ends."""
        self._latest: StreamOffsets = {}
        self._planned: StreamPlanner | None = None
        self._listed_s = 0.0

    def initialOffset(self) -> OffsetsJson:
        planner = self._planner()
        return as_json(planner.starts(), planner.topic_ids)

    def getDefaultReadLimit(self) -> ReadLimit:
        offsets_max = self._options.limits.offsets_max
        return ReadAllAvailable() if offsets_max is None else ReadMaxRows(offsets_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._targets = self._planner().ends()

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:
        """The end offsets of the next trigger. Raises `Refused` and `DataLost`, and OSError of the files."""
        started, known = from_json(start), topic_ids_in(start)
        self._pause()
        planner = self._planner()
        ends = planner.checked_ends(started, known)
        carried = planner.carried(started, known)
        self._listed_s = time.monotonic()
        if self._targets is None:
            self._latest = ends
        else:
            self._latest = self._targets
            ends = limited_ends(self._targets, carried, ends)
        begins = {key: carried.get(key, planner.log_start(key)) for key in ends}
        count = sum(max(0, end - begins[key]) for key, end in ends.items())
        if self._targets is None and count and self._patience.must_wait(count, time.monotonic() * 1000):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = admitted_ends(begins, ends, limit.max_rows)
        return start if ends == started == carried else as_json(ends, planner.topic_ids)

    def reportLatestOffset(self) -> OffsetsJson | None:
        return as_json(self._latest) if self._latest else None

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> list[InputPartition]:
        """The tasks that read the offsets of a trigger. Raises `Refused` and `DataLost`, and OSError of the files."""
        tasks = self._planner().tasks(from_json(start), from_json(end), topic_ids_in(start), topic_ids_in(end))
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._records.read(partition)

    def commit(self, end: OffsetsJson) -> None:
        """Do nothing: Spark commits offsets by the checkpoint of the query."""

    def _pause(self) -> None:
        """Wait until the pause after the last listing of the partitions is over."""
        pause_s = BROKER_PAUSE_S if self._options.brokers else FILES_PAUSE_S
        rest_s = self._listed_s + pause_s - time.monotonic()
        if rest_s > 0:
            time.sleep(rest_s)

    def _planner(self) -> StreamPlanner:
        from moldau.storage.files.local_files import LocalFiles
        from moldau.tables.planning.stream_plan import StreamPlanner

        if self._planned is None:
            self._planned = StreamPlanner(LocalFiles(), self._options)
        return self._planned


def limited_ends(targets: StreamOffsets, started: StreamOffsets, ends: StreamOffsets) -> StreamOffsets:
    """Limit the end offsets of a trigger to their targets, and return them. A partition without a target is new: it is
    not read before the next run."""
    limited = {key: max(started.get(key, 0), min(end, targets[key])) for key, end in ends.items() if key in targets}
    return limited | {key: started[key] for key in ends if key in started and key not in targets}


def admitted_ends(
    begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], offsets_max: int
) -> StreamOffsets:
    """Return the end offsets of a trigger that reads about `offsets_max` offsets.

    `offsets_max` is divided among the partitions in proportion to their lag. A share between 0 and 1 is rounded up, so
    that every partition with a lag advances; other shares are rounded down.
    """
    lags = {key: max(0, end - begins[key]) for key, end in ends.items()}
    lag = sum(lags.values())
    if lag <= offsets_max:
        return dict(ends)
    ends_of_trigger = {}
    for key, end in ends.items():
        share = offsets_max * lags[key] / lag
        ends_of_trigger[key] = min(end, begins[key] + (ceil(share) if share < 1 else int(share)))
    return ends_of_trigger


class TriggerDelay:
    """Delays a trigger until minOffsetsPerTrigger offsets can be read, or until maxTriggerDelay has passed since the
    last trigger that read offsets. The first trigger is not delayed."""

    def __init__(self, limits: TriggerLimits) -> None:
        self._limits = limits
        self._last_ms: float | None = None

    def must_wait(self, offsets_count: int, now_ms: float) -> bool:
        """Whether the trigger must wait. If not, the delay of the next trigger begins now."""
        least, last_ms = self._limits.offsets_min, self._last_ms
        is_short = least is not None and offsets_count < least
        if is_short and last_ms is not None and now_ms - last_ms <= self._limits.delay_ms_max:
            return True
        self._last_ms = now_ms
        return False

"""Reads the records of a topic for a table: the offsets that can be read now, and the records between two sets of
offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.storage.files.port import FileSystem
from moldau.tables.decoding.record_columns import record_batches
from moldau.tables.options.read_options import NOTHING_GIVEN, ReadOptions, parse_options
from moldau.tables.origins.cluster_metadata import ClusterMetadata
from moldau.tables.origins.port import Task
from moldau.tables.planning.planner import Planner
from moldau.tables.planning.stream_plan import StreamPlanner
from moldau.tables.refusals import Refused

Offsets = Mapping[int, int]
"""An offset for each partition."""
PLANS_MAX: Final = 8
"""The most times that a round is planned again to bring its size near to the wanted one."""


class TopicReading:
    """Reads one topic from the places that the options of the data source name."""

    def __init__(
        self,
        fs: FileSystem,
        options: Mapping[str, str],
        topic: str,
        sleep: Callable[[float], None],
        base: ReadOptions = NOTHING_GIVEN,
    ) -> None:
        """`sleep`: waits for some seconds. `base`: the options that `options` does not set. Raises `Refused`."""
        self.topic = topic
        self._fs = fs
        self._options = parse_options(
            dict(options) | {"subscribe": topic, "startingOffsets": "earliest"}, "stream", base
        )
        self._planner = StreamPlanner(fs, self._options, sleep=sleep)
        self.cluster_id = Planner(fs, self._options).cluster_id

    @property
    def isolation(self) -> str:
        return "read_committed" if self._options.is_committed else "read_uncommitted"

    def is_compacted(self) -> bool:
        """Whether the topic is compacted. Raises `Refused` if none of the given directories has the metadata of the
        cluster. Raises OSError."""
        metadata = ClusterMetadata(self._fs, [self.topic])
        metadata.refresh(self._options.directories)
        if not metadata.is_known:
            raise Refused(
                f"no place has the metadata of the cluster, so the cleanup.policy of {self.topic} is not known: "
                "give --mode append or --mode upsert"
            )
        return metadata.is_compacted(self.topic)

    def starts(self) -> tuple[dict[int, int], str | None]:
        """The first offset of each partition of the topic, and the topic id if it is known. Raises `Refused`,
        `DataLost` and OSError."""
        starts = {partition: offset for (_, partition), offset in self._planner.starts().items()}
        return starts, self._planner.topic_ids.get(self.topic)

    def ends(self, offsets: Offsets, topic_id: str | None) -> dict[int, int]:
        """The current ends of the partitions, none of them before its offset in `offsets`. Raises `DataLost` if the log
        ends before one of the offsets, `TopicRecreated`, and OSError."""
        known = {} if topic_id is None else {self.topic: topic_id}
        ends = self._planner.checked_ends(self._keyed(offsets), known)
        return {partition: end for (_, partition), end in ends.items()}

    def plan_round(self, offsets: Offsets, ends: Offsets, size_max: int) -> tuple[dict[int, int], Sequence[Task]]:
        """Choose the part of the records between `offsets` and `ends` that has about `size_max` bytes of segments.
        Returns the ends of this part, and the tasks that read it. Each partition gets a share in proportion to its lag.
        Raises `DataLost` and OSError."""
        chosen = dict(ends)
        begins = {partition: offsets.get(partition, self.log_start(partition)) for partition in ends}
        tasks = self.tasks(offsets, chosen)
        for _ in range(PLANS_MAX):
            size = sum(each.size for task in tasks for each in task)
            lag = sum(end - begins[partition] for partition, end in chosen.items())
            if size <= 2 * size_max or lag <= len(chosen):
                break
            for partition, end in chosen.items():
                share = (end - begins[partition]) * size_max // size
                chosen[partition] = min(end, begins[partition] + max(share, 1))
            tasks = self.tasks(offsets, chosen)
        return chosen, tasks

    def batches(self, tasks: Sequence[Task], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of tasks, each partition in order. Raises `MalformedMessage`, `DataLost` and OSError."""
        for task in tasks:
            for each in task:
                yield from record_batches(each, columns)

    def log_start(self, partition: int) -> int:
        return self._planner.log_start((self.topic, partition))

    def tasks(self, offsets: Offsets, ends: Offsets) -> Sequence[Task]:
        """Plan the tasks that read each partition from its offset in `offsets` to its end in `ends`. Raises `DataLost`
        and OSError."""
        return self._planner.tasks(self._keyed(offsets), self._keyed(ends))

    def _keyed(self, offsets: Offsets) -> dict[tuple[str, int], int]:
        return {(self.topic, partition): offset for partition, offset in offsets.items()}

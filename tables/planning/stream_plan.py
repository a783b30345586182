"""Planning a streaming query: its first and last offsets for each trigger, and the tasks that read the offsets between
them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.storage.files.port import FileSystem
from moldau.tables.options.offset_choices import LATEST, Timestamps
from moldau.tables.options.read_options import ReadOptions
from moldau.tables.origins.port import Task
from moldau.tables.planning.bounds import OffsetRange, check_names_all, report_data_loss, start_of
from moldau.tables.planning.partition_view import PartitionView, topic_ids_of
from moldau.tables.planning.planner import Planner
from moldau.tables.refusals import TopicRecreated

CHECKPOINT_OFFSETS_WAIT_S: Final = 15.0
"""The time (seconds) that a query waits until the files show the offsets of its checkpoint. Brokers write high
watermarks every five seconds, and the offsets may have come from a broker."""
ASK_S: Final = 0.5

Offsets = Mapping[TopicPartition, int]
TopicIds = Mapping[str, str]
"""The topic id, as text, of each topic."""


class StreamPlanner:
    """Plans the triggers of one streaming query. It remembers the ids of topics, also those in the query's checkpoint:
    a topic that was deleted and created again is lost data. With failOnDataLoss=false the new topic is read from its
    beginning."""

    def __init__(
        self,
        fs: FileSystem,
        options: ReadOptions,
        *,
        sleep: Callable[[float], None] = time.sleep,
        wait_s: float = CHECKPOINT_OFFSETS_WAIT_S,
    ) -> None:
        self._fs = fs
        self._options = options
        self._sleep = sleep
        self._wait_s = wait_s
        self.topic_ids: dict[str, str] = {}
        self._views: dict[TopicPartition, PartitionView] = {}
        self._planner: Planner | None = None

    def starts(self) -> dict[TopicPartition, int]:
        """Return the starting offset of each partition for a query without a checkpoint. Raises `Refused`."""
        views = self._list()
        choice = self._options.starting
        check_names_all("starting", choice, views)
        if not isinstance(choice, str | Timestamps):
            self._ends_when(lambda _: all(each.high_watermark >= choice[key] for key, each in self._views.items()))
            views = self._views
        if choice == "latest":
            return self._ends_of(views)
        found = {}
        for key, view in views.items():
            limit = self._end_of(view)
            is_latest = not isinstance(choice, str | Timestamps) and choice[key] == LATEST
            start = limit if is_latest else start_of(view, self._options, view.log_start_offset, limit)
            if start < view.log_start_offset:
                self._lost(key, f"offset {start} is asked for, and the log starts at {view.log_start_offset}")
            if start > view.high_watermark:
                self._lost(key, f"offset {start} is asked for, and the log ends at {view.high_watermark}")
            found[key] = max(view.log_start_offset, min(start, view.high_watermark))
        return found

    def ends(self) -> dict[TopicPartition, int]:
        """Return the current end offset of each partition: its high watermark, or its last stable offset if only
        committed records are read.
        """
        return self._ends_of(self._list())

    def checked_ends(self, started: Offsets, topic_ids: TopicIds | None = None) -> dict[TopicPartition, int]:
        """Return the current ends of the partitions, none of them before its start in `started`. `topic_ids`: the ids
        that the topics had when the offsets of `started` were read. A start between the last stable offset and the high
        watermark is not lost data: nothing from it on is committed yet.

        Raises `DataLost` if a partition does not exist any more, or if its log still ends before its start after
        `wait_s` seconds, and `TopicRecreated`.
        """
        known = topic_ids or {}
        self.topic_ids |= known
        ends = self._ends_when(lambda _: all(self._reaches(each) for each in self.carried(started, known).items()))
        for key, start in sorted(self.carried(started, known).items()):
            if key not in ends:
                self._lost(key, f"the partition has gone, and the query has read it up to {start}")
                continue
            log_end = self._views[key].high_watermark
            if log_end < start:
                self._lost(key, f"the log ends at {log_end}, and the query has read it up to {start}")
            ends[key] = max(ends[key], start)
        return ends

    def _reaches(self, reached: tuple[TopicPartition, int]) -> bool:
        """Whether the log of a partition reaches an offset, or the partition does not exist, by the last listing."""
        key, offset = reached
        return key not in self._views or self._views[key].high_watermark >= offset

    def carried(self, offsets: Offsets, topic_ids: TopicIds) -> dict[TopicPartition, int]:
        """Return the offsets without those of topics that were created again since: their current id differs from
        `topic_ids`."""
        gone = {topic for topic, known in topic_ids.items() if self.topic_ids.get(topic, known) != known}
        return {key: offset for key, offset in offsets.items() if key[0] not in gone}

    def log_start(self, key: TopicPartition) -> int:
        """The log start offset of a partition, by the last listing; 0 if the partition was not listed."""
        return self._views[key].log_start_offset if key in self._views else 0

    def tasks(
        self, starts: Offsets, ends: Offsets, start_ids: TopicIds | None = None, end_ids: TopicIds | None = None
    ) -> Sequence[Task]:
        """Return the tasks that read the offsets from `starts` to `ends` of each partition. A partition that is not in
        `starts`, or whose topic had another id then, is read from its log start.

        Raises `Refused`, `DataLost`, and OSError and `MalformedMessage` of the files.
        """
        before, known = start_ids or {}, end_ids or {}
        begun = {key: start for key, start in starts.items() if not topic_id_differs(before, known, key[0])}
        if all(begun.get(key) == end for key, end in ends.items()):
            return ()
        self.topic_ids |= known
        wanted = {key: end for key, end in ends.items() if begun.get(key) != end}
        self._ends_when(lambda now: all(now.get(key, end) >= end for key, end in self.carried(wanted, known).items()))
        assert self._planner is not None

        def ranges(views: Sequence[PartitionView]) -> list[OffsetRange]:
            self._check_topics(views)
            return self._ranges(views, begun, self.carried(ends, known))

        return self._planner.plan_of(ranges).tasks

    def _ends_when(self, is_enough: Callable[[Offsets], bool]) -> dict[TopicPartition, int]:
        """Return the ends of the partitions as soon as `is_enough` accepts them, or after `wait_s` seconds at the
        latest."""
        for _ in range(int(self._wait_s / ASK_S)):
            ends = self.ends()
            if is_enough(ends):
                return ends
            self._sleep(ASK_S)
        return self.ends()

    def _lost(self, key: TopicPartition, what: str) -> None:
        report_data_loss(self._options, f"{key[0]}-{key[1]}: {what}")

    def _ranges(self, views: Sequence[PartitionView], starts: Offsets, ends: Offsets) -> list[OffsetRange]:
        ranges = []
        here = {view.key: view for view in views}
        for key, end in sorted(ends.items()):
            start = starts.get(key)
            if start == end:
                continue
            view = here.get(key)
            if view is None:
                self._lost(key, f"offsets {start or 0} to {end} are to be read, and the partition has gone")
                continue
            ranges.append(self._range(view, start, end))
        return ranges

    def _range(self, view: PartitionView, start: int | None, end: int) -> OffsetRange:
        log_start, limit = view.log_start_offset, self._end_of(view)
        if start is None:
            start = log_start
            if log_start > 0:
                self._lost(view.key, f"the partition is new, and its log starts at {log_start} already")
        if start > end:
            self._lost(view.key, f"offset {start} is asked for, and the log ends at {end}: it is another log")
        if start < log_start:
            self._lost(view.key, f"offset {start} is asked for, and the log starts at {log_start}")
        if end > limit:
            self._lost(view.key, f"records before {end} are asked for, and the log ends at {limit}")
        start = max(start, log_start)
        return OffsetRange(view, start, max(start, min(end, limit)))

    def _list(self) -> dict[TopicPartition, PartitionView]:
        if self._planner is None:
            self._planner = Planner(self._fs, self._options)
            self._planner.report_missing_partitions()
        else:
            self._planner.refresh()
        self._views = {view.key: view for view in self._planner.views()}
        self._check_topics(self._views.values())
        return self._views

    def _check_topics(self, views: Iterable[PartitionView]) -> None:
        """Raise `TopicRecreated`, or warn if failOnDataLoss=false, if a topic is not the one that the query has read
        before."""
        for topic, topic_id in topic_ids_of(views).items():
            known = self.topic_ids.get(topic, topic_id)
            if known != topic_id:
                message = f"{topic}: the query has read the topic with the id {known}, which was deleted; the topic of "
                message += f"this name now has the id {topic_id}"
                report_data_loss(self._options, message, TopicRecreated, "reads it from its first record")
            self.topic_ids[topic] = topic_id

    def _ends_of(self, views: Mapping[TopicPartition, PartitionView]) -> dict[TopicPartition, int]:
        return {key: self._end_of(view) for key, view in sorted(views.items())}

    def _end_of(self, view: PartitionView) -> int:
        return view.newest.last_stable_offset() if self._options.is_committed else view.high_watermark


def topic_id_differs(before: TopicIds, now: TopicIds, topic: str) -> bool:
    """Whether the ids of a topic in both mappings are known, and differ."""
    return topic in before and topic in now and before[topic] != now[topic]
